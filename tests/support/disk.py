"""A small disk of its own for one folder, which can be filled to its last byte."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK_BYTES = 65_536


class SmallDisk:
    """A file system in memory at `folder`; needs the right to mount one."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "mars-test", str(folder))

    @contextmanager
    def full(self) -> Iterator[None]:
        """Not a byte of room inside of the `with`."""
        ballast = self.folder / "ballast"
        try:
            fill(ballast)
            yield
        finally:
            ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it; whoever used it must have ended."""
        self._run("umount", str(self.folder))

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)


def fill(path: Path) -> None:
    """Write until the disk takes nothing more."""
    with path.open("ab", buffering=0) as file:
        for size in (CHUNK_BYTES, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def missing_right(folder: Path) -> str | None:
    """Why no file system can be mounted here; None: it can."""
    try:
        SmallDisk(folder, 1).close()
    except (OSError, subprocess.SubprocessError) as problem:
        return f"a small disk for Kafka cannot be mounted here: {problem}"
    return None
