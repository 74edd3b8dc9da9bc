"""The dashboard over real servers: from a declared stream to results and the end of a task."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.browser import Browser
from tests.support.cluster import MarsCluster

pytestmark = pytest.mark.acceptance

TOPIC = "seen"
TASK = "seen_pages"
SQL = "SELECT page, count(*)\nFROM seen\nGROUP BY page WINDOWING 2 s"

AT_WORK = ".buckets li:is([data-state=owning], [data-state=committing])"
"""A bucket commits every two seconds here, which takes a good part of them on a busy machine."""


def feed(mars: MarsCluster, rows: int) -> None:
    """Rows of the last seconds, each group in each partition."""
    now = int(time.time() * 1_000)
    messages = [
        (number % 2, json.dumps({"at": now - 4_000 + number, "page": f"page-{number // 2 % 3}"}))
        for number in range(rows)
    ]
    mars.produce(TOPIC, [(partition, text.encode()) for partition, text in messages])


def declare(browser: Browser) -> None:
    browser.type("#name", "seen")
    browser.type("#topic", TOPIC)
    browser.type("tbody tr:nth-child(1) .field-name", "at")
    browser.type("tbody tr:nth-child(2) .field-name", "page")
    browser.click_text("Declare")
    browser.until_text("Stream seen is declared", "#said")


def write_query(browser: Browser) -> None:
    """First a wrong one."""
    browser.type("#sql", SQL.replace("BY page", "BY pages"))
    browser.until_text("Line 3, column 10")
    assert browser.text(".copy mark") == "pages"
    browser.type("#sql", SQL)
    browser.until_text("The query is right")


def pause_and_resume(browser: Browser, mars: MarsCluster) -> None:
    browser.click_text("Pause")
    browser.click_text("Pause", "dialog button")
    browser.until_text("takes no more rows", "#said")
    browser.until_text("paused", ".state")
    assert mars.client.task(TASK).state == "paused"
    browser.click_text("Resume")
    browser.click_text("Resume", "dialog button")
    browser.until_text("running", ".state")


def delete(browser: Browser) -> None:
    browser.click_text("Delete")
    browser.click_text("Delete", "dialog button")
    browser.until_text(f"{TASK} is deleted", "#said")


def test_from_a_stream_to_results_and_the_end_of_a_task(
    shared_mars: MarsCluster, browser: Browser
) -> None:
    mars = shared_mars
    mars.topic(TOPIC, 2)
    browser.go(f"{mars.api}/#/streams")
    declare(browser)

    browser.go(f"{mars.api}/#/new/seen")
    write_query(browser)
    browser.click_text("Preview")
    browser.until_text(f"Topic {TOPIC} has no messages")
    feed(mars, 600)
    browser.click_text("Preview")
    browser.until_text("600 rows: 600 counted")
    browser.until_text("About 60 rows a second.")
    assert "page-2" in browser.text("#preview")

    browser.type("#name", TASK)
    browser.type("#idle_after", "1s")
    browser.click_text("Register")
    browser.until_text("version 1 over stream seen")
    feed(mars, 600)
    browser.until_text("page-1", seconds=60)
    browser.until_text("Of the 600 counted, 600 are emitted", seconds=60)
    pause_and_resume(browser, mars)

    browser.go(f"{mars.api}/#/cluster")
    browser.until_text("reducer-2")
    browser.until(f"return document.querySelectorAll('{AT_WORK}').length === 8")
    browser.go(f"{mars.api}/#/tasks/{TASK}")
    delete(browser)
    assert TASK not in {task.name for task in mars.client.tasks()}
    browser.go("about:blank")
