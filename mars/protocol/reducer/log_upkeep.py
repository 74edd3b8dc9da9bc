"""What becomes of a log in one bucket once its rows are accounted: trimmed, or merged (R9)."""

from __future__ import annotations

from collections.abc import Mapping

from mars.core.types import Bucket, Entry, Lane, Partial, RowCounts, Sequence64
from mars.protocol.reducer.log_index import LogIndex
from mars.protocol.reducer.position import LogPosition
from mars.protocol.reducer.version import VersionInBucket


class LogUpkeep:
    """Keeps a log short. `versions` are those of the task, oldest first."""

    def __init__(
        self,
        bucket: Bucket,
        log: LogIndex,
        position: LogPosition,
        versions: Mapping[int, VersionInBucket],
    ) -> None:
        self._bucket = bucket
        self._log = log
        self._position = position
        self._versions = versions

    def needed(self) -> dict[Lane, int]:
        """Below these offsets nothing in the log is needed by any version."""
        needed = dict(self._position.through)
        for version in self._open():
            low = version.needed()
            needed = {lane: min(offset, low.get(lane, 0)) for lane, offset in needed.items()}
        return needed

    def _open(self) -> list[VersionInBucket]:
        return [version for version in self._versions.values() if not version.is_finished]

    def trim(self) -> tuple[Sequence64, ...]:
        """The entries that nobody needs any more, or that the base contains; forgets them."""
        return self._log.trim(self.needed())

    def empty_base(self, version: int) -> Entry | None:
        """A base without rows, to replace one that nobody needs any more; None if it is needed.

        `version` is the task's current one. The store takes it only from an owner that has seen the
        base that is there, so a former owner cannot take away what a newer one has merged.
        """
        base = self._log.take_base_below(self.needed()) if self._log.has_base else None
        if base is None:
            return None
        seq, ranges = base
        return Entry(seq, version, ranges, Partial(self._bucket, RowCounts(), (), b""))

    def is_compactable(self, budget: int) -> bool:
        """True if there are entries that one entry of each version could stand for.

        The base may stand for them already: saved panes hold what is read again for other buckets.
        Over the budget any entry is worth it, and so is a base that holds what is closed by now.
        """
        if not all(version.is_known for version in self._versions.values()):
            return False
        return self._log.is_worth_merging or (
            self._position.log_bytes > budget and not self._log.is_merged
        )

    def is_overfull(self, budget: int, buckets: int) -> bool:
        """True if the task's log is over its budget although this bucket's part of it is merged.

        Other buckets may not have merged theirs: only one that holds more than its share can tell.
        If the merged logs of all buckets are over the budget, there is such a bucket.
        """
        return self._position.log_bytes > budget and self._log.exceeds(budget / buckets)

    def bases(self) -> tuple[Entry, ...]:
        """Entries in place of all absorbed ones, right after a commit; none if they are no use.

        There is one of each version that is not emitted to the end, the newest first, and one more
        where rows wait for others.
        """
        last = self._log.last
        if last is None or self._log.is_merged:
            return ()
        through = self._position.through
        foldings = [version.folding for version in reversed(self._open())]
        bases = tuple(base for one in foldings for base in one.bases(last, through))
        self._log.merged(last, bases)
        return bases
