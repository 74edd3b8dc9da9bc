"""Every command in the documents for users is run, in their order, and shows what they say."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mars.local.network import free_port
from tests.support.cluster import MarsCluster
from tests.support.complaints import bring_about
from tests.support.documents import Look, Shell, steps_of

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

DOCUMENTS = [DOCS / "tutorial.md", DOCS / "rest.md"]
HOWTOS = sorted(DOCS.glob("howto/*.md"))

PROGRAMS = {"mars": f"{sys.executable} -m mars.cli", "python": sys.executable}


@pytest.fixture
def shell(shared_mars: MarsCluster, tmp_path: Path) -> Iterator[Shell]:
    """A shell in which `mars` and `python` are ours, and find the cluster."""
    programs = tmp_path / "bin"
    programs.mkdir()
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


def follow(document: Path, shell: Shell) -> None:
    for step in steps_of(document):
        if isinstance(step, Look):
            shell.look(step)
        else:
            shell.run(step)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_commands_of_a_document_do_what_it_says(document: Path, shell: Shell) -> None:
    follow(document, shell)


@pytest.mark.usefixtures("complaining")
@pytest.mark.parametrize("document", HOWTOS, ids=lambda path: path.stem)
def test_commands_of_a_howto_do_what_it_says(document: Path, shell: Shell) -> None:
    follow(document, shell)
