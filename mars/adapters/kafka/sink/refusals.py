"""What the owner of a bucket may not go on with: it claims the bucket again, or it is fenced."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from mars.adapters.kafka.names import Place
from mars.core.definitions import made_anew
from mars.core.errors import Fenced, Interrupted, SourceMadeAnew
from mars.core.types import AssignmentEpoch, Bucket, Topic
from mars.protocol.ports import ProgressRecord, SourceTopic, TopicInfo

AnySlot = TypeVar("AnySlot")


class Behind(Protocol):
    """What is read of a progress partition: committed records."""

    def between(self, bucket: Bucket, first: int, end: int) -> tuple[ProgressRecord, ...]:
        """Those at `[first, end)`."""

    def offsets(self, bucket: Bucket, first: int, end: int) -> set[int]:
        """The offsets of those at `[first, end)`."""


def take_slot(slots: dict[Bucket, AnySlot], bucket: Bucket) -> AnySlot:
    """Take out what is known of a bucket, whose producer is in use from here on.

    Raises Interrupted where it was not claimed, or an error came since.
    """
    slot = slots.pop(bucket, None)
    if slot is None:
        raise Interrupted(f"Bucket {bucket}: there is no producer; claim the bucket again.")
    return slot


def given_back(bucket: Bucket) -> Interrupted:
    """The bucket was released while something was done for it."""
    return Interrupted(f"Bucket {bucket} was given back.")


def refuse_hung(hung: Sequence[Place], end: int, known: int, bucket: Bucket) -> None:
    """Raise Interrupted where our last transaction is over, but hangs.

    `hung` is known by `hanging`; the progress partition's last stable offset then lies below our
    last record. Whatever we wrote now and did not commit would take it with it: so the bucket is
    claimed again first.
    """
    if hung or end < known:
        place = f"{hung[0][0]}[{hung[0][1]}]" if hung else "the progress partition"
        raise Interrupted(
            f"Bucket {bucket}: a broker that restarted has not ended its last transaction in "
            f"{place}; the bucket is claimed again, which ends it."
        )


def refuse_made_anew(sources: Iterable[SourceTopic], found: Mapping[Topic, TopicInfo]) -> None:
    """Raise SourceMadeAnew for a task some of whose rows may be of another topic of that name.

    `found` was asked after they were read. A topic that is not there was deleted and not yet made
    anew: all its rows were of the one that was there.
    """
    for source in sources:
        info = found.get(source.topic)
        if info is not None and info.topic_id != source.topic_id:
            raise SourceMadeAnew(source.task, made_anew(source.topic))


def may_hold_foreign(end: int, known: int, marker: int) -> bool:
    """Whether a foreign record may lie in `[known, end)` of a progress partition.

    `end` is the last stable offset, read after our own init; `marker` is the offset behind our
    own last record. See `KafkaSink.commit`.
    """
    return end > known and not (end == known + 1 and marker == known)


def refuse_others(
    progress: Behind, own: Bucket, epoch: AssignmentEpoch, end: int, known: int, marker: int
) -> None:
    """Look at what lies behind our last record, where that may be more than our own marker.

    `end`, `known` and `marker` as in `may_hold_foreign`. Raises Fenced or Interrupted.
    """
    if may_hold_foreign(end, known, marker):
        refuse_foreign(progress.between(own, known, end), own, epoch)
        last = marker - 1
        refuse_undone(progress.offsets(own, last, last + 1), last, own)


def refuse_undone(committed: Container[int], last: int, bucket: Bucket) -> None:
    """Raise Interrupted where our own last progress, at offset `last`, is not committed after all.

    It hung, somebody's claim began behind it, and our init broke that claim off: its abort took our
    progress with it. The next claim writes that once more.
    """
    if last not in committed:
        raise Interrupted(
            f"Bucket {bucket}: its last progress, at offset {last}, was taken back with the claim "
            "of another owner that came to nothing; the bucket is claimed again, which commits it."
        )


def refuse_foreign(records: Sequence[ProgressRecord], bucket: Bucket, own: AssignmentEpoch) -> None:
    """Raise Fenced if a newer owner wrote one of them, Interrupted if an older one did."""
    refuse_newer(records, own)
    if records:
        raise Interrupted(
            f"Bucket {bucket}: an older owner wrote {len(records)} progress records; the bucket is "
            "claimed again."
        )


def refuse_newer(records: Sequence[ProgressRecord], own: AssignmentEpoch) -> None:
    """Raise Fenced if a newer owner wrote one of them."""
    newest = max((record.assignment_epoch for record in records), default=own)
    if newest > own:
        raise Fenced(
            f"A newer owner of the bucket has assignment epoch {newest}, this one has {own}."
        )


def refuse_strangers(offsets: Sequence[int], end: int, bucket: Bucket) -> None:
    """Raise Interrupted if our records are not the next ones behind `end`, side by side."""
    if list(offsets) != list(range(end, end + len(offsets))):
        raise Interrupted(
            f"Bucket {bucket}: somebody wrote progress beside its owner, at an offset from {end} "
            "on; the bucket is claimed again."
        )
