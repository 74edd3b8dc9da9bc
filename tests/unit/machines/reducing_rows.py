"""Tasks, log entries and heads for tests of the reducing side, made with the real kernel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict, Unpack

from mars.core.definitions import TaskDefinition, TaskState, TaskVersion
from mars.core.plan import (
    OFFSET_FIELD,
    Aggregate,
    AggregateFunction,
    Column,
    Emit,
    Field,
    FieldType,
    Format,
    Key,
    LatePolicy,
    Options,
    Output,
    OverMaxKeys,
    Plan,
    Stream,
    ValueType,
    WatermarkScope,
)
from mars.core.types import (
    AssignmentEpoch,
    Bucket,
    Entry,
    Lane,
    Range,
    Records,
    Sequence64,
    StoreEpoch,
    StreamName,
    TaskName,
    Topic,
)
from mars.core.windows import Counting, CountingByKey, Sliding, WindowShape
from mars.engine.aggregates import key_place_aggregates, place_aggregates, scope_aggregates
from mars.engine.kernel import decode, map_batch, map_gone
from mars.protocol.ports import Emission, Frontier, Head, Ledger, LogSlice, Progress
from mars.protocol.reducer.version import Ownership
from mars.protocol.runnable import RunnableTask
from mars.protocol.windows.folding import Folding
from mars.protocol.windows.pane_state import PaneState
from mars.sql.bounds import since

E1 = StoreEpoch(1)
A1 = AssignmentEpoch(1)
BUCKET = Bucket(0)
NAME = TaskName("a")
P0, P1 = Lane("0"), Lane("1")
TUMBLING = Sliding(10_000, 10_000)
SLIDING = Sliding(20_000, 10_000)
STREAM = Stream(
    StreamName("flows"),
    "flows",
    Format.JSON,
    (Field("ts", FieldType.TIMESTAMP_MS), Field("k", FieldType.STRING)),
    "ts",
)
OWNER = Ownership(BUCKET, A1, E1)

RowSpec = tuple[int, str]
"""Event time in seconds, and key; an empty key makes a row that cannot be read."""

SAVE_MS = 900_000
"""How often panes are saved; none of the windows here is open for so long."""


class PlanOptions(TypedDict, total=False):
    """What tests set of a task's `Options`."""

    delay_ms: int
    idle_after_ms: int
    late: LatePolicy
    lateness_ms: int
    max_keys: int | None
    over_max_keys: OverMaxKeys
    watermark: WatermarkScope
    key_lag_ms: int
    emit: Emit


def make_plan(
    name: str = NAME,
    version: int = 1,
    window: WindowShape = TUMBLING,
    **options: Unpack[PlanOptions],
) -> Plan:
    """Rows per key and window."""
    topic = f"mars.results.{name}"
    chosen = replace(Options(topic), **options)
    hidden: tuple[Aggregate, ...] = ()
    if chosen.watermark is not WatermarkScope.PARTITION:
        hidden = scope_aggregates(STREAM.event_time)
    elif isinstance(window, CountingByKey):
        hidden = key_place_aggregates(STREAM.event_time)
    elif isinstance(window, Counting):
        hidden = place_aggregates(STREAM.event_time)
    plan = Plan(
        task=TaskName(name),
        version=version,
        stream=STREAM,
        window=window,
        keys=(Key("k0", Column("k", ValueType.STRING)),),
        aggregates=(
            Aggregate("a0", AggregateFunction.COUNT_ALL, None, None, ValueType.INT64),
            *hidden,
        ),
        outputs=(
            Output("k", Column("k0", ValueType.STRING)),
            Output("n", Column("a0", ValueType.INT64)),
        ),
        options=chosen,
        fields=(*STREAM.fields, OFFSET_FIELD) if isinstance(window, Counting) else STREAM.fields,
    )
    return since(plan, window.begins_ms)


def make_version(
    number: int = 1, starts: Mapping[Lane, int] | None = None, **changes: object
) -> TaskVersion:
    """A version that has begun at `starts`; {}: at the beginning of every lane."""
    begun = {} if starts is None else starts
    made = TaskVersion(number, "", {}, STREAM, "topic-id", 0, begun)
    return replace(made, **changes)  # type: ignore[arg-type]


def make_task(
    *versions: TaskVersion,
    name: str = NAME,
    state: TaskState = TaskState.RUNNING,
    window: WindowShape = TUMBLING,
    first_version: int = 1,
    resumes: int = 0,
    **options: Unpack[PlanOptions],
) -> RunnableTask:
    """A task with plans of all its versions and two output partitions."""
    kept = versions or (make_version(),)
    definition = TaskDefinition(
        TaskName(name), state, kept, first_version=first_version, resumes=resumes
    )
    plans = {one.version: make_plan(name, one.version, window, **options) for one in kept}
    return RunnableTask(definition, plans, {f"mars.results.{name}": 2})


