"""Where `docker compose` comes from when the machine has only Docker's client, or not even that.

Debian's package holds it as one program that needs no engine to check a file. It is fetched by apt
from the archive that this machine already trusts, into the cache of Mars, and not installed.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mars.core.settings import surroundings

SUITE = "trixie"
"""The oldest Debian whose package is the second generation of compose, which reads our file."""

PROGRAM = Path("usr/libexec/docker/cli-plugins/docker-compose")
"""In the package."""

ANSWER_S = 30
FETCH_S = 240
"""Of one step of apt: the list of packages is 10 MB, the package 10 MB."""

SOURCES = Path("/etc/apt/sources.list.d/debian.sources")


class ComposeMissing(Exception):
    """There is no compose, and none could be had."""


def compose_command() -> tuple[str, ...]:
    """The words that stand before `config` or `up`. Raises ComposeMissing."""
    for words in (("docker", "compose"), ("docker-compose",)):
        if _is_second_generation(words):
            return words
    fetched = surroundings().cache / "compose" / SUITE / "docker-compose"
    if not fetched.exists():
        _fetch(fetched)
    if not _is_second_generation((str(fetched),)):
        raise ComposeMissing(f"{fetched} does not run here; install Docker's compose plugin.")
    return (str(fetched),)


def _is_second_generation(words: tuple[str, ...]) -> bool:
    try:
        answer = _run([*words, "version", "--short"], ANSWER_S)
    except (OSError, subprocess.SubprocessError):
        return False
    return int(answer.strip().removeprefix("v").partition(".")[0] or 0) >= 2


def _fetch(target: Path) -> None:
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _only_one(folder):
        if target.exists():
            return
        try:
            package = _download(folder)
            _run(["dpkg", "-x", str(package), str(folder / "unpacked")], ANSWER_S)
            (folder / "unpacked" / PROGRAM).rename(target)
        except (OSError, subprocess.SubprocessError) as error:
            said = getattr(error, "stderr", None) or str(error)
            raise ComposeMissing(
                "docker compose is not here and cannot be fetched with apt; install Docker's "
                f"compose plugin. ({said.strip()[-300:]})"
            ) from error
        finally:
            for left in ("unpacked", "apt"):
                shutil.rmtree(folder / left, ignore_errors=True)


def _download(folder: Path) -> Path:
    """The package file, by an apt whose lists and state are all in `folder`."""
    apt = folder / "apt"
    for name in ("lists/partial", "cache/archives/partial", "parts", "package"):
        (apt / name).mkdir(parents=True, exist_ok=True)
    _write_sources(apt / "parts")
    options = [
        *[
            "-qq",
            "-o",
            "Dir::Etc::sourcelist=/dev/null",
            "-o",
            f"Dir::State::lists={apt / 'lists'}",
        ],
        *["-o", f"Dir::Etc::sourceparts={apt / 'parts'}", "-o", f"Dir::Cache={apt / 'cache'}"],
        *["-o", "APT::Sandbox::User="],
    ]
    _run(["apt-get", *options, "update"], FETCH_S)
    _run(["apt-get", *options, "download", "docker-compose"], FETCH_S, apt / "package")
    return next((apt / "package").glob("docker-compose_*.deb"))


def _write_sources(parts: Path) -> None:
    """The first archive of this machine, with `SUITE` for its own suite."""
    archive = SOURCES.read_text("utf-8").split("\n\n")[0].strip().splitlines()
    kept = [f"Suites: {SUITE}" if line.startswith("Suites:") else line for line in archive]
    (parts / "debian.sources").write_text("\n".join(kept) + "\n", "utf-8")


def _run(command: list[str], timeout_s: float, folder: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=True
    )
    return done.stdout


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Two test runs at once: one fetches, the other waits and finds it."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
