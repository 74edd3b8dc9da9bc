"""What a preview found, in sentences for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from api.services.previews.disorder import LATE_SHARE_MAX
from api.services.previews.reading import PreviewSource
from api.services.previews.trial import Trial
from api.services.previews.windows import Tried
from mars.client.answers import LateShare, Predictions
from mars.core.plan import Options, OverMaxKeys, Plan, RecordTime, WatermarkScope
from mars.core.types import Reason
from mars.core.windows import Shape, moment, span
from mars.core.windows.moments import EXACT_BELOW, MINUTE_MS
from mars.core.words import counted
from mars.engine.aggregates.others import OTHERS_KEY
from mars.engine.decode.usable import OLD_RECORD_TIME, OUTSIDE_CALENDAR, YEAR_2001_MS
from mars.inspect.explaining_rows import (
    AHEAD_HINTS,
    OLD_HINTS,
    OLD_RECORD_HINT,
    UNGUARDED,
    unit_hint,
)

KIB = 1024

PARTITIONS_NAMED = 5
"""Of those without messages; a topic may have hundreds."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where the rows of a preview came from; `silent` are the partitions that had none."""

    source: PreviewSource
    topic: str
    seconds: float
    messages: int
    truncated: bool
    silent: tuple[int, ...] = ()


def notes(trial: Trial, tried: Tried, around: Circumstances) -> list[str]:
    """What a person should know of a preview, the most important first."""
    found = [*_about_source(around)]
    if trial.counts.read:
        found += [*_about_numbers(trial, tried), *_about_sessions(tried)]
        if not trial.plan.counts_rows:
            found += [*_about_silent(around, trial.plan.options), *_about_last(trial, around)]
        found += [*_about_rejected(trial), *_about_cells(trial)]
        found += [*_about_times(trial), *_about_record_times(trial), *_about_fields(trial)]
        found += _about_filters(trial, tried)
    return found


def _about_numbers(trial: Trial, tried: Tried) -> Iterator[str]:
    """Where windows count rows: whose numbers these are."""
    if trial.plan.counts_rows and trial.counts.counted:
        full = counted(tried.complete or 0, "window", ",")
        are = "is" if tried.complete == 1 else "are"
        yield (
            f"Rows are numbered from the first of the preview on in each partition, and {full} "
            f"{are} full. A task numbers them from where it begins: its windows hold other rows."
        )
    if tried.waiting:
        wait = "waits" if tried.waiting == 1 else "wait"
        yield (
            f"{counted(tried.waiting, 'row', ',')} {wait} for more rows of the same key. Redis "
            "holds each until its window is full, or its key has been silent for EXPIRE."
        )


def _about_sessions(tried: Tried) -> Iterator[str]:
    found = tried.sessions
    if found is None or not found.windows:
        return
    cut, gap = len(found.windows) - (tried.complete or 0), span(found.shape.gap_ms)
    if not tried.complete:
        yield (
            f"No session is over within the preview, with a gap of {gap}: there may be fewer and "
            "longer ones, which take more of Redis."
        )
    elif cut:
        yield (
            f"{cut:,} of {counted(len(found.windows), 'session', ',')} may have more rows: before "
            "the preview, or still to come."
        )


def _about_source(around: Circumstances) -> Iterator[str]:
    if around.source is PreviewSource.ROWS:
        if not around.messages:
            yield "No rows were given."
    elif not around.messages:
        yield (f"Topic {around.topic} has no messages: send some, or give rows with the preview.")
    elif around.source is PreviewSource.NEWEST:
        yield (
            f"No message came in the last {around.seconds:g} s; these are the newest "
            f"{around.messages:,} of topic {around.topic}."
        )
    if around.truncated:
        yield (
            "The preview reached its limit of messages, bytes or time: counts are of a part of "
            "the rows, rates are not."
        )


def _about_silent(around: Circumstances, options: Options) -> Iterator[str]:
    """Partitions that hold windows back, if only for a while."""
    silent, idle_after = around.silent, span(options.idle_after_ms)
    if not silent:
        return
    had = f"had no message in the last {around.seconds:g} s"
    if around.source is PreviewSource.NEWEST:
        had = "never had a message, or none that is kept"
    names, them, they = (
        (f"Partition {silent[0]}", "it", "it has")
        if len(silent) == 1
        else (f"Partitions {_some_of(silent)}", "them", "they have")
    )
    yield (
        f"{names} {had}: windows wait for {them} until {they} been idle for {idle_after} "
        "(idle_after). Send rows there, too, or set idle_after to as long as windows may wait."
    )


def _about_last(trial: Trial, around: Circumstances) -> Iterator[str]:
    """Where no row comes any more the last windows stay open for a while."""
    if around.source is PreviewSource.NEWEST and trial.mark_ms is not None:
        yield (
            "If no newer row comes, event time goes on from the newest row, of "
            f"{moment(trial.mark_ms)}, at the pace of the clock. A window that ends after that row "
            "closes as much later."
        )


