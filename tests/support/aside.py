"""Run a command on what others leave of the processors: `tests/support/aside.py COMMAND ...`.

Linux shares them out between sessions first, each in equal parts however nice its processes are to
each other (`sched_autogroup_enabled`). So the command gets a session of its own, and it is that
which is nice. Elsewhere the command alone is.

It stays on one processor: most of what runs like this is the simulation, whose threads take turns.
Where each could wake up on another processor than the last, it took a quarter more of both.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

NICEST = 19


def main() -> None:
    """Becomes the command, under the same process id."""
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    with suppress(OSError):  # no Linux, or one that does not group by session
        Path("/proc/self/autogroup").write_text(str(NICEST), encoding="ascii")
    os.nice(NICEST)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
