"""What comes back from a round, into the partial log: in our process, batch by batch.

Almost nothing has to be done about a refusal. The next round is planned from where the store says
that the tasks are, so what was not taken is read again, and what somebody else did is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from mapper.on_spark.watching import Watch
from mars.adapters.spark.lane_work import (
    Added,
    LaneWork,
    Outcome,
    Refused,
    Share,
    Unread,
    decode_outcome,
)
from mars.core.errors import Unavailable
from mars.core.types import Mapped, Range, Reason, Sequence64, TaskName, Topic
from mars.process.life import ServiceHealth
from mars.process.tasks import fail_task
from mars.process.telemetry import logs
from mars.process.telemetry.undecodable import UndecodableRows
from mars.process.tracking import Outbox
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Backpressure,
    Cut,
    MapperLog,
    NoTask,
    Registry,
    Stale,
    TaskPaused,
    WrongEpoch,
    WrongVersion,
)
from mars.protocol.runnable import RunnableTask

MapAgain = Callable[[Topic, Share], Sequence[Outcome]]
"""Reads and maps a share here and now."""


class Taking:
    """Appends what rounds give; `take` is called for one round at a time, in any thread."""

    def __init__(
        self,
        log: MapperLog,
        registry: Registry,
        services: ServiceHealth,
        watch: Watch,
        tasks: Callable[[], Mapping[TaskName, RunnableTask]],
        map_again: MapAgain,
        tracking: Outbox | None = None,
    ) -> None:
        self._store = log
        self._registry = registry
        self._services = services
        self._watch = watch
        self._tasks = tasks
        self._map_again = map_again
        self._tracking = tracking
        self._log = logs.logger("mapper")
        self._undecodable = UndecodableRows(self._log)

    def take(self, raws: Sequence[bytes]) -> None:
        """The outcomes of a round. Raises nothing: what cannot be done now, a later round does."""
        for raw in raws:
            self._outcome(decode_outcome(raw))

    def _outcome(self, outcome: Outcome) -> None:
        match outcome:
            case Added():
                self._append(outcome)
            case Refused(task=task, run=run, detail=detail):
                logs.error(self._log, "a task failed", task=task, detail=detail)
                self._services.attempt(
                    "zookeeper", lambda: fail_task(self._registry, task, run, detail)
                )
            case Unread(detail=detail):
                self._services.lost(Unavailable("kafka", detail))
            case _:
                assert_never(outcome)

    def _append(self, added: Added) -> None:
        answer = self._offer(added)
        if isinstance(answer, Cut) and answer.offset > added.mapped.ranges[0].first:
            self._append_until(added, answer.offset)

    def _append_until(self, added: Added, offset: int) -> None:
        """The store wants the rows before `offset` by themselves."""
        task = self._tasks().get(added.task)
        plan = None if task is None else task.plans.get(added.version)
        if task is None or plan is None:
            return
        (whole,) = added.mapped.ranges
        part = Range(whole.lane, whole.first, offset)
        share = Share(added.task, task.definition.run, added.epoch, added.version, plan, part)
        for outcome in self._map_again(added.topic, share):
            if isinstance(outcome, Added):
                self._offer(outcome)
            else:
                self._outcome(outcome)

    def _offer(self, added: Added) -> AppendOutcome | None:
        answer = self._services.attempt(
            "redis",
            lambda: self._store.append(added.task, added.epoch, added.version, added.mapped),
        )
        match answer:
            case Applied(seq=seq):
                self._track(added, seq)
                self._watch.applied(added.task, added.mapped)
                self._tell_gone(added)
                self._undecodable.tell(added.topic, added.mapped)
            case Backpressure() | TaskPaused():
                self._watch.refused(added.topic, added.mapped, answer)
            case Stale() | Cut() | NoTask() | WrongEpoch() | WrongVersion() | None:
                pass
            case _:
                assert_never(answer)
        return answer

    def _track(self, added: Added, seq: Sequence64) -> None:
        if self._tracking is not None:
            self._tracking.stored(added.task, added.epoch, added.version, seq, added.mapped)

    def _tell_gone(self, added: Added) -> None:
        for part in _gone(added.mapped):
            text = (
                f"{added.topic} partition {part.lane}: offsets {part.first} to {part.next - 1} are "
                "no longer in Kafka; their rows are missing from the results"
            )
            logs.warning(self._log, text, kind="rows_gone", task=added.task)


def _gone(mapped: Mapped) -> list[Range]:
    return [
        Range(part.lane, part.first, part.next)
        for partial in mapped.partials
        for part in partial.rejections.ranges
        if part.reason is Reason.GONE and part.rows
    ]


def again_by(work: LaneWork) -> MapAgain:
    """Maps in this process, as the executors do; `work` says how."""

    def again(topic: Topic, share: Share) -> Sequence[Outcome]:
        own = replace(work, topic=topic, part=share.part, shares=(share,))
        return [decode_outcome(raw) for raw in own()]

    return again
