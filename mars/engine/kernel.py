"""The kernel: messages of one lane to the partials of a task. Pure: no clock, no chance.

    records ──decode──▶ columns ──▶ bad? future? filtered? ──▶ pane, keys, arguments
                                                                  │ group by pane and keys
        one Partial a bucket ◀── sort by bucket ◀── hash of key ◀──┘ states of the aggregates

`decode` runs once for all tasks that read a topic. So does `map_many`: which rows are usable, which
of them a filter leaves, and each column of keys and arguments is found out once for all plans that
agree in it (`SharedColumns`), and which of few rows belong together for all that agree in their
keys, whatever their filters (`Runs`). What is found out of many rows is each plan's from there on.
Each row has one fate, looked for in this order: bad, future, filtered, counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import polars as pl

from mars.core.plan import Aggregate, Call, Column, Expression, Function, Literal, Plan, ValueType
from mars.core.types import (
    NOT_KNOWN,
    Bucket,
    Lane,
    Mapped,
    PaneRows,
    Partial,
    Range,
    Reason,
    RejectedRange,
    RejectedRow,
    Rejections,
    RowCounts,
    RowNumbers,
    TaskName,
)
from mars.engine.aggregates import (
    PANE,
    ROWS,
    columns,
    in_panes,
    key_names,
    lift,
    merge,
    state_schema,
)
from mars.engine.codec.canonical import (
    bucket_of_lane,
    bucket_of_task,
    buckets_of_keys,
    buckets_of_texts,
)
from mars.engine.codec.states import BATCH_STATES_BYTES_MAX, check_size, encode_states
from mars.engine.counted import BatchRows, ByKey, Counted, FirstOffsets, InOrder, numbered
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.messages import decode
from mars.engine.decode.usable import Screening, Usable, rows_for, screening_of
from mars.engine.evaluate.shared import (
    Exactly,
    PaneOf,
    SharedColumns,
    Wanted,
    exactly,
    key_of,
    to_column,
)

__all__ = [
    "Answers",
    "Decoded",
    "answering",
    "decode",
    "key_columns",
    "map_batch",
    "map_decoded",
    "map_gone",
    "map_many",
]

_NONE_COUNTED: Mapping[TaskName, int] = MappingProxyType({})

CELLS_MAX = 1_000_000
"""Buckets times panes up to which rows are added up in an array of all of them (8 MB)."""


Answers = dict[TaskName, Mapped | Exception]
"""What some rows add to each of some tasks, or what went wrong with that."""


def map_many(
    plans: Iterable[Plan],
    buckets: int,
    decoded: Decoded,
    numbers: Mapping[TaskName, int] = _NONE_COUNTED,
) -> Answers:
    """What a batch adds to each task: partials by bucket, and the marks it leaves.

    `numbers`: how many rows of a task that counts them lie before the batch, which is of one lane
    then. The plans are of different tasks. `decoded` must hold all their fields; neither what else
    it holds nor the other plans make a difference. Equal input gives equal bytes. What is raised
    for a plan, TaskLimit where a state outgrows its limit, is the answer to that plan only (I7).
    """
    answers: Answers = {}
    alike: defaultdict[Screening, list[Plan]] = defaultdict(list)
    for plan in plans:
        with answering(answers, [plan]):
            alike[screening_of(plan, decoded)].append(plan)
    for screening, same in alike.items():
        with answering(answers, same):
            usable = rows_for(screening, decoded)
            answers |= _map_usable(same, buckets, BatchRows(decoded.records, usable, numbers, same))
    return answers


def map_batch(plan: Plan, buckets: int, decoded: Decoded, number: int | None = None) -> Mapped:
    """The same for a plan alone. Raises TaskLimit where a state outgrows its limit."""
    numbers = _NONE_COUNTED if number is None else {plan.task: number}
    answer = map_many([plan], buckets, decoded, numbers)[plan.task]
    if isinstance(answer, Exception):
        raise answer
    return answer


def map_decoded(
    decoded: Iterable[tuple[Sequence[Plan], Decoded | Exception]],
    rows: Range | None,
    buckets: int,
    numbers: Mapping[TaskName, int] = _NONE_COUNTED,
) -> Answers:
    """The same for what `SharedDecoding` answers: all of it, or the rows that lie in a range."""
    answers: Answers = {}
    for plans, found in decoded:
        with answering(answers, plans):
            if isinstance(found, Exception):
                raise found
            own = found if rows is None else found.from_offset(rows.first).until(rows.next)
            answers |= map_many(plans, buckets, own, numbers)
    return answers


@contextmanager
def answering(answers: Answers, plans: Iterable[Plan]) -> Iterator[None]:
    """What is raised within is the answer to these plans, and stops no other."""
    try:
        yield
    except Exception as problem:  # noqa: BLE001 -- whatever it is, only these tasks stop (I7)
        answers.update({plan.task: problem for plan in plans})


def _map_usable(plans: Sequence[Plan], buckets: int, batch: BatchRows) -> Answers:
    """The same for plans that can use the same rows: one filter after the other."""
    answers: Answers = {}
    alike: defaultdict[tuple[Exactly | None, bool, TaskName | None], list[Plan]] = defaultdict(list)
    for plan in plans:
        where = None if plan.filter is None else exactly(plan.filter)
        alike[where, plan.counts_rows, plan.task if plan.counts_by_key else None].append(plan)
    for (_where, in_order, alone), same in alike.items():
        with answering(answers, same):
            if alone is not None:
                counted: Counted = ByKey(batch, same[0])
            else:
                counted = (InOrder if in_order else Counted)(batch, same[0].filter)
            for plan in same:
                with answering(answers, [plan]):
                    answers[plan.task] = _mapped(plan, buckets, counted)
    return answers


def _mapped(plan: Plan, buckets: int, counted: Counted) -> Mapped:
    grouped, owners = _grouped(plan, buckets, counted)
    partials = list(_partials(plan, grouped, owners, counted.first_offsets(plan)))
    usable = counted.batch.usable
    rest = _rest(plan, buckets, usable, counted.filtered)
    mapped = Mapped(
        ranges=counted.batch.records.ranges,
        marks_ms=usable.marks_ms,
        partials=tuple(_with_rest(partials, rest) if rest else partials),
    )
    return counted.named(plan, mapped)


def _rest(
    plan: Plan, buckets: int, usable: Usable, filtered: Mapping[Lane, int]
) -> dict[Bucket, Partial]:
    """The rows that are in no group, in the bucket that accounts for those of their lane."""
    bad, future = usable.bad_by_lane, usable.future_by_lane
    counts: defaultdict[Bucket, list[int]] = defaultdict(lambda: [0, 0, 0])
    for fate, by_lane in enumerate((filtered, bad, future)):
        for lane, count in by_lane.items():
            counts[_home(plan, buckets, lane)][fate] += count
    rows: defaultdict[Bucket, list[RejectedRow]] = defaultdict(list)
    for row in usable.rejections.rows:
        rows[_home(plan, buckets, row.lane)].append(row)
    ranges: defaultdict[Bucket, list[RejectedRange]] = defaultdict(list)
    for part in usable.rejections.ranges:
        ranges[_home(plan, buckets, part.lane)].append(part)
    return {
        home: Partial(
            home, RowCounts(0, *own), (), b"", Rejections(tuple(rows[home]), tuple(ranges[home]))
        )
        for home, own in counts.items()
    }


def map_gone(plan: Plan, buckets: int, part: Range, number: int = 0) -> Mapped:
    """A batch of rows that are no longer there: a reference to them, and no counts.

    Every bucket is told, because a window of each may lack rows; one counts them. `number`: how
    many rows of a task that counts them lie before; how many are gone nobody knows.
    """
    home = _home(plan, buckets, part.lane)
    told = [home] if plan.single_bucket else [Bucket(number) for number in range(buckets)]

    def partial(bucket: Bucket) -> Partial:
        rows = part.next - part.first if bucket == home else 0
        gone = RejectedRange(part.lane, part.first, part.next, Reason.GONE, rows)
        return Partial(bucket, RowCounts(), (), b"", Rejections((), (gone,)))

    mapped = Mapped((part,), {}, tuple(map(partial, told)))
    return numbered(plan, mapped, RowNumbers(number, NOT_KNOWN)) if plan.counts_rows else mapped


def _home(plan: Plan, buckets: int, lane: Lane) -> Bucket:
    """The bucket that accounts for rows without a key."""
    if plan.single_bucket:
        return bucket_of_task(plan.task, buckets)
    return bucket_of_lane(lane, buckets)


def _with_rest(partials: Iterable[Partial], rest: Mapping[Bucket, Partial]) -> list[Partial]:
    """The partials and the rows that were not counted, in order of buckets."""
    whole = dict(rest)
    for own in partials:
        more = rest.get(own.bucket)
        whole[own.bucket] = (
            own
            if more is None
            else replace(own, counts=own.counts + more.counts, rejections=more.rejections)
        )
    return [whole[bucket] for bucket in sorted(whole)]


# ------------------------------------------------------------------------------------ grouping


Owners = npt.NDArray[np.unsignedinteger]
"""The bucket of each group, in as few bytes as will do: these are sorted without comparing."""


def _grouped(plan: Plan, buckets: int, counted: Counted) -> tuple[pl.DataFrame, Owners]:
    """One row per (pane, key) of the counted rows: pane, keys, states and ROWS. In order of their
    buckets, and there of first appearance.

    Where expressions read very much text, slices of the rows are grouped, and merged one by one.
    Both ways give the same but for sums of floats, whose way depends on the number of rows alone.
    """
    rows = counted.columns
    arguments = [_argument(one) for one in plan.aggregates]
    read = [key.expression for key in plan.keys]
    read += [one for one in arguments if one is not None]
    if rows.are_few(read) and counted.may_share(plan):
        return _grouped_in_runs(plan, buckets, arguments, counted)
    groups = _groups_of(plan, counted.pane_of(plan))
    slices = (_grouped_at_once(plan, arguments, groups, piece) for piece in rows.slices(read))
    grouped = reduce(lambda one, other: _joined(plan, one, other), slices)
    owners = _owners(plan, buckets, grouped)
    order = np.argsort(owners, kind="stable")
    picked = pl.Series(order.astype(np.uint32))
    return pl.DataFrame([column[picked] for column in grouped.get_columns()]), owners[order]


def _grouped_in_runs(
    plan: Plan, buckets: int, arguments: Sequence[Expression | None], counted: Counted
) -> tuple[pl.DataFrame, Owners]:
    """The same of few rows: which of them belong together is found out once for all filters."""
    groups = _groups_of(plan, counted.pane_of(plan))
    runs = counted.columns.groups(list(groups.values()))
    if plan.single_bucket:
        owners = np.full(len(runs.groups), bucket_of_task(plan.task, buckets), _dtype(buckets))
    else:
        texts = counted.batch.texts.of(plan, groups)
        own = (texts[number] for number in runs.groups.tolist())
        found = buckets_of_texts(plan.task, own, buckets)
        owners = np.fromiter(found, _dtype(buckets), len(runs.groups))
    runs = runs.sorted_by(owners)
    wanted, names = _read(plan, arguments)
    rows = counted.columns.frame(wanted)
    return lift(plan, rows, names, list(groups), runs), owners[runs.order]


def _groups_of(plan: Plan, pane: PaneOf) -> dict[str, Wanted]:
    """What rows must agree in, by its column."""
    groups: dict[str, Wanted] = {PANE: pane}
    return groups | {key.slot: key_of(key.expression) for key in plan.keys}


def _read(
    plan: Plan, arguments: Sequence[Expression | None]
) -> tuple[dict[str, Wanted], list[str]]:
    """The columns that aggregates read, and the name of that of each."""
    any_will_do = Column(plan.stream.event_time, ValueType.TIMESTAMP)
    read = [any_will_do if one is None else one for one in arguments]
    names = {one: f"v{at}" for at, one in enumerate(dict.fromkeys(read))}
    return {name: one for one, name in names.items()}, [names[one] for one in read]


def _joined(plan: Plan, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Groups of two slices as if they had been one. Raises TaskLimit where they take too much."""
    both, groups = [one, other], [PANE, *key_names(plan)]
    states = merge(plan, [columns(piece, state_schema(plan)) for piece in both])
    check_size(states)
    counted = pl.concat([columns(piece, [*groups, ROWS]) for piece in both])
    rows = counted.group_by(groups, maintain_order=True).agg(pl.col(ROWS).sum())
    return states.with_columns(rows.get_column(ROWS))


