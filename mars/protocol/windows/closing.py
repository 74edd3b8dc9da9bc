"""What closing windows gives: finished rows, what they were counted from, and whether all came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mars.core.definitions import TaskVersion
from mars.core.types import Lane
from mars.core.windows import Shape, Window
from mars.engine.finishing import Finished


def closed_by(shape: Shape, closed_ms: int | None, watermark_ms: int | None) -> int | None:
    """C after everything that the watermark has passed is closed; it never goes back."""
    if watermark_ms is None:
        return closed_ms
    closed = shape.closed_by(watermark_ms)
    return closed if closed_ms is None else max(closed, closed_ms)


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """One window's finished rows; `complete` is False where it lacks rows it should have had.

    `firsts` are the lowest offsets that may hold rows of it, for each lane that has any, and
    `rows` is how many were counted. A `revision` above 0 has those groups alone that late rows have
    changed; `deleted` are those of them that are no longer among the results.
    """

    window: Window
    complete: bool
    finished: Finished
    firsts: Mapping[Lane, int]
    rows: int
    revision: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class WithheldResult:
    """A result of a window that is not sent, `detail` says why; `dead` are its references.

    `name` is what people are told of the window.
    """

    window: Window
    name: str
    detail: str
    dead: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """How many rows a window has counted so far, and whether it lacks any."""

    window: Window
    rows: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a commit closes ahead of C, group by group.

    `upto_ms` is X, the end up to which groups are closed by then; `rows` are those of the groups in
    `windows`, whether HAVING lets them pass or not.
    """

    upto_ms: int | None = None
    windows: tuple[ClosedWindow, ...] = ()
    rows: int = 0


@dataclass(frozen=True, slots=True)
class WholeSpan:
    """Where a version's windows are complete: those that begin and end within these times, and
    touch none of `unread_ms`.
    """

    from_ms: int | None = None
    until_ms: int | None = None
    unread_ms: tuple[int, int] | None = None

    @classmethod
    def of(cls, version: TaskVersion) -> WholeSpan:
        """That of a version."""
        return cls(version.complete_from_ms, version.complete_until_ms, version.unread_ms)

    def holds(self, window: Window) -> bool:
        """True if a window lies within the bounds."""
        if self.unread_ms is not None:
            from_ms, to_ms = self.unread_ms
            if window.start_ms < to_ms and from_ms < window.end_ms:
                return False
        after_start = self.from_ms is None or window.start_ms >= self.from_ms
        return after_start and (self.until_ms is None or window.end_ms <= self.until_ms)
