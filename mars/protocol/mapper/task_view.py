"""What a mapper knows of one task: its head as last seen, and which lanes refuse its rows."""

from __future__ import annotations

from mars.core.plan import WatermarkScope
from mars.core.types import Lane, Mapped, Range, StoreEpoch, TaskName, Topic
from mars.core.windows import Shape
from mars.protocol.ports import Head
from mars.protocol.reducer.drafting import early_ms
from mars.protocol.runnable import RunnableTask


class TaskView:
    """A task in a mapper's eyes. `known` is False until the store has told where the task is.

    What is asked of every task of a topic, at every tick, is made of the definition once.
    """

    def __init__(self, task: RunnableTask) -> None:
        self._take(task)
        self.known = False
        self.active = False
        self.epoch = StoreEpoch(0)
        self.offsets: dict[Lane, int] = {}
        self.rows: dict[Lane, int] = {}
        """How many rows are counted below the offsets, where windows count rows."""
        self.cuts: dict[Lane, int] = {}
        self.asked_ms = 0
        self.taken_ms = 0
        """When the store was last asked for the head, and when it last took rows."""
        self._blocked_ms: dict[Lane, int] = {}
        self._apart_ms = 0
        self._row_seen_ms: dict[Lane, int] = {}
        self._marks: dict[Lane, tuple[int, int]] = {}

    @property
    def name(self) -> TaskName:
        """The task's name."""
        return self.task.name

    def updated(self, task: RunnableTask) -> TaskView:
        """Take a newer definition; the head is asked for again."""
        self._take(task)
        return self

    def _take(self, task: RunnableTask) -> None:
        self.task = task
        definition, plans = task.definition, [plan for _version, plan in task.begun()]
        self.topic = Topic(definition.current.stream.topic)
        """The topic that the task reads."""
        self._reads = task.running and bool(definition.begun)
        # A bucket whose own rows close its windows must be told the mark of each lane in it, and
        # rows that are counted have an order in their lane alone; of sessions rows of one lane may
        # have been late that come again with others that were not.
        self._one_lane = any(
            one.options.watermark is WatermarkScope.BUCKET or one.maps_in_order for one in plans
        )
        begun = definition.begun
        self.idle_after_ms = plans[-1].options.idle_after_ms if plans else 0
        """How long a lane must be silent to be idle."""
        self._only = begun[0].version if len(begun) == len(plans) == 1 else None
        """The version of all rows."""
        self._mappers_alone = not definition.catch_up
        timed = [plan for plan in plans if not plan.counts_rows]  # others close by no time
        self._ends = [_Ends(plan.window, plan.options.delay_ms) for plan in timed]
        self._draft_ends = [
            _Ends(plan.window, plan.options.delay_ms - early_ms(plan)) for plan in timed
        ]

    def learn(self, head: Head | None) -> None:
        """Take the store's word. A head that is missing or inactive leaves the task unknown, as one
        of a deleted task of the same name does: its offsets may be of another topic.
        """
        first = self.task.definition.first_version
        self.known = head is not None and head.active and head.version >= first
        if head is not None:
            self.epoch = head.epoch
            offsets = dict(head.offsets)
            for lane, _offset in offsets.items() - self.offsets.items():
                self._may_have_rows(lane)
            self.offsets = offsets
            self.rows = dict(head.rows)
            self.cuts = {}

    def took(self, mapped: Mapped, now_ms: int) -> None:
        """The store has taken a batch of it."""
        self.taken_ms = now_ms
        self.offsets.update([(part.lane, part.next) for part in mapped.ranges])
        self.rows.update({lane: numbers.next for lane, numbers in mapped.numbered.items()})
        self._row_seen_ms.update(dict.fromkeys(mapped.marks_ms, now_ms))

    def is_at(self, lane: Lane, offset: int, rows: int) -> None:
        """The store has said where it is in a lane."""
        self._may_have_rows(lane)
        self.offsets[lane], self.rows[lane] = offset, rows

    def _may_have_rows(self, lane: Lane) -> None:
        """The store is not where it was thought to be, and nobody here knows what came up to there:
        a batch whose answer was lost, or what another process has taken. Its silence begins anew.
        """
        self._row_seen_ms.pop(lane, None)

    def unlearn(self) -> None:
        """What is known may be wrong: ask the store again before anything else."""
        self.known = False

    def stop(self) -> None:
        """The task failed: offer it nothing until its definition says that it runs."""
        self.known = False
        self.offsets = {}

    def ready(self, lane: Lane) -> bool:
        """True if rows of the lane may be offered."""
        if not (self.known and self._reads and lane in self.offsets):
            return False
        if self._only is not None and self._mappers_alone:
            return True  # as nearly always; this is asked for each lane
        definition, offset = self.task.definition, self.offsets[lane]
        if offset < definition.catch_up.get(lane, 0):
            return False
        # What a newer release than ours has stored may not compile: a mapper of that takes it.
        return self._only is not None or definition.version_at(lane, offset)[0] in self.task.plans

    def takes_beside(self, part: Range, now_ms: int) -> int | None:
        """The version by which it takes a range in one batch with other lanes; None: not so.

        What stands in the way is known here, or found out by a batch that is refused.
        """
        lane = part.lane
        if self._one_lane or now_ms < self._apart_ms or not self.ready(lane):
            return None
        if self.blocked(lane, now_ms) or self.offsets[lane] != part.first:
            return None
        if part.first < self.cuts.get(lane, 0):
            return None
        if self._only is not None:
            return self._only
        version, boundary = self.task.definition.version_at(lane, part.first)
        if boundary is not None and part.first < boundary < part.next:
            return None
        return version if version in self.task.plans else None

    def go_apart(self, until_ms: int) -> None:
        """Each lane goes by itself up to this time: a batch of several was refused."""
        self._apart_ms = until_ms

    def forget_lane(self, lane: Lane) -> None:
        """Another mapper reads the lane now."""
        self.cuts.pop(lane, None)
        self._blocked_ms.pop(lane, None)
        self._row_seen_ms.pop(lane, None)
        self._marks.pop(lane, None)

    def block(self, lane: Lane, until_ms: int) -> None:
        """Offer no rows of the lane before this time."""
        self._blocked_ms[lane] = until_ms

    def blocked(self, lane: Lane, now_ms: int) -> bool:
        """True while the lane's rows are not to be offered."""
        return now_ms < self._blocked_ms.get(lane, 0)

    def saw_rows(self, lane: Lane, now_ms: int) -> None:
        """Rows with an event time came, or reading began anew."""
        self._row_seen_ms[lane] = now_ms

    def marked(self, lane: Lane, mark_ms: int, read_ms: int) -> None:
        """The mark of rows that were read at `read_ms`."""
        self._marks[lane] = mark_ms, read_ms

    def may_close(self, lane: Lane, read_ms: int, *, drafted: bool) -> bool:
        """True if rows read at this time may close a window, or let it be `drafted`: event time is
        taken to go on as time does since the last mark. Without a mark anything may be.
        """
        if lane not in self._marks:
            return True
        mark_ms, seen_ms = self._marks[lane]
        expected_ms = mark_ms + read_ms - seen_ms
        for ends in (self._ends, self._draft_ends) if drafted else (self._ends,):
            for one in ends:
                if one.between(mark_ms, expected_ms):
                    return True
        return False

    def row_seen_ms(self, lane: Lane, now_ms: int) -> int:
        """When `saw_rows` was last told so; a silence that nobody knew of begins now."""
        return self._row_seen_ms.setdefault(lane, now_ms)


class _Ends:
    """The ends of windows of a shape, as event time passes them so many milliseconds later.

    It keeps a span without an end: there may be hundreds of lanes, nearly as far as each other.
    """

    def __init__(self, shape: Shape, wait_ms: int) -> None:
        self._shape = shape
        self._wait_ms = wait_ms
        self._from_ms, self._to_ms = 0, -1

    def between(self, mark_ms: int, expected_ms: int) -> bool:
        """Whether event time passes one when it goes on from one moment to the other."""
        from_ms, to_ms = mark_ms - self._wait_ms, expected_ms - self._wait_ms
        if self._from_ms <= from_ms and to_ms <= self._to_ms:
            return False
        if self._shape.closed_by(from_ms) < self._shape.closed_by(to_ms):
            return True
        if from_ms <= self._to_ms and self._from_ms <= to_ms:
            from_ms, to_ms = min(from_ms, self._from_ms), max(to_ms, self._to_ms)
        self._from_ms, self._to_ms = from_ms, to_ms
        return False
