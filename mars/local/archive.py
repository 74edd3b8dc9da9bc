"""Kafka's classes as the JVM keeps them in memory, in a file: it starts in half the time.

The file (application class data sharing, JEP 350) belongs to one set of jars and one Java; the JVM
itself passes over one that does not fit. `python -m mars.local.archive` makes it where it is
missing, which takes one start and stop of a throw-away broker. Nothing needs it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rich.console import Console

from mars.core.errors import LocalClusterError, MarsError
from mars.local.servers import KafkaServer, archive_path, put_whole

READY_S = 120.0
"""Longest start of the broker whose classes are kept."""

WRITE_S = 60.0
"""Longest end of it: the classes are written then, which takes 4 s."""


def make_archive() -> Path:
    """The archive for the Java of this machine, made if it is missing. Raises MarsError."""
    path = archive_path()
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(prefix="mars-archive-") as folder:
        partial = Path(folder) / "classes.jsa"
        server = KafkaServer(Path(folder) / "kafka", jvm=[f"-XX:ArchiveClassesAtExit={partial}"])
        try:
            server.start()
            server.wait_ready(READY_S)
        finally:
            server.stop(WRITE_S)
        if not partial.exists():
            raise LocalClusterError("the broker ended without writing it")
        put_whole(partial, path)
    return path


def main() -> int:
    """Make it; what prevents it is told and is no failure."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        if not archive_path().exists():
            console.print("Preparing a faster start of Kafka (once)")
            make_archive()
    except (MarsError, OSError) as error:
        console.print(f"Kafka's start stays slower: {error}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
