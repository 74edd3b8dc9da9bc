"""A browser, and the real application on twins behind a real port."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from mars.core.types import Topic
from tests.support.browser import Browser, missing_browser
from tests.unit.api.twins import World, application

START_S = 30.0


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests.

    Without Chromium these tests are skipped in CI, too: it comes from no registry that the
    project uses, so nothing here could install it.
    """
    reason = missing_browser()
    if reason is not None:
        pytest.skip(reason)
    with Browser(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture
def page(browser: Browser, site: str) -> Iterator[Browser]:
    """The browser in its usual size, light, with nothing open."""
    browser.size(1280)
    browser.scheme(dark=False)
    browser.go("about:blank")
    browser.complaints()
    yield browser
    browser.go("about:blank")  # ends the streams, so that the server can stop


@pytest.fixture
def world() -> Iterator[World]:
    """A stream `flows` with some rows in its topic, and a cluster around it."""
    made = World()
    made.now_ms = time.time_ns() // 1_000_000
    made.broker.create_topic(Topic("flows"), 2)
    assert made.declare().status_code == 201
    made.join_mapper("reading", "idle")
    made.join_reducer()
    for service in ("kafka", "redis"):
        made.health.check(service)
    yield made
    made.close()


@pytest.fixture
def site(world: World) -> Iterator[str]:
    """The address at which the application answers."""
    server = uvicorn.Server(
        uvicorn.Config(application(), port=0, log_config=None, lifespan="off", ws="none")
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    deadline = time.monotonic() + START_S
    while not server.started:
        assert time.monotonic() < deadline, "the server does not start"
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    world.stopping.set()
    server.should_exit = True
    thread.join(START_S)
