"""Rows that were not counted, incidents, and the ledger of one window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mars.adapters.kafka.incidents import decoded
from mars.adapters.kafka.read.rows import committed_row, dead_letter
from mars.core.types import Bucket, Lane, TaskName, Topic
from mars.protocol.ports import CommittedRow, DeadLetter, Incident, IncidentKind
from tests.unit.api.twins import World, problem

NAME = TaskName("by_sip")


def letter(offset: int, reason: str = "wrong_type", **changes: object) -> DeadLetter:
    made = DeadLetter(
        NAME,
        Topic("flows"),
        1,
        offset,
        offset + 1,
        reason,
        1,
        version=1,
        detail="bytes: text",
        payload=b'{"bytes": "x\xff"}',
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def incident(number: int, **changes: object) -> Incident:
    made = Incident(
        f"i{number}", 1_000 * number, IncidentKind.REWOUND, "It was lost.", "Nothing.", "Wait."
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def registered(world: World) -> World:
    assert world.register().status_code == 201
    return world


# ------------------------------------------------------------------------- rows not counted


def test_rows_not_counted_are_listed_page_by_page(registered: World) -> None:
    registered.kafka.letters = [letter(offset) for offset in range(5)]
    found: list[int] = []
    after: str | None = None
    while True:
        query = {"limit": 2} | ({"after": after} if after else {})
        page = registered.http.get("/v1/tasks/by_sip/dead", params=query).json()
        found += [row["offset"] for row in page["rows"]]
        after = page["next"]
        if after is None:
            break
    assert found == [0, 1, 2, 3, 4]


def test_a_row_is_shown_with_its_place_reason_and_first_bytes(registered: World) -> None:
    registered.kafka.letters = [letter(7)]
    (row,) = registered.http.get("/v1/tasks/by_sip/dead").json()["rows"]
    assert (row["partition"], row["offset"], row["next"], row["rows"]) == (1, 7, 8, 1)
    assert (row["reason"], row["detail"]) == ("wrong_type", "bytes: text")
    assert row["sample"].startswith('{"bytes": "x')


def test_late_rows_have_a_range_and_a_window_but_no_sample(registered: World) -> None:
    late = letter(
        4,
        "late",
        next=90,
        rows=3,
        window_start_ms=60_000,
        detail="",
        payload=b"",
        lane=Lane("1@b1"),
    )
    registered.kafka.letters = [letter(1), late]
    (row,) = registered.http.get("/v1/tasks/by_sip/dead", params={"reason": "late"}).json()["rows"]
    assert (row["offset"], row["next"], row["rows"]) == (4, 90, 3)
    assert (row["lane"], row["window_start"], row["sample"]) == ("1@b1", 60_000, None)


def test_what_a_deleted_task_of_the_name_left_out_is_not_shown(registered: World) -> None:
    registered.kafka.letters = [letter(1), letter(2, version=3)]
    registered.alter(first_version=3)
    rows = registered.http.get("/v1/tasks/by_sip/dead").json()["rows"]
    assert [row["offset"] for row in rows] == [2]


def test_the_newest_rows_come_first_where_that_is_asked_for(registered: World) -> None:
    registered.kafka.letters = [letter(1, version=0), *(letter(offset) for offset in range(2, 6))]
    registered.kafka.letters.append(letter(6, "late"))

    def offsets(**query: Any) -> list[int]:
        path = "/v1/tasks/by_sip/dead"
        page = registered.http.get(path, params={"order": "newest", **query}).json()
        assert page["next"] is None
        return [row["offset"] for row in page["rows"]]

    assert offsets() == [6, 5, 4, 3, 2]
    assert offsets(limit=2) == [6, 5]
    assert offsets(limit=2, reason="wrong_type") == [5, 4]


@pytest.mark.parametrize(
    "query",
    [
        {"order": "random"},
        {"order": "newest", "after": "0:5"},
        {"order": "newest", "reason": "boredom"},
        {"reason": "boredom"},
        {"after": "x"},
        {"after": "1:-5"},
        {"after": "0:" + "9" * 30},
        {"limit": 0},
        {"limit": 100_000},
    ],
)
def test_wrong_questions_about_rows_are_refused(registered: World, query: dict[str, str]) -> None:
    problem(registered.http.get("/v1/tasks/by_sip/dead", params=query), 422)


# ------------------------------------------------------------------------------- incidents


def test_incidents_come_newest_first_with_what_to_do(world: World) -> None:
    for number in (1, 3, 2):
        world.incidents.put(incident(number))
    found = world.http.get("/v1/incidents").json()["incidents"]
    assert [each["id"] for each in found] == ["i3", "i2", "i1"]
    assert (found[0]["kind"], found[0]["time"], found[0]["do"]) == ("rewound", 3_000, "Wait.")


def test_incidents_of_a_task_are_its_own_and_those_of_all(world: World) -> None:
    world.incidents.put(incident(1, task=NAME, kind=IncidentKind.FAILED))
    world.incidents.put(incident(2, task=TaskName("other")))
    world.incidents.put(incident(3))
    query = {"task": "by_sip"}
    found = world.http.get("/v1/incidents", params=query).json()["incidents"]
    assert [each["id"] for each in found] == ["i3", "i1"]
    since = world.http.get("/v1/incidents", params={"since": 2_000, "limit": 1}).json()
    assert [each["id"] for each in since["incidents"]] == ["i3"]


def test_incidents_of_a_task_that_never_was_are_not_found(registered: World) -> None:
    registered.incidents.put(incident(1))
    answer = registered.http.get("/v1/incidents", params={"task": "by_sap"})
    assert "did you mean by_sip?" in problem(answer, 404)["detail"]
    assert len(registered.http.get("/v1/incidents?task=by_sip").json()["incidents"]) == 1
    registered.incidents.put(incident(2, task=TaskName("lost")))
    assert len(registered.http.get("/v1/incidents?task=lost").json()["incidents"]) == 2
    assert registered.http.delete("/v1/tasks/by_sip").status_code == 204
    assert registered.http.get("/v1/incidents?task=by_sip").status_code == 200


@pytest.mark.parametrize("raw", [b"", b"{", b"7", b"{}", b'{"\xff": 1}', b'{"a":' * 20_000, None])
def test_records_of_others_are_no_references_and_no_incidents(raw: bytes | None) -> None:
    assert dead_letter(raw) is None
    assert decoded(raw) is None
    headers = {"mars-task": b"t", "mars-ranges": raw or b""}
    row = committed_row(0, 0, b"[0]", b"{}", headers, b"t")
    assert row is not None
    assert row.ranges == ()


def test_why_mentions_an_incident_of_the_last_hour(registered: World) -> None:
    registered.now_ms = 10_000_000
    registered.incidents.put(incident(1))
    assert "It was lost." not in registered.http.get("/v1/tasks/by_sip/why").json()["summary"]
    registered.incidents.put(incident(9_900))
    fenced = incident(9_950, kind=IncidentKind.FENCED, what="It was fenced.")
    registered.incidents.put(fenced)
    summary = registered.http.get("/v1/tasks/by_sip/why").json()["summary"]
    assert summary.endswith("It was lost.")
    assert "02:45:00Z" in summary


def test_why_of_a_failed_task_does_not_say_twice_that_it_failed(registered: World) -> None:
    registered.now_ms = 10_000_000
    registered.incidents.put(incident(9_900, task=NAME, kind=IncidentKind.FAILED))
    registered.alter("by_sip", state="failed", detail="too many groups")
    summary = registered.http.get("/v1/tasks/by_sip/why").json()["summary"]
    assert summary.count("failed") == 1
    assert summary.endswith("too many groups.")


# ------------------------------------------------------------------------ ledger of a window


def emitted_row(bucket: int, rows: int, key: str = "a") -> CommittedRow:
    return CommittedRow(
        bucket, 0, b'[0,"%s"]' % key.encode(), b"{}", 1, 0, True, Bucket(bucket), 1, (), rows
    )


def test_the_ledger_of_a_window_adds_what_is_emitted_and_what_is_open(registered: World) -> None:
    registered.start_in_store()
    registered.run_batch([{"timestamp": 5, "sip": f"s{n}", "type": "x"} for n in range(40)])
    query = {"window_start": 0}
    ledger = registered.http.get("/v1/tasks/by_sip/ledger", params=query).json()
    assert (ledger["counted"], ledger["emitted"], ledger["open"]) == (40, 0, 40)

    # A bucket emits its rows: whether its log is still there makes no difference.
    registered.kafka.rows = [emitted_row(0, 13, "a"), emitted_row(0, 13, "b")]
    registered.kafka.letters = [
        letter(4, "late", next=90, rows=3, window_start_ms=0),
        letter(5, "late", next=91, rows=9, window_start_ms=60_000),
    ]
    ledger = registered.http.get("/v1/tasks/by_sip/ledger", params=query).json()
    assert ledger["emitted"] == 13
    assert ledger["counted"] == ledger["emitted"] + ledger["open"]
    assert ledger["open"] < 40
    assert ledger["late"] == 3


def test_a_window_without_rows_has_no_ledger(registered: World) -> None:
    registered.start_in_store()
    problem(registered.http.get("/v1/tasks/by_sip/ledger", params={"window_start": 0}), 404)
