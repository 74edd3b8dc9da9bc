"""Rows that are nothing at all, in a few bytes each: a message may consist of millions of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import numpy.typing as npt

from mars.core.types import Reason

Problem = tuple[Reason, str]
"""What is wrong with a row, and in words."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row (or a whole message) that is nothing at all, whichever fields one looks for.

    `message` counts the messages of the batch from 0, `line` the rows of the message from 0, as
    `Decoded.line_of` does.
    """

    message: int
    line: int
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True, eq=False)
class UnreadableRows(Sequence[Unreadable]):
    """Unreadable rows in order; `codes` says by its place in `problems` what is wrong with each."""

    messages: npt.NDArray[np.uint32]
    lines: npt.NDArray[np.uint32]
    codes: npt.NDArray[np.uint32]
    problems: tuple[Problem, ...]

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, at: int) -> Unreadable: ...
    @overload
    def __getitem__(self, at: slice) -> UnreadableRows: ...
    def __getitem__(self, at: int | slice) -> Unreadable | UnreadableRows:
        if isinstance(at, slice):
            return UnreadableRows(self.messages[at], self.lines[at], self.codes[at], self.problems)
        problem = self.problems[int(self.codes[at])]
        return Unreadable(int(self.messages[at]), int(self.lines[at]), *problem)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return False
        return all(own == one for own, one in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def of_messages(self, begin: int, end: int) -> UnreadableRows:
        """Those of some of the messages, which count from 0 then."""
        first, after = np.searchsorted(self.messages, [begin, end]).tolist()
        found = self[first:after]
        return replace(found, messages=found.messages - np.uint32(begin))

    def moved(self, places: npt.NDArray[np.int64]) -> UnreadableRows:
        """The same where message i stands at `places[i]`."""
        return replace(self, messages=places[self.messages].astype(np.uint32))

    def line_of(self, message: int, readable: int) -> int:
        """Which line of a message is its readable row of that number, the header counted."""
        first, after = np.searchsorted(self.messages, [message, message + 1]).tolist()
        readable_before = self.lines[first:after] - np.arange(after - first)
        return readable + int(np.searchsorted(readable_before, readable, side="right"))

    def by_reason(self) -> Iterator[tuple[Reason, UnreadableRows]]:
        """The rows of each reason."""
        reasons = [reason for reason, _detail in self.problems]
        for reason in dict.fromkeys(reasons):
            of_reason = np.array([one is reason for one in reasons])
            found = np.flatnonzero(of_reason[self.codes])
            if len(found):
                yield (
                    reason,
                    UnreadableRows(
                        self.messages[found], self.lines[found], self.codes[found], self.problems
                    ),
                )


_NO_NUMBERS = np.zeros(0, dtype=np.uint32)

NONE_UNREADABLE = UnreadableRows(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, ())
