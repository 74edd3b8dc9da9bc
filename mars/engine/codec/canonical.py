"""Which bucket a key lives in: a hash that is the same for ever and everywhere.

The canonical text of a key is the task's name, a line feed, and for each key value in order

    NULL                     n
    BOOL                     b0  b1
    INT64 INTEGER TIMESTAMP  i<decimal digits, a minus before them if negative>
    FLOAT64                  f<decimal digits of the IEEE 754 bits as an unsigned integer>
                             0.0 stands for -0.0 too, and the quiet NaN 0x7ff8000000000000 for
                             every NaN
    STRING                   s<the text as it is>

each followed by U+0000. The hash of a key is XXH3 (64 bits, seed 0) of the UTF-8 bytes of that
text, and its bucket is the hash modulo the number of buckets. Equal keys have equal texts, which
is all that a bucket needs; keys that hold U+0000 themselves may share a text, and then a bucket.
(To look for U+0000 would take longer than everything else here.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import polars as pl
import polars_hash as plh
import xxhash

from mars.core.plan import ValueType
from mars.core.types import Bucket, Lane, TaskName, lane_partition

_END = "\0"

_NAN_BITS = 0x7FF8_0000_0000_0000

LANES_KNOWN = 4_096
"""Lanes whose buckets are remembered: each batch of each task asks."""

FEW_KEYS = 512
"""Keys up to which a loop of Python makes and hashes the texts: 0.15 to 0.5 ms for that many. A
query of polars takes as long for one (0.1 ms where it was just made for another task, 0.5 where
something else was done since), and 0.05 us for each further one."""


def bucket_of_task(task: TaskName, buckets: int) -> Bucket:
    """Where a task lives that has only one bucket."""
    return Bucket(xxhash.xxh3_64_intdigest(task.encode()) % buckets)


@lru_cache(LANES_KNOWN)
def bucket_of_lane(lane: Lane, buckets: int) -> Bucket:
    """Where the rows of a lane are accounted that have no key."""
    partition = lane_partition(lane)
    if partition is None:
        return Bucket(xxhash.xxh3_64_intdigest(lane.encode()) % buckets)
    return Bucket(partition % buckets)


def buckets_of_keys(
    task: TaskName, keys: pl.DataFrame, types: Sequence[ValueType], buckets: int
) -> pl.Series:
    """The bucket of each row of `keys` (UInt64), whose columns are of these types."""
    if keys.height <= FEW_KEYS:
        texts = texts_of_keys(keys, types)
        return pl.Series(list(buckets_of_texts(task, texts, buckets)), dtype=pl.UInt64)
    # Asked for by its attribute, the namespace and the expression would hold each other.
    text = plh.NonCryptographicHashingNameSpace(_text(task, keys, types))
    return keys.select(text.xxh3_64()).to_series() % buckets


def buckets_of_texts(task: TaskName, texts: Iterable[bytes], buckets: int) -> Iterator[int]:
    """The same for keys whose texts are known."""
    begin, digest = f"{task}\n".encode(), xxhash.xxh3_64_intdigest
    return (digest(begin + text) % buckets for text in texts)


def texts_of_keys(keys: pl.DataFrame, types: Sequence[ValueType]) -> list[bytes]:
    """The canonical text of each row of `keys` (UTF-8), without the name of a task."""
    columns = [_texts(*each) for each in zip(keys.get_columns(), types, strict=True)]
    return [f"{_END.join(row)}{_END}".encode() for row in zip(*columns, strict=True)]


def _texts(column: pl.Series, kind: ValueType) -> list[str]:
    tag, written = _TAGS.get(kind, "i"), _written(column, kind).to_list()
    return ["n" if value is None else f"{tag}{value}" for value in written]


def _text(task: TaskName, keys: pl.DataFrame, types: Sequence[ValueType]) -> plh.HExpr:
    pieces: list[pl.Expr] = []
    between = f"{task}\n"
    for column, kind in zip(keys.get_columns(), types, strict=True):
        tag, text = _TAGS.get(kind, "i"), pl.lit(_written(column, kind)).cast(pl.String)
        if column.null_count():
            text, tag = pl.concat_str(pl.lit(tag), text).fill_null("n"), ""
        # Constants that meet are joined: each piece is a pass over all rows.
        pieces += [pl.lit(between + tag), text]
        between = _END
    return plh.concat_str([*pieces, pl.lit(between)])


_TAGS = {ValueType.STRING: "s", ValueType.BOOL: "b", ValueType.FLOAT64: "f"}
"""What stands before a value that is not NULL; `i` for the other types."""


def _written(column: pl.Series, kind: ValueType) -> pl.Series:
    """What is written of each value, as a text or a number; NULL for NULL."""
    match kind:
        case ValueType.BOOL:
            return column.cast(pl.UInt8)
        case ValueType.FLOAT64:
            return _bits(column)
        case _:
            return column


def _bits(floats: pl.Series) -> pl.Series:
    """The canonical bits of each float (UInt64), NULL for NULL."""
    values = floats.fill_null(0.0).to_numpy() + 0.0  # -0.0 + 0.0 is 0.0
    bits = np.where(np.isnan(values), np.uint64(_NAN_BITS), values.view(np.uint64))
    return pl.Series(bits, dtype=pl.UInt64).set(floats.is_null(), None)
