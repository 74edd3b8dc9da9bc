"""Takes the pictures of the dashboard in docs/images: `python -m tests.support.screenshots`.

A Mars of its own with rows for two minutes, so that charts and windows have something in them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from bench.pacing import Pace, paced
from mars.local.flows import declaration
from tests.support.browser import PHONE_WIDTH, Browser, missing_browser
from tests.support.cluster import MarsCluster, wait_for

IMAGES = Path(__file__).parents[2] / "docs" / "images"

TOPIC = "flows"
PARTITIONS = 4
RATE = 400
GROUPS = 24
WINDOW_MS = 10_000
RUNS_S = 120.0
"""How long rows come before the first picture: charts show the last five minutes."""

WIDTH = 1100

DELAY = {"delay": "1s"}
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


def main() -> int:
    """Exit 0 when all pictures are taken, 1 where there is no browser."""
    reason = missing_browser()
    if reason is not None:
        sys.stderr.write(f"{reason}\n")
        return 1
    with tempfile.TemporaryDirectory(prefix="mars-screenshots-") as folder:
        mars = MarsCluster(Path(folder) / "data")
        try:
            register(mars)
            pace = Pace(str(mars.file["kafka"]), TOPIC, PARTITIONS, RATE, GROUPS, WINDOW_MS)
            with paced(pace), Browser(Path(folder)) as browser:
                time.sleep(RUNS_S)
                take_all(mars, browser)
        finally:
            mars.down()
    return 0


def register(mars: MarsCluster) -> None:
    """A stream and tasks over it: one of them is paused, and one will fail."""
    mars.topic(TOPIC, PARTITIONS)
    mars.client.put_stream(TOPIC, declaration(TOPIC))
    for name, (sql, options) in TASKS.items():
        mars.client.create_task(name, sql, options=options)
    mars.client.pause_task("on_hold")


def take_all(mars: MarsCluster, browser: Browser) -> None:
    """All pictures, each in the size and colours in which it is shown."""
    wait_for("a task to fail", lambda: mars.client.task("few_ports").state == "failed")
    browser.size(WIDTH, 620)
    browser.scheme(dark=False)
    browser.go(f"{mars.api}/")
    browser.until_text("few_ports")
    take(browser, "tasks")

    browser.size(WIDTH, 1250)
    browser.go(f"{mars.api}/#/tasks/by_sip")
    browser.until("return document.querySelectorAll('canvas').length >= 5")
    browser.until_text("rows", ".why")
    take(browser, "task")

    browser.scheme(dark=True)
    browser.size(WIDTH, 1000)
    browser.go(f"{mars.api}/#/new/{TOPIC}")
    browser.type("#sql", WRONG.replace("byts", "bytes"))
    browser.until_text("The query is right")
    browser.type("#name", "by_type")
    browser.click_text("Preview")
    browser.until_text("in Redis", "#preview")
    browser.type("#sql", WRONG)
    browser.until_text("did you mean bytes?")
    take(browser, "editor")

    browser.scheme(dark=False)
    browser.size(PHONE_WIDTH, 740)
    browser.go(f"{mars.api}/#/tasks/loss_by_type")
    browser.until("return document.querySelectorAll('canvas').length >= 5")
    take(browser, "phone")
    browser.go("about:blank")


def take(browser: Browser, name: str) -> None:
    """One picture, of the top of the page and without anything in focus."""
    browser.run("document.activeElement?.blur(); scrollTo(0, 0)")
    browser.until("return document.querySelectorAll('canvas, #sql').length")
    browser.screenshot(IMAGES / f"{name}.png")
    sys.stdout.write(f"docs/images/{name}.png\n")


if __name__ == "__main__":
    raise SystemExit(main())
