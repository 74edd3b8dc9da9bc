"""Result rows as an Arrow IPC stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

from mars.core.plan import Plan, ValueType

_TYPES: dict[ValueType, pa.DataType] = {
    ValueType.STRING: pa.string(),
    ValueType.INT64: pa.int64(),
    # Sums of 64-bit integers: more than any of them takes.
    ValueType.INTEGER: pa.decimal128(38, 0),
    ValueType.FLOAT64: pa.float64(),
    ValueType.BOOL: pa.bool_(),
    ValueType.TIMESTAMP: pa.timestamp("ms", tz="UTC"),
}

_WIDEST_INTEGER = pa.decimal256(39, 0)
"""For the few integers of 128 bits that have 39 digits."""


def arrow_stream(plan: Plan, rows: Sequence[bytes]) -> bytes:
    """The rows in one batch, with the columns of the plan's result rows in their order."""
    types = {column.name: column.type for column in plan.window_columns}
    types |= {output.name: output.expression.type for output in plan.outputs}
    decoded = [msgspec.json.decode(row, type=dict[str, Any]) for row in rows]
    columns = [
        _column([row[name] for row in decoded], _TYPES[kind]) for name, kind in types.items()
    ]
    batch = pa.record_batch(columns, names=list(types))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except pa.ArrowInvalid:
        if not pa.types.is_decimal(kind):
            raise
        return pa.array(values, _WIDEST_INTEGER)
