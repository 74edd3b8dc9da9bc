from __future__ import annotations

import struct

import polars as pl
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from mars.core.plan import ValueType
from mars.core.types import Lane, TaskName
from mars.engine.codec import canonical
from mars.engine.codec.canonical import (
    bucket_of_lane,
    bucket_of_task,
    buckets_of_keys,
    buckets_of_texts,
    texts_of_keys,
)
from mars.engine.evaluate.values import dtype_of

TASK = TaskName("by_sip")


@pytest.fixture(params=[0, canonical.FEW_KEYS], ids=["many", "few"])
def _keys(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are hashed in a query of polars, as many are, or in a loop, as a few are."""
    monkeypatch.setattr(canonical, "FEW_KEYS", request.param)


def texts(values: list[object], kind: ValueType, dtype: pl.DataType) -> list[str]:
    frame = pl.DataFrame({"k0": pl.Series(values, dtype=dtype)})
    return [text.decode() for text in texts_of_keys(frame, [kind])]


@pytest.mark.parametrize(
    ("values", "kind", "dtype", "expected"),
    [
        (["a", "", None], ValueType.STRING, pl.String(), ["sa", "s", "n"]),
        ([1, -1, None], ValueType.INT64, pl.Int64(), ["i1", "i-1", "n"]),
        ([2**100], ValueType.INTEGER, pl.Int128(), [f"i{2**100}"]),
        ([0], ValueType.TIMESTAMP, pl.Int64(), ["i0"]),
        ([True, False, None], ValueType.BOOL, pl.Boolean(), ["b1", "b0", "n"]),
        ([0.0, -0.0], ValueType.FLOAT64, pl.Float64(), ["f0", "f0"]),
        (
            [1.5, None],
            ValueType.FLOAT64,
            pl.Float64(),
            [f"f{struct.unpack('<Q', struct.pack('<d', 1.5))[0]}", "n"],
        ),
        (
            [float("nan"), -float("nan")],
            ValueType.FLOAT64,
            pl.Float64(),
            [f"f{0x7FF8_0000_0000_0000}"] * 2,
        ),
    ],
)
def test_canonical_text_of_each_type(
    values: list[object], kind: ValueType, dtype: pl.DataType, expected: list[str]
) -> None:
    assert texts(values, kind, dtype) == [f"{value}\0" for value in expected]


def test_values_of_several_keys_stand_in_order() -> None:
    keys = pl.DataFrame({"k0": ["a", None], "k1": [1, 2]})
    kinds = [ValueType.STRING, ValueType.INT64]
    assert texts_of_keys(keys, kinds) == [b"sa\0i1\0", b"n\0i2\0"]


VALUES = {
    ValueType.STRING: st.text(max_size=9),
    ValueType.INT64: st.integers(-(2**63), 2**63 - 1),
    ValueType.INTEGER: st.integers(-(2**127), 2**127 - 1),
    ValueType.FLOAT64: st.floats(),
    ValueType.BOOL: st.booleans(),
    ValueType.TIMESTAMP: st.integers(-(2**63), 2**63 - 1),
}


@settings(max_examples=200)
@given(st.data(), st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
def test_few_keys_lie_in_the_same_buckets_as_many(
    data: st.DataObject, kinds: list[ValueType]
) -> None:
    rows = st.tuples(*(st.none() | VALUES[kind] for kind in kinds))
    values = list(zip(*data.draw(st.lists(rows, min_size=1, max_size=20)), strict=True))
    keys = pl.DataFrame(
        [
            pl.Series(f"k{at}", column, dtype=dtype_of(kind))
            for at, (column, kind) in enumerate(zip(values, kinds, strict=True))
        ]
    )
    few = buckets_of_keys(TASK, keys, kinds, 1_000_003)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "FEW_KEYS", 0)
        assert few.equals(buckets_of_keys(TASK, keys, kinds, 1_000_003), check_dtypes=True)


@pytest.mark.usefixtures("_keys")
def test_bucket_is_the_hash_of_the_canonical_text() -> None:
    keys = pl.DataFrame({"k0": ["a", "é", None, "x" * 300]})
    found = texts_of_keys(keys, [ValueType.STRING])
    expected = [xxhash.xxh3_64_intdigest(b"by_sip\n" + text) % 13 for text in found]
    assert list(buckets_of_texts(TASK, found, 13)) == expected
    assert buckets_of_keys(TASK, keys, [ValueType.STRING], 13).to_list() == expected


@pytest.mark.usefixtures("_keys")
def test_buckets_never_change() -> None:
    # These must hold for ever: state and results of running tasks lie in these buckets.
    keys = pl.DataFrame({"k0": ["10.0.0.1", "10.0.0.2", None], "k1": [80, None, 443]})
    kinds = [ValueType.STRING, ValueType.INT64]
    assert buckets_of_keys(TASK, keys, kinds, 64).to_list() == [17, 0, 0]
    assert bucket_of_task(TASK, 64) == 53


def test_lane_of_a_partition_belongs_to_the_bucket_of_its_number() -> None:
    assert bucket_of_lane(Lane("11"), 8) == 3
    assert bucket_of_lane(Lane("11@b1"), 8) == 3
    assert 0 <= bucket_of_lane(Lane("f@b2"), 8) < 8
