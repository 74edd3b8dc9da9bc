"""What breaks the links of one process, and how each is whole again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.kafka_proxy import END_TXN
from tests.support.linked import LinkedRole
from tests.support.proxy import Link, Way

SLOW_S = 0.3
"""Delay of each piece on a slow link: dozens of pieces make seconds."""

Break = Callable[[Link], None]


def _slow(link: Link) -> None:
    link.delay_s = SLOW_S


BREAKS: dict[str, Break] = {
    "cut": lambda link: link.cut(),
    "disconnect": lambda link: link.disconnect(),
    "stall": lambda link: link.stall(),
    "deaf up": lambda link: link.deafen(Way.UP),
    "deaf down": lambda link: link.deafen(Way.DOWN),
    "slow": _slow,
}


@contextmanager
def broken(role: LinkedRole, server: str, how: str) -> Iterator[None]:
    """One link of a process is broken inside of the `with`."""
    link = {"kafka": role.kafka, "zookeeper": role.zookeeper, "redis": role.redis}[server]
    BREAKS[how](link)
    try:
        yield
    finally:
        link.heal()


@contextmanager
def commits_unanswered(role: LinkedRole, times: int) -> Iterator[None]:
    """The broker commits, the process never hears of it."""
    link = role.kafka
    before = len(link.lost)
    link.lose_answers(lambda request: request.api == END_TXN and len(link.lost) - before < times)
    try:
        yield
    finally:
        link.lose_answers(None)


@contextmanager
def commits_late(role: LinkedRole, times: int) -> Iterator[None]:
    """A commit arrives when the next transaction of the same bucket has begun."""
    link = role.kafka
    before = len(link.held)
    link.hold(lambda request: request.api == END_TXN and len(link.held) - before < times)
    try:
        yield
    finally:
        link.release_all()
