from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.plan import Field, FieldType, Plan, Stream
from mars.core.types import Records
from mars.engine.decode import parts
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.parts import Part
from mars.engine.decode.shared import SharedDecoding
from tests.unit.codec.samples import FIELDS, JSON, LOAD, NAME, SIZE, plan_of, records, row

ROWS = [row(at=at, name="a", size=at, load=1.5) for at in range(3)]


def plans() -> list[Plan]:
    return [plan_of(key, fields=["at", key.name]) for key in (NAME, SIZE, LOAD)]


def test_rows_are_decoded_once_for_all_fields_that_tasks_read() -> None:
    decoding, all_ = SharedDecoding(), plans()
    found = [decoding.of(plan, all_, Part(records(ROWS))) for plan in all_]
    assert found[0] is found[1] is found[2]
    assert found[0].frame.columns == ["at", "name", "size", "load"]


def test_field_that_nobody_had_announced_is_decoded_too() -> None:
    decoding, (first, second, third) = SharedDecoding(), plans()
    decoding.of(first, [first, second], Part(records(ROWS)))
    assert decoding.of(third, [first, second], Part(records(ROWS))).frame.columns == [
        "at",
        "name",
        "size",
        "load",
    ]


def test_fields_that_break_the_shared_decoding_stop_their_own_task_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = parts.decode

    def decode(stream: Stream, fields: tuple[Field, ...], batch: Records, rows_max: int) -> Decoded:
        if "size" in {one.name for one in fields}:
            raise RuntimeError("a parser that chokes on this field")
        return real(stream, fields, batch, rows_max)

    monkeypatch.setattr(parts, "decode", decode)
    decoding, all_ = SharedDecoding(), plans()
    first, sick, third = all_
    assert decoding.of(first, all_, Part(records(ROWS))).frame.columns == ["at", "name"]
    with pytest.raises(RuntimeError, match="chokes"):
        decoding.of(sick, all_, Part(records(ROWS)))
    assert decoding.of(third, all_, Part(records(ROWS))).frame.columns == ["at", "load"]


@pytest.mark.parametrize("name", ['size "GB"', "disk\\C:"])
def test_name_that_json_writes_otherwise_stops_only_tasks_that_read_it(name: str) -> None:
    """Streams declared before such names were refused."""
    stream = replace(JSON, fields=(*FIELDS, Field(name, FieldType.INT64)))
    well = plan_of(NAME, stream=stream, fields=["at", "name"])
    sick = plan_of(NAME, stream=stream, fields=["at", "name", name])
    decoding = SharedDecoding()
    assert decoding.of(well, [well, sick], Part(records(ROWS))).rows == 3
    with pytest.raises(ValueError, match="Renamed field names"):
        decoding.of(sick, [well, sick], Part(records(ROWS)))
