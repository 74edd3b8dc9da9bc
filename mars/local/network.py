"""Ports of this machine's loopback."""

from __future__ import annotations

import atexit
import random
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mars.core.errors import LocalClusterError

HOST = "127.0.0.1"
"""The embedded cluster is for this machine only: it has no passwords."""


@dataclass(frozen=True, slots=True)
class PortWish:
    """A port that is to be listened on, for whom, and which option changes it."""

    user: str
    port: int
    option: str
    host: str = HOST


PORT_MIN = 10_240
"""Lowest port that is chosen: below lie those of well-known services."""

PORT_TRIES = 100
"""Ports tried at random before the system's own choice is taken."""

OUTGOING_MIN = 32_768
"""Lowest port of outgoing connections where the system does not tell (Linux's default)."""

PORTS_KEPT = 256
"""Ports kept for this process, the last ones chosen: each is a file descriptor."""

_kept: deque[socket.socket] = deque()

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that nobody listens on now; no other process of Mars is given it while this one lives.

    It lies below those that outgoing connections are given. One of those would be lost to a server
    that is started again: whoever tries to reach it meanwhile may be given its port.
    """
    highest = _outgoing_min() - 1
    for _ in range(PORT_TRIES if highest > PORT_MIN else 0):
        port = random.randint(PORT_MIN, highest)  # noqa: S311 -- it is no secret
        if is_free(port) and _keep(port):
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _keep(port: int) -> bool:
    """Whether nobody else keeps it; then it is ours.

    It may be seconds until a server listens on it: clusters that start side by side would choose
    the same now and then. UDP's port of that number says that it is taken, and is in nobody's way.
    """
    mark = socket.socket(type=socket.SOCK_DGRAM)
    try:
        mark.bind((HOST, port))
    except OSError:
        mark.close()
        return False
    if len(_kept) == PORTS_KEPT:
        _kept.popleft().close()
    _kept.append(mark)
    return True


@atexit.register
def _close_kept() -> None:
    while _kept:
        _kept.popleft().close()


def _outgoing_min() -> int:
    try:
        return int(_OUTGOING.read_text("ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return OUTGOING_MIN


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still closing is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def check_ports(wishes: Sequence[PortWish]) -> None:
    """Raises LocalClusterError, naming the option, for a port that is in use or wished twice."""
    taken: dict[int, str] = {}
    for wish in wishes:
        if wish.port in taken:
            raise LocalClusterError(
                f"Port {wish.port} is asked for twice, for {taken[wish.port]} and {wish.user}; "
                f"give one of them another with {wish.option}."
            )
        if not is_free(wish.port, wish.host):
            raise LocalClusterError(
                f"Port {wish.port} of {wish.host}, meant for {wish.user}, is in use; stop what "
                f"uses it or choose another with {wish.option}."
            )
        taken[wish.port] = wish.user
