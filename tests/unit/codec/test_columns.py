from __future__ import annotations

import polars as pl
import pytest

from mars.codec.columns import convert, parse_iso
from mars.plan import FieldType


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:01z", 1_000),
        ("1970-01-01 00:00:01", 1_000),
        ("1970-01-01T00:01", 60_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:00.5Z", 500),
        ("1970-01-01T00:00:00,123456789Z", 123),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("1970-01-01T08:00:00+08:00", 0),
        ("1970-01-01T08:00:00+0800", 0),
        ("1969-12-31T19:00:00-05", 0),
        ("1970-01-01T05:45:00+05:45", 0),
        ("2026-01-01T00:00:00Z", 1_767_225_600_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
    ],
)
def test_iso_texts_are_read(text: str, expected_ms: int) -> None:
    assert parse_iso(pl.Series("x", [text, None])).to_list() == [expected_ms, None]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "1970-1-1T0:0:0Z",
        "1970-13-01",
        "1970-02-30T00:00:00Z",
        "1970-01-01T24:00:00Z",
        "1970-01-01T23:59:60Z",
        "1970-01-01T00:00:00+24:00",
        "1970-01-01T00:00:00+00:60",
        "1970-01-01T00:00:00.Z",
        "1970-01-01T00:00:00.1234567890Z",
        " 1970-01-01",
        "1970-01-01T00:00:00ZZ",
        "1970-01-01T00:00:00 Europe/Paris",
        "+1970-01-01",
        "-0001-01-01",
        "0",
    ],
)
def test_other_texts_are_none(text: str) -> None:
    assert parse_iso(pl.Series("x", [text])).to_list() == [None]


def test_microseconds_round_down() -> None:
    typed = convert(pl.Series("x", [1_999, -1, None]), FieldType.TIMESTAMP_US)
    assert typed.values.to_list() == [1, -1, None]
    assert typed.invalid is None


def test_seconds_that_overflow_are_invalid() -> None:
    seconds = pl.Series("x", [1, 2**62, -(2**63), None])
    typed = convert(seconds, FieldType.TIMESTAMP_S)
    assert typed.values.to_list() == [1_000, None, None, None]
    assert typed.invalid is not None
    assert typed.invalid.to_list() == [False, True, True, False]


def test_null_text_is_null_and_not_invalid() -> None:
    typed = convert(pl.Series("x", ["1970-01-01", None, "?"]), FieldType.TIMESTAMP_ISO)
    assert typed.values.to_list() == [0, None, None]
    assert typed.invalid is not None
    assert typed.invalid.to_list() == [False, False, True]
