"""The work of a mapper in a round: a range of a lane, read once, mapped for all who want it.

    offsets   ──── a ────────── b ───────────── c ───▶
                   ├ share of task x ───────────┤       one reading, one decoding per stream;
                               ├ share of y ────┤       a Mapped per share goes to the driver

Runs on an executor and holds nothing that is not in `mars`. It raises nothing: what goes wrong with
one task or one partition is told to the driver, and the other works of the round go on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from mars.adapters.spark.reading import read_here
from mars.core.definitions import TaskRun
from mars.core.errors import PartitionCut, SettingsError, TaskLimit, Unavailable
from mars.core.plan import Plan, Stream, reads_keys
from mars.core.settings import Settings
from mars.core.types import Mapped, Range, Records, StoreEpoch, TaskName, Topic
from mars.engine.combining import combine
from mars.engine.decode.limits import ROWS_MAX, TooManyRows
from mars.engine.decode.parts import Part, cut
from mars.engine.decode.shared import SharedDecoding
from mars.engine.decode.too_many import UNLIMITED
from mars.engine.kernel import Answers, map_decoded, map_gone


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of a lane that one version of a task takes; `epoch` is the store's as planned."""

    task: TaskName
    run: TaskRun
    epoch: StoreEpoch
    version: int
    plan: Plan
    part: Range


class Added(msgspec.Struct, frozen=True, tag="added"):
    """What the rows of a share add to its task, to be appended. It may end before the share."""

    topic: Topic
    task: TaskName
    epoch: StoreEpoch
    version: int
    mapped: Mapped


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """A task cannot take its rows, whoever tries."""

    task: TaskName
    run: TaskRun
    detail: str


class Unread(msgspec.Struct, frozen=True, tag="unread"):
    """Rows could not be read; they will be asked for again."""

    detail: str


Outcome = Added | Refused | Unread

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Outcome] = msgspec.msgpack.Decoder(Outcome)


def encode_outcome(outcome: Outcome) -> bytes:
    """As it travels to the driver."""
    return _encoder.encode(outcome)


def decode_outcome(raw: bytes) -> Outcome:
    """What `encode_outcome` wrote."""
    return _decoder.decode(raw)


@dataclass(frozen=True, slots=True)
class LaneWork:
    """Reads `part`, which covers all shares, until `bytes_max` bytes or its end are reached.

    Of the settings only Kafka's are read, and only these should be given.
    """

    settings: Settings
    topic: Topic
    part: Range
    buckets: int
    bytes_max: int
    shares: tuple[Share, ...]

    def __call__(self) -> Iterator[bytes]:
        """The outcomes, encoded."""
        keys = any(reads_keys(share.plan.fields) for share in self.shares)
        batches = read_here(self.settings, self.topic, self.part, keys=keys)
        yield from map(encode_outcome, self.outcomes(batches))

    def outcomes(self, batches: Iterable[Records | Range]) -> Iterator[Outcome]:
        """What batches that tile the range, or as much of it as could be read, add to the tasks."""
        mapping = _Mapping(self)
        size = 0
        try:
            for batch in batches:
                mapping.add(batch)
                size += _bytes_of(batch)
                if size >= self.bytes_max:
                    break
        except Unavailable as problem:
            yield Unread(problem.detail)
        except PartitionCut as problem:
            mapping.cut_at(problem)
        except SettingsError as problem:
            yield Unread(str(problem))
        yield from mapping.outcomes()


@dataclass(slots=True)
class _Mapping:
    """What has been mapped so far, per task."""

    work: LaneWork
    pieces: defaultdict[TaskName, list[Mapped]] = field(default_factory=lambda: defaultdict(list))
    refused: dict[TaskName, str] = field(default_factory=dict)

    def add(self, batch: Records | Range) -> None:
        """Map a batch for every share that has rows of it; a failure concerns its task only."""
        if isinstance(batch, Range):
            for share in self.work.shares:
                self._add_gone(share, batch)
            return
        for stream in self._add_part(Part(batch), self.work.shares, ROWS_MAX):
            shares = [share for share in self.work.shares if share.plan.stream == stream]
            for part in cut(stream, batch):
                self._add_part(part, shares, UNLIMITED)

    def _add_gone(self, share: Share, batch: Range) -> None:
        first, after = max(share.part.first, batch.first), min(share.part.next, batch.next)
        if first < after and share.task not in self.refused:
            part = Range(share.part.lane, first, after)
            self.pieces[share.task].append(map_gone(share.plan, self.work.buckets, part))

    def _add_part(self, part: Part, shares: Sequence[Share], rows_max: int) -> list[Stream]:
        """Map what is decoded at once; the streams as which it has too many rows for that."""
        decoding = SharedDecoding()
        plans = [share.plan for share in shares]
        many: list[Stream] = []
        for (stream, rows), same in self._takers(part, shares).items():
            if stream in many:
                continue
            try:
                decoded = decoding.of(same, plans, part, rows_max)
                self._take(map_decoded(decoded, rows, self.work.buckets))
            except TooManyRows:
                many.append(stream)
        return many

    def _takers(
        self, part: Part, shares: Iterable[Share]
    ) -> Mapping[tuple[Stream, Range], list[Plan]]:
        """Whose plans map which rows of a part; those of a single message are not cut."""
        takers: defaultdict[tuple[Stream, Range], list[Plan]] = defaultdict(list)
        whole = Range(part.records.lane, part.records.first, part.records.next)
        for share in shares:
            if part.within(share.part) and share.task not in self.refused:
                rows = whole if part.of_one else share.part
                takers[share.plan.stream, rows].append(share.plan)
        return takers

    def _take(self, answers: Answers) -> None:
        for task, answer in answers.items():
            if isinstance(answer, TaskLimit):
                self.refused[task] = str(answer)
            elif isinstance(answer, Exception):
                self.refused[task] = _unexpected(answer)
            else:
                self.pieces[task].append(answer)

    def cut_at(self, problem: PartitionCut) -> None:
        """Tasks that have counted rows which are gone cannot go on; others can, up to the end."""
        for share in self.work.shares:
            if share.part.first > problem.end:
                self.refused[share.task] = str(problem)

    def outcomes(self) -> Iterator[Outcome]:
        """One for each task that has rows."""
        for share in self.work.shares:
            pieces = self.pieces.get(share.task)
            if share.task in self.refused:
                yield Refused(share.task, share.run, self.refused[share.task])
            elif pieces:
                yield self._combined(share, pieces)

    def _combined(self, share: Share, pieces: list[Mapped]) -> Outcome:
        try:
            mapped = combine(share.plan, pieces)
        except TaskLimit as problem:
            return Refused(share.task, share.run, str(problem))
        except Exception as problem:  # noqa: BLE001 -- whatever it is, only this task stops (I7)
            return Refused(share.task, share.run, _unexpected(problem))
        return Added(self.work.topic, share.task, share.epoch, share.version, mapped)


def _bytes_of(batch: Records | Range) -> int:
    if isinstance(batch, Range):
        return 0
    return sum(len(value) for value in batch.values if value is not None)


def _unexpected(problem: Exception) -> str:
    return f"unexpected {type(problem).__name__}: {problem}"
