"""Texts that name an instant: one grammar for fields of type timestamp_iso and for CAST.

    2026-03-29                                  midnight in UTC
    2026-03-29T02:30Z                           `T`, `t` or a space; seconds may be left out
    20260329T023000.123456789012+0200           the basic form; any fraction, rounded down
    2026-03-29 02:30:00,5 UTC                   `Z`, `z`, `UTC` or an offset, after a space or not
    2026-03-29T02:30:00+01:00[Europe/Berlin]    the name of a zone behind its offset

This is ISO 8601 and RFC 9557 as producers write them. Without a zone it is UTC. Digits are ASCII
digits: to this regular expression engine `\\d` is any digit of Unicode, and numbers are read from
ASCII ones alone. An hour of 24, a second of 60 and a fraction of a minute name no instant.
"""

from __future__ import annotations

import polars as pl

SPACES = " \t\n\v\f\r"
"""What may stand around the text."""

YEAR_1_MS = -62_135_596_800_000
YEAR_10000_MS = 253_402_300_800_000
"""Instants outside [year 1, year 10000) have no text; polars cannot hold the farthest at all."""

_INSTANT = (
    r"^([0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{8})"  # date
    r"(?:[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?|[0-9]{4}(?:[0-9]{2})?)"  # time of day
    r"(?:[.,]([0-9]+))?"
    r"(?: ?(?:[Zz]|UTC|([+-][0-9]{2})(?::?([0-5][0-9]))?)(?:\[[!A-Za-z0-9._+/-]+\])?)?)?$"  # zone
)

_EXTENDED = "%Y-%m-%dT%H:%M:%S"


def instants_ms(texts: pl.Series) -> pl.Series:
    """Epoch milliseconds (Int64), rounded down; NULL where the text names no instant."""
    groups = pl.col("text").str.strip_chars(SPACES).str.extract_groups(_INSTANT)
    parts = texts.alias("text").to_frame().select(groups).unnest("text")
    day, clock, fraction, hours, minutes = (parts.get_column(str(at)) for at in range(1, 6))
    local = _extended(day, clock).str.to_datetime(_EXTENDED, time_unit="ms", strict=False)
    total = local.cast(pl.Int64) + _millis(fraction, clock) - _offset_ms(hours, minutes)
    named = total.is_between(YEAR_1_MS, YEAR_10000_MS, closed="left")
    return total.set(~named, None).alias(texts.name)


def _extended(day: pl.Series, clock: pl.Series) -> pl.Series:
    """Date and time in the extended form, to the second."""
    basic_day, basic_clock = day.str.len_bytes() == 8, ~clock.str.contains(":", literal=True)
    if basic_day.any():
        written = day.str.replace(r"^([0-9]{4})([0-9]{2})([0-9]{2})$", "${1}-${2}-${3}")
        day = day.zip_with(~basic_day.fill_null(False), written)
    if basic_clock.any():
        written = clock.str.replace(r"^([0-9]{2})([0-9]{2})", "${1}:${2}")
        written = written.str.replace(r"^([0-9:]{5})([0-9]{2})$", "${1}:${2}")
        clock = clock.zip_with(~basic_clock.fill_null(False), written)
    # A minute has 60 seconds here; the parser would take a leap second for the one after it.
    clock = clock.fill_null("00:00").set(clock.str.ends_with(":60"), None)
    short = clock.str.len_bytes() == 5
    clock = clock.zip_with(~short.fill_null(False), clock + ":00") if short.any() else clock
    return day + "T" + clock


def _millis(fraction: pl.Series, clock: pl.Series) -> pl.Series:
    """Milliseconds of a fraction of a second; NULL for a fraction of a minute."""
    millis = fraction.str.slice(0, 3).str.pad_end(3, "0").cast(pl.Int64).fill_null(0)
    return millis.set(fraction.is_not_null() & (clock.str.len_bytes() <= 5), None)


def _offset_ms(hours: pl.Series, minutes: pl.Series) -> pl.Series:
    """How far the zone is ahead of UTC; NULL for 24 hours and more."""
    if hours.null_count() == len(hours):
        return pl.repeat(0, len(hours), dtype=pl.Int64(), eager=True)
    ahead_h = hours.str.slice(1).cast(pl.Int64).fill_null(0)
    ahead = (ahead_h * 60 + minutes.cast(pl.Int64).fill_null(0)) * 60_000
    signed = ahead.zip_with(~hours.str.starts_with("-").fill_null(False), -ahead)
    return signed.set(ahead_h >= 24, None)
