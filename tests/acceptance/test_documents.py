"""Commands in the documents for users are run, in their order, and show what they say.

Those in blocks marked `bash`, `console` and `python`, that is. What needs containers, clusters or
time of its own is marked `sh`, and says beside it why it is not run.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars.local.flows import declaration
from mars.local.network import free_port
from tests.support.browser import Browser
from tests.support.cluster import MarsCluster, wait_for
from tests.support.complaints import bring_about, complaints
from tests.support.documents import Look, Program, Shell, is_shown, steps_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

DOCUMENTS = [DOCS / "start" / "tutorial.md", DOCS / "reference" / "rest.md"]
OVER_THE_DEMO = [
    ROOT / "README.md",
    DOCS / "start" / "first-topic.md",
    DOCS / "start" / "python.md",
    DOCS / "guides" / "checking.md",
    DOCS / "guides" / "history.md",
    DOCS / "reference" / "results.md",
    DOCS / "guides" / "preview.md",
    DOCS / "guides" / "tasks-in-git.md",
    DOCS / "reference" / "limits.md",
    DOCS / "operate" / "access.md",
]
TROUBLESHOOTING = DOCS / "guides" / "troubleshooting.md"
HOWTOS = sorted({TROUBLESHOOTING, *DOCS.glob("operate/*.md")} - {*OVER_THE_DEMO})

PROGRAMS = {"mars": f"{sys.executable} -m mars.cli", "python": sys.executable}

BY_SIP = "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 60 s"

WHY = re.compile(r"mars why (\w+)")

PAGE_S = 30.0
"""Until a page must show a sentence; it asks every 3 s."""

DEMO_KAFKA = "127.0.0.1:9092"
"""Where Kafka listens in documents; here it has a free port."""

FEED_S = 0.1
"""Between two rows of the demo."""


@pytest.fixture
def shell(shared_mars: MarsCluster, tmp_path: Path) -> Iterator[Shell]:
    """A shell in which `mars` and `python` are ours, and find the cluster."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, command in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin"
    made = Shell(
        tmp_path,
        {
            "PATH": path,
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "200",
            "MARS_API": shared_mars.api,
            "MARS_API_PORT": str(free_port()),
            "MARS_KAFKA_BOOTSTRAP": str(shared_mars.file["kafka"]),
            "MARS_REDIS_URL": str(shared_mars.file["redis"]),
            "MARS_ZOOKEEPER_HOSTS": str(shared_mars.file["zookeeper"]),
        },
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def complaining(shared_mars: MarsCluster) -> None:
    """What people complain of most, on the cluster of the other tests."""
    bring_about(shared_mars)


@pytest.fixture(scope="module")
def demo(shared_mars: MarsCluster) -> Iterator[None]:
    """The streams that the demo has, `S` and the paper's `flows`, and a topic of one's own."""
    shared_mars.topic("demo_flows", 2)
    shared_mars.topic("clicks", 2)
    for name in ("S", "flows"):
        shared_mars.client.put_stream(name, declaration("demo_flows"))
    stop = threading.Event()
    feed = threading.Thread(target=_feed, args=(shared_mars, stop), name="demo")
    feed.start()
    yield
    stop.set()
    feed.join()


def _feed(mars: MarsCluster, stop: threading.Event) -> None:
    while not stop.wait(FEED_S):
        now_ms = time.time_ns() // 1_000_000
        flow = {"timestamp": now_ms, "sip": f"10.0.0.{now_ms % 9}", "type": f"t{now_ms % 8:02}"}
        flow |= {"loss": 0.5, "rtt": now_ms % 1000, "bytes": 60}
        click = {"at": now_ms, "page": f"/{now_ms % 3}"}
        for partition in range(2):
            mars.produce("demo_flows", [(partition, json.dumps(flow).encode())])
            mars.produce("clicks", [(partition, json.dumps(click).encode())])


@pytest.fixture
def own_files(tmp_path: Path) -> None:
    """What the documents say that a reader has."""
    (tmp_path / "by_sip.sql").write_text(BY_SIP)
    (tmp_path / "mars.toml").write_text('namespace = "default"\n')
    (tmp_path / "rows.ndjson").write_text('{"timestamp": 1000, "sip": "a"}\n' * 2)


def follow(document: Path, shell: Shell) -> None:
    for step in steps_of(document):
        match step:
            case Look():
                shell.look(step)
            case Program(text):
                own = shell.environment["MARS_KAFKA_BOOTSTRAP"]
                shell.program(text.replace(DEMO_KAFKA, own))
            case str():
                shell.run(step)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_commands_of_a_document_do_what_it_says(document: Path, shell: Shell) -> None:
    follow(document, shell)


@pytest.mark.usefixtures("complaining")
@pytest.mark.parametrize("document", HOWTOS, ids=lambda path: path.stem)
def test_commands_of_a_howto_do_what_it_says(document: Path, shell: Shell) -> None:
    follow(document, shell)


@pytest.mark.usefixtures("complaining")
def test_task_page_tells_of_each_complaint_what_its_howto_says(
    shared_mars: MarsCluster, browser: Browser
) -> None:
    found = {
        asked[1]: look
        for look in steps_of(TROUBLESHOOTING)
        if isinstance(look, Look) and (asked := WHY.fullmatch(look.command))
    }
    assert {one.name for one in complaints(0)} - found.keys() == {"renamed"}  # it gives results
    for name, look in found.items():
        page_says(browser, shared_mars, name, look.lines)
    with shared_mars.stopped("mapper-1", "mapper-2"):
        said = "...mapper-1, which reads partition 1, has said nothing for ...; it is stopped, ..."
        page_says(browser, shared_mars, "one_quiet", (said,))
    browser.go("about:blank")


def page_says(browser: Browser, mars: MarsCluster, name: str, lines: tuple[str, ...]) -> None:
    """Open a task's page, and wait until its sentence is the one that is wanted."""
    browser.go(f"{mars.api}/#/tasks/{name}")
    looked_at = Look(name, lines)
    wait_for(
        f"the page of {name} to say {lines}",
        lambda: is_shown(looked_at, browser.text("p.why")),
        seconds=PAGE_S,
    )


@pytest.mark.usefixtures("demo", "own_files")
@pytest.mark.parametrize("document", OVER_THE_DEMO, ids=lambda path: path.stem)
def test_commands_over_the_demo_do_what_a_document_says(document: Path, shell: Shell) -> None:
    follow(document, shell)
