"""Whether a transaction that is over has its marker in each partition that it wrote to.

That a commit or an abort was asked for, and answered, does not say so (decision 24): it is looked
for, once the next producer is initialised. Until then the coordinator may be writing markers.

What the bucket wrote was settled before, so its own transaction begins at `first`:

    last stable offset above `first` ─────────▶ ended: what hangs would hold it at `first` or below
    at `first` ───────────────────────────────▶ hangs
    below, at a record of this bucket ────────▶ hangs: none of its transactions is open now
    below, at a record of somebody else ──────▶ theirs is open in front and says nothing of ours:
        ... and each offset behind `last` has a record ─▶ hangs: our marker would have one of them
        ... and only ours and theirs lie behind it ─────▶ ended: who is open has no marker yet
        ... and others do, too ─────────────────────────▶ untold: the marker may be theirs

What has no record behind the one in front may have a marker there all the same: so ended is said
only where the same one was in front before ours began. What is untold is told when whoever is in
front has ended; before that nothing more is written there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field

from mars.adapters.kafka.names import Place
from mars.adapters.kafka.recovery.restoring import Kept, PartitionLook
from mars.adapters.kafka.sink.transaction import WrittenSpan
from mars.core.errors import Interrupted
from mars.core.types import Bucket
from mars.engine.codec.result_headers import BUCKET, number

SETTLES_MAX = 3
"""How often an abort that is to end what hangs is repeated, then the bucket is claimed again. Each
that is in vain takes a broker that dies within the milliseconds before its marker."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where the bucket's last transaction hangs, and where that cannot be told yet."""

    hung: tuple[Place, ...] = ()
    untold: Mapping[Place, WrittenSpan] = field(default_factory=dict)


def hanging(
    written: Mapping[Place, WrittenSpan],
    stable: Mapping[Place, int],
    fronts: MutableMapping[Place, int],
    bucket: Bucket,
    look: PartitionLook,
) -> Ends:
    """Where the bucket's last transaction, which is over, hangs.

    `written` is where its records lie, `stable` the last stable offsets, without topics that are
    gone; both as they are once the next producer is initialised. `fronts` are last stable offsets
    seen before that was written; what is told takes the place of those.
    """
    there = {place: span for place, span in written.items() if place in stable}
    hangs = {
        place: _hangs(place, span, stable[place], fronts.get(place), bucket, look)
        for place, span in there.items()
    }
    untold = {place: there[place] for place, one in hangs.items() if one is None}
    fronts.update({place: stable[place] for place in there if place not in untold})
    return Ends(tuple(place for place, one in hangs.items() if one), untold)


def told(
    ends: Ends,
    stable: Mapping[Place, int],
    fronts: MutableMapping[Place, int],
    bucket: Bucket,
    look: PartitionLook,
) -> Ends:
    """The same, and what can be told by now; `stable` are last stable offsets as they are now."""
    later = hanging(ends.untold, stable, fronts, bucket, look)
    return Ends(ends.hung + later.hung, later.untold)


def _hangs(
    place: Place,
    span: WrittenSpan,
    stable: int,
    before: int | None,
    bucket: Bucket,
    look: PartitionLook,
) -> bool | None:
    """None: it cannot be told."""
    if stable >= span.first:
        return stable == span.first
    front = [*look.written(place, stable, stable)]
    if any((BUCKET, number(bucket)) in row.headers for row in front):
        return True
    first, end = span.last + 1, look.end(place)
    if sum(1 for _row in look.written(place, first, end - 1)) == end - first:
        return True
    known = {(BUCKET, number(bucket)), *_bucket_headers(front)}
    rows = look.written(place, stable + 1, end - 1)
    alone = before == stable and all(known.intersection(row.headers) for row in rows)
    # Whoever is in front was so all the time, and still is.
    return False if alone and look.stable_end(place) == stable else None


def _bucket_headers(rows: Iterable[Kept]) -> Iterator[tuple[str, bytes]]:
    return (header for row in rows for header in row.headers if header[0] == BUCKET)


def refuse_unsettled(hung: Collection[Place], bucket: Bucket) -> None:
    """Raise Interrupted where something hangs although it was ended SETTLES_MAX times."""
    if hung:
        topic, partition = min(hung)
        raise Interrupted(
            f"Bucket {bucket}: an abort had no effect in {topic}[{partition}], {SETTLES_MAX} times "
            "in a row; the bucket is claimed again. Check the brokers: one that restarts again and "
            "again loses the ends of transactions."
        )


def refuse_untold(untold: Collection[Place], bucket: Bucket) -> None:
    """Raise Interrupted where it cannot be told whether the last transaction hangs."""
    if untold:
        topic, partition = min(untold)
        raise Interrupted(
            f"Bucket {bucket}: whether its last transaction has ended in {topic}[{partition}] "
            "cannot be told while a transaction of others stays open there; the bucket is claimed "
            "again. That one ends when its owner is back, or by its time-out (if it does not, "
            "kafka-transactions.sh find-hanging names it)."
        )
