from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.plan import Field, FieldType, Plan, Stream
from mars.core.types import Records
from mars.engine.decode import messages, parts
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.parts import Part
from mars.engine.decode.shared import SharedDecoding
from tests.unit.codec.samples import FIELDS, JSON, LOAD, NAME, SIZE, plan_of, records, row

ROWS = [row(at=at, name="a", size=at, load=1.5) for at in range(3)]


def plans() -> list[Plan]:
    return [plan_of(key, fields=["at", key.name]) for key in (NAME, SIZE, LOAD)]


def found(decoding: SharedDecoding, wanted: list[Plan], others: list[Plan]) -> list[object]:
    """For each plan the names of what was decoded, or the error."""
    return [
        decoded.frame.columns if isinstance(decoded, Decoded) else str(decoded)
        for same, decoded in decoding.of(wanted, others, Part(records(ROWS)))
        for _plan in same
    ]


def test_rows_are_decoded_once_for_all_fields_that_tasks_read() -> None:
    decoding, all_ = SharedDecoding(), plans()
    ((same, first),) = decoding.of(all_, all_, Part(records(ROWS)))
    ((_same, again),) = decoding.of(all_[1:], [], Part(records(ROWS)))
    assert isinstance(first, Decoded)
    assert (same, first.frame.columns) == (all_, ["at", "name", "size", "load"])
    assert again is first


def test_field_that_nobody_had_announced_is_decoded_too() -> None:
    decoding, (first, second, third) = SharedDecoding(), plans()
    assert found(decoding, [first], [first, second]) == [["at", "name", "size"]]
    assert found(decoding, [third], [first, second]) == [["at", "name", "size", "load"]]


def test_fields_that_break_the_shared_decoding_stop_their_own_task_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = messages.decode

    def decode(stream: Stream, fields: tuple[Field, ...], batch: Records, rows_max: int) -> Decoded:
        if "size" in {one.name for one in fields}:
            raise RuntimeError("a parser that chokes on this field")
        return real(stream, fields, batch, rows_max)

    monkeypatch.setattr(parts, "decode", decode)
    assert found(SharedDecoding(), plans(), []) == [
        ["at", "name"],
        "a parser that chokes on this field",
        ["at", "load"],
    ]


@pytest.mark.parametrize("name", ['size "GB"', "disk\\C:"])
def test_name_that_json_writes_otherwise_stops_only_tasks_that_read_it(name: str) -> None:
    """Streams declared before such names were refused."""
    stream = replace(JSON, fields=(*FIELDS, Field(name, FieldType.INT64)))
    well = plan_of(NAME, stream=stream, fields=["at", "name"])
    sick = plan_of(NAME, stream=stream, fields=["at", "name", name])
    columns, problem = found(SharedDecoding(), [well, sick], [])
    assert columns == ["at", "name"]
    assert "Renamed field names" in str(problem)
