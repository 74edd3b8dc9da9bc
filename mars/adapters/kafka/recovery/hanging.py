"""Whether a transaction that is over has its marker in each partition that it wrote to.

That a commit or an abort was asked for, and answered, does not say so (decision 24): it is looked
for, once the next producer is initialised. Until then the coordinator may be writing markers.

What the bucket wrote was settled before, so its own transaction begins at `first`:

    last stable offset above `first` ─────────▶ ended: what hangs would hold it at `first` or below
    at `first` ───────────────────────────────▶ hangs
    below, at a record of this bucket ────────▶ hangs: none of its transactions is open now
    below, at a record of somebody else ──────▶ theirs is open in front and says nothing of ours:
        ... and each offset behind `last` has a record ─▶ hangs: our marker would have one of them
        ... and one has none ─────────────────▶ ended: somebody's marker has come since

The last line alone is no proof, for the marker may be another's: ours would have been passed over
for want of a leader, theirs written by that leader in the tenth of a second until we look, and a
third transaction open in front of both. Whoever waited for certainty there would stand still with
each program that keeps a transaction open in a topic that it shares with us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mars.adapters.kafka.names import Place
from mars.adapters.kafka.recovery.restoring import PartitionLook
from mars.adapters.kafka.sink.transaction import WrittenSpan
from mars.core.errors import Interrupted
from mars.core.types import Bucket
from mars.engine.codec.result_headers import BUCKET, number

SETTLES_MAX = 3
"""How often an abort that is to end what hangs is repeated, then the bucket is claimed again. Each
that is in vain takes a broker that dies within the milliseconds before its marker."""


def hanging(
    written: Mapping[Place, WrittenSpan],
    stable: Mapping[Place, int],
    bucket: Bucket,
    look: PartitionLook,
) -> tuple[Place, ...]:
    """Where the bucket's last transaction, which is over, hangs.

    `written` is where its records lie, `stable` the last stable offsets, without topics that are
    gone; both as they are once the next producer is initialised.
    """
    return tuple(
        place
        for place, span in written.items()
        if place in stable and _hangs(place, span, stable[place], bucket, look)
    )


def _hangs(
    place: Place, span: WrittenSpan, stable: int, bucket: Bucket, look: PartitionLook
) -> bool:
    if stable >= span.first:
        return stable == span.first
    ours = (BUCKET, number(bucket))
    if any(ours in row.headers for row in look.written(place, stable, stable)):
        return True
    first, end = span.last + 1, look.end(place)
    return sum(1 for _row in look.written(place, first, end - 1)) == end - first


def refuse_unsettled(hung: Sequence[Place], bucket: Bucket) -> None:
    """Raise Interrupted where something hangs although it was ended SETTLES_MAX times."""
    if hung:
        topic, partition = hung[0]
        raise Interrupted(
            f"Bucket {bucket}: an abort had no effect in {topic}[{partition}], {SETTLES_MAX} times "
            "in a row; the bucket is claimed again. Check the brokers: one that restarts again and "
            "again loses the ends of transactions."
        )
