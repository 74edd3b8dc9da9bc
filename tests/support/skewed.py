"""A load of which one reducer gets nearly everything, and what the leader tells of its moves."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle

import polars as pl

from mars.client.answers import Move
from mars.core.plan import ValueType
from mars.core.types import TaskName
from mars.engine.codec.canonical import buckets_of_keys
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import Load, Row

COLD_EVERY = 500
"""Of so many rows one is of whatever bucket it falls into, all others are of the hot ones. Most
batches have none for a cold bucket: to read a batch costs a reducer more than its few rows do."""


class SkewedLoad(Load):
    """Nearly all rows are of the buckets of one reducer, as they are at the beginning."""

    def declare(self) -> None:
        super().declare()
        owners = wait_for("all reducers to own buckets", lambda: _shared_out(self.mars))
        self.hot_member = self.chosen(owners)
        self._hot = [bucket for bucket, member in owners.items() if member == self.hot_member]
        self.declared_ms = time.time() * 1000

    def chosen(self, owners: Mapping[int, str]) -> str:
        """The reducer whose buckets are hot: here the one that has most."""
        ((busiest, _), *_) = Counter(owners.values()).most_common()
        return busiest

    def addresses(self) -> Sequence[str]:
        """The keys of which those of hot buckets are taken."""
        return [f"10.9.{number // 250}.{number % 250}" for number in range(10_000)]

    def made(self, rows: list[Row]) -> list[Row]:
        addresses = self.addresses()
        pairs = pl.DataFrame({"sip": addresses, "type": ["hot"] * len(addresses)})
        kinds = [ValueType.STRING, ValueType.STRING]
        count = self.mars.client.cluster().buckets
        buckets = buckets_of_keys(TaskName(self.name), pairs, kinds, count)
        hot = cycle(pairs["sip"].filter(buckets.is_in(self._hot)).to_list())
        return [
            row if number % COLD_EVERY == 0 else row | {"sip": next(hot), "type": "hot"}
            for number, row in enumerate(rows)
        ]

    def moves(self, reason: str) -> list[Move]:
        """Since it was declared, those for which the leader states this reason."""
        balance = self.mars.client.cluster().balance
        return [
            move
            for move in (balance.moves if balance else ())
            if reason in move.reason and move.at >= self.declared_ms
        ]


def _shared_out(mars: MarsCluster) -> dict[int, str]:
    """Who owns what; nothing as long as a reducer has none."""
    cluster = mars.client.cluster()
    owners = {each.bucket: each.member for each in cluster.assignment}
    reducers = {member.id for member in cluster.members if member.role == "reducer"}
    return owners if reducers == set(owners.values()) else {}
