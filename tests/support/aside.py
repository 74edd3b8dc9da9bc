"""Run a command on what others leave of the processors: `tests/support/aside.py COMMAND ...`.

Linux shares them out between sessions first, each in equal parts however nice its processes are to
each other (`sched_autogroup_enabled`). So the command gets a session of its own, and it is that
which is nice. Elsewhere the command alone is.
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
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
