"""Buffers with more rows than are decoded at once: batches of sections, messages in parts."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from mars.core.errors import TaskLimit
from mars.core.plan import Format
from mars.core.types import Range, TaskName
from mars.engine import kernel
from mars.engine.aggregates import states
from mars.engine.decode import parts
from mars.protocol.mapper import batches as mapping_batches
from mars.protocol.mapper import slicing
from mars.protocol.mapper.events import Offer
from mars.protocol.ports import Backpressure
from tests.unit.machines import mapping_world
from tests.unit.machines.mapping_world import World, make_task

ROWS_MAX = 10


def lines(rows: int) -> bytes:
    """Some good rows and as many bad ones."""
    good = [json.dumps({"timestamp": at, "sip": f"10.0.0.{at % 7}"}).encode() for at in range(rows)]
    return b"\n".join(line for each in good for line in (each, b"1"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> World:
    """A topic of lines: 6 rows, 6 rows, 50 rows, 6 rows."""
    stream = replace(mapping_world.STREAM, format=Format.NDJSON)
    monkeypatch.setattr(mapping_world, "STREAM", stream)
    for module in (parts, mapping_batches):
        monkeypatch.setattr(module, "ROWS_MAX", ROWS_MAX)
    world = World({0: [lines(3), lines(3), lines(25), lines(3)]})
    for name in ("a", "b"):
        world.add(make_task(name))
    world.assign(0)
    return world


def ranges(world: World, task: str) -> list[tuple[Range, ...]]:
    return [parts_ for name, _seq, parts_ in world.appended if name == task]


def test_sections_of_whole_messages_are_batches_and_each_row_counts_once(here: World) -> None:
    here.run()

    assert [(one.first, one.next) for (one,) in ranges(here, "a")] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
    ]
    assert ranges(here, "b") == ranges(here, "a")
    assert here.machine.rows_mapped == 2 * 68


def test_message_of_many_rows_takes_a_tick_for_each_part(here: World) -> None:
    """So that between its parts the readers are polled, and other topics served."""
    while not any(one.slicing for one in cuts(here)):
        here.run(rounds=1)
    appended, ticks = len(here.appended), 1
    while len(here.appended) == appended:
        assert here.machine.slicing
        here.run(rounds=1)
        ticks += 1

    assert ticks == 50 // ROWS_MAX
    here.run()
    assert not here.machine.slicing


@pytest.mark.parametrize(("sick", "well"), ["ab", "ba"])
def test_limit_in_a_part_stops_its_own_task_alone(
    here: World, monkeypatch: pytest.MonkeyPatch, sick: str, well: str
) -> None:
    real = states.lift

    def limited(plan, *given):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN002, ANN202
        if plan.task == sick:
            raise TaskLimit("too much")
        return real(plan, *given)

    monkeypatch.setattr(kernel, "lift", limited)
    here.run()

    assert here.failed == {TaskName(sick): "too much"}
    assert sum(one.next - one.first for (one,) in ranges(here, well)) == 4


def test_task_that_the_store_refuses_takes_no_turns_from_the_others(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = here._append

    def refusing(offer: Offer) -> object:
        return Backpressure() if offer.task == "b" else real(offer)

    monkeypatch.setattr(here, "_append", refusing)
    here.run()

    assert sum(one.next - one.first for (one,) in ranges(here, "a")) == 4
    assert ranges(here, "b") == []
    monkeypatch.setattr(here, "_append", real)
    here.run()
    assert ranges(here, "b") == ranges(here, "a")


def test_partition_that_is_taken_away_between_parts_is_read_again_whole(here: World) -> None:
    here.run(rounds=1)
    while not any(buffer.slicing for buffer in cuts(here)):
        here.run(rounds=1)
    here.revoke(0)
    here.machine = here.new_machine()
    for name in ("a", "b"):
        here.change(here.tasks[TaskName(name)])
    here.assign(0)
    here.run()

    assert [(one.first, one.next) for (one,) in ranges(here, "a")] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
    ]


def cuts(world: World) -> list[slicing.CutBuffer]:
    buffers = world.machine._state.buffers
    return [cut for lanes in buffers.values() for one in lanes.values() for cut in one.cut.values()]


POISON = """
import io, re, sys
from dataclasses import replace
from pathlib import Path
import numpy as np, pyarrow as pa
from mars.core.plan import Format
from tests.unit.machines import mapping_world
from tests.unit.machines.mapping_world import World, make_task

table = pa.table({"timestamp": np.zeros(7_000_000, dtype=np.int64)})
sink = io.BytesIO()
with pa.ipc.new_stream(
    sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
) as writer:
    writer.write_table(table)
del table
messages = {"arrow": [sink.getvalue()] * 8, "ndjson": [b"1\\n" * 700_000] * 2}[sys.argv[1]]
stream = replace(mapping_world.STREAM, format=Format(sys.argv[1]))
mapping_world.STREAM = stream
world = World({0: messages})
for number in range(2):
    world.add(make_task(f"t{number}"))
world.assign(0)
while len(world.appended) < 2 * len(messages):
    world.run(rounds=1)
assert not world.failed
# The peak that getrusage tells begins with that of the process that started this one.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
print(world.machine.rows_mapped, int(peak[1]) // 1024)
"""


@pytest.mark.parametrize(("format_", "rows"), [("arrow", 8 * 7_000_000), ("ndjson", 1_400_000)])
def test_poison_of_one_partition_fits_into_memory(format_: str, rows: int) -> None:
    """5 KB that unpack to 7 million rows each, and lines that are no rows."""
    found = subprocess.run(
        [sys.executable, "-c", POISON, format_], capture_output=True, text=True, check=True
    )
    mapped, peak_mib = map(int, found.stdout.split())
    assert mapped == 2 * rows
    assert peak_mib < 500
