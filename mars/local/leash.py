"""Runs a command in its own place that dies with the process that started it.

`python leash.py <pid of the parent> command ...` asks the kernel for SIGKILL at the parent's
death (Linux; elsewhere nothing is asked) and becomes the command. It stands alone: it is run as a
file, without the package, so that it costs milliseconds.

The kernel counts the *thread* that started the child as its parent; `mars.local.child` starts all
children from one thread that lives as long as the process.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From <linux/prctl.h>."""

NOT_FOUND = 127
"""The exit code of shells for a command that does not exist."""


def main() -> None:
    """Become the command, or exit with a sentence."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:
        sys.exit("The process that started this one has gone.")
    # Python ignores SIGPIPE, and what is ignored stays so in the command.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 -- no shell is the point
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main()
