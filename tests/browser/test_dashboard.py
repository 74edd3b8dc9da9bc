"""The dashboard as a person uses it, in a headless Chromium; the servers behind it are twins."""

from __future__ import annotations

import json

import pytest

from mars.core.definitions import TaskState
from mars.core.types import Topic, live_lane
from tests.browser.scenes import (
    PAGES,
    SQL,
    TASK_PAGE,
    emit,
    fill_topic,
    hurry_to,
    press_and_confirm,
    run_task,
    tab_to,
)
from tests.support.browser import ENTER, ESCAPE, PHONE_WIDTH, TAB, Browser
from tests.unit.api.twins import BUCKETS, World

pytestmark = pytest.mark.browser

MARKUP = "<img src=x onerror=document.title='broken'>"
_CHECKS_NEVER_ANSWER = """
    const answered = window.fetch;
    window.fetch = (path, request) =>
      path === "/v1/tasks/validate"
        ? new Promise((_resolve, reject) => {
            const refuse = () => reject(new DOMException("", "AbortError"));
            request.signal.addEventListener("abort", refuse);
          })
        : answered(path, request);
"""


# ------------------------------------------------------------------------------ the main flow


def test_task_is_written_tried_registered_paused_and_deleted(
    page: Browser, site: str, world: World
) -> None:
    fill_topic(world)
    page.go(f"{site}/#/new")
    page.type("#sql", SQL.replace("sip, count", "sipp, count"))
    page.until_text("Line 1, column 8")
    assert page.text(".copy mark") == "sipp"
    assert page.run("return document.querySelector('#sql').ariaInvalid") == "true"

    page.type("#sql", SQL)
    page.until_text("The query is right")
    assert page.run("return document.querySelectorAll('.copy mark').length") == 0
    page.click_text("Preview")
    page.until_text("40 rows: 40 counted")
    page.until_text("a delay of 0 s is enough")
    assert "10.0.0.3" in page.text("#preview table")
    assert world.registry.tasks() == {}

    page.type("#name", "by_sip")
    page.click_text("Register")
    page.until_text("version 1 over stream flows")
    assert page.run("return location.hash") == "#/tasks/by_sip"

    world.start_in_store("by_sip")
    emit(world, "10.9.9.9", world.now_ms // 60_000 * 60_000)
    page.until_text("10.9.9.9")

    press_and_confirm(page, "Pause")
    page.until_text("by_sip takes no more rows", "#said")
    page.until_text("paused", ".state")
    press_and_confirm(page, "Resume")
    page.until_text("by_sip goes on where it stopped", "#said")
    page.until_text("running", ".state")

    page.click_text("Delete")
    page.until_text("Delete by_sip?", "dialog")
    page.click_text("Cancel")
    assert world.definition().state == "running"
    page.click_text("Delete")
    page.click_text("Delete", "dialog button")
    page.until_text("by_sip is deleted", "#said")
    page.until_text("No task is registered yet")
    assert world.definition().state == "deleted"


@pytest.mark.parametrize(
    ("state", "action", "said"),
    [("running", "Pause", "No more results come"), ("paused", "Resume", "It goes on where it")],
)
def test_pausing_and_resuming_are_asked_about_first(
    page: Browser, site: str, world: World, state: str, action: str, said: str
) -> None:
    run_task(world)
    world.alter(state=TaskState(state))
    page.go(f"{site}/{TASK_PAGE}")
    page.click_text(action)
    page.until_text(said, "dialog")
    page.click_text("Cancel")
    page.until("return !document.querySelector('dialog')")
    assert page.focus() == action
    assert world.definition().state == state


def test_a_revised_window_keeps_the_rows_that_no_late_row_has_changed(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    older, newer = (world.now_ms // 60_000 * 60_000 - ago for ago in (120_000, 60_000))
    for number in range(12):
        emit(world, f"old-{number}", older)
    page.go(f"{site}/#/tasks/by_sip")
    page.until_text("old-11")

    for number in range(1_000):
        emit(world, f"new-{number}", newer)
    for number in range(10):
        emit(world, f"old-{number}", older, revision=1)
    page.until("return document.querySelectorAll('#window option').length === 3")
    page.choose("#window", page.run("return document.querySelector('#window').options[2].text"))

    page.until_text("12 rows; revision 1, for late rows.")
    page.until_text("old-11")
    shown = page.run(
        "return [...document.querySelectorAll('table tr')].map((row) => row.innerText)"
    )
    assert any("old-3" in row and "8" in row for row in shown), shown
    assert any("old-11" in row and "7" in row for row in shown), shown


def test_task_is_changed_to_a_new_version(page: Browser, site: str, world: World) -> None:
    run_task(world)
    page.go(f"{site}/#/tasks/by_sip/edit")
    page.until("return document.querySelector('#sql')?.value.includes('sum(bytes)')")
    page.type("#sql", SQL)
    page.type("#delay", "3s")
    page.click_text("Make this the new version")
    page.until_text("version 2 over stream flows")
    assert world.definition().current.options == {"delay": "3s"}


def test_task_page_has_the_current_version_and_those_that_close_their_windows(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    hurry_to(page, site, TASK_PAGE)
    page.until_text("version 1 over stream flows")
    versions = "[aria-label=Versions]"
    page.until_text("current", versions)
    assert world.http.put("/v1/tasks/by_sip", json={"sql": SQL}).status_code == 200
    page.until_text("begins soon: the leader decides where", versions)
    world.begin_newest()
    page.until_text("closing its open windows", versions)
    newest, older = page.run(
        "return [...document.querySelectorAll('[aria-label=Versions] tbody tr')]"
        ".map((row) => [row.cells[0].innerText, row.cells[2].innerText].join(' '))"
    )
    assert (newest, older) == ("2 current", "1 closing its open windows")
    for bucket in range(BUCKETS):
        world.commit(bucket, merged={live_lane(0): 1, live_lane(1): 1})
    page.until_text("all windows closed", versions)


def test_change_that_is_sent_before_it_was_checked_is_made(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    page.go(f"{site}/#/tasks/by_sip/edit")
    page.until("return document.querySelector('#sql')?.value.includes('sum(bytes)')")
    page.run(_CHECKS_NEVER_ANSWER)
    page.type("#sql", SQL)
    page.click_text("Make this the new version")
    page.until_text("version 2 over stream flows")


def test_wrong_query_that_is_sent_before_it_was_checked_is_underlined(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    page.go(f"{site}/#/tasks/by_sip/edit")
    page.until("return document.querySelector('#sql')?.value.includes('sum(bytes)')")
    page.run(_CHECKS_NEVER_ANSWER)
    page.type("#sql", "SELECT sip, sum(nothing) FROM flows GROUP BY sip WINDOWING 10 s")
    page.click_text("Make this the new version")
    page.until_text("Line 1, column 17")
    assert world.definition().current.version == 1


def test_preview_offers_the_delay_that_the_rows_need(
    page: Browser, site: str, world: World
) -> None:
    for number in range(100):
        late_ms = 4_000 if number % 10 == 9 else 0
        row = {"timestamp": world.now_ms - 5_000 + number - late_ms, "sip": "a"}
        world.broker.append(Topic("flows"), 0, json.dumps(row).encode())
    world.kafka.end_offsets["flows"][0] = 100
    page.go(f"{site}/#/new")
    page.type("#sql", SQL)
    page.click_text("Preview")
    page.click_text("Use a delay of 5s")
    page.click_text("Preview")
    page.until_text("with the delay of 5 s none would be late")


def test_preview_names_windows_of_rows_and_lists_sessions(
    page: Browser, site: str, world: World
) -> None:
    fill_topic(world)
    page.go(f"{site}/#/new")
    page.type("#sql", SQL.replace("10 s", "15 ROWS"))
    page.click_text("Preview")
    page.until_text("Window 0 of partition 0: 2 groups")
    page.until_text("Window 1 of partition 0: 2 groups, not full")
    page.until_text("No row is late")

    page.type("#sql", SQL.replace("10 s", "SESSION 10 s"))
    page.click_text("Preview")
    page.until_text("Sessions (UTC)")
    assert "10.0.0.3" in page.text("#preview table")
    assert "may have more rows" in page.text("#preview table")


# ------------------------------------------------------------------------------------ streams


def test_stream_is_declared_from_the_form_with_errors_at_their_field(
    page: Browser, site: str, world: World
) -> None:
    world.kafka.make_topic("clicks", 1)
    page.go(f"{site}/#/streams")
    page.click_text("Declare")
    page.until_text("Give the stream a name", "#name-problem")
    page.type("#name", "9 lives")
    page.type("#topic", "clicks")
    page.type("tbody tr:nth-child(2) .field-name", "page")
    page.click_text("Declare")
    page.until_text("cannot be the name of a stream", "#name-problem")
    assert page.focus() == "name"
    page.type("#name", "clicks")
    page.type("#topic", "no topic")
    page.click_text("Declare")
    page.until_text("not a valid topic name", "#topic-problem")
    page.type("#topic", "clicks")
    page.click_text("Declare")
    page.until_text("Stream clicks is declared", "#said")
    declared = world.http.get("/v1/streams/clicks").json()
    assert declared["fields"] == {"timestamp": "timestamp_ms", "page": "string"}
    assert declared["event_time"] == "timestamp"


def add_field(page: Browser, name: str, origin: str = "the message") -> None:
    page.click_text("Add a field")
    page.type("tbody tr:last-child .field-name", name)
    page.choose("tbody tr:last-child .field-from", origin)


def test_form_takes_fields_of_the_record_and_the_marks_of_csv(
    page: Browser, site: str, world: World
) -> None:
    world.kafka.make_topic("clicks", 1)
    page.go(f"{site}/#/streams")
    page.type("#name", "clicks")
    page.type("#topic", "clicks")
    page.type("tbody tr:nth-child(2) .field-name", "page")
    for name, origin in (
        ("user", "$key"),
        ("kept at", "$timestamp"),
        ("at", "$offset"),
        ("in $&", "$partition"),
        ("7", "the message"),
    ):
        add_field(page, name, origin)
    page.choose("#event_time", "kept at")
    page.type("#csv_delimiter", "\\t")
    page.type("#csv_quote", "'")
    page.click_text("Declare")
    page.until_text("for the format csv only", "#csv_delimiter-problem")
    page.choose("#format", "csv")
    page.click("#record_time")
    page.click_text("Declare")
    page.until_text("contradicts", "#record_time-problem")
    page.choose("#event_time", "timestamp")
    page.click_text("Declare")
    page.until_text("Stream clicks is declared", "#said")

    declared = world.http.get("/v1/streams/clicks").json()
    assert list(declared["fields"].items()) == [
        ("timestamp", "timestamp_ms"),
        ("page", "string"),
        ("user", {"type": "string", "from": "$key"}),
        ("kept at", {"type": "timestamp_ms", "from": "$timestamp"}),
        ("at", {"type": "int64", "from": "$offset"}),
        ("in $&", {"type": "int64", "from": "$partition"}),
        ("7", "string"),
    ]
    assert (declared["csv_delimiter"], declared["csv_quote"]) == ("\t", "'")
    assert declared["record_time"] == "ignore"
    page.until_text("int64 from $partition")


def test_a_field_that_is_no_more_of_the_record_may_have_any_type(
    page: Browser, site: str, world: World
) -> None:
    world.kafka.make_topic("clicks", 1)
    page.go(f"{site}/#/streams")
    page.type("#name", "clicks")
    page.type("#topic", "clicks")
    page.type("tbody tr:nth-child(2) .field-name", "page")
    field = "tbody tr:nth-child(2) .field-"
    page.choose(f"{field}from", "$offset")
    assert page.run("return document.querySelector(arguments[0]).disabled", f"{field}type")
    page.choose(f"{field}from", "the message")
    page.choose(f"{field}type", "bool")
    page.click_text("Declare")
    page.until_text("Stream clicks is declared", "#said")
    assert world.http.get("/v1/streams/clicks").json()["fields"]["page"] == "bool"


# ------------------------------------------------------------------------------ looks and safety


def open_two_hundred_tasks(page: Browser, site: str, world: World) -> None:
    for number in range(200):
        assert world.register(f"task_{number}").status_code == 201
    for _ in range(3):
        world.services.figures.take()
    page.go(f"{site}/")
    page.until("return document.querySelectorAll('canvas').length")
    page.until_text("200 tasks")


def test_list_of_two_hundred_tasks_is_one_request(page: Browser, site: str, world: World) -> None:
    open_two_hundred_tasks(page, site, world)
    asked = page.run(
        "return performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)"
    )
    assert asked.count("/v1/tasks") == 1
    assert [path for path in asked if path.startswith("/v1/tasks/")] == []


def test_a_long_reason_leaves_room_for_the_other_tasks(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    run_task(world, "other")
    world.alter(detail="the window that begins at some time has too many groups so far, " * 5)
    page.size(1_100)
    page.go(f"{site}/")
    page.until_text("too many groups")
    heights = page.run(
        "return [...document.querySelectorAll('tr[data-key]')].map((one) => one.offsetHeight)"
    )
    assert heights[0] < 3 * heights[1]
    page.size(PHONE_WIDTH)
    assert page.run("return document.documentElement.scrollWidth") <= PHONE_WIDTH


def test_page_of_a_failed_task_says_once_why(page: Browser, site: str, world: World) -> None:
    run_task(world)
    world.alter(state=TaskState.FAILED, detail="it has too many groups")
    page.go(f"{site}/#/tasks/by_sip")
    page.until_text("too many groups", ".why")
    page.until_text("Those of a task that has failed are not shown.")
    said = page.run("return document.querySelector('main').innerText")
    assert said.count("too many groups") == 1


def test_durations_are_whole_in_the_largest_unit_that_fits(page: Browser, site: str) -> None:
    page.go(f"{site}/#/streams")
    page.until("return document.querySelector('main h1')")
    page.run("import('/static/format.js').then((found) => { window.format = found; })")
    page.until("return window.format")
    told = page.run(
        "return arguments[0].map(format.duration)",
        [0, 250, 5_000, 60_000, 61_500, 3_600_000, 5_400_000, 86_400_000],
    )
    assert told == ["0 ms", "250 ms", "5 s", "1 min", "61.5 s", "1 h", "90 min", "1 d"]


def test_a_chart_without_values_has_no_heights(page: Browser, site: str, world: World) -> None:
    page.go(f"{site}/#/streams")
    page.until("return document.querySelector('main h1')")
    page.run("import('/static/chart.js').then((found) => { window.chart = found; })")
    page.until("return window.chart")
    beside = """
      const made = new chart.Chart("Latency", { format: (ms) => `${Math.round(ms)} ms` });
      return made.heights({ data: [[1, 2], arguments[0]] }, [0, 0.5, 1]);
    """
    assert page.run(beside, [None, None]) == ["", "", ""]
    assert page.run(beside, [0, 1]) == ["0 ms", "1 ms", ""]


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_refused(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    for name in PAGES:
        page.go("about:blank")
        page.go(f"{site}/#/{name}")
        page.until("return document.querySelector('main h1')")
        page.until("return performance.getEntriesByType('resource').length > 8")
        names = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [one for one in names if not one.startswith(site)] == []
    assert page.complaints() == []


def test_what_rows_and_people_say_is_shown_as_text(page: Browser, site: str, world: World) -> None:
    run_task(world)
    world.alter(detail=MARKUP)
    emit(world, MARKUP, world.now_ms // 60_000 * 60_000)
    page.go(f"{site}/#/tasks/by_sip")
    page.until_text(MARKUP)
    page.until_text(MARKUP, ".state")
    assert page.run("return document.querySelectorAll('main img').length") == 0
    assert page.run("return document.title") == "by_sip - Mars"


def test_page_names_the_servers_that_are_away(page: Browser, site: str, world: World) -> None:
    world.health._probes = {**world.health._probes, "redis": lambda: "redis is not available: gone"}
    world.health.check("redis")
    page.go(f"{site}/#/cluster")
    page.until_text("Missing: redis", "#health")
    page.until_text("redis is not available: gone", ".tiles")


def test_unknown_task_says_so(page: Browser, site: str) -> None:
    page.go(f"{site}/#/tasks/nobody")
    page.until_text("there is no task 'nobody'")


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_a_phone(page: Browser, site: str, world: World, name: str) -> None:
    run_task(world)
    world.services.figures.take()
    emit(world, "a-very-long-name-" * 8, world.now_ms // 60_000 * 60_000)
    page.size(PHONE_WIDTH, 740)
    page.go(f"{site}/#/{name}")
    page.until("return document.querySelector('main h1')")
    # What comes with the first answers makes the page wider, if anything does.
    page.until(
        "return performance.getEntriesByType('resource').some((one) => one.name.includes('/v1/'))"
    )
    page.until("return document.querySelectorAll('table, .charts, form').length")
    assert page.run("return document.documentElement.scrollWidth") <= PHONE_WIDTH


def test_colours_follow_the_readers_system(page: Browser, site: str, world: World) -> None:
    run_task(world)
    world.services.figures.take()
    page.go(f"{site}/")
    page.until("return document.querySelectorAll('canvas').length")
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(colour)
    page.scheme(dark=True)
    dark = page.until(
        f"{colour} === arguments[0] ? null : getComputedStyle(document.body).backgroundColor", light
    )
    assert sum(map(int, dark[4:-1].split(","))) < 150 < sum(map(int, light[4:-1].split(",")))
    page.until("return document.querySelectorAll('canvas').length")


def test_everything_can_be_done_with_the_keyboard(page: Browser, site: str, world: World) -> None:
    fill_topic(world)
    run_task(world)
    page.go(f"{site}/#/tasks/by_sip")
    page.until_text("version 1 over stream flows")
    page.press(TAB)
    assert page.focus() == "Skip to the content"
    page.press(ENTER)
    assert page.focus() == "main"
    page.press(TAB)
    assert page.focus() == "Pause"
    page.press(ENTER)
    page.until("return document.querySelector('dialog[open]')")
    assert page.focus() == "Cancel"
    page.press(TAB)
    page.press(ENTER)
    page.until_text("paused", ".state")
    assert page.focus() == "Resume"
    tab_to(page, "Delete")
    page.press(ENTER)
    page.until("return document.querySelector('dialog[open]')")
    assert page.focus() == "Cancel"
    page.press(ESCAPE)
    page.until("return !document.querySelector('dialog')")
    assert world.definition().state == "paused"
    assert page.focus() == "Delete"


def test_keyboard_leads_from_the_list_to_a_paused_task_and_its_next_version(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    page.go(f"{site}/")
    page.until_text("1 task")
    tab_to(page, "by_sip")
    page.press(ENTER)
    page.until_text("version 1 over stream flows")
    assert page.focus() == "main"
    tab_to(page, "Pause")
    page.press(ENTER)
    page.until("return document.querySelector('dialog[open]')")
    page.press(TAB)
    page.press(ENTER)
    page.until_text("paused", ".state")
    page.until_text("takes no more rows until it is resumed", "#said")
    tab_to(page, "Change")
    page.press(ENTER)
    page.until("return document.querySelector('#sql')?.value.includes('sum(bytes)')")
    tab_to(page, "sql")
    page.press(" -- again")
    tab_to(page, "Make this the new version")
    page.press(ENTER)
    page.until_text("version 2 over stream flows")
    assert world.definition().current.sql.endswith(" -- again")


def test_query_is_written_and_registered_with_the_keyboard(
    page: Browser, site: str, world: World
) -> None:
    page.go(f"{site}/#/new")
    page.until("return document.querySelector('#sql')?.value")
    tab_to(page, "sql")
    tab_to(page, "name")
    page.press("typed" + ENTER)
    page.until_text("version 1 over stream flows")
    assert world.definition("typed").current.stream.name == "flows"


def test_every_control_has_a_name_for_screen_readers(
    page: Browser, site: str, world: World
) -> None:
    run_task(world)
    for name in PAGES:
        page.go("about:blank")
        page.go(f"{site}/#/{name}")
        page.until("return document.querySelector('main h1')")
        assert page.run(_UNNAMED) == [], name
        assert page.run("return document.querySelectorAll('h1').length") == 1


_UNNAMED = """
return [...document.querySelectorAll('button, a, input, select, textarea, [role=img]')]
  .filter((one) => !(one.innerText?.trim() || one.ariaLabel || one.labels?.length))
  .map((one) => one.outerHTML)
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_text_stands_out_from_its_background(
    page: Browser, site: str, world: World, dark: bool
) -> None:
    run_task(world)
    world.services.figures.take()
    world.alter(detail="something to read")
    page.scheme(dark=dark)
    for name in PAGES:
        page.go("about:blank")
        page.go(f"{site}/#/{name}")
        page.until("return document.querySelector('main h1')")
        page.until("return document.querySelectorAll('table, .charts, form').length")
        if name == "new":
            page.type("#sql", SQL.replace("sip, count", "sipp, count"))
            page.until_text("Line 1, column 8")
        assert page.run(_FAINT) == [], name
    page.run("document.querySelector('main').style.color = '#777'")
    assert page.run(_FAINT) != [], "the measure itself sees nothing"


# Texts with a contrast below 4.5 to what lies behind them (WCAG 2.2, 1.4.3, level AA).
_FAINT = """
const point = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
const rgba = (colour) => {
  point.clearRect(0, 0, 1, 1);
  point.fillStyle = colour;
  point.fillRect(0, 0, 1, 1);
  return [...point.getImageData(0, 0, 1, 1).data];
};
const over = (top, below) =>
  [0, 1, 2].map((n) => (top[n] * top[3] + below[n] * (255 - top[3])) / 255).concat(255);
const behind = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement)
    layers.unshift(rgba(getComputedStyle(at).backgroundColor));
  return layers.reduce((below, top) => over(top, below), [255, 255, 255, 255]);
};
const linear = (n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
const luminance = ([red, green, blue]) =>
  0.2126 * linear(red / 255) + 0.7152 * linear(green / 255) + 0.0722 * linear(blue / 255);
const faint = (node, pseudo) => {
  const below = behind(node);
  const front = over(rgba(getComputedStyle(node, pseudo).color), below);
  const [low, high] = [luminance(below), luminance(front)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05) < 4.5;
};
const found = [];
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const node = texts.currentNode.parentElement;
  const shown = node.checkVisibility() && texts.currentNode.data.trim();
  if (shown && !node.closest("[aria-hidden=true], .hidden, option") && faint(node))
    found.push(`${node.tagName} ${texts.currentNode.data.trim()}`);
}
for (const input of document.querySelectorAll("[placeholder]"))
  if (faint(input, "::placeholder")) found.push(`placeholder of ${input.id}`);
return found;
"""
