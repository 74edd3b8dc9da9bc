"""What the partial log on Redis and its twin in memory have in common: limits and checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mars.core.types import Entry, Mapped, Partial, Range
from mars.engine.codec.entry import encode_entry, encode_merged
from mars.engine.codec.states import states_bytes
from mars.protocol.ports.notes import Note, decode_notes, encode_notes

IDLE_LEASE_MS = 3_000
"""How long a lane is idle once its mapper said so; mappers renew about every second."""

ENTRY_OVERHEAD_BYTES = 128
"""What an entry counts for besides its header and its states uncompressed: the store's own
bookkeeping of it (measured on Valkey 9.1: 50 to 145 bytes), so that a budget also holds for many
small entries."""

HOLDER_BUDGETS = 2
"""How many budgets a task's log may fill with rows of the lane that holds the watermark: others are
refused over one. Without a limit a log would grow for as long as no reducer runs."""

LOOK_ENTRIES_MAX = 64
"""Batches since a log was read of which a look brings its entries: some, where the reader is at its
heels. A hundred tasks that get a batch a second then take one call each, instead of 30."""

LOOK_BYTES_MAX = 256 * 1024
"""What the entries that a look brings of one task count for at the most: of 50 tasks in one round
trip 13 MB. Whatever is larger is read by itself."""

NUMBER_MAX = 2**53 - 1
"""The highest offset, mark or epoch: Lua's numbers are doubles, exact up to here. A lane at a
million rows a second gets there in 285 years."""

LETTER_NOTES_MAX = 1_000
"""Notes in one letter to an acker: some 60 kB."""

LETTERS_MAX = 1_000
"""Letters in one acker's mailbox; of more, the oldest are lost, and their roots are not proven. An
acker that is away for a minute misses none."""

LETTERS_TAKEN_MAX = 100
"""Letters an acker takes at once: what it adds up in a tenth of a second."""


Content = tuple[bytes, bytes, int]
"""Header and states of an entry, and how many bytes it counts for."""


def content_of(version: int, ranges: tuple[Range, ...], partial: Partial) -> Content:
    """What is stored of an entry."""
    header, states = encode_entry(version, ranges, partial)
    return header, states, len(header) + states_bytes(states) + ENTRY_OVERHEAD_BYTES


def merged_content_of(entry: Entry) -> tuple[bytes, int]:
    """What is stored of an entry that stands for several, and how many bytes it counts for."""
    content, states = encode_merged(entry), entry.partial.states
    besides = len(content) - len(states) + ENTRY_OVERHEAD_BYTES
    return content, besides + states_bytes(states)


def check_batch(mapped: Mapped, buckets: int) -> None:
    """Refuse what no mapper may send. Raises ValueError: the caller is wrong, nothing else."""
    _check_ranges(mapped)
    written = [partial.bucket for partial in mapped.partials]
    if len(set(written)) < len(written):
        raise ValueError(f"two partials for one bucket in a batch: {written}")
    if any(not 0 <= bucket < buckets for bucket in written):
        raise ValueError(f"buckets {written} are not all in 0..{buckets - 1}")


def _check_ranges(mapped: Mapped) -> None:
    lanes = [part.lane for part in mapped.ranges]
    if not lanes:
        raise ValueError("a batch needs a range")
    if len(set(lanes)) < len(lanes):
        raise ValueError(f"two ranges of one lane in a batch, join them: {mapped.ranges}")
    if any(not 0 <= part.first < part.next <= NUMBER_MAX for part in mapped.ranges):
        raise ValueError(f"a range must hold an offset: {mapped.ranges}")
    if not mapped.marks_ms.keys() <= set(lanes):
        raise ValueError(f"marks of lanes that the batch {lanes} does not have: {mapped.marks_ms}")
    if any(abs(mark) > NUMBER_MAX for mark in mapped.marks_ms.values()):
        raise ValueError(f"a mark is out of range: {mapped.marks_ms} ms")


def letters_of(notes: Sequence[Note]) -> list[bytes]:
    """The letters in which notes go to an acker's mailbox."""
    starts = range(0, len(notes), LETTER_NOTES_MAX)
    return [encode_notes(notes[start : start + LETTER_NOTES_MAX]) for start in starts]


def notes_of(letters: Iterable[bytes]) -> list[Note]:
    """The notes in all the letters."""
    return [note for letter in letters for note in decode_notes(letter)]


def holder_limit(budget: int) -> int:
    """Bytes up to which a log takes batches of the lane that holds the watermark."""
    return HOLDER_BUDGETS * budget


def has_rows(mapped: Mapped) -> bool:
    """Whether the batch ends the idleness of its lanes: a mark or any row."""
    return bool(mapped.marks_ms) or any(part.counts.read for part in mapped.partials)
