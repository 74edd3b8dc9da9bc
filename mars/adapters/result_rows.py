"""Which result rows are the newest, and what is known of their windows: Kafka and its twin alike.

A bucket emits its windows in order, each at first with `revision` 0, and rows of later revisions at
any time after that:

    offsets   | w1 w1 w2 | w2 w3 w3 | w1' w4 w2' | ...     w1': a revision
                          ^ looked through from here on
    all of w4 and w3 are there; of w2 some rows may be missing; of w1 only a revision is there
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mars.protocol.ports import CommittedRow, RecentRows, ResultGap, WantedNumber, WantedWindow


def newest_rows(rows: Sequence[CommittedRow], firsts_max: int) -> Sequence[CommittedRow]:
    """The end of a partition's rows that holds `firsts_max` rows of revision 0, if so many are."""
    left = firsts_max
    for place in range(len(rows) - 1, -1, -1):
        left -= rows[place].revision == 0
        if left == 0:
            return rows[place:]
    return rows


def firsts_of(rows: Sequence[CommittedRow]) -> int:
    """How many rows are of revision 0."""
    return sum(row.revision == 0 for row in rows)


def lowest_first(rows: Sequence[CommittedRow]) -> int | None:
    """The lowest end of a window of which a partition's rows hold one of revision 0.

    Of later windows all rows are there, and of none up to it is that certain. Without any such row
    that goes for all windows up to the latest one here. (Several buckets may share a partition;
    they emit a window at about the same time.) None: there are no rows.
    """
    firsts = [row.window.end_ms for row in rows if row.revision == 0]
    if firsts:
        return min(firsts)
    return max((row.window.end_ms for row in rows), default=None)


def place_within(
    partition: int, wanted: int, low: int, high: int
) -> tuple[int, tuple[ResultGap, ...]]:
    """Where a partition that begins at `low` is followed, and what is gone up to there."""
    gone = (ResultGap(partition, wanted, low),) if wanted < low else ()
    return min(max(wanted, low), high), gone


def answered(
    wanted: WantedWindow | WantedNumber,
    parts: Iterable[Sequence[CommittedRow]],
    rows_max: int,
    *,
    whole: bool,
) -> RecentRows:
    """The newest rows of a window from each partition; `whole` if these are all that there are."""
    kept = [[row for row in part if wanted.shows(row)] for part in parts]
    rows = tuple(row for part in kept for row in part[-rows_max:])
    if whole and all(len(part) <= rows_max for part in kept):
        return RecentRows(rows)
    cut_at_ms = max((row.window.end_ms for row in rows), default=wanted.start_ms)
    return RecentRows(rows, cut_at_ms, frozenset(range(len(kept))))