def _some_of(partitions: Sequence[int]) -> str:
    """Their numbers, or the first of them and how many more there are."""
    names = [str(partition) for partition in partitions[:PARTITIONS_NAMED]]
    if len(partitions) > PARTITIONS_NAMED:
        return f"{', '.join(names)} and {len(partitions) - PARTITIONS_NAMED} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _about_rejected(trial: Trial) -> Iterator[str]:
    counts = trial.counts
    if not counts.bad and not counts.future:
        return
    words: dict[str, str] = {
        Reason.UNREADABLE: "cannot be read",
        Reason.WRONG_TYPE: "have a value of a wrong type",
        Reason.NO_EVENT_TIME: "have no usable event time",
        Reason.TOO_LARGE: "are too large",
        Reason.FUTURE: "have an event time far after they came",
    }
    for reason, rows in trial.reasons.most_common():
        sample = next((row.detail for row in trial.rejected if row.reason is reason), "")
        example = f", such as: {sample}" if sample else ""
        yield f"{rows:,} of {counts.read:,} rows {words.get(reason, reason)}{example}."


def _about_cells(trial: Trial) -> Iterator[str]:
    """Columns that nobody has declared, or a delimiter within the cells."""
    if trial.longer_rows:
        columns = "the header names" if trial.plan.stream.csv_header else "the stream has fields"
        yield (
            f"{trial.longer_rows:,} of {trial.counts.read:,} rows have more cells than {columns}: "
            "the extra cells are ignored."
        )


def _about_times(trial: Trial) -> Iterator[str]:
    """A wrong unit: times in 1970, or beyond the year 9999."""
    stream = trial.plan.stream
    field = stream.field(stream.event_time)
    of_record = field is not None and field.origin is not None
    today = of_record or (trial.stamp_ms is not None and trial.stamp_ms > YEAR_2001_MS)
    if today and trial.mark_ms is not None and 0 <= trial.mark_ms < YEAR_2001_MS:
        but = "" if of_record else ", but the messages do not"
        said = f"All event times lie before 2001{but}"
        yield ": ".join(filter(None, (said, unit_hint(stream, OLD_HINTS)))) + "."
    if any(OUTSIDE_CALENDAR in row.detail for row in trial.rejected):
        said = "Event times lie far ahead"
        yield ": ".join(filter(None, (said, unit_hint(stream, AHEAD_HINTS)))) + "."


def _about_record_times(trial: Trial) -> Iterator[str]:
    if any(OLD_RECORD_TIME in row.detail for row in trial.rejected):
        yield f"Record times lie before 2001: {OLD_RECORD_HINT}."
    if trial.plan.stream.record_time is RecordTime.IGNORE:
        yield (
            f"The stream says record_time: ignore, so {UNGUARDED}: with one row of the year 9999 a "
            "partition holds no window open any more, and rows behind it are late."
        )


def _about_fields(trial: Trial) -> Iterator[str]:
    if not trial.disorder.rows:
        return
    for field in trial.plan.fields:
        if field.name not in trial.filled:
            yield (
                f"Field {field.name} is missing or NULL in every row: is its name in the stream "
                "as it is in the messages?"
            )


def _about_filters(trial: Trial, tried: Tried) -> Iterator[str]:
    counts, windows = trial.counts, tried.shown
    if counts.filtered and not counts.counted:
        yield f"WHERE lets none of {counts.filtered:,} rows through."
    groups = windows or (tried.sessions is not None and tried.sessions.windows)
    if trial.plan.having is not None and groups and not any(one.rows_all for one in windows):
        yield "HAVING lets no group through."


# ------------------------------------------------------------------------------- predictions


def sentences(found: Predictions, plan: Plan, pause_ms: int = 0) -> list[str]:
    """Predictions in words, for a task of this plan; `pause_ms` as in `Lateness`."""
    options = plan.options
    said = [*_about_rate(found, plan), *_about_size(found, plan)]
    said += [IN_ORDER] if plan.counts_rows else _about_delay(found, options, pause_ms)
    return [*said, *_about_pause(pause_ms, options)]


def _about_pause(pause_ms: int, options: Options) -> Iterator[str]:
    if pause_ms:
        yield (
            f"All partitions paused for up to {_seconds(pause_ms)}. Once they have been idle for "
            f"{span(options.idle_after_ms)} (idle_after), event time goes on at the pace of the "
            "clock, and windows close. Older rows that come after a pause may be late: a longer "
            "idle_after, or a longer delay, keeps windows open for them."
        )


IN_ORDER = "No row is late, however old: rows are counted in the order of their offsets."


def _about_rate(found: Predictions, plan: Plan) -> Iterator[str]:
    if found.rows_per_second is not None:
        yield f"About {found.rows_per_second:,.0f} rows a second."
    a_minute, groups = found.windows_per_minute, found.groups_per_window
    if found.sessions_per_group is not None:
        noun = "session" if found.sessions_per_group == 1 else "sessions"
        yield f"{_figure(found.sessions_per_group)} {noun} a group on average, within the preview."
        if a_minute is not None:
            yield f"About {_figure(a_minute)} sessions begin a minute."
    elif a_minute is not None and plan.counts_by_key:
        yield f"About {_figure(a_minute)} windows a minute, each of one key."
    elif a_minute is not None and groups is not None:
        yield (
            f"About {_figure(a_minute)} windows a minute in all partitions, with up to "
            f"{_figure(a_minute * groups)} result rows."
        )


