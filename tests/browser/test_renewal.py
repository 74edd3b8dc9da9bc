"""Pages that renew themselves: what people hold stays, what cannot be renewed is said to be old."""

from __future__ import annotations

import json

import pytest

from api.services.operation.figures import FOLLOWERS_MAX
from tests.browser.scenes import (
    TASK_PAGE,
    emit,
    hurry_to,
    last_window,
    open_another_window,
    press_and_confirm,
    run_task,
    tab_to,
)
from tests.support.browser import ENTER, TAB, Browser
from tests.unit.api.twins import World

pytestmark = pytest.mark.browser

HOLD = """
window.held = document.querySelector(arguments[0]);
held.focus();
return document.activeElement === held;
"""
IS_HELD = "return document.activeElement === held && held.isConnected"
WHY = "[aria-label='Why']"

# Every answer fails as `window.away` says; null: none does.
FAILING = """
const answered = window.fetch;
const cutOff = new TypeError("cut off");
const half = () => new Response(new ReadableStream({ start: (body) => body.error(cutOff) }));
const ways = { refused: () => Promise.reject(cutOff), broken: () => Promise.resolve(half()) };
window.fetch = (path, request) => (ways[window.away] ?? answered)(path, request);
window.away = arguments[0];
"""


# ---------------------------------------------------------------------- focus and selection


