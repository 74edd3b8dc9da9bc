"""What screen readers are told: neither too little nor too much."""

from __future__ import annotations

import pytest

from tests.browser.scenes import PAGES, SQL, TASK_PAGE, emit, fill_topic, last_window, run_task
from tests.support.browser import PHONE_WIDTH, Browser
from tests.unit.api.twins import World

pytestmark = pytest.mark.browser

ABSENT = """
return [...document.querySelectorAll('[role=status], [role=alert], [aria-live]')]
  .filter((one) => !one.closest('details:not([open])') && !one.checkVisibility())
  .map((one) => one.outerHTML)
"""
CHECKS = "return performance.getEntriesByName(`${location.origin}/v1/tasks/validate`).length"
ROLES = "return [...new Set([...document.querySelectorAll(arguments[0])].map((one) => one.role))]"
LISTEN = """
window.announced = [];
const live = '[role=status], [role=alert], [aria-live]';
const hears = (node) =>
  (node.nodeType === Node.TEXT_NODE ? node.parentElement : node)?.closest(live);
new MutationObserver((changes) => {
  const places = new Set(changes.map((one) => hears(one.target)).filter(Boolean));
  for (const place of places) announced.push(place.textContent);
}).observe(document.body, { subtree: true, childList: true, characterData: true });
"""


def test_what_will_say_something_is_there_before_it_says_it(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    for name in PAGES:
        page.go("about:blank")
        page.go(f"{site}/#/{name}")
        page.until("return document.querySelector('main h1')")
        assert page.run(ABSENT) == [], name
        box = "const box = document.querySelector('#said').getBoundingClientRect();"
        assert page.run(box + "return box.width * box.height") <= 1


def test_a_preview_is_announced_in_one_line(page: Browser, site: str, world: World) -> None:
    fill_topic(world)
    page.go(f"{site}/#/new")
    page.type("#sql", SQL)
    page.until_text("The query is right")
    page.run(LISTEN)
    page.click_text("Preview")
    page.until_text("10.0.0.3", "#preview table")
    said = [text for text in page.run("return announced") if text]
    assert set(said) == {"Reading ...", "40 rows: 40 counted, 0 filtered, 0 bad, 0 future."}
    assert page.focus() == "Preview"


def test_a_problem_that_is_still_the_same_is_not_announced_again(
    page: Browser, site: str, world: World
) -> None:
    page.go(f"{site}/#/new")
    page.type("#sql", SQL.replace("sip, count", "sipp, count"))
    page.until_text("Line 1, column 8")
    page.run(LISTEN)
    checks = page.run(CHECKS)
    page.type("#name", "wrong")
    page.until(f"{CHECKS} > arguments[0]", checks)
    page.click_text("Preview")
    page.until_text("sipp", "#preview")
    said = page.run("return announced.filter((text) => text.startsWith('Line 1'))")
    assert said == []


def test_tables_are_tables_on_a_phone(page: Browser, site: str, world: World) -> None:
    run_task(world)
    emit(world, "10.9.9.9", last_window(world))
    page.size(PHONE_WIDTH, 740)
    page.go(f"{site}/#/cluster")
    page.until_text("mapper-1")
    table = "[aria-label='Members'] "
    assert (
        page.run(
            "return getComputedStyle(document.querySelector(arguments[0])).display", table + "td"
        )
        == "flex"
    )
    wanted = {
        "table": "table",
        "thead": "rowgroup",
        "tbody": "rowgroup",
        "tr": "row",
        "th": "columnheader",
        "td": "cell",
    }
    for tag, role in wanted.items():
        assert page.run(ROLES, table + tag) == [role], tag
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("10.9.9.9")
    assert page.run("return document.querySelectorAll('table:not([role=table])').length") == 0
