"""What is found where windows are computed again, and how it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from mars.client.answers import DifferentRow, Verification
from mars.core.types import TaskName
from mars.core.windows import Window, moment
from mars.core.words import counted
from mars.inspect.verifying import NAMED_MAX, Difference, Kind
from mars.protocol.ports import WantedNumber, WantedWindow


@dataclass(slots=True)
class Verified:
    """What has been found so far, over all versions that have rows of the window."""

    rows: int = 0
    source_rows: int = 0
    differences: list[Difference] = field(default_factory=list)
    miscounted: str = ""
    """What is wrong with the number of its rows, where that is known."""

    @property
    def is_equal(self) -> bool:
        """True where nothing is wrong."""
        return not self.differences and not self.miscounted

    def told(
        self,
        words: str,
        task: TaskName,
        versions: Sequence[int],
        complete: bool,
        window: Window | None = None,
        *,
        several: bool = False,
        partition: int | None = None,
        window_number: int | None = None,
    ) -> Verification:
        """The answer; `words` say what is verified, a window or `several`."""
        return Verification(
            task=task,
            window_start=None if window is None else window.start_ms,
            window_end=None if window is None else window.end_ms,
            partition=partition,
            window_number=window_number,
            versions=list(versions),
            complete=complete,
            equal=self.is_equal,
            rows=self.rows,
            source_rows=self.source_rows,
            differences=[_difference(each) for each in self.differences[:NAMED_MAX]],
            more=max(0, len(self.differences) - NAMED_MAX),
            summary=self._summary(words[0].upper() + words[1:], several),
        )

    def _summary(self, subject: str, several: bool) -> str:
        is_equal, differs = ("are equal", "differ") if several else ("is equal", "differs")
        source = f"{counted(self.source_rows, 'source row')} read again"
        if self.is_equal:
            agree = "agrees" if self.rows == 1 else "agree"
            rows = counted(self.rows, "result row")
            return f"{subject} {is_equal}: {rows} {agree} with {source}."
        if not self.differences:
            return f"{subject} {differs}.{self.miscounted}"
        kinds = [one.kind for one in self.differences]
        counts = [f"{kinds.count(kind)} {kind.value}" for kind in Kind if kind in kinds]
        return (
            f"{subject} {differs}: of {counted(self.rows, 'result row')} and {source}, "
            f"{counted(len(kinds), 'group')} {'does' if len(kinds) == 1 else 'do'} not agree "
            f"({', '.join(counts)})."
            f"{self.miscounted}"
        )


def words_of(wanted: WantedWindow | WantedNumber) -> str:
    """A window in a sentence."""
    if isinstance(wanted, WantedNumber):
        return f"window {wanted.name.number} of partition {wanted.name.partition}"
    until = "" if wanted.end_ms is None else f" to {moment(wanted.end_ms)}"
    return f"the window {moment(wanted.start_ms)}{until}"


def no_rows(task: TaskName, wanted: object | None, thing: str = "window") -> str:
    """What to say where there is nothing to verify; `wanted` ends a sentence about a `thing`."""
    if wanted is not None:
        return (
            f"task {task} has no results of a {thing} that {wanted}: name a finished one, or none "
            "for the last"
        )
    return (
        f"no {thing} of task {task} can be verified yet: `mars why {task}` says what it waits for"
    )


def _difference(one: Difference) -> DifferentRow:
    return DifferentRow(
        kind=one.kind.value,
        version=one.version,
        bucket=one.bucket,
        key=_json(one.key),
        emitted=_json(one.emitted),
        recounted=_json(one.recounted),
    )


def _json(raw: bytes | None) -> object:
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return raw.decode(errors="replace") if raw is not None else None
