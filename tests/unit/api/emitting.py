"""Results as mappers and reducers would have made them of rows, and what the API says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mars.core.types import Bucket, Lane, Range, Records
from mars.engine.aggregates import merge_panes
from mars.engine.codec.states import decode_states
from mars.engine.finishing import finish
from mars.engine.kernel import decode, map_batch
from mars.protocol.ports import CommittedRow
from tests.unit.api.twins import BUCKETS, World

LANE = Lane("0")


def emit(world: World, rows: Sequence[Mapping[str, object]], upto_ms: int) -> None:
    """The windows of the current version that end by then."""
    plan, count = world.plan(), len(rows)
    values = [json.dumps(row).encode() for row in rows]
    records = Records(LANE, 0, count, values, range(count), [-1] * count)
    for partial in map_batch(plan, BUCKETS, decode(plan.stream, plan.fields, records)).partials:
        states = decode_states(partial.states)
        panes = [pane.start_ms for pane in partial.panes]
        for window in plan.window.windows_of(panes, upto_ms=upto_ms):
            found = finish(plan, merge_panes(plan, states, window), window)
            for key, value in zip(found.keys, found.values, strict=True):
                row = committed(partial.bucket, key, value, count)
                world.kafka.rows.append(replace(row, version=plan.version))
    world.kafka.rows.sort(key=lambda row: row.window)
    for bucket in range(BUCKETS):
        world.commit(
            bucket, closed_ms=upto_ms, merged={LANE: count}, counted=count, version=plan.version
        )


def committed(bucket: int, key: bytes, value: bytes, count: int) -> CommittedRow:
    """A row of the output topic that was counted from so many source rows."""
    ranges = (Range(LANE, 0, count),)
    return CommittedRow(bucket, 0, key, value, 1, 0, True, Bucket(bucket), 1, ranges, 2)


def ask(world: World, path: str, **query: Any) -> Any:
    """What the API answers about the task."""
    answer = world.http.get(f"/v1/tasks/by_sip/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()
