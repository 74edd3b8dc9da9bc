"""A process that alone has lost a server starts over: others take its part meanwhile.

It stops as if it had been asked to, gives its buckets or partitions up, and begins again as a new
process image with the same number. What begins waits for its servers before it becomes a member, so
it comes back when it can do something. Whoever supervises the process notices nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from mars.core.errors import MarsError, Unavailable
from mars.core.types import MemberId
from mars.process.life import Life, ServiceHealth
from mars.process.outliving import Outliving
from mars.process.telemetry import logs
from mars.protocol.cut_off import CutOff
from mars.protocol.ports import Coordinator, MemberInfo

Asks = Mapping[str, Callable[[], object]]
"""How to ask a server for something small; raises Unavailable."""

LOOK_S = 1.0
"""Between two looks, as often as members report."""

STOP_S = 30.0
"""What it gets to stop by itself. A process that hangs in this would never come back: nobody else
watches over it."""

_OUR_FILES = 3
"""Standard input, output and error stay."""


def watch(
    member: MemberId,
    role: str,
    coordinator: Coordinator,
    services: ServiceHealth,
    life: Life,
    asks: Asks,
) -> None:
    """Watch in a thread of its own for as long as the process lives; `asks` by server."""
    others = partial(_others, member, role, coordinator)
    arguments = (role, others, services, life, asks)
    threading.Thread(target=_watch, args=arguments, name="cut-off", daemon=True).start()


def _others(member: MemberId, role: str, coordinator: Coordinator) -> list[MemberInfo]:
    """The other members of the role; none while ZooKeeper does not answer."""
    try:
        members = coordinator.members(role)
    except Unavailable:
        return []
    return [info for name, info in members.items() if name != member]


def _watch(
    role: str,
    others: Callable[[], list[MemberInfo]],
    services: ServiceHealth,
    life: Life,
    asks: Asks,
) -> None:
    cut_off = CutOff()

    def look() -> None:
        missing = [name for name in services.missing if name in asks and not _answers(asks[name])]
        lost = cut_off.look(time.monotonic(), missing, others() if missing else [])
        if lost:
            logs.warning(
                logs.logger(role),
                "others reach a server that this process does not: it leaves its part to them, "
                "and starts over",
                servers=sorted(lost),
            )
            life.start_over()
            time.sleep(STOP_S)
            if life.to_start_over:
                start_over()

    Outliving("the watch for being cut off").until(life, LOOK_S, look)


def _answers(ask: Callable[[], object]) -> bool:
    """What failed last may have had another reason than that the server is away."""
    try:
        ask()
    except Unavailable:
        return False
    except MarsError:  # an answer, if not a nice one
        return True
    return True


def start_over() -> None:
    """Become a new process image with the same arguments and environment."""
    # Those that clients in C have opened would stay open.
    for file in Path("/dev/fd").iterdir():
        if int(file.name) >= _OUR_FILES:
            with suppress(OSError):
                os.set_inheritable(int(file.name), False)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 -- our own command
