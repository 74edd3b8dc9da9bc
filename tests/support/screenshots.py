"""Takes the pictures of the dashboard that pages show, from a Mars of its own.

`make pictures` gives it rows for two minutes, so that charts and windows have something in them;
the browser tests give it a few seconds, and see that each picture can be made, with the same words.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.pacing import Pace, paced
from mars.local.flows import declaration
from tests.support.browser import PHONE_WIDTH, Browser
from tests.support.cluster import MarsCluster, wait_for

TOPIC = "flows"
PARTITIONS = 4
RATE = 400
GROUPS = 24
WINDOW_MS = 10_000

WIDTH = 1100

DELAY: dict[str, object] = {"delay": "1s"}
TASKS: dict[str, tuple[str, dict[str, object]]] = {
    "by_sip": (
        "SELECT sip, count(*), sum(bytes) AS bytes FROM flows GROUP BY sip WINDOWING 10 s",
        DELAY,
    ),
    "loss_by_type": (
        "SELECT type, avg(loss) AS loss, count(*) FROM flows GROUP BY type "
        "WINDOWING 60 s SLIDE 10 s",
        DELAY,
    ),
    "top_talkers": (
        "SELECT sip, sum(bytes) AS bytes FROM flows WHERE ok GROUP BY sip "
        "ORDER BY bytes DESC LIMIT 3 WINDOWING 5 s",
        DELAY,
    ),
    "every_hour": ("SELECT count(*), avg(rtt) AS rtt FROM flows WINDOWING 1 h", DELAY),
    "few_ports": (
        "SELECT sport, count(*) FROM flows GROUP BY sport WINDOWING 10 s",
        {"max_keys": 100},
    ),
    "on_hold": ("SELECT dip, count(*) FROM flows GROUP BY dip WINDOWING 10 s", DELAY),
}
WRONG = (
    "SELECT type, count(*), sum(byts) AS bytes\nFROM flows\nWHERE ok\nGROUP BY type\nWINDOWING 60 s"
)


Scene = Callable[[str, Browser], None]
"""Opens a page of the dashboard at an address, and waits until it shows what the picture is of."""


def taken(folder: Path, rows_s: float) -> dict[str, list[str]]:
    """Take all pictures into a folder; returns the words on each that do not depend on the rows."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mars-screenshots-") as own:
        mars = MarsCluster(Path(own) / "data")
        try:
            register(mars)
            pace = Pace(str(mars.file["kafka"]), TOPIC, PARTITIONS, RATE, GROUPS, WINDOW_MS)
            with paced(pace), Browser(Path(own)) as browser:
                time.sleep(rows_s)
                wait_for("a task to fail", lambda: mars.client.task("few_ports").state == "failed")
                return {name: _take(mars, browser, folder, name) for name in SCENES}
        finally:
            mars.down()


def _take(mars: MarsCluster, browser: Browser, folder: Path, name: str) -> list[str]:
    SCENES[name](mars.api, browser)
    browser.run("document.activeElement?.blur(); scrollTo(0, 0)")
    browser.screenshot(folder / f"{name}.png")
    labels = browser.run(_LABELS, LABELLED)
    browser.go("about:blank")
    return list(labels)


def register(mars: MarsCluster) -> None:
    """A stream and tasks over it: one of them is paused, and one will fail."""
    mars.topic(TOPIC, PARTITIONS)
    mars.client.put_stream(TOPIC, declaration(TOPIC))
    for name, (sql, options) in TASKS.items():
        mars.client.create_task(name, sql, options=options)
    mars.client.pause_task("on_hold")


def _tasks(api: str, browser: Browser) -> None:
    browser.size(WIDTH, 620)
    browser.scheme(dark=False)
    browser.go(f"{api}/")
    browser.until_text("few_ports")
    browser.until("return document.querySelectorAll('canvas').length >= 2")


def _task(api: str, browser: Browser) -> None:
    browser.size(WIDTH, 1250)
    browser.scheme(dark=False)
    browser.go(f"{api}/#/tasks/by_sip")
    browser.until("return document.querySelectorAll('canvas').length >= 5")
    browser.until_text("rows", ".why")


def _editor(api: str, browser: Browser) -> None:
    browser.scheme(dark=True)
    browser.size(WIDTH, 1000)
    browser.go(f"{api}/#/new/{TOPIC}")
    browser.type("#sql", WRONG.replace("byts", "bytes"))
    browser.until_text("The query is right")
    browser.type("#name", "by_type")
    browser.click_text("Preview")
    browser.until_text("in Redis", "#preview")
    browser.type("#sql", WRONG)
    browser.until_text("did you mean bytes?")


def _phone(api: str, browser: Browser) -> None:
    browser.scheme(dark=False)
    browser.size(PHONE_WIDTH, 740)
    browser.go(f"{api}/#/tasks/loss_by_type")
    browser.until("return document.querySelectorAll('canvas').length >= 5")


SCENES: dict[str, Scene] = {"tasks": _tasks, "task": _task, "editor": _editor, "phone": _phone}
"""Each picture by its name, in the size and colours in which it is shown."""

LABELLED = "nav a, h1, h2, h3, button, label, th, figcaption span"

_LABELS = """
    const shown = [...document.querySelectorAll(arguments[0])].filter((one) => one.offsetParent);
    const words = (one) => [...one.childNodes].find((part) => part.nodeType === 3)?.data.trim();
    const said = shown.map(words).filter((text) => text && !/[0-9]/.test(text));
    return [...new Set(said)].sort();
"""
