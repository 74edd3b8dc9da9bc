"""Mappers and reducers come and go all the time.

The numbers are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.faults.nemesis import come_or_go, let_buckets_move
from tests.support.cluster import MarsCluster
from tests.support.linked import LinkedRole
from tests.support.load import LONG_S, Load
from tests.support.progress import claims

pytestmark = pytest.mark.faults

JOIN_OR_LEAVE_S = 2
MOVE_S = 3
MOVED_MIN = 4


def test_13_mappers_that_join_and_leave(mars: MarsCluster) -> None:
    with ExitStack() as stack:
        guests = [stack.enter_context(LinkedRole(mars, "mapper", f"mapper-{n}")) for n in "ab"]
        with Load(mars, "f13", seconds=20).running() as load:
            turns = load.every(JOIN_OR_LEAVE_S, lambda turn: come_or_go(guests[turn % 2]))

        load.check()
        assert turns >= 4


def test_14_buckets_that_move(mars: MarsCluster) -> None:
    with LinkedRole(mars, "reducer", "reducer-a") as guest:
        before = claims(mars.file["kafka"])

        def moves() -> int:
            return len(claims(mars.file["kafka"]) - before)

        def enough() -> bool:
            return moves() >= MOVED_MIN

        with Load(mars, "f14", seconds=LONG_S).running() as load:
            load.every(MOVE_S, lambda _: let_buckets_move(mars, guest), until=enough)

        load.check()
        assert enough()
