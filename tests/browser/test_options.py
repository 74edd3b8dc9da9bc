"""The options of a task in the editor, and how much a preview looks at."""

from __future__ import annotations

import pytest

from mars.core.plan import Options
from mars.core.types import TaskName
from mars.sql.options import _NAMES, parse_options
from tests.browser.scenes import SQL, fill_topic
from tests.support.browser import ENTER, Browser
from tests.unit.api.twins import World

pytestmark = pytest.mark.browser

DEFAULTS = """
return Object.fromEntries(arguments[0].map((name) => {
  const control = document.getElementById(name);
  return [name, control.placeholder ?? control.options[0].text];
}))
"""


def open_editor(page: Browser, site: str, address: str = "#/new") -> None:
    page.go(f"{site}/{address}")
    page.until("return document.querySelector('#sql')?.value")
    page.until_text("The query is right")


def test_every_option_is_offered_with_the_default_of_the_service(
    page: Browser, site: str, world: World
) -> None:
    open_editor(page, site)
    assert page.run("return !document.querySelector('#lateness').checkVisibility()")
    page.run("document.querySelector('form summary').focus()")
    page.press(ENTER)
    assert page.run("return document.querySelector('#lateness').checkVisibility()")
    offered = page.run(DEFAULTS, _NAMES)
    offered = {name: text.removesuffix(" (default)") for name, text in offered.items()}
    assert offered.pop("output_topic") == "mars.results.NAME"
    assert offered.pop("max_keys") == "no limit"

    def parsed(**options: str) -> Options:
        stream = world.services.streams.show("flows")
        return parse_options(options, TaskName("by_sip"), stream)

    revise = {"late": "revise", "lateness": offered.pop("lateness")}
    assert parsed(**revise) == parsed(late="revise")
    by_key = {"watermark": "key", "key_lag": offered.pop("key_lag")}
    assert parsed(**by_key) == parsed(watermark="key")
    fold = {"max_keys": "5", "over_max_keys": offered.pop("over_max_keys")}
    assert parsed(**fold) == parsed(max_keys="5")
    assert parsed(**offered) == parsed()
    often = {"delay", "idle_after", "future_limit", "late", "watermark", "emit"}
    assert set(offered) == {*often, "buckets"}


def test_task_is_registered_with_the_options_that_were_set(
    page: Browser, site: str, world: World
) -> None:
    open_editor(page, site)
    page.click("form summary")
    page.choose("#late", "revise")
    page.type("#lateness", "3min")
    page.type("#max_keys", "500")
    page.type("#name", "by_sip")
    page.click_text("Register")
    page.until_text("version 1 over stream flows")
    page.until_text("revise their windows for 3 min")
    registered = world.definition().current.options
    assert registered == {"late": "revise", "lateness": "3min", "max_keys": "500"}


def test_options_that_nobody_touched_stay_as_they_were_registered(
    page: Browser, site: str, world: World
) -> None:
    options = {"max_keys": 500, "over_max_keys": "fail", "delay": "1000ms"}
    assert world.register(options=options).status_code == 201
    open_editor(page, site, "#/tasks/by_sip/edit")
    assert page.run("return document.querySelector('#max_keys').checkVisibility()")
    page.choose("#over_max_keys", "fold")
    page.type("#idle_after", "7s")
    page.click_text("Make this the new version")
    page.until_text("version 2 over stream flows")
    changed = world.definition().current.options
    assert changed == {**options, "over_max_keys": "fold", "idle_after": "7s"}


def test_a_wrong_option_is_marked_at_its_field_and_not_in_the_query(
    page: Browser, site: str, world: World
) -> None:
    open_editor(page, site)
    page.click("form summary")
    page.type("#lateness", "3min")
    page.until_text("set late: revise too", "#lateness-problem")
    marked = "return [...document.querySelectorAll('[aria-invalid]')].map((one) => one.id)"
    assert page.run(marked) == ["lateness"]
    page.type("#name", "by_sip")
    page.click_text("Register")
    page.until_text("set late: revise too", "#said")
    assert page.focus() == "Register"

    page.click("form summary")
    assert page.run("return !document.querySelector('#lateness').checkVisibility()")
    page.type("#sql", SQL)
    page.until("return document.querySelector('#lateness').checkVisibility()")
    page.choose("#late", "revise")
    page.until_text("The query is right")
    assert page.run(marked) == []

    page.type("#sql", SQL.replace("sip, count", "sipp, count"))
    page.until("return document.querySelector('#sql').ariaInvalid")
    assert page.run(marked) == ["sql"]


def test_a_preview_looks_at_as_many_seconds_as_are_asked_for(
    page: Browser, site: str, world: World
) -> None:
    fill_topic(world)
    open_editor(page, site)
    assert page.run("return document.querySelector('#seconds').placeholder") == "10"
    page.click_text("Preview")
    page.until_text("About 4 rows a second", "#preview")
    page.type("#seconds", "20")
    page.click_text("Preview")
    page.until_text("About 2 rows a second", "#preview")

    page.type("#seconds", "a while")
    page.click_text("Preview")
    page.until_text("should be a valid number", "#seconds-problem")
    page.type("#seconds", "61")
    assert page.text("#seconds-problem") == ""
    page.click_text("Preview")
    page.until_text("less than or equal to 60", "#seconds-problem")
    assert page.run("return document.querySelector('#sql').ariaInvalid") is None
