"""How far a task's log was read in a bucket, and whether it is still the same log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from itertools import repeat
from operator import attrgetter, ge

from mars.core.types import Lane, Sequence64
from mars.protocol.ports import Head
from mars.protocol.windows.input import StoreWentBack


class LogPosition:
    """The position of one reader of a log.

    `through` are the merged-through offsets: everything below them was in what has been read.
    """

    def __init__(self) -> None:
        self.last_seq = Sequence64(0)
        self.through: dict[Lane, int] = {}
        self.head: Head | None = None
        self.caught_up = False
        """R6: everything that the last commits account for has been read again."""
        self.looks = 0
        """Heads that were news."""
        self.changes = 0
        """Goes up with them, and with all else by which something may be due that was not."""
        self.has_unread_base = False
        """Nothing has been read of a log that may begin with one."""
        self._run_id: str | None = None
        self._born: str | None = None

    @property
    def log_bytes(self) -> int:
        """What the task's log takes in the store, as the last head said; 0 before the first."""
        return 0 if self.head is None else self.head.log_bytes

    @property
    def born(self) -> str:
        """The life of the task whose log it is; empty where an older release has begun it."""
        return self._born or ""

    def is_behind(self, head: Head) -> bool:
        """True if the log holds what has not been read: entries, or at least its base."""
        return head.seq > self.last_seq or self.has_unread_base

    def check_life(self, run_id: str) -> None:
        """A server that was started again may be ahead of what it held, with other entries.

        Raises StoreWentBack.
        """
        if self._run_id not in {None, run_id}:
            raise StoreWentBack(f"the store was started anew: its run id is {run_id}")
        self._run_id = run_id

    def look(self, head: Head) -> None:
        """All that is read of a log, and written to it, is of the life that was seen first.

        That life counts on the server on which it was begun alone: one that took its place lacks
        what was written last, and nobody knows what that was. Raises StoreWentBack.
        """
        self.check_life(head.begun_on or head.run_id)
        self.check_life(head.run_id)
        if self._born not in {None, head.born}:
            raise StoreWentBack("the store was emptied, and the task begun anew in the same epoch")
        self._born = head.born

    def reach(self, head: Head) -> bool:
        """Everything up to `head.seq` was read: go forward to the head's offsets.

        False if it says nothing that was not known. Raises StoreWentBack if the head lies behind
        them, or is of another life of the log.
        """
        self.look(head)
        if head.seq < self.last_seq:
            raise StoreWentBack(f"the store's SEQ is {head.seq}, was {self.last_seq}")
        if not reaches(head.offsets, self.through, without=-1):
            raise StoreWentBack(_went_back(head, self.through))
        before, self.head = self.head, head
        if not _is_news(head, before):
            return False
        self.through = dict(head.offsets)
        self.last_seq = Sequence64(max(self.last_seq, head.seq))
        self.looks += 1
        self.changes += 1
        return True


def reaches(offsets: Mapping[Lane, int], wanted: Mapping[Lane, int], *, without: int = 0) -> bool:
    """True if the offset of each wanted lane is that high; one that is not there is `without`.

    There may be hundreds of lanes, and it is asked of each task in each bucket at each look.
    """
    return all(map(ge, map(offsets.get, wanted, repeat(without)), wanted.values()))


def _went_back(head: Head, through: Mapping[Lane, int]) -> str:
    lane, offset = next(
        (lane, offset) for lane, offset in through.items() if head.offsets.get(lane, -1) < offset
    )
    return f"lane {lane}: the store's offset is {head.offsets.get(lane)}, was {offset}"


_said = attrgetter(*(one.name for one in fields(Head) if one.name not in {"now_ms", "log_bytes"}))
"""What a head says, but for the time and the size of the log."""


def _is_news(head: Head, before: Head | None) -> bool:
    """False for a head that differs from the last one by the time and the size of the log alone,
    where each lane holds the watermark: where lanes are idle it may go on with the clock.
    """
    if head is before:
        return False
    if before is None or head.seq != before.seq or head.idle or head.ends:
        return True
    return _said(head) != _said(before)
