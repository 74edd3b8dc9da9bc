"""A group for each row: the rows, what is told of a run, and what `mars bench groups` accepts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from confluent_kafka import Producer

from bench.distinct import stream
from bench.environment import environment
from bench.groups import FEW_SQL, Asked, Found, sql_of
from bench.groups_results import GroupsReport, LargeWindow, SmallWindow, apart, grids
from bench.pacing import Pace, rows_of
from bench.tables import MIB
from bench.topics import Topics, produce
from mars.cli import EXIT_USAGE, run
from mars.core.plan import FieldType, Format, Stream
from mars.core.types import TaskName
from mars.local import flows
from mars.sql import compile_task


@pytest.mark.parametrize(("keys", "kind"), [(FieldType.STRING, str), (FieldType.INT64, int)])
def test_each_row_has_a_key_of_its_own(keys: FieldType, kind: type) -> None:
    pace = Pace("", "many", 4, 80_000, 0, 60_000, distinct=keys)
    source = rows_of(pace)
    rows = [json.loads(row) for part in (700, 1, 19_299) for row in source.messages(part, 5, 8e4)]
    assert {type(row["id"]) for row in rows} == {kind}
    assert len({row["id"] for row in rows}) == len(rows) == 20_000
    assert {len(row["id"]) for row in rows if kind is str} <= {12}
    assert rows[700]["timestamp"] == 5
    assert rows[-1]["timestamp"] == 5 + 19_298 // 80
    assert all(row.keys() == {"timestamp", "id", "bytes"} for row in rows)


class FullProducer:
    """Has no room until it was polled."""

    def __init__(self) -> None:
        self.room = False
        self.sent: list[tuple[str, bytes, int]] = []

    def produce(self, topic: str, message: bytes, *, partition: int) -> None:
        if not self.room:
            raise BufferError
        self.sent.append((topic, message, partition))

    def poll(self, _timeout: float) -> None:
        self.room = True


def test_a_message_waits_for_room_in_the_producer() -> None:
    producer = FullProducer()
    produce(cast("Producer", producer), "many", b"row", 3)
    assert producer.sent == [("many", b"row", 3)]


@pytest.mark.parametrize(
    ("sql", "made"),
    [(sql_of(60), stream("many", Format.NDJSON, FieldType.INT64)), (FEW_SQL, flows.stream())],
)
def test_queries_can_be_compiled(sql: str, made: Stream) -> None:
    compile_task(sql, task=TaskName("t"), version=1, stream_of=lambda _name: made, options={})


def value(start: int, key: str | int, count: int) -> bytes:
    return msgspec.json.encode({"window_start": start, "window_end": 0, "id": key, "rows": count})


def found(*results: tuple[int, int, str | int, int]) -> Found:
    """Of a window's start, an offset, a key and a count each, all in one partition."""
    made = Found()
    made.add(
        ((0, offset) for _start, offset, _key, _count in results),
        (value(start, key, count) for start, _offset, key, count in results),
    )
    return made


class Emitted:
    """A topic of three results in one partition."""

    def read(self, topic: str, _ends: Mapping[int, int]) -> list[list[SimpleNamespace]]:
        assert topic == "mars.results.many"
        return [
            [
                SimpleNamespace(
                    partition=lambda: 2, offset=lambda at=at: at, value=lambda: value(0, 7, 1)
                )
                for at in range(3)
            ]
        ]


def test_what_was_committed_after_the_last_look_is_not_read() -> None:
    made = Found.read(cast("Topics", Emitted()), {2: 2})
    assert made.last == {0: {2: 1}}
    assert made.rows == {0: 2}
    assert made.groups(0) == 1


def test_a_window_is_exact_when_each_key_came_once_and_counts_one_row() -> None:
    exact = found((0, 3, "000000000001", 1), (0, 4, "000000000002", 1), (5, 5, 7, 1))
    assert exact.problems({0: 2, 5: 1, 9: 4}, last_start=5) == []
    assert exact.last == {0: {0: 4}, 5: {0: 5}}


@pytest.mark.parametrize(
    "results",
    [
        [],
        [(0, 1, "1", 1)],
        [(0, 1, "1", 1), (0, 2, "1", 1)],
        [(0, 1, "1", 2)],
        [(0, 1, "1", 1), (0, 2, "2", 0), (0, 3, "3", 1)],
    ],
)
def test_other_windows_are_told(results: list[tuple[int, int, str | int, int]]) -> None:
    (problem,) = found(*results).problems({0: 2}, last_start=0)
    assert problem.startswith("window 0: 2 rows of as many keys were sent, ")


def report(problems: list[str]) -> GroupsReport:
    """Two large windows of 10 s, the second of which has not closed."""
    windows = [LargeWindow(0, 800, 800, 40, 2.5), LargeWindow(10_000, 800, 0, 90, None)]
    late = [(9_000, 0.1), (9_500, 0.6), (13_000, 0.7), (14_000, 0.2)]
    return GroupsReport(
        environment(), 80, 10, Format.NDJSON, FieldType.STRING, 64 * MIB, 0.25, windows,
        [SmallWindow(end, late_s) for end, late_s in late],
        {"mapper": 0.5, "kafka": 0.25}, {"reducer-1": 90 * MIB}, 20 * MIB, 30 * MIB, problems,
    )  # fmt: skip


def test_windows_of_the_small_task_are_told_apart_by_whether_a_large_one_closed() -> None:
    assert apart(report([])) == ([0.1, 0.6, 0.7], [0.2])


def test_the_tables_say_what_it_cost() -> None:
    figures, windows = grids(report(["one is wrong"]))
    said = {row[0]: row[1] for row in figures.rows}
    assert said["small windows meanwhile, s: median, p99, most"] == "0.60, 0.70, 0.70"
    assert said["small windows else, s: median, p99, most"] == "0.20, 0.20, 0.20"
    assert said["large windows closed after, s: median, most"] == "2.50, 2.50"
    assert said["cores, all processes"] == "0.75"
    assert said["most memory of reducer-1, MiB"] == "90"
    assert said["largest log of the task and its budget, MiB"] == "30 of 64"
    assert said["correct"] == "no"
    assert list(map(list, windows.rows)) == [
        ["1", "800", "800", "40", "2.50"],
        ["2", "800", "0", "90", "not"],
    ]


@pytest.mark.parametrize(("options", "warm_s"), [([], 30), (["--warm", "10s"], 10)])
def test_options_are_passed_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], warm_s: int
) -> None:
    asked: list[object] = []

    def note(*what: object) -> None:
        asked.extend(what)
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.groups.groups_session", note)
    arguments = ["--rate", "500", "--window", "30s", "--windows", "2", "--format", "json"]
    arguments += ["--keys", "int64", "--budget", "256", "--results", str(tmp_path)]
    run(["bench", "groups", *arguments, *options])
    assert asked[0] == Asked(500, 30, 2, warm_s, Format.JSON, FieldType.INT64, 256)
    assert asked[2] == tmp_path


@pytest.mark.parametrize("arguments", [["--rate", "0"], ["--windows", "0"], ["--keys", "bool"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    assert run(["bench", "groups", *arguments]) == EXIT_USAGE
