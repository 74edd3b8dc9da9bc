"""The assistant of a reducer process: a thread that merges logs of other reducers' buckets.

Nothing waits for it. What it does not finish, its owner reads as it is; what comes too late, or
twice, the store refuses.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice

from mars.core.errors import MarsError, TaskLimit, Unavailable
from mars.core.plan import Plan
from mars.core.types import Bucket, Entry, Sequence64, TaskName
from mars.engine.codec.entry import CorruptEntry
from mars.process.life import Life
from mars.process.telemetry import logs
from mars.protocol.ports import AssistantLog, Cleared, Head
from mars.protocol.reducer.assisting import (
    SEGMENTS_AT_ONCE,
    Assist,
    Segment,
    Shrinkage,
    merged_entries,
    segments,
)
from mars.protocol.runnable import RunnableTask

ASSIST_PAUSE_S = 0.05
"""Between two looks at the logs that are to be merged: a segment takes longer to become whole."""

Done = tuple[TaskName, Assist, int]
"""A log, for an owner of it, in one version of the task."""


class AssistLoop:
    """Does what the assignment asks of an assistant.

    `assigned` and `tasks_changed` may be called by another thread.
    """

    def __init__(self, log: AssistantLog) -> None:
        self._store = log
        self._assists: tuple[Assist, ...] = ()
        self._tasks: Mapping[TaskName, RunnableTask] = {}
        self._done: dict[Done, Sequence64] = {}
        self._worked: deque[tuple[Bucket, float]] = deque()
        self._merged = self._refused = 0
        self._shrinkage = Shrinkage()
        self._log = logs.logger("assistant")

    # ------------------------------------------------------------------------ from the main thread

    def assigned(self, assists: tuple[Assist, ...]) -> None:
        """These are its buckets from now on."""
        before, self._assists = self.buckets, assists
        if self.buckets != before:
            self._shrinkage = Shrinkage()

    def tasks_changed(self, tasks: Mapping[TaskName, RunnableTask]) -> None:
        """Take the newest definitions."""
        self._tasks = tasks

    @property
    def buckets(self) -> frozenset[Bucket]:
        """Those that it assists."""
        return frozenset(assist.bucket for assist in self._assists)

    def take_worked(self) -> Iterator[tuple[Bucket, float]]:
        """The CPU time, in seconds, that went into each bucket since the last call."""
        while self._worked:
            yield self._worked.popleft()

    def load(self) -> dict[str, float]:
        """Figures for the member's report."""
        if not self._assists and not self._merged and not self._refused:
            return {}
        remaining = self._shrinkage.remaining
        return {
            "assisted_segments_total": self._merged,
            "assisted_refused_total": self._refused,
            **({} if remaining is None else {"assisted_remaining": round(remaining, 3)}),
        }

    # --------------------------------------------------------------------------- its own thread

    def run(self, life: Life) -> None:
        """Go round until asked to stop."""
        while not life.wait(ASSIST_PAUSE_S):
            self.round()

    def round(self) -> None:
        """One turn. Raises nothing: what is not merged is read as it is."""
        try:
            self._go_round()
        except Unavailable:
            pass  # the reducer itself says which server is away
        except MarsError as problem:
            logs.warning(self._log, "an assistant cannot merge a log", problem=str(problem))
        except Exception:  # noqa: BLE001 -- a help must not take its process with it
            logs.error(self._log, "unexpected error, the assistant goes on", trace=True)

    def _go_round(self) -> None:
        assists = self._assists
        if not assists:
            self._done.clear()
            return
        tasks = [task for task in self._tasks.values() if task.begun() and not task.deleted]
        heads = self._store.head([task.name for task in tasks])
        for task in tasks:
            head = heads.get(task.name)
            if head is not None:
                self._assist_all(assists, task, head)

    def _assist_all(self, assists: tuple[Assist, ...], task: RunnableTask, head: Head) -> None:
        mine = [assist for assist in assists if assist.store_epoch == head.epoch]
        cleared = self._store.cleared(task.name) if mine else {}
        for assist in mine:
            said = cleared.get(assist.bucket)
            if said is not None and said.owner_epoch == assist.owner_epoch:
                begun_s = time.thread_time()
                self._assist(assist, task, head, said)
                self._worked.append((assist.bucket, time.thread_time() - begun_s))

    def _assist(self, assist: Assist, task: RunnableTask, head: Head, cleared: Cleared) -> None:
        plan = task.plans.get(head.version)
        if plan is None or cleared.after is None:
            return
        place = (task.name, assist, head.version)
        after = max(cleared.after, self._done.get(place, cleared.after))
        for segment in islice(segments(assist, after, head.seq), SEGMENTS_AT_ONCE):
            if not self._merge(assist, plan, segment):
                return  # the owner has gone on: look again where it stands
            self._done[place] = segment.upto

    def _merge(self, assist: Assist, plan: Plan, segment: Segment) -> bool:
        """True once nothing is to be done any more; False if the store refused what was merged."""
        epoch, owner_epoch = assist.store_epoch, assist.owner_epoch
        for entry, run_id in self._merged_entries(assist, plan, segment):
            taken = self._store.merge(plan.task, epoch, owner_epoch, entry, run_id)
            self._merged += taken
            self._refused += not taken
            if not taken:
                return False
        return True

    def _merged_entries(
        self, assist: Assist, plan: Plan, segment: Segment
    ) -> list[tuple[Entry, str]]:
        """What is worth merging of a segment, with the run id of the server on which it was read.

        Of what cannot be read or is over a limit nothing: its owner comes upon it, and says so.
        """
        try:
            piece = self._store.read(plan.task, assist.bucket, segment.after, segment.upto)
            found = list(merged_entries(plan, piece.entries))
        except (CorruptEntry, TaskLimit, ValueError):
            return []
        for merged in found:
            self._shrinkage = self._shrinkage.and_then(merged)
        return [(merged.entry, piece.run_id) for merged in found if merged.worth_it]