def _grouped_at_once(
    plan: Plan,
    arguments: Sequence[Expression | None],
    groups: Mapping[str, Wanted],
    rows: SharedColumns,
) -> pl.DataFrame:
    wanted, names = _read(plan, arguments)
    narrow = rows.frame({**groups, **wanted})
    return in_panes(narrow, key_names(plan), lambda groups: lift(plan, narrow, names, groups))


def key_columns(plan: Plan) -> list[pl.Expr]:
    """The keys of usable rows, by their slots."""
    return [to_column(key_of(key.expression)).alias(key.slot) for key in plan.keys]


def _argument(aggregate: Aggregate) -> Expression | None:
    """The values that an aggregate takes, NULL where its filter is not true; None: of all rows."""
    value, where = aggregate.argument, aggregate.filter
    if value is None or where is None:
        return value or where
    return Call(Function.CASE, (where, value, Literal(None, value.type)), value.type)


# ------------------------------------------------------------------------------------- buckets


def _partials(
    plan: Plan, grouped: pl.DataFrame, owners: Owners, firsts: FirstOffsets
) -> Iterator[Partial]:
    """The groups cut into one partial per bucket that has any."""
    if grouped.is_empty():
        return
    panes = _panes_by_bucket(plan, owners, grouped, firsts)
    states = pl.DataFrame(grouped.get_columns()[:-1])
    begin = 0
    for bucket, size in enumerate(np.bincount(owners).tolist()):
        if size:
            yield Partial(
                bucket=Bucket(bucket),
                counts=RowCounts(counted=sum(pane.rows for pane in panes[bucket])),
                panes=tuple(panes[bucket]),
                states=encode_states(states.slice(begin, size), BATCH_STATES_BYTES_MAX),
            )
        begin += size


