"""Quix Streams in a virtual environment of its own: fetched once, checked, outside of the checkout.

`requirements.lock` names each package with its version and what it must contain. The environment
lies in `<cache>/peers/quix-<hash>`, where the hash is that of the list: another list is another
folder, and a folder that exists is complete.

The list is made anew by `pip-compile --generate-hashes` (the Makefile has its options) of a file
that names `quixstreams` and its version.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.errors import BenchError
from mars.core.settings import surroundings

LOCK = Path(__file__).with_name("requirements.lock")
PINNED = "quixstreams=="

INSTALL_S = 900
"""Longest installation: 60 MB over a slow line. It takes half a minute on a usual one."""


def version() -> str:
    """Of Quix Streams, as it is pinned."""
    lines = LOCK.read_text("utf-8").splitlines()
    return next(line.split()[0].removeprefix(PINNED) for line in lines if line.startswith(PINNED))


def location() -> Path:
    """Where the environment is, or will be."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    return surroundings().cache / "peers" / f"quix-{digest}"


def python() -> Path:
    """The interpreter that knows Quix Streams, once it is installed."""
    return location() / "bin" / "python"


def fetch(say: Callable[[str], None]) -> None:
    """Install it, once. Raises BenchError that begins with "Quix Streams is not installed"."""
    target = location()
    if target.is_dir():
        return
    say(f"Installing Quix Streams {version()} into {target}, this once.")
    staging: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix="partial-", dir=target.parent))
        _run([sys.executable, "-m", "venv", str(staging)])
        pip = [str(staging / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        _run([*pip, "--require-hashes", "--only-binary=:all:", "--requirement", str(LOCK)])
        staging.rename(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BenchError(f"Quix Streams is not installed: {error}.") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode != 0:
        raise BenchError(
            f"Quix Streams is not installed: {' '.join(done.stderr.split())[-300:]} Check that "
            "this machine reaches a Python package index (a mirror goes into PIP_INDEX_URL) and "
            "run the same command again."
        )
