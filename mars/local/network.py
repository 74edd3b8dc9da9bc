"""Ports of this machine's loopback."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from mars.errors import LocalClusterError

HOST = "127.0.0.1"
"""The embedded cluster is for this machine only: it has no passwords."""


@dataclass(frozen=True, slots=True)
class PortWish:
    """A port that is to be listened on, for whom, and which option changes it."""

    user: str
    port: int
    option: str
    host: str = HOST


def free_port() -> int:
    """A port that nobody listens on now; somebody else may take it before it is used."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


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