def _owners(plan: Plan, buckets: int, groups: pl.DataFrame) -> Owners:
    """The bucket of each group."""
    if plan.single_bucket:
        return np.full(groups.height, bucket_of_task(plan.task, buckets), _dtype(buckets))
    types = [key.expression.type for key in plan.keys]
    keys = columns(groups, key_names(plan))
    return buckets_of_keys(plan.task, keys, types, buckets).to_numpy().astype(_dtype(buckets))


def _dtype(buckets: int) -> np.dtype[np.unsignedinteger]:
    """That of the numbers of so many buckets."""
    return np.min_scalar_type(buckets - 1)


def _panes_by_bucket(
    plan: Plan, owners: Owners, groups: pl.DataFrame, firsts: FirstOffsets
) -> dict[int, list[PaneRows]]:
    """How many rows fall into which pane."""
    shape, rows = plan.window, groups.get_column(ROWS).to_numpy()
    numbers = shape.pane_numbers(groups.get_column(PANE).to_numpy())
    low = int(numbers.min())
    count = int(numbers.max()) - low + 1
    cells = owners.astype(np.int64) * count + (numbers - low)
    # Sums are floats, exact below 2^53 rows.
    if int(cells.max()) < CELLS_MAX:
        sums = np.bincount(cells, weights=rows)
        found = np.flatnonzero(sums)
        sums = sums[found]
    else:
        found, at = np.unique(cells, return_inverse=True)
        sums = np.bincount(at, weights=rows)
    panes: dict[int, list[PaneRows]] = {}
    for cell, counted in zip(found.tolist(), sums.tolist(), strict=True):
        bucket, pane = divmod(cell, count)
        found_in = firsts(low + pane)
        start_ms = shape.pane_numbered(low + pane)
        panes.setdefault(bucket, []).append(PaneRows(start_ms, int(counted), found_in))
    return panes
