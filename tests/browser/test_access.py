"""The dashboard where the API asks for keys: it asks its user, and says what a key is not for.

The browser's own dialog for passwords must never come: it would hold back every command of the
driver, and so fail these tests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from api.services.access import AccessPolicy
from mars.core.types import Topic
from mars.protocol.ports import Role
from mars.protocol.ports.access import make_key
from tests.browser.scenes import press_and_confirm
from tests.support.browser import ENTER, ESCAPE, PHONE_WIDTH, TAB, Browser
from tests.unit.api.twins import World

pytestmark = pytest.mark.browser

TASK_PAGE = "#/tasks/by_sip"


@pytest.fixture
def world() -> Iterator[World]:
    """An API that asks for keys; `world.http` shows an admin's. One task runs."""
    made = World(AccessPolicy(on=True))
    made.now_ms = time.time_ns() // 1_000_000
    made.broker.create_topic(Topic("flows"), 2)
    made.http.headers["Authorization"] = f"Bearer {key_of(made, Role.ADMIN)}"
    assert made.declare().status_code == 201
    assert made.register(start="earliest").status_code == 201
    made.start_in_store()
    made.run_batch([{"timestamp": made.now_ms, "sip": "a"}])
    made.services.figures.take()
    for service in ("kafka", "redis"):
        made.health.check(service)
    yield made
    made.close()


@pytest.fixture
def page(page: Browser, site: str) -> Iterator[Browser]:
    """A browser that knows no key."""
    yield page
    page.go(f"{site}/healthz")
    page.run("sessionStorage.clear()")
    page.go("about:blank")


def key_of(world: World, role: Role) -> str:
    key, text = make_key(role, world.now_ms)
    assert world.keys.create(key)
    return text


def enter(page: Browser, key: str) -> None:
    page.until("return document.querySelector('dialog[open] #key-text')")
    page.type("#key-text", key)
    page.press(ENTER)


def dialogs(page: Browser) -> int:
    return int(page.run("return document.querySelectorAll('dialog').length"))


def test_page_asks_once_for_a_key_and_shows_it_to_calls_and_streams(
    page: Browser, site: str, world: World
) -> None:
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("This Mars asks for a key", "dialog")
    assert page.focus() == "key-text"
    key = key_of(world, Role.OPERATOR)
    enter(page, key)
    page.until_text("version 1 over stream flows")
    page.until("return document.querySelectorAll('canvas').length")  # figures come as a stream
    page.until_text("1 group so far")
    assert dialogs(page) == 0
    press_and_confirm(page, "Pause")
    page.until_text("paused", ".state")
    asked = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert not [one for one in (*asked, page.run("return location.href")) if key in one]
    page.go(f"{site}/#/cluster")
    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("version 1 over stream flows")
    assert page.run("return Object.keys(localStorage).length + document.cookie.length") == 0


def test_key_that_is_not_known_is_asked_for_again_with_the_reason(
    page: Browser, site: str, world: World
) -> None:
    page.go(site)
    enter(page, "a key in words")
    page.until_text("a key is mars_ and then", "dialog")
    enter(page, f"mars_00000000_{'0' * 64}")
    page.until_text("The key is not known", "dialog")
    assert page.run("return document.querySelector('#key-text').ariaInvalid") == "true"
    enter(page, key_of(world, Role.READER))
    page.until_text("1 task")
    assert dialogs(page) == 0


def test_key_that_was_removed_meanwhile_is_asked_for_again(
    page: Browser, site: str, world: World
) -> None:
    key = key_of(world, Role.READER)
    page.go(f"{site}/{TASK_PAGE}")
    enter(page, key)
    page.until_text("version 1 over stream flows")
    assert world.http.delete(f"/v1/keys/{key.split('_')[1]}").status_code == 204
    page.until_text("The key is not known", "dialog")


def test_who_gives_no_key_is_left_alone_until_asking_for_it(
    page: Browser, site: str, world: World
) -> None:
    page.go(f"{site}/#/streams")
    page.until("return document.querySelector('dialog[open]')")
    page.press(ESCAPE)
    page.until_text("This API asks for a key")
    asked = page.run("return performance.getEntriesByType('resource').length")
    page.go(f"{site}/#/cluster")
    page.until_text("This API asks for a key")
    assert dialogs(page) == 0
    names = page.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert not [one for one in names[asked:] if "/v1/" in one]
    page.click_text("Enter a key")
    enter(page, key_of(world, Role.READER))
    page.until_text("Buckets and their owners")


def test_what_a_role_does_not_allow_is_said_and_another_key_taken(
    page: Browser, site: str, world: World
) -> None:
    page.go(f"{site}/{TASK_PAGE}")
    enter(page, key_of(world, Role.READER))
    page.until_text("version 1 over stream flows")
    press_and_confirm(page, "Pause")
    page.until_text("has the role reader", "#said")
    page.until_text("needs operator: use another key, or ask an admin", "#said")
    assert world.definition().state == "running"

    page.go(f"{site}/#/new")
    page.until("return document.querySelector('#output')?.textContent")  # which a reader may check
    page.click_text("Preview")
    page.until_text("needs operator", "#preview")
    assert page.run("return document.querySelector('#sql').ariaInvalid") is None

    page.go(f"{site}/{TASK_PAGE}")
    page.until_text("version 1 over stream flows")
    page.click_text("Change key")
    enter(page, key_of(world, Role.OPERATOR))
    page.until("return !document.querySelector('dialog')")  # and the page begins anew
    page.until_text("version 1 over stream flows")
    press_and_confirm(page, "Pause")
    page.until_text("paused", ".state")


def test_the_question_for_a_key_fits_a_phone_and_the_keyboard(
    page: Browser, site: str, world: World
) -> None:
    page.size(PHONE_WIDTH, 740)
    page.go(site)
    page.until("return document.querySelector('dialog[open]')")
    assert page.run("return document.documentElement.scrollWidth") <= PHONE_WIDTH
    box = page.run(
        "const box = document.querySelector('dialog').getBoundingClientRect();"
        "return [box.left, box.right, document.querySelector('dialog').scrollWidth - box.width]"
    )
    assert box[0] >= 0
    assert box[1] <= PHONE_WIDTH
    assert box[2] <= 0
    assert page.focus() == "key-text"
    page.press(TAB)
    assert page.focus() == "Cancel"
    page.press(TAB)
    assert page.focus() == "Use this key"
