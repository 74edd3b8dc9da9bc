"""The order in which sets of texts are gone through, the same in each process that asks for it."""

from __future__ import annotations

import os
import sys

VARIABLE = "PYTHONHASHSEED"
"""`make test` sets it to 0, too: a run is told by its seed alone."""


def fix_hashes() -> None:
    """Begin this process anew with hashes that are not drawn by chance, if they are."""
    if VARIABLE not in os.environ:
        again = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, again, {**os.environ, VARIABLE: "0"})