def message(row: RowSpec) -> bytes:
    """A row as it lies in the topic."""
    seconds, key = row
    return json.dumps({"ts": seconds * 1000, "k": key}).encode() if key else b"not JSON"


def make_entry(
    seq: int, first: int, rows: Sequence[RowSpec], lane: Lane = P0, plan: Plan | None = None
) -> Entry:
    """The log entry of a batch of rows that begins at offset `first`, in a single bucket."""
    plan = plan or make_plan()
    offsets = range(first, first + len(rows))
    values = [message(row) for row in rows]
    records = Records(lane, first, offsets.stop, values, offsets, [-1] * len(rows))
    mapped = map_batch(plan, 1, decode(STREAM, plan.fields, records))
    (partial,) = mapped.partials
    return Entry(Sequence64(seq), plan.version, mapped.ranges, partial)


def make_gap(seq: int, first: int, after: int, lane: Lane = P0) -> Entry:
    """The log entry that says that Kafka no longer had these rows."""
    plan = make_plan()
    mapped = map_gone(plan, 1, Range(lane, first, after))
    return Entry(Sequence64(seq), plan.version, mapped.ranges, mapped.partials[0])


def make_slice(*entries: Entry, base: Entry | None = None) -> LogSlice:
    """What a read of the log gives."""
    return LogSlice(base, entries)


def make_head(
    seq: int, offsets: Mapping[Lane, int], mark_s: int | None = None, **changes: object
) -> Head:
    """A look at a task whose lanes all have one mark, in seconds."""
    marks = {} if mark_s is None else dict.fromkeys(offsets, mark_s * 1000)
    head = Head(E1, 1, True, dict(offsets), marks, frozenset(), Sequence64(seq), 0, 0)
    return replace(head, **changes)  # type: ignore[arg-type]


def make_progress(
    merged: Mapping[Lane, int], name: str = NAME, version: int = 1, **changes: object
) -> Progress:
    """A record of an earlier owner."""
    record = Progress(
        task=TaskName(name),
        version=version,
        bucket=BUCKET,
        assignment_epoch=A1,
        store_epoch=E1,
        emit=1,
        closed_ms=None,
        merged=merged,
        needed=merged,
        ledger=Ledger(),
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def make_folding(plan: Plan, **said: object) -> Folding:
    """A folding that begins after a record that says this; without any, at the beginning."""
    record = replace(make_progress({}, plan.task, plan.version), **said) if said else None  # type: ignore[arg-type]
    return Folding(plan, BUCKET, {}, record)


def panes_of(folding: Folding) -> PaneState:
    """The state of a folding whose windows are made of panes."""
    assert isinstance(folding.state, PaneState)
    return folding.state


def make_frontier(
    merged: Mapping[Lane, int],
    closed_ms: int | None = None,
    forgotten_ms: int | None = None,
    ahead_ms: int | None = None,
) -> Frontier:
    """What a commit comes to; nothing is revised unless D is named."""
    return Frontier(
        merged, closed_ms, closed_ms if forgotten_ms is None else forgotten_ms, ahead_ms
    )


def make_emission(name: str = NAME, emit: int = 1) -> Emission:
    """Some rows that an earlier owner wrote."""
    return Emission(Topic(f"mars.results.{name}"), 0, emit, 0, 0, 1, 7)


def counts_of(values: Iterable[bytes]) -> dict[tuple[int, str], int]:
    """(window start in seconds, key) -> n."""
    found: dict[tuple[int, str], int] = {}
    for value in values:
        row = json.loads(value)
        place = (row["window_start"] // 1000, row["k"])
        assert place not in found, f"emitted twice: {place}"
        found[place] = row["n"]
    return found


def absorb(folding: Folding, seq: int, first: int, rows: list[RowSpec], lane: Lane = P0) -> None:
    """Let a task in a bucket take an entry of these rows."""
    folding.absorb(make_entry(seq, first, rows, lane, folding.plan))


def closed_windows(folding: Folding, watermark_s: int) -> dict[tuple[int, int, str], int]:
    """By start and end of the window in seconds, and key: the rows of the windows that are due."""
    found: dict[tuple[int, int, str], int] = {}
    for window in folding.state.close(folding.state.due(watermark_s * 1000)):
        for value in window.finished.values:
            row = json.loads(value)
            place = row["window_start"] // 1000, row["window_end"] // 1000, row["k"]
            assert place not in found, f"emitted twice: {place}"
            found[place] = row["n"]
    return found


def balanced(ledger: Ledger) -> bool:
    """I2."""
    fates = ledger.counted + ledger.filtered + ledger.bad + ledger.future + ledger.late
    return ledger.read == fates and 0 <= ledger.emitted <= ledger.counted
