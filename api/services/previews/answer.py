"""A trial as the answer to a preview, with its predictions.

How the bytes in Redis are estimated: the rows of each lane's last second are mapped as one batch,
as a mapper under load does; the size of its log entries a row, times rows a second, times the
length of a window and the delay, because so long its entries lie in the log: of sessions the length
of the longest that is seen, of windows that count rows so many of each lane. Merged: the size of a
group's merged states, times the most groups of a pane, times the panes that are open at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from api.presenting import alike, output_view
from api.services.previews.disorder import Lateness, suggested_ms
from api.services.previews.reading import PreviewSource
from api.services.previews.trial import Trial
from api.services.previews.windows import Tried, TriedWindow
from api.services.previews.words import Circumstances, notes, sentences
from mars.client.answers import (
    LateShare,
    Predictions,
    Preview,
    PreviewCounts,
    PreviewRejected,
    PreviewWindow,
)
from mars.core.types import Lane, RejectedRow, lane_partition
from mars.core.windows import Counting

NONE_LATE = Lateness(0, 0, {}, {})
"""Where windows go by numbers."""

SECONDS_PER_MINUTE = 60

DIGITS = 6
"""Of windows a minute: a window of many rows takes days to fill."""

SAMPLE_CHARACTERS = 200
"""Of a row that was not counted."""


@dataclass(frozen=True, slots=True)
class ReadRows:
    """What a preview read. `lane_seconds`: in how many seconds each lane's rows came, if known.

    `silent`: the partitions in which there was nothing to read.
    """

    source: PreviewSource
    seconds: float
    messages: int
    bytes: int
    truncated: bool = False
    lane_seconds: Mapping[Lane, float] | None = None
    silent: tuple[int, ...] = ()


def preview_view(trial: Trial, read: ReadRows, limit: int, log_bytes_max: int) -> Preview:
    """The answer."""
    tried = trial.windows(limit, whole=read.source is PreviewSource.ROWS)
    plan = trial.plan
    around = Circumstances(
        read.source,
        plan.stream.topic,
        read.seconds,
        read.messages,
        read.truncated,
        read.silent,
    )
    late = NONE_LATE if plan.counts_rows else trial.disorder.late()
    predictions = _predictions(trial, read, tried, late, log_bytes_max)
    return Preview(
        source=read.source.value,
        messages=read.messages,
        bytes=read.bytes,
        truncated=read.truncated,
        counts=alike(trial.counts, PreviewCounts),
        windows=[_window(window) for window in tried.shown],
        more_windows=tried.more,
        rejected=[_rejected(row) for row in trial.rejected],
        predictions=replace(predictions, sentences=sentences(predictions, plan, late.pause_ms)),
        notes=notes(trial, tried, around),
        output=output_view(plan),
        complete_windows=tried.complete,
    )


def _window(window: TriedWindow) -> PreviewWindow:
    return PreviewWindow(
        window_start=window.start_ms,
        window_end=window.end_ms,
        groups=window.groups,
        rows=list(window.rows),
        complete=window.complete,
        partition=None if window.name is None else window.name.partition,
        window_number=None if window.name is None else window.name.number,
    )


def _rejected(row: RejectedRow) -> PreviewRejected:
    return PreviewRejected(
        partition=lane_partition(row.lane) or 0,
        offset=row.offset,
        reason=str(row.reason),
        detail=row.detail.encode(errors="replace").decode(),
        sample=row.payload.decode(errors="replace")[:SAMPLE_CHARACTERS],
    )


def _predictions(
    trial: Trial,
    read: ReadRows,
    tried: Tried,
    late: Lateness,
    log_bytes_max: int,
) -> Predictions:
    rates = None if read.lane_seconds is None else _rates(trial.lane_rows, read.lane_seconds)
    groups = max((window.groups for window in tried.shown), default=None)
    in_log = None if rates is None else _log_bytes(trial, rates, groups or 0, tried)
    found = tried.sessions
    return Predictions(
        rows_per_second=None if rates is None else round(sum(rates.values(), 0.0), 1),
        groups_per_window=groups if found is None and tried.waiting is None else None,
        groups_at_least=_may_grow(trial) if tried.complete is None else not tried.complete,
        redis_bytes=None if in_log is None else in_log[0],
        redis_bytes_merged=None if in_log is None else in_log[1],
        redis_bytes_max=log_bytes_max,
        late=_late(late.by_partition),
        late_by_key=_late(late.by_key),
        disorder_max_ms=late.max_ms if late.by_partition else None,
        suggested_delay_ms=suggested_ms(
            late.by_key if trial.plan.closes_by_key else late.by_partition
        ),
        sentences=[],
        windows_per_minute=_a_minute(trial, read, tried),
        sessions_per_group=None
        if found is None or not found.groups
        else round(len(found.windows) / found.groups, 2),
    )


def _a_minute(trial: Trial, read: ReadRows, tried: Tried) -> float | None:
    """How many windows of rows, or sessions, a minute brings."""
    shape, found = trial.plan.window, None
    if tried.sessions is not None:
        found = tried.sessions.a_minute
    elif tried.waiting is not None and read.lane_seconds:
        found = (tried.complete or 0) * SECONDS_PER_MINUTE / max(read.lane_seconds.values())
    elif isinstance(shape, Counting) and read.lane_seconds is not None:
        rates = _rates(trial.counted, read.lane_seconds)
        found = sum(rates.values(), 0.0) * SECONDS_PER_MINUTE / shape.slide
    return None if found is None else round(found, DIGITS)


def _may_grow(trial: Trial) -> bool:
    """Whether a window may have more groups than there were in so short a time."""
    longest_ms = trial.plan.window.longest_ms
    return longest_ms is None or trial.event_span_ms < longest_ms


def _late(shares: Mapping[int, float]) -> list[LateShare]:
    return [LateShare(delay_ms=delay, share=round(share, 6)) for delay, share in shares.items()]


def _rates(rows: Mapping[Lane, int], seconds: Mapping[Lane, float]) -> dict[Lane, float]:
    """Rows a second by lane."""
    return {lane: count / seconds[lane] for lane, count in rows.items() if seconds[lane]}


def _log_bytes(
    trial: Trial, rates: Mapping[Lane, float], groups: int, tried: Tried
) -> tuple[int, int]:
    """Unmerged and merged, where a window has so many groups."""
    window, options, sessions = trial.plan.window, trial.plan.options, tried.sessions
    if tried.waiting is not None:
        waiting = round(trial.bytes_per_group() * tried.waiting)
        return waiting, waiting
    if isinstance(window, Counting):
        return _log_bytes_of_counted(trial, window)
    held_ms = options.delay_ms + options.lateness_ms + options.key_lag_ms
    kept_ms = held_ms + (window.kept_ms if sessions is None else sessions.longest_ms)
    appended = trial.log_bytes({lane: rate * kept_ms / 1_000 for lane, rate in rates.items()})
    if window.begin_together:  # what lies behind in a cycle is one pane, with all its groups
        states = groups + trial.groups_per_pane() * (window.panes_in(held_ms) + 1)
    else:
        states = trial.groups_per_pane() * window.panes_in(kept_ms)
    merged = round(trial.bytes_per_group() * states)
    return max(appended, merged), merged


def _log_bytes_of_counted(trial: Trial, window: Counting) -> tuple[int, int]:
    """The same of each lane's rows of a window; of those that are read some are counted."""
    lanes = [lane for lane, count in trial.counted.items() if count]
    appended = trial.log_bytes(
        {lane: window.size * trial.lane_rows[lane] / trial.counted[lane] for lane in lanes}
    )
    states = trial.groups_per_pane() * window.panes_in(window.size) * len(lanes)
    merged = round(trial.bytes_per_group() * states)
    return max(appended, merged), merged
