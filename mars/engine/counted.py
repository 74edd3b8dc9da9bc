"""The rows of a batch that some plans can use, and those of them that a filter leaves.

What is found out of them is found out once for all plans that agree in it. Plans that count rows
get their numbers, too: the rows that are left, in the order of their offsets (decision 52).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import polars as pl

from mars.core.plan import Column, Expression, Plan, ValueType
from mars.core.types import (
    NOT_KNOWN,
    Lane,
    Mapped,
    Numbers,
    Records,
    RowNumbers,
    TaskName,
    lane_partition,
    live_lane,
)
from mars.core.windows import WindowShape
from mars.core.windows.counting import BEFORE_ALL_MS, EARLIEST_MS, CountedAndSeen, first_place
from mars.engine.aggregates import PANE, SEEN, merges_exactly
from mars.engine.codec.canonical import texts_of_keys
from mars.engine.decode.lanes import LANE, rows_by_lane
from mars.engine.decode.usable import Usable
from mars.engine.evaluate.shared import (
    GROUPS_MAX,
    Exactly,
    PaneOf,
    SharedColumns,
    Wanted,
    exactly,
)

NUMBER = "\0number"
"""The column with the number of each row among those of the batch that a filter leaves; no field
has such a name."""

FirstOffsets = Callable[[int], Mapping[Lane, int]]
"""For the number of a pane, the lanes that have rows in it, and an offset that none lies below."""


class BatchRows:
    """The rows that some plans can use, and what is found out of them whatever their filters."""

    def __init__(
        self,
        records: Records,
        usable: Usable,
        numbers: Mapping[TaskName, int],
        plans: Sequence[Plan],
    ) -> None:
        self.records = records
        self.usable = usable
        self.numbers = numbers
        self.alone = len(plans) == 1
        """One plan reads them: polars groups its rows faster than runs of them are found."""
        self.whole = SharedColumns(usable.rows, None)
        self.texts = KeyTexts(self.whole)


class Counted:
    """The rows that a filter leaves, and what is found out of them once for all its plans."""

    def __init__(self, batch: BatchRows, where: Expression | None) -> None:
        whole, rows = batch.whole, batch.usable.rows
        self.batch = batch
        self.columns = whole if where is None else SharedColumns(rows, where, whole)
        self._first_offsets: dict[WindowShape, FirstOffsets] = {}

    @cached_property
    def filtered(self) -> Mapping[Lane, int]:
        """How many rows of each lane the filter leaves out."""
        rows = self.batch.usable.rows
        if self.columns.height == rows.height:
            return {}
        return rows_by_lane(self.batch.records, rows, self.columns.left_out)

    def pane_of(self, plan: Plan) -> PaneOf:
        """The pane into which each row falls."""
        return PaneOf(plan.stream.event_time, plan.window)

    def may_share(self, plan: Plan) -> bool:
        """Whether other plans may group the rows by the same panes."""
        return not (self.batch.alone and merges_exactly(plan))

    def first_offsets(self, plan: Plan) -> FirstOffsets:
        """Which lanes have rows in a pane, and from which offset on."""
        if plan.window not in self._first_offsets:
            found = _first_offsets(self.pane_of(plan), self.columns, self.batch.records)
            self._first_offsets[plan.window] = found
        return self._first_offsets[plan.window]

    def named(self, plan: Plan, mapped: Mapped) -> Mapped:
        """The batch with the numbers of its rows, where they have some."""
        return mapped


class InOrder(Counted):
    """The same for plans that count rows: the columns are of the rows that are left, and have their
    numbers.
    """

    def __init__(
        self, batch: BatchRows, where: Expression | None, more: pl.Series | None = None
    ) -> None:
        super().__init__(batch, where)
        left_out = self.columns.left_out
        rows = batch.usable.rows if more is None else batch.usable.rows.with_columns(more)
        rows = rows if left_out is None else rows.filter(~left_out)
        self._left_out = rows_by_lane(batch.records, batch.usable.rows, left_out)
        numbers = pl.Series(NUMBER, np.arange(rows.height, dtype=np.int64))
        self.columns = SharedColumns(rows.with_columns(numbers), None)

    @cached_property
    def filtered(self) -> Mapping[Lane, int]:
        """How many rows of each lane the filter leaves out."""
        return self._left_out if self.columns.height < self.batch.usable.rows.height else {}

    def pane_of(self, plan: Plan) -> PaneOf:
        """The pane into which each row falls, by its place in its lane."""
        return PaneOf(NUMBER, plan.window, first_place_of(self._lane) + self._number(plan))

    def may_share(self, plan: Plan) -> bool:
        """Not so: their numbers begin elsewhere."""
        return False

    @property
    def _lane(self) -> Lane:
        records = self.batch.records
        if records.several is not None:
            raise ValueError("rows of several lanes have no order in which they are counted")
        return records.lane

    def _number(self, plan: Plan) -> int:
        """Not 0 where nobody says: such rows would be those of windows long closed."""
        return _number_of(self.batch, plan)

    def named(self, plan: Plan, mapped: Mapped) -> Mapped:
        """The batch with the numbers of its rows."""
        first = self._number(plan)
        return numbered(plan, mapped, RowNumbers(first, first + self.columns.height))


class ByKey(InOrder):
    """The same for a plan that counts the rows of each key: their columns say how far the event
    time of their lane had come, too (decision 59). What came before is its own.
    """

    def __init__(self, batch: BatchRows, plan: Plan) -> None:
        self._before = CountedAndSeen.of(_number_of(batch, plan))
        times = batch.usable.rows.get_column(plan.stream.event_time)
        since = pl.Series(SEEN, times.to_numpy().clip(EARLIEST_MS) - BEFORE_ALL_MS)
        seen = since.cum_max().clip(self._before.seen)
        self._seen = self._before.seen if seen.is_empty() else int(seen[-1])
        super().__init__(batch, plan.filter, seen)

    def _number(self, plan: Plan) -> int:
        """See `InOrder`."""
        return self._before.rows

    def named(self, plan: Plan, mapped: Mapped) -> Mapped:
        """The batch with the numbers of its rows, and what was seen before it and with it."""
        after = CountedAndSeen(self._before.rows + self.columns.height, self._seen)
        return numbered(plan, mapped, RowNumbers(self._before.number, after.number))


def _number_of(batch: BatchRows, plan: Plan) -> int:
    number = batch.numbers.get(plan.task)
    if number is None:
        raise ValueError(f"task {plan.task} counts rows: how many lie before these?")
    return number


def first_place_of(lane: Lane) -> int:
    """The place of the first row of a lane."""
    partition = lane_partition(lane)
    if partition is None or lane != live_lane(partition):
        raise ValueError(f"lane {lane}: rows of a history have no numbers")
    return first_place(partition)


def numbered(plan: Plan, mapped: Mapped, numbers: RowNumbers) -> Mapped:
    """A batch of one lane with the numbers of its rows. Partials name them for who has to know the
    first rows that it needs: not where the rows of each key are counted, which needs all.
    """
    (part,) = mapped.ranges
    known = numbers.first != NOT_KNOWN and not plan.counts_by_key
    below: Numbers = {part.lane: {part.first: numbers.first}} if known else {}
    partials = tuple(replace(partial, numbers=below) for partial in mapped.partials)
    return replace(mapped, partials=partials, numbered={part.lane: numbers})


class KeyTexts:
    """The texts of the keys of all groups, in the order in which `groups` of all rows names them:
    by which their buckets are found, whatever the task.
    """

    def __init__(self, whole: SharedColumns) -> None:
        self._whole = whole
        self._known: dict[tuple[Exactly, ...], list[bytes]] = {}

    def of(self, plan: Plan, groups: Mapping[str, Wanted]) -> list[bytes]:
        """Those of the keys of a plan, which agree in the columns `groups`."""
        place = tuple(map(exactly, groups.values()))
        if place not in self._known:
            if len(self._known) >= GROUPS_MAX:
                self._known.clear()
            _pane, *keys = self._whole.groups(list(groups.values())).keys(groups)
            types = [key.expression.type for key in plan.keys]
            self._known[place] = texts_of_keys(pl.DataFrame(keys), types)
        return self._known[place]


def _first_offsets(pane_of: PaneOf, counted: SharedColumns, records: Records) -> FirstOffsets:
    """The first offset of a lane's range is a safe bound for all panes."""
    if records.several is None or not counted.height:
        whole = {records.lane: records.first}
        return lambda _pane: whole
    lanes = records.ranges
    rows = counted.frame({PANE: pane_of, LANE: Column(LANE, ValueType.INT64)})
    panes = pane_of.shape.pane_numbers(rows.get_column(PANE).to_numpy()).astype(np.int64)
    cells = np.unique(panes * len(lanes) + rows.get_column(LANE).to_numpy())
    firsts: defaultdict[int, dict[Lane, int]] = defaultdict(dict)
    for pane, number in zip(*(one.tolist() for one in np.divmod(cells, len(lanes))), strict=True):
        firsts[pane][lanes[number].lane] = lanes[number].first
    return firsts.__getitem__