def _figure(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= EXACT_BELOW else f"{value:.3g}"


def _about_size(found: Predictions, plan: Plan) -> Iterator[str]:
    if found.groups_per_window is not None:
        least = "At least" if found.groups_at_least else "About"
        yield f"{least} {counted(found.groups_per_window, 'group', ',')} a window."
        yield from _about_max_keys(found.groups_per_window, plan.options)
        if not plan.emits_changed:
            yield from _about_steps(found.groups_per_window, plan.window)
    if found.redis_bytes is None or found.redis_bytes_merged is None:
        return
    limit = _size(found.redis_bytes_max)
    if found.redis_bytes_merged > found.redis_bytes_max:
        yield (
            f"Partials would take {_size(found.redis_bytes_merged)} of Redis even when merged, "
            f"more than the {limit} a task may hold: the task would fail. Use fewer groups, "
            "shorter windows, or raise cluster.log_bytes_max."
        )
    elif found.redis_bytes > found.redis_bytes_max / 2:
        yield (
            f"Partials would take {_size(found.redis_bytes)} of Redis; the reducers merge them "
            f"to no less than {_size(found.redis_bytes_merged)} to stay below {limit}."
        )
    else:
        yield f"Partials would take about {_size(found.redis_bytes)} of the {limit} in Redis."


def _about_steps(groups: int, window: Shape) -> Iterator[str]:
    if not window.begin_together:
        return
    a_minute = groups * MINUTE_MS / window.ends_apart_ms
    if window.longest_ms is None:
        yield (
            "Each step in which a row comes emits all groups since the landmark, and they are kept "
            f"for ever: with these {a_minute:,.0f} result rows a minute, and more as they grow."
        )
        return
    steps = window.longest_ms // window.ends_apart_ms
    yield (
        f"Each of the {steps:,} steps of a cycle emits all groups that it has by then: with these "
        f"{a_minute:,.0f} result rows a minute."
    )


def _about_max_keys(groups: int, options: Options) -> Iterator[str]:
    keys_max = options.max_keys
    if keys_max is None or groups <= keys_max:
        return
    if options.over_max_keys is OverMaxKeys.FOLD:
        yield (
            f"That is more than max_keys ({keys_max:,}): the groups that come last would become "
            f"one row, {OTHERS_KEY}, which the preview does not show. Use a larger max_keys, or "
            "none, for each to have its own."
        )
    else:
        yield (
            f"That is more than max_keys ({keys_max:,}): the task would fail. Use a larger "
            "max_keys, or none, or fewer groups; or over_max_keys: fold, which makes one row of "
            "the groups that come last."
        )


def _about_delay(found: Predictions, options: Options, pause_ms: int) -> Iterator[str]:
    if found.disorder_max_ms is None:
        return
    by_key = options.watermark is WatermarkScope.KEY
    shares = found.late_by_key if by_key else found.late
    own = _share(shares, options.delay_ms)
    if found.disorder_max_ms == 0 and pause_ms:
        yield (
            "Rows are in order within their partitions; after pauses, with the delay of "
            f"{_seconds(options.delay_ms)}, {_percent(own)} would be late."
        )
        return
    if found.disorder_max_ms == 0:
        yield "Rows are in order within their partitions: a delay of 0 s is enough."
        return
    behind, delay = _seconds(found.disorder_max_ms), _seconds(options.delay_ms)
    if found.suggested_delay_ms is None:
        longest = shares[-1]
        yield (
            f"Rows come up to {behind} behind newer ones; even with a delay of "
            f"{_seconds(longest.delay_ms)} {_percent(longest.share)} would be late."
        )
    elif own <= LATE_SHARE_MAX:
        yield (
            f"Rows come up to {behind} behind newer ones; with the delay of {delay} "
            f"{_percent(own)} would be late."
        )
    else:
        yield (
            f"Rows come up to {behind} behind newer ones: with the delay of {delay} "
            f"{_percent(own)} would be late; use a delay of {_seconds(found.suggested_delay_ms)}."
        )
    if not by_key and own > LATE_SHARE_MAX and found.late_by_key:
        in_keys = _share(found.late_by_key, options.delay_ms)
        if in_keys <= LATE_SHARE_MAX:
            yield (
                "It is keys that lag: with windows that close key by key (watermark: key) a delay "
                f"of {delay} is enough, and {_percent(in_keys)} would be late."
            )


def _share(shares: Sequence[LateShare], delay_ms: int) -> float:
    return next(one.share for one in shares if one.delay_ms == delay_ms)


def _seconds(duration_ms: int) -> str:
    return f"{duration_ms / 1_000:.3g} s"


def _percent(share: float) -> str:
    return "none" if share == 0 else f"at most {max(share * 100, 0.01):.2g} % of the rows"


def _size(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < KIB:
            return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:.3g} {unit}"
        value /= KIB
    return f"{value:.3g} GiB"
