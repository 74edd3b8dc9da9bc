"""The options of a task: what a user may set beside the query."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final

from mars.core.errors import Rejected
from mars.core.plan import (
    Emit,
    LatePolicy,
    Options,
    OverMaxKeys,
    Stream,
    TaskBuckets,
    WatermarkScope,
)
from mars.core.topics import is_internal
from mars.core.types import TaskName
from mars.core.windows import span
from mars.sql.durations import WRITTEN, parse_duration

DELAY_MS_MAX: Final = 7 * 86_400_000
"""Longest delay: open windows are held in memory for as long."""

IDLE_AFTER_MS_MIN: Final = 100
"""Shortest `idle_after`: below it a lane would be idle between two reads of it."""
IDLE_AFTER_MS_MAX: Final = 86_400_000
"""Longest `idle_after`: a silent partition holds every window back for as long."""

FUTURE_LIMIT_MS_MAX: Final = 366 * 86_400_000
"""Longest `future_limit`: one such row may close every window that ends before it."""

LATENESS_MS_DEFAULT: Final = 600_000
"""`lateness` of a task that revises and does not say for how long."""
LATENESS_MS_MAX: Final = 7 * 86_400_000
"""Longest `lateness`: closed windows are kept in the store and in memory for as long."""
WINDOWS_KEPT_MAX: Final = 12_000
"""Closed windows that are kept for late rows: 7 days of minutes. The progress record names those
that were revised, and Kafka takes 1 MiB of it: some 20 bytes each for two lists of them."""

KEY_LAG_MS_DEFAULT: Final = 60_000
"""`key_lag` of a task that does not say how far its keys may lag behind."""
KEY_LAG_MS_MAX: Final = 7 * 86_400_000
"""Longest `key_lag`: the windows of silent keys are held for as long."""

MAX_KEYS_MAX: Final = 100_000
"""Largest `max_keys`: such a task lives in one bucket, and its window is one transaction."""

TOPIC_CHARACTERS_MAX: Final = 249
"""Longest name of a topic that Kafka allows."""

_NAMES = (
    "delay",
    "idle_after",
    "future_limit",
    "late",
    "lateness",
    "max_keys",
    "over_max_keys",
    "output_topic",
    "watermark",
    "key_lag",
    "emit",
    "buckets",
)
_DIGITS_MAX = 9
_LEGAL_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARACTERS_MAX}}}")


def parse_options(
    options: Mapping[str, object],
    task: TaskName,
    stream: Stream,
    default_topic: str | None = None,
) -> Options:
    """The options of a task with all defaults filled in.

    `default_topic` is where results go unless the options say otherwise; it depends on the
    namespace, and is `mars.results.<task>` in the default one. Raises `Rejected`, naming the
    option, for unknown names and unusable values.
    """
    for name in options:
        _check_name(name)
    late = _late(options)
    watermark = _watermark(options)
    return Options(
        output_topic=_topic(
            options.get("output_topic", default_topic or f"mars.results.{task}"), stream
        ),
        delay_ms=_duration(options, "delay", 0, 0, DELAY_MS_MAX),
        idle_after_ms=_duration(options, "idle_after", 5_000, IDLE_AFTER_MS_MIN, IDLE_AFTER_MS_MAX),
        future_limit_ms=_duration(options, "future_limit", 300_000, 0, FUTURE_LIMIT_MS_MAX),
        late=late,
        lateness_ms=_lateness(options, late),
        max_keys=_max_keys(options),
        over_max_keys=_over_max_keys(options),
        watermark=watermark,
        key_lag_ms=_key_lag(options, watermark),
        emit=_emit(options),
        buckets=_buckets(options),
    )


def _check_name(name: str) -> None:
    if name not in _NAMES:
        near = difflib.get_close_matches(name, _NAMES, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise Rejected(f"unknown option {name[:80]!r}; {hint}There are {', '.join(_NAMES)}")


def _duration(
    options: Mapping[str, object], name: str, default_ms: int, least_ms: int, most_ms: int
) -> int:
    if name not in options:
        return default_ms
    value = options[name]
    if not isinstance(value, str):
        raise Rejected(f"option {name}: write a duration as text: {WRITTEN}")
    try:
        duration_ms = parse_duration(value)
    except Rejected as error:
        raise Rejected(f"option {name}: {error}") from error
    if not least_ms <= duration_ms <= most_ms:
        raise Rejected(f"option {name}: {value} is outside of {span(least_ms)} to {span(most_ms)}")
    return duration_ms


def _late(options: Mapping[str, object]) -> LatePolicy:
    value = options.get("late", LatePolicy.DROP)
    if value not in list(LatePolicy):
        raise Rejected("option late: write 'drop' or 'revise'")
    return LatePolicy(str(value))


def _lateness(options: Mapping[str, object], late: LatePolicy) -> int:
    if late is LatePolicy.REVISE:
        return _duration(options, "lateness", LATENESS_MS_DEFAULT, 1, LATENESS_MS_MAX)
    if "lateness" in options:
        raise Rejected(
            "option lateness: it says how long windows are revised; set late: revise too"
        )
    return 0


def _watermark(options: Mapping[str, object]) -> WatermarkScope:
    value = options.get("watermark", WatermarkScope.PARTITION)
    if value not in list(WatermarkScope):
        raise Rejected("option watermark: write 'partition', 'bucket' or 'key'")
    return WatermarkScope(str(value))


def _key_lag(options: Mapping[str, object], watermark: WatermarkScope) -> int:
    if watermark is not WatermarkScope.PARTITION:
        return _duration(options, "key_lag", KEY_LAG_MS_DEFAULT, 1, KEY_LAG_MS_MAX)
    if "key_lag" in options:
        raise Rejected(
            "option key_lag: it says how far keys may lag behind others; set watermark: key too"
        )
    return 0


def _emit(options: Mapping[str, object]) -> Emit:
    value = options.get("emit", Emit.ALL)
    if value not in list(Emit):
        raise Rejected("option emit: write 'all' or 'changed'")
    return Emit(str(value))


def _buckets(options: Mapping[str, object]) -> TaskBuckets:
    value = options.get("buckets", TaskBuckets.ALL)
    if value not in list(TaskBuckets):
        raise Rejected(
            "option buckets: write 'all', or 'one' for a task of few groups, which then costs less"
        )
    return TaskBuckets(str(value))


def _max_keys(options: Mapping[str, object]) -> int | None:
    if "max_keys" not in options:
        return None
    value = options["max_keys"]
    number = _whole(value)
    if number is None or not 1 <= number <= MAX_KEYS_MAX:
        raise Rejected(
            f"option max_keys: {str(value)[:80]!r} is not a whole number from 1 to {MAX_KEYS_MAX}; "
            "leave it out for more groups: the task's budget in Redis bounds them too"
        )
    return number


def _whole(value: object) -> int | None:
    """A whole number, or the digits of one, as the command line gives them; None: neither."""
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value) if len(value) <= _DIGITS_MAX else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _over_max_keys(options: Mapping[str, object]) -> OverMaxKeys:
    value = options.get("over_max_keys", OverMaxKeys.FAIL)
    if value not in list(OverMaxKeys):
        raise Rejected("option over_max_keys: write 'fail' or 'fold'")
    if "over_max_keys" in options and "max_keys" not in options:
        raise Rejected("option over_max_keys: it says what happens over max_keys; set that too")
    return OverMaxKeys(str(value))


def _topic(value: object, stream: Stream) -> str:
    if not isinstance(value, str):
        raise Rejected("option output_topic: write the name of a topic as text")
    shown = repr(value[:80])
    if not _LEGAL_TOPIC.fullmatch(value) or value in (".", ".."):
        raise Rejected(
            f"option output_topic: {shown} is not a valid topic name; use 1 to "
            f"{TOPIC_CHARACTERS_MAX} of letters, digits, '.', '_' and '-'"
        )
    if is_internal(value):
        raise Rejected(f"option output_topic: {shown} is reserved; choose another name")
    if value == stream.topic:
        raise Rejected(
            f"option output_topic: {shown} is the topic that the task reads; choose another name"
        )
    return value
