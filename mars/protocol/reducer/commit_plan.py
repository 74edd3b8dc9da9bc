"""What a bucket commits next: windows that are due, and progress that has waited long enough.

due windows ──┬── quick: all of them at once, with what else is stale by half its time
              └── slow: one task at a time, in turn with the quick ones
nothing due ──── progress that is old, logs to be merged, panes to be saved, deleted tasks
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from mars.core.types import TaskName
from mars.protocol.ports import Progress
from mars.protocol.reducer.drafting import Drafting
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows.open_panes import Size
from mars.protocol.windows.turns import takes_long

OVER_BUDGET_MS = 5_000
"""How long a task may be over its budget although a bucket has merged what it can: the other
buckets close and merge at about the same time, not at the same moment."""

GATHERING_MS = 1_000
"""How long late rows of a closed window, and groups that are due by their keys, wait for others,
unless a commit takes them along sooner: so there is no transaction for each of them."""

CLOSING_SOON_MS = 1_500
"""Progress without rows waits for a window that is to close so soon, and comes with it: a bucket
that has just begun a commit closes its windows some tenths of a second after the others. A mapper
may let rows rest for 500 ms, so the watermark may be further by that."""


SAVING_ASKED_MS = 1_000
"""How often all tasks are asked whether their panes are to be saved, which is once in minutes; ten
times before it is, at least."""


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    """How a bucket commits.

    `progress_interval_ms`: M is committed without rows once it is this old, and no later than when
    it is twice as old; where rows are committed, that of other tasks comes along once it is half as
    old, so that windows of about this length need no commits between. `large_task_rows`: a
    task with more due rows gets a transaction of its own, after the others. `log_bytes_max`: the
    budget of a task's log; over half of it, entries are merged (R9). `buckets`: B. Panes that have
    been open for `snapshot_every_ms` are saved in Kafka, and again each time it has passed. Where
    it is `tracked`, progress records say which entries they account for, and the tracker is told.
    Windows are drafted where they have at least `draft_rows_min` rows together; 0: never.
    """

    progress_interval_ms: int
    large_task_rows: int
    log_bytes_max: int
    buckets: int
    snapshot_every_ms: int
    tracked: bool = False
    draft_rows_min: int = 0


@dataclass(frozen=True, slots=True)
class NextCommit:
    """The tasks of one commit; the logs of those that are `merging` are merged after it.

    `gone` are the last records of tasks that were deleted.
    """

    tasks: tuple[TaskName, ...] = ()
    merging: frozenset[TaskName] = frozenset()
    gone: tuple[Progress, ...] = ()

    def __bool__(self) -> bool:
        """True if there is anything to commit."""
        return bool(self.tasks or self.gone)


_NOTHING = NextCommit()


class CommitPlan:
    """Chooses among the tasks (`parts`) of a bucket, which come and go during a term."""

    def __init__(
        self,
        limits: OwnerLimits,
        parts: Mapping[TaskName, TaskInBucket],
        drafting: Drafting,
        now_ms: int,
    ) -> None:
        self._limits = limits
        self._parts = parts
        self._drafting = drafting
        self._now_ms = self._progress_at_ms = now_ms
        self._held_until_ms = 0
        """Until then progress waits for a window that is to close."""
        self._over_since_ms: dict[TaskName, int] = {}
        self._waiting_since_ms: dict[TaskName, int] = {}
        self._slow_since_ms: dict[TaskName, int] = {}
        """Tasks that are due and take long, and since when."""
        self._slow_is_next = False
        self._saving: set[TaskName] = set()
        """Tasks whose panes were to be saved when they were asked last."""
        self._ask_all_ms = now_ms
        self._heavy: list[TaskName] = []
        """Tasks whose log is over half its budget."""

    def due(self, now_ms: int) -> dict[TaskName, Size]:
        """What each task has to close now; what gathers, once the first of it has waited."""
        self._now_ms = now_ms
        half_bytes = self._limits.log_bytes_max // 2
        self._heavy = [
            name for name, part in self._parts.items() if part.position.log_bytes > half_bytes
        ]
        awake = [(name, part) for name, part in self._parts.items() if not part.rests]
        found = {name: size for name, part in awake if (size := self._due(name, part)) is not None}
        if self._waiting_since_ms:
            names = {name for name, _part in awake}
            waiting = self._waiting_since_ms.items()
            self._waiting_since_ms = {name: at for name, at in waiting if name in names}
        return found

    def _due(self, name: TaskName, part: TaskInBucket) -> Size | None:
        if not part.waiting:
            self._waiting_since_ms.pop(name, None)
            return part.due()
        since_ms = self._waiting_since_ms.setdefault(name, self._now_ms)
        return part.due(waited=self._now_ms - since_ms >= GATHERING_MS)

    # ------------------------------------------------------------------------------- windows

    def windows(self, due: Mapping[TaskName, Size], *, in_turn: bool) -> NextCommit:
        """Whose windows to commit now; what takes long only where it is the bucket's turn."""
        first = self._drafting.first(self._now_ms, due, self._parts)
        if first is not None and not first:
            return _NOTHING
        chosen = list(first or self._next_of(due, in_turn=in_turn))
        if not chosen:
            return _NOTHING
        for name in chosen:
            self._over_since_ms.pop(name, None)
        to_merge = self._crowded() | self._long_open()
        chosen += [name for name in self._parts if name in to_merge and name not in due]
        merging = frozenset(to_merge.intersection(chosen))
        if 2 * self._progress_age_ms() >= self._limits.progress_interval_ms:
            self._progress_at_ms = self._now_ms
            chosen += [name for name in self._stale() if name not in {*due, *chosen}]
        return NextCommit(tuple(chosen), merging)

    def _next_of(self, due: Mapping[TaskName, Size], *, in_turn: bool) -> list[TaskName]:
        """All tasks that are closed quickly, or one of the others: that which has waited longest.

        The two take turns.
        """
        slow = [name for name, size in due.items() if self._is_slow(size)]
        self._slow_since_ms = {name: self._slow_since_ms.get(name, self._now_ms) for name in slow}
        quick = [name for name in due if name not in self._slow_since_ms]
        if quick and not (in_turn and self._slow_is_next):
            self._slow_is_next = bool(slow)
            return quick
        if not (slow and in_turn):
            return []
        self._slow_is_next = False
        next_one = min(slow, key=lambda name: (self._slow_since_ms[name], due[name].rows))
        del self._slow_since_ms[next_one]
        return [next_one]

    def _is_slow(self, size: Size) -> bool:
        return size.rows > self._limits.large_task_rows or takes_long(size)

    # ------------------------------------------------------------------------------ progress

    def progress(self, due: Collection[TaskName], gone: tuple[Progress, ...]) -> NextCommit:
        """M, and logs to be merged, of tasks of which nothing is due, and `gone`."""
        chosen = merging = self._crowded() | self._long_open()
        if self._progress_is_due():
            self._progress_at_ms = self._now_ms
            chosen = chosen.union(self._stale())
        names = (name for name in self._parts if name in chosen and name not in due)
        return NextCommit(tuple(names), frozenset(merging), gone)

    def _stale(self) -> Iterator[TaskName]:
        return (name for name, part in self._parts.items() if part.stale())

    def _progress_age_ms(self) -> int:
        return self._now_ms - self._progress_at_ms

    def _progress_is_due(self) -> bool:
        now_ms, interval_ms = self._now_ms, self._limits.progress_interval_ms
        if self._progress_age_ms() < interval_ms or now_ms < self._held_until_ms:
            return False
        latest_ms = self._progress_at_ms + 2 * interval_ms
        parts = self._parts.values()
        if now_ms < latest_ms and any(part.closes_within(CLOSING_SOON_MS) for part in parts):
            self._held_until_ms = min(now_ms + CLOSING_SOON_MS, latest_ms)
            return False
        return True

    def _long_open(self) -> set[TaskName]:
        """Tasks whose panes are to be saved; the log is merged with it, as they are at hand."""
        asked: Iterable[TaskName] = self._saving
        if self._now_ms >= self._ask_all_ms:
            pause_ms = min(SAVING_ASKED_MS, self._limits.snapshot_every_ms // 10)
            self._ask_all_ms, asked = self._now_ms + pause_ms, self._parts
        parts, now_ms = self._parts, self._now_ms
        self._saving = {
            name for name in asked if name in parts and parts[name].snapshot_due(now_ms)
        }
        return self._saving

    # ------------------------------------------------------------------------------- budgets

    def _crowded(self) -> set[TaskName]:
        """Tasks whose log is over half its budget and can be merged (R9)."""
        budget, parts = self._limits.log_bytes_max, self._parts
        return {
            name
            for name in self._heavy
            if name in parts and parts[name].upkeep.is_compactable(budget)
        }

    def overfull(self) -> Iterable[tuple[TaskName, str]]:
        """R9: tasks whose merged states do not fit into their budget, and what to say of each."""
        limits, parts = self._limits, self._parts
        over = [
            name
            for name in self._heavy
            if name in parts
            and parts[name].upkeep.is_overfull(limits.log_bytes_max, limits.buckets)
        ]
        since_ms = {name: self._over_since_ms.get(name, self._now_ms) for name in over}
        self._over_since_ms = since_ms
        return [
            (name, _needs_more(parts[name].position.log_bytes, limits.log_bytes_max))
            for name in over
            if self._now_ms - since_ms[name] >= OVER_BUDGET_MS
        ]


def _needs_more(log_bytes: int, log_bytes_max: int) -> str:
    return (
        f"its open windows need {log_bytes} bytes in the store, merged as they are, and a task may "
        f"hold {log_bytes_max}: raise cluster.log_bytes_max and start all processes again, or ask "
        "for fewer groups or smaller windows"
    )
