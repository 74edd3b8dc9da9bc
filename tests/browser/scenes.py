"""What tests of the dashboard begin with, and what people do there."""

from __future__ import annotations

import json
from collections.abc import Mapping

from mars.core.types import Topic
from mars.protocol.ports import CommittedRow
from tests.support.browser import TAB, Browser
from tests.unit.api.twins import World

SQL = "SELECT sip, count(*)\nFROM flows\nGROUP BY sip WINDOWING 10 s"
PAGES = ("", "tasks/by_sip", "new", "streams", "cluster")
TASK_PAGE = "#/tasks/by_sip"
WINDOW_MS = 60_000

_IN_A_HURRY = """
    const wait = window.setTimeout;
    window.waits = [];
    window.setTimeout = (done, ms, ...rest) => {
      window.waits.push(ms);
      return wait(done, ms / 20, ...rest);
    };
    location.hash = arguments[0];
"""


def fill_topic(world: World, rows: int = 40) -> None:
    """Rows of the last seconds, in the broker and in what it says of its offsets."""
    for number in range(rows):
        row = {"timestamp": world.now_ms - 2_000 + number, "sip": f"10.0.0.{number % 4}"}
        world.broker.append(Topic("flows"), number % 2, json.dumps(row).encode())
    for partition in (0, 1):
        world.kafka.end_offsets["flows"][partition] = rows // 2


def run_task(world: World, name: str = "by_sip", **changes: object) -> None:
    """A task that runs, with one row in an open window."""
    assert world.register(name, start="earliest", **changes).status_code == 201
    world.start_in_store(name)
    world.run_batch([{"timestamp": world.now_ms, "sip": "open"}], name=name)


def open_another_window(world: World, name: str = "by_sip") -> None:
    """One more row, in a window after the first one."""
    row = {"timestamp": world.now_ms + WINDOW_MS, "sip": "later"}
    world.run_batch([row], name=name, first=1)


def last_window(world: World) -> int:
    """When the window that is the last to end began."""
    return world.now_ms // WINDOW_MS * WINDOW_MS - WINDOW_MS


def emit(world: World, sip: str, start_ms: int, revision: int = 0) -> None:
    """A result row of the task `by_sip`."""
    emit_row(world, start_ms, [sip], {"sip": sip, "count": 7 + revision}, revision=revision)


def emit_row(
    world: World,
    start_ms: int,
    keys: list[object],
    values: Mapping[str, object],
    *,
    version: int = 1,
    revision: int = 0,
    complete: bool = True,
) -> None:
    """A result row of any task."""
    row = {"window_start": start_ms, "window_end": start_ms + WINDOW_MS, **values}
    key, value = json.dumps([start_ms, *keys]).encode(), json.dumps(row).encode()
    place = len(world.kafka.rows)
    world.kafka.rows.append(CommittedRow(0, place, key, value, version, revision, complete))


# ------------------------------------------------------------------------------------ people


def hurry_to(page: Browser, site: str, address: str) -> None:
    """Open a page on which time goes twenty times as fast; `waits` there has every wait."""
    page.go(f"{site}/#/streams")
    page.until("return document.querySelector('main h1')")
    page.run(_IN_A_HURRY, address)


def press_and_confirm(page: Browser, action: str) -> None:
    """Press the button of an action, and say yes when asked."""
    page.click_text(action)
    page.until("return document.querySelector('dialog[open]')")
    page.click_text(action, "dialog button")
    page.until("return !document.querySelector('dialog')")


def tab_to(page: Browser, wanted: str, steps: int = 25) -> None:
    """Press the tabulator until something has the focus."""
    for _ in range(steps):
        if page.focus() == wanted:
            return
        page.press(TAB)
    raise AssertionError(f"{wanted} cannot be reached; the focus is on {page.focus()}")


def options_of(page: Browser, css: str) -> list[str]:
    """What a select offers."""
    found = page.run(
        "return [...document.querySelector(arguments[0]).options].map(o => o.text)", css
    )
    return [str(one) for one in found]
