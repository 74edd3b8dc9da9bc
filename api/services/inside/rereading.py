"""Source rows read again, from the offsets that results name."""

from __future__ import annotations

from collections.abc import Sequence

from api.services.context import BucketCount, Ports
from mars.core.definitions import TaskDefinition
from mars.core.errors import Conflict, JobFailed
from mars.core.plan import Plan
from mars.core.types import Range, Topic
from mars.core.words import counted
from mars.inspect.verifying import Piece, Recounted

SOURCE_OFFSETS_MAX = 5_000_000
"""Offsets that are read again for one window: about half a minute on one core."""

SOURCE_ROWS_MAX = 10_000_000
"""Rows that these offsets may hold: a message may hold a thousand of them, or a million."""

PIECES_MAX = 2_000
"""Pieces that these offsets may be in: each is a request, and some milliseconds."""

TEXT_ROW_BYTES = 100
"""In text files an offset is a byte; a row has about so many."""


class NotReread(Conflict):
    """The rows of a window are too many, or gone."""


class Rereading:
    """Reads pieces of the source of a task again."""

    def __init__(self, ports: Ports, buckets: BucketCount) -> None:
        self._ports = ports
        self._buckets = buckets

    def read(
        self,
        definition: TaskDefinition,
        plan: Plan,
        pieces: Sequence[Piece],
        recount: Recounted,
        number: int | None = None,
    ) -> None:
        """Give all rows of the pieces to the recount; `number`: what stands beside the first offset
        of each lane, of a task that counts rows. Raises NotReread.
        """
        self._check(definition, plan, pieces)
        for piece in pieces:
            self._read(definition, plan, piece, recount, number)

    def _check(self, definition: TaskDefinition, plan: Plan, pieces: Sequence[Piece]) -> None:
        offsets = sum(_size(definition, piece.part) for piece in pieces)
        if offsets > SOURCE_OFFSETS_MAX:
            raise NotReread(
                f"{_counted_from(plan)} {offsets} offsets, and at most {SOURCE_OFFSETS_MAX} "
                f"are read again here: {_instead(plan)}"
            )
        if len(pieces) > PIECES_MAX:
            raise NotReread(
                f"rows came late so often that the offsets are in {counted(len(pieces), 'piece')}, "
                f"and at most {PIECES_MAX} are read again here"
            )
        topic = Topic(plan.stream.topic)
        info = self._ports.admin.describe(topic)
        version = next(each for each in definition.versions if each.version == plan.version)
        if info is None or info.topic_id != version.topic_id:
            raise NotReread(
                f"topic {topic} was deleted or made again since, so the rows of the window are "
                "gone: verify a newer one"
            )

    def _read(
        self,
        definition: TaskDefinition,
        plan: Plan,
        piece: Piece,
        recount: Recounted,
        number: int | None,
    ) -> None:
        files = definition.files_of(piece.part.lane)
        try:
            batches = self._ports.source_rows.read(plan, self._buckets(), piece.part, files, number)
            for batch in batches:
                if isinstance(batch, Range):
                    raise NotReread(
                        f"Kafka no longer has offsets {batch.first} to {batch.next - 1} of lane "
                        f"{batch.lane}, and {_counted_from(plan)} these: topic "
                        f"{plan.stream.topic} keeps rows for too short a time"
                    )
                recount.add(batch, piece)
                if recount.rows_read > SOURCE_ROWS_MAX:
                    raise NotReread(
                        f"{_counted_from(plan)} more than {SOURCE_ROWS_MAX} rows, too many to be "
                        f"read again here: {_instead(plan)}"
                    )
        except JobFailed as problem:
            raise NotReread(f"the rows of the window cannot be read again: {problem}") from problem


def _counted_from(plan: Plan) -> str:
    if plan.counts_by_key:
        return "PER KEY counts from the first row of the version on, so a window was counted from"
    return "the window was counted from"


def _instead(plan: Plan) -> str:
    if plan.counts_by_key:
        return "let Spark compute those of all rows in the topic (mars query, with the same SQL)"
    return (
        "let Spark compute it (mars query, with the same SQL), or a batch engine over the ranges "
        "in the header mars-ranges"
    )


def _size(definition: TaskDefinition, part: Range) -> int:
    """About how many messages or rows a range holds."""
    files = definition.files_of(part.lane)
    text = files is not None and files.format != "parquet"
    return (part.next - part.first) // (TEXT_ROW_BYTES if text else 1)
