"""The memory adapters as simulated processes see them: each call is a step that may go wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from mars.adapters.memory.broker import MemoryBroker, MemoryProducer
from mars.adapters.memory.bulk import MemoryBulkEngine
from mars.adapters.memory.sink import Crash, MemorySink
from mars.adapters.memory.source import MemorySource
from mars.core.errors import Unavailable
from mars.core.types import Bucket, Mapped, Topic
from mars.protocol.ports import (
    Batch,
    Claim,
    Claimed,
    Committed,
    LogTrim,
    MapJob,
    Progress,
    ResultBatch,
    SourceEvent,
    Transaction,
)
from tests.simulation.strands import Host
from tests.simulation.weather import Fate

Item = TypeVar("Item")

JOB_MS_MAX = 800
"""Longest time that a job on Spark takes."""

POLL_RECORDS_MAX = 8
"""Small batches: the fewer rows in each, the more places there are for a crash."""


class Steps(Protocol):
    """The world, as far as a port's call is concerned."""

    def step(self, call: str, *, lossy: bool) -> Fate:
        """Let the others go on; then, what becomes of this call."""

    def down(self, service: str) -> bool:
        """Whether a server is away, for the process that runs."""

    def ring(self, host: Host, changed: Callable[[], None]) -> None:
        """A watch of a process's connection with ZooKeeper is due."""

    def crash(self) -> Crash | None:
        """Where the next transaction breaks off."""

    def commit_twice(self) -> bool:
        """Whether the next commit arrives once more, some time after it took effect."""

    def between_writes(self) -> None:
        """A transaction has its results, and not yet its progress: late commits may come now."""

    def lost_markers(self) -> Callable[[object], bool] | None:
        """Whether a partition gets no marker when the next transaction ends; None: all get one."""

    def die(self) -> None:
        """The calling process dies."""

    def draw(self, lowest: int, highest: int) -> int:
        """A number, both ends included."""

    def rest(self, highest_ms: int) -> None:
        """Let the others go on for some time."""

    def tell(self, call: str, arguments: Sequence[object], answer: object) -> None:
        """What came of a call, for the trace."""

    def shuffled(self, items: Iterable[Item]) -> list[Item]:
        """The items in any order."""