def test_focus_on_open_windows_stays_when_another_one_opens(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("Open windows: 1;")
    assert page.run(HOLD, f"{WHY} summary")
    page.press(ENTER)
    page.until(f'return document.querySelector("{WHY} details").open')
    open_another_window(world)
    page.until_text("Open windows: 2;")
    assert page.run(IS_HELD)
    assert page.run(f'return document.querySelector("{WHY} details").open')


def test_focus_on_a_window_that_fills_stays(page: Browser, site: str, world: World) -> None:
    run_task(world)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("1 group so far")
    assert page.run(HOLD, "details[data-key] summary")
    page.press(ENTER)
    world.run_batch([{"timestamp": world.now_ms, "sip": "other"}], first=1)
    page.until_text("2 groups so far")
    page.until_text("other", "details[data-key]")
    assert page.run(IS_HELD)


def test_a_table_stays_where_it_was_scrolled_to(page: Browser, site: str, world: World) -> None:
    wide = "n" * 60
    run_task(world, sql=f"SELECT sip, count(*) AS {wide} FROM flows GROUP BY sip WINDOWING 60 s")
    page.size(660)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("1 group so far")
    page.click("details[data-key] summary")
    rows = "[aria-label='Groups so far']"
    assert page.run(HOLD, rows)
    page.run("held.scrollLeft = 20")
    assert page.run("return held.scrollLeft") == 20
    world.run_batch([{"timestamp": world.now_ms, "sip": "other"}], first=1)
    page.until_text("other", rows)
    assert page.run(IS_HELD)
    assert page.run("return held.scrollLeft") == 20


def test_the_why_sentence_can_be_selected_to_copy_while_the_page_goes_on(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("Open windows: 1;")
    page.run(
        "const text = document.querySelector('p.why').firstChild;"
        "getSelection().setBaseAndExtent(text, 0, text, text.length)"  # as with a pointer
    )
    selected = "return getSelection().toString()"
    sentence = page.run(selected)
    assert sentence.startswith("The window")
    open_another_window(world)
    page.until_text("Open windows: 2;")
    assert page.run(selected) == page.text("p.why")

    assert world.http.post("/v1/tasks/by_sip/pause").status_code == 200
    page.until_text("The task is paused", "p.why")
    assert page.run(selected) == page.text("p.why")


def test_focus_stays_on_the_link_of_a_task_that_overtakes_others(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    run_task(world, "ahead")
    world.services.figures.take()
    hurry_to(page, site, "#/cluster")
    names = "return [...document.querySelectorAll('td a')].map((one) => one.innerText).join()"
    page.until(f"{names} === 'ahead,by_sip'")
    assert page.run(HOLD, "a[href='#/tasks/by_sip']")
    world.run_batch([{"timestamp": world.now_ms, "sip": "another"}], first=1)
    run_task(world, "a_third_one")
    world.services.figures.take()
    page.until(f"{names} === 'by_sip,a_third_one,ahead'")
    assert page.run(IS_HELD)


def test_focus_stays_on_a_task_in_the_list_when_there_is_another(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    hurry_to(page, site, "#/")
    page.until_text("1 task")
    assert page.run(HOLD, "a[href='#/tasks/by_sip']")
    run_task(world, "a_new_one")
    page.until_text("2 tasks")
    assert page.run(IS_HELD)
    world.services.figures.take()
    world.services.figures.take()
    page.until("return document.querySelector('tr[data-key=a_new_one]').cells[3].innerText === '0'")


def test_focus_stays_on_the_button_that_was_pressed(page: Browser, site: str, world: World) -> None:
    run_task(world)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("version 1 over stream flows")
    tab_to(page, "Pause")
    press_and_confirm(page, "Pause")
    page.until_text("takes no more rows", "#said")
    page.until_text("paused", ".state")
    assert page.focus() == "Resume"
    press_and_confirm(page, "Resume")
    page.until_text("running", ".state")
    assert page.focus() == "Pause"
    page.press(TAB)
    assert page.focus() == "Change"


# ------------------------------------------------------------------------- what does not answer


def test_a_task_that_is_deleted_elsewhere_is_said_to_be(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("running", ".state")
    tab_to(page, "Pause")
    assert world.http.delete("/v1/tasks/by_sip").status_code == 204
    page.until_text("by_sip was deleted meanwhile. Its results stay in mars.results.by_sip.")
    assert "running" not in page.text()
    assert page.focus() == "main"


def test_a_page_says_which_of_its_parts_are_old_and_since_when(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    emit(world, "before", last_window(world))
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("before")
    world.kafka.server.away = True
    page.until_text("results", ".stale")
    said = page.text(".stale")
    assert said.startswith("Not updated since 20")
    assert "Kafka is not available" in said
    assert "before" in page.text()

    emit(world, "after", last_window(world))
    world.kafka.server.away = False
    page.until_text("after")
    page.until("return !document.querySelector('.stale').innerText")


@pytest.mark.parametrize("away", ["refused", "broken"])
def test_all_parts_that_lack_the_same_are_named_together(
    page: Browser, site: str, world: World, away: str
) -> None:
    run_task(world)
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("1 group so far")
    page.until_text("Open windows: 1;")
    page.run(FAILING, away)
    page.until_text("open windows. The API does not answer", ".stale")
    page.until("return document.querySelectorAll('.stale p').length === 1")
    page.run("window.away = null")
    page.until("return !document.querySelector('.stale').innerText")


def test_a_cluster_page_outlives_an_api_that_goes(page: Browser, site: str, world: World) -> None:
    page.go(f"{site}/#/cluster")
    page.until_text("mapper-1")
    page.run(FAILING, "broken")
    page.until_text("the cluster. The API does not answer", ".stale")
    page.run("window.away = null")
    page.until("return !document.querySelector('.stale').innerText")
    assert "mapper-1" in page.text()


def test_a_preview_that_breaks_off_says_so(page: Browser, site: str, world: World) -> None:
    page.go(f"{site}/#/new")
    page.until_text("The query is right")
    page.run(FAILING, "broken")
    page.click_text("Preview")
    page.until_text("The API does not answer", "#preview")
    assert "Reading" not in page.text("#preview")


def test_charts_that_get_no_place_say_so_and_ask_less_and_less_often(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    world.services.figures.take()
    taken = [world.services.figures._places.take() for _ in range(FOLLOWERS_MAX)]
    hurry_to(page, site, "#/")
    page.until_text("Not loaded yet: charts and figures. 200 clients follow figures", ".stale")
    page.until("return waits.filter((ms) => ms === 30000).length > 1")
    waits = json.loads(page.run("return JSON.stringify(waits)"))
    again = [ms for ms in waits if ms in {2_000, 4_000, 8_000, 16_000, 30_000, 32_000}]
    assert again[:6] == [2_000, 4_000, 8_000, 16_000, 30_000, 30_000]

    for give_back in taken:
        give_back()
    page.until("return document.querySelectorAll('canvas').length")
    page.until("return !document.querySelector('.stale').innerText")
