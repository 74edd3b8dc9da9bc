"""Reducers beside the twins: what they fold of rows that Kafka and the store have, too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mars.core.types import Bucket, Entry, Lane, Records, Sequence64, TaskName, Topic
from mars.engine.kernel import decode, map_batch
from mars.protocol.windows.folding import Folding
from tests.unit.api.twins import BUCKETS, World

LANES = Lane("0"), Lane("1")
TASK = TaskName("by_sip")

Row = tuple[float, str]
"""Seconds, and the key."""


@dataclass
class Reducers:
    """The buckets of a task over two partitions; who inherits says what they commit."""

    world: World
    foldings: list[Folding] = field(default_factory=list)
    ends: dict[Lane, int] = field(default_factory=lambda: dict.fromkeys(LANES, 0))
    emits: int = 0

    def __post_init__(self) -> None:
        plan = self.world.plan()
        self.foldings = [Folding(plan, Bucket(one), dict(self.ends)) for one in range(BUCKETS)]

    def read(self, rows: Sequence[Row], partition: int) -> None:
        """Rows come; all buckets fold them, for the commit with the next number."""
        plan, lane = self.world.plan(), LANES[partition]
        first = self.ends[lane]
        values = [
            json.dumps({"timestamp": int(at * 1000), "sip": sip, "bytes": first + place}).encode()
            for place, (at, sip) in enumerate(rows)
        ]
        head = self.world.log.head([TASK])[TASK]
        assert head is not None
        number = head.rows.get(lane, 0) if plan.counts_rows else None
        self.world.run_batch(values, first=first, partition=partition)
        for value in values:
            self.world.broker.append(Topic("flows"), partition, value, timestamp_ms=-1)
        self.ends[lane] = after = first + len(rows)
        records = Records(lane, first, after, values, range(first, after), [-1] * len(values))
        mapped = map_batch(plan, BUCKETS, decode(plan.stream, plan.fields, records), number)
        self.emits += 1
        for part in mapped.partials:
            entry = Entry(Sequence64(self.emits), plan.version, mapped.ranges, part)
            self.foldings[part.bucket].absorb(entry)


def ask(world: World, status: int = 200, **query: Any) -> Any:
    """What `GET /v1/tasks/by_sip/verify` answers."""
    answer = world.http.get("/v1/tasks/by_sip/verify", params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


def change_at(world: World, place: int, **values: object) -> None:
    """Somebody changed a result."""
    row = world.kafka.rows[place]
    raw = json.dumps(json.loads(row.value) | values, separators=(",", ":")).encode()
    world.kafka.rows[place] = replace(row, value=raw)
