"""Stopping a cluster from another process."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from mars.client.cluster_file import is_locked
from mars.core.errors import LocalClusterError
from mars.local.state import end_leftovers, lock_holder, locked, wait_until

STOP_S = 90.0
"""Longest end: our processes get 10 s and the servers 20 s before they are killed."""


def stop_cluster(data: Path) -> int | None:
    """Stop the cluster on the folder, wait for its end; its supervisor's pid, None if none ran.

    Raises LocalClusterError when it does not end.
    """
    holder = lock_holder(data)
    if holder is None:
        _clear(data)
        return None
    try:
        with contextlib.suppress(ProcessLookupError):
            os.kill(holder, signal.SIGTERM)
    except PermissionError as error:
        raise LocalClusterError(
            f"The cluster on {data} (process {holder}) cannot be stopped ({error.strerror}); stop "
            "it as the user who has started it."
        ) from error
    if not wait_until(lambda: not is_locked(data), STOP_S):
        raise LocalClusterError(
            f"The cluster on {data} (process {holder}) did not end within {STOP_S:.0f} s; look at "
            f"{data / 'logs'}, and end it by hand."
        )
    return holder


def _clear(data: Path) -> None:
    """What a supervisor that was killed may have left behind."""
    if (data / "lock").exists():
        with locked(data):
            end_leftovers(data)
