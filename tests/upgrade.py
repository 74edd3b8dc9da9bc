"""An older release that becomes this one under load: `python -m tests.upgrade COMMIT`.

    older release, four tasks ──┬── each process is ended and comes back as this release ──┐
         rows all the while     │                                                         │
                                └────────── FLUSHALL ── mars down, mars up ───────────────┴──▶ check

The older release is taken from the repository and runs in this environment. This one reads all
that it has left: the store, the records, snapshots of open windows, definitions. In the end each
group of each window must be there once, with DuckDB's sums. Exit 0 if so, 1 if not, 2 for a wrong
call.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.conftest import FOUR_BUCKETS, settings
from tests.support.cluster import MarsCluster, wait_for
from tests.support.companions import AccompaniedLoad
from tests.support.store import Store

ROOT = Path(__file__).parents[1]

SECONDS = 900
"""The most that it may take; rows end when everything has happened."""

ROWS_PER_S = 300
WINDOW_S = 20
"""Long enough that windows are open, and saved in Kafka, whenever something happens."""

ROLES = ("reducer-1", "reducer-2", "mapper-1", "mapper-2", "bulk-1", "api")
"""In the order that the changelog asks for: who reads reasons before who writes them."""

MORE_ROWS = 2_000
"""That must be read and emitted after each step."""


class Upgraded(MarsCluster):
    """`mars up`, whose processes run what a link names when they start."""

    def __init__(self, link: Path, data: Path, *arguments: str) -> None:
        self._link = link
        super().__init__(data, *arguments)

    def mars(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one command of the release that the link names."""
        return subprocess.run(
            [sys.executable, "-m", "mars.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=self._link,
            env={**os.environ, "PYTHONPATH": str(self._link)},
        )

    def change(self, name: str) -> None:
        """End a process; the supervisor starts it again, as what the link names by now."""
        before = self.restarts[name]
        self.kill(name, signal.SIGTERM)
        wait_for(f"{name} to come back", lambda: self.restarts.get(name, before) > before)


@contextmanager
def older(commit: str) -> Iterator[tuple[Path, Path]]:
    """A folder with the code of a commit, and a link to it."""
    with tempfile.TemporaryDirectory(prefix="mars-upgrade-") as folder:
        code = Path(folder) / commit
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "--format=tar", commit],
            capture_output=True,
            check=True,
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
            tar.extractall(code, filter="data")
        link = Path(folder) / "code"
        link.symlink_to(code)
        yield Path(folder), link


def main() -> int:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("commit", help="of the older release")
    commit: str = parser.parse_args().commit
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the cluster must not stay behind
    try:
        with older(commit) as (folder, link):
            upgrade(folder, link)
    except subprocess.CalledProcessError as problem:
        sys.stderr.write(problem.stderr.decode())
        return 2
    except AssertionError as problem:
        sys.stderr.write(f"FAILED: {problem}\n")
        return 1
    return 0


def upgrade(folder: Path, link: Path) -> None:
    """Raises AssertionError."""
    config = folder / "mars.toml"
    config.write_text(settings(), "utf-8")
    mars = Upgraded(link, folder / "data", "--config", str(config), *FOUR_BUCKETS)
    try:
        load = AccompaniedLoad(
            mars, "upgraded", seconds=SECONDS, rows_per_s=ROWS_PER_S, window_s=WINDOW_S
        )
        with load.running():
            _say("the older release runs")
            load.goes_on(MORE_ROWS)
            link.unlink()
            link.symlink_to(ROOT)
            for name in ROLES:
                mars.change(name)
                load.goes_on(MORE_ROWS)
                _say(f"{name} is of this release, and rows come out")
            with Store(mars) as store:
                store.flush()
            load.goes_on(MORE_ROWS)
            _say("the store was emptied, and rows come out")
            load.end()
        load.check()
        _say(f"{len(load.rows)} rows of {len(load.names)} tasks are all there, once")
        mars.down()
        mars.up()
        after = AccompaniedLoad(mars, "after", seconds=10, rows_per_s=ROWS_PER_S)
        with after.running():
            pass
        after.check()
        load.check()
        _say("after mars down and mars up by this release, too")
    finally:
        mars.down()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
