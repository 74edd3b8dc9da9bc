from __future__ import annotations

import polars as pl
import pytest

from mars.core.plan import FieldType
from mars.engine.decode.columns import convert, convert_numbers


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


@pytest.mark.parametrize(
    ("kind", "number", "expected"),
    [
        (FieldType.TIMESTAMP_S, 1767225600.123456, 1_767_225_600_123),
        (FieldType.TIMESTAMP_S, 1767225600.001, 1_767_225_600_001),
        (FieldType.TIMESTAMP_S, 1.7672256e9, 1_767_225_600_000),
        (FieldType.TIMESTAMP_S, -0.0015, -2),
        (FieldType.TIMESTAMP_MS, 1767225600123.456, 1_767_225_600_123),
        (FieldType.TIMESTAMP_MS, 1.767225600123e12, 1_767_225_600_123),
        (FieldType.TIMESTAMP_US, 1767225600123456.0, 1_767_225_600_123),
        (FieldType.TIMESTAMP_US, 1.767225600123e15, 1_767_225_600_123),
        (FieldType.TIMESTAMP_S, 1e300, None),
        (FieldType.INT64, 5.0, 5),
        (FieldType.INT64, -0.0, 0),
        (FieldType.INT64, 3.05e15, 3_050_000_000_000_000),
        (FieldType.INT64, 2.0**53, 2**53),
        (FieldType.INT64, 2.0**53 + 2, None),
        (FieldType.INT64, -(2.0**60), None),
        (FieldType.INT64, 1.5, None),
    ],
)
def test_number_with_a_point_counts_where_it_is_a_value_of_its_type(
    kind: FieldType, number: float, expected: int | None
) -> None:
    whole = pl.Series([None, 7, None], dtype=pl.Int64)
    typed = convert_numbers(whole, pl.Series([number, None, None]), kind)
    seven = {FieldType.TIMESTAMP_S: 7_000, FieldType.TIMESTAMP_US: 0}.get(kind, 7)
    assert typed.values.to_list() == [expected, seven, None]
    invalid = [False] * 3 if typed.invalid is None else typed.invalid.to_list()
    assert invalid == [expected is None, False, False]