class Stepping:
    """Any port of one service. Methods named `local` never leave the process."""

    def __init__(
        self, world: Steps, service: str, port: object, local: frozenset[str] = frozenset()
    ) -> None:
        self._world = world
        self._service = service
        self._port = port
        self._local = local

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Called once for each method: the second time it is an attribute."""
        method = getattr(self._port, name)
        found = method if name in self._local else self._stepping(name, method)
        setattr(self, name, found)
        return found

    def _stepping(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        world, service, asked = self._world, self._service, f"{self._service}.{name}"

        def call(*arguments: Any, **named: Any) -> Any:
            fate = world.step(asked, lossy=True)
            if fate is Fate.LOST or world.down(service):
                raise Unavailable(service, f"simulated: {name} did not arrive")
            answer = method(*arguments, **named)
            if fate is Fate.TWICE and service == "redis":
                answer = method(*arguments, **named)
            world.tell(name, arguments, answer)
            if fate is Fate.FATAL:
                world.die()
            if fate is Fate.UNANSWERED:
                raise Unavailable(service, f"simulated: the answer to {name} was lost")
            return answer

        return call


class SteppingLog(Stepping):
    """The partial log; what is stored together arrives one by one, or not at all from some on."""

    def append_together(self, batches: Sequence[Batch]) -> list[Any]:
        append = self.append
        return [append(one.task, one.epoch, one.version, one.mapped) for one in batches]

    def trim_together(self, trims: Sequence[LogTrim]) -> None:
        trim = self.trim
        for one in trims:
            trim(one.task, one.epoch, one.born, one.bucket, one.seqs)


class SteppingSource(MemorySource):
    """A reader that gives a few records at a time; a failed poll has read nothing."""

    def __init__(self, world: Steps, broker: MemoryBroker, group: str | None) -> None:
        super().__init__(broker, group)
        self._world = world

    def poll(self, records_max: int, timeout_s: float) -> list[SourceEvent]:
        fate = self._world.step("kafka.poll", lossy=True)
        if fate is Fate.LOST or self._world.down("kafka"):
            raise Unavailable("kafka", "simulated: the poll failed")
        self._positions = dict(self._world.shuffled(self._positions.items()))
        return super().poll(self._world.draw(1, POLL_RECORDS_MAX), timeout_s)

    def confirm_ends(self, ends: Mapping[tuple[Topic, int], int]) -> set[tuple[Topic, int]]:
        self._world.step("kafka.confirm_ends", lossy=False)
        if self._world.down("kafka"):
            raise Unavailable("kafka", "simulated: the ends were not confirmed")
        return super().confirm_ends(ends)


class SteppingEngine(MemoryBulkEngine):
    """Spark: a job takes its time, may fail or be for nothing; its process may die of it."""

    def __init__(self, world: Steps, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self._world = world

    def map(self, job: MapJob) -> Mapped:
        fate = self._world.step(f"spark.map {job.id}", lossy=True)
        if fate is Fate.LOST or self._world.down("kafka"):
            raise Unavailable("spark", "simulated: the job failed")
        mapped = super().map(job)
        self._world.tell("mapped", (job.id,), job.ranges)
        self._world.rest(JOB_MS_MAX)
        if fate is Fate.FATAL:
            self._world.die()
        if fate is Fate.UNANSWERED:
            raise Unavailable("spark", "simulated: what the job made was lost")
        return mapped

    def cancel(self, job_id: str) -> None:
        """A job that is over by the time nobody wants it."""

    def close(self) -> None:
        """Simulated processes end by being killed."""


class SteppingSink(MemorySink):
    """Transactions that others may get in between of: before init, write, commit, and the reads."""

    def __init__(self, world: Steps, broker: MemoryBroker) -> None:
        super().__init__(broker)
        self._world = world

    def claim(self, claim: Claim) -> Claimed:
        self._call(f"claim bucket {claim.bucket}")
        claimed = super().claim(claim)
        self._world.tell("claimed", (claim,), claimed.next)
        return claimed

    def audit(self, emission: Any, bucket: Bucket) -> str | None:
        self._call("audit")
        return super().audit(emission, bucket)

    def draft(self, bucket: Bucket, results: tuple[ResultBatch, ...], next: int) -> None:
        self._call(f"draft bucket {bucket}")
        super().draft(bucket, results, next)

    def commit(self, transaction: Transaction, next: int) -> Committed:
        self._call(f"commit bucket {transaction.bucket}")
        committed = super().commit(transaction, next)
        self._world.tell("committed", (), committed.progress)
        return committed

    def saved(self, record: Progress) -> tuple[bytes, ...]:
        self._call(f"saved {record.task}/v{record.version}/{record.bucket}")
        return super().saved(record)

    def _call(self, name: str) -> None:
        fate = self._world.step(f"kafka.{name}", lossy=True)
        if fate is Fate.LOST or self._world.down("kafka"):
            raise Unavailable("kafka", f"simulated: {name} did not arrive")
        if fate is Fate.FATAL:
            self._world.die()

    def _producer(self, bucket: Bucket) -> MemoryProducer:
        self._world.step(f"kafka.init bucket {bucket}", lossy=False)
        return super()._producer(bucket)

    def _write_results(self, *given: Any) -> Any:
        spans = super()._write_results(*given)
        self._world.between_writes()
        return spans

    def _commit(self, producer: MemoryProducer, bucket: Bucket) -> None:
        self._world.step(f"kafka.end bucket {bucket}", lossy=False)
        crash = self._world.crash()
        if crash is not None:
            self.crash_next(crash)
        lost = self._world.lost_markers()
        if lost is not None:
            self._broker.lose_markers(lost)
        if self._world.commit_twice():
            producer.commit_late()
        super()._commit(producer, bucket)
        self._world.step(f"kafka.ended bucket {bucket}", lossy=False)
