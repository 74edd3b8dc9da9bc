"""Poison, crowds of groups and of tasks: what is wrong with one leaves the others alone.

The numbers are those of the list of faults in `docs/reports/reliability.md`.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from mars.core.errors import MarsError
from tests.faults.nemesis import anything
from tests.support.bad_rows import JSON
from tests.support.cluster import MarsCluster, wait_for
from tests.support.load import IDLE_AFTER, PARTITIONS, Load, Row
from tests.support.rows import CLOSING, FIELDS
from tests.support.store import Store

pytestmark = pytest.mark.faults

# ---------------------------------------------------------------------------------------- 17

POISON = [kind for kind in JSON if kind.reason is not None and kind.field in {"", *FIELDS}]
BROKEN_ROWS = 2_000


def test_17_poison_among_good_rows(mars: MarsCluster) -> None:
    restarts = mars.restarts
    bystander = Load(mars, "f17_beside", rows_per_s=200)
    with Load(mars, "f17").running() as load, bystander.running():
        turns = load.every(0.3, lambda turn: _poison(load, turn))
        assert not mars.client.task("f17").detail
    for turn in range(turns, len(POISON)):
        _poison(load, turn)
    sent = Counter(kind.place for kind in POISON)
    mars.produce("f17", [(number % PARTITIONS, b"{") for number in range(BROKEN_ROWS)])

    load.check(bad=sent["bad"] + BROKEN_ROWS, future=sent["future"])
    bystander.check()
    assert mars.restarts == restarts, "a process died of it"
    assert _named(mars, "f17") == sent.total() + BROKEN_ROWS


def _poison(load: Load, turn: int) -> None:
    """One kind of bad message a turn, each once."""
    if turn < len(POISON):
        row = {**load.rows[turn], "rate": 1.5, "spare": 0}
        load.mars.produce(load.name, [(turn % PARTITIONS, POISON[turn].make(row))])


def _named(mars: MarsCluster, task: str) -> int:
    """How many rows of a task `mars.dead` names."""
    records = [record for _, record, _ in mars.read("mars.dead") if record["task"] == task]
    return sum(record.get("rows", 1) for record in records)


# ---------------------------------------------------------------------------------------- 19

TASKS = 50
CHANGES_PER_S = 5
TASK_WINDOW_MS = 2_000
ALL_ROWS = (
    "SELECT sip, timestamp, count(*) AS all_rows, sum(id) AS ids, sum(hash) AS hashes FROM f19 "
    f"WHERE type <> '{CLOSING}' GROUP BY sip, timestamp WINDOWING 2 s"
)
DNS_ROWS = ALL_ROWS.replace("all_rows", "dns_rows").replace(f"<> '{CLOSING}'", "= 'dns'")
"""Which of the two a result row is of, its own names tell."""

OPTIONS = {"delay": "500ms", "idle_after": IDLE_AFTER}


class Users:
    """Create, pause, resume, change and delete tasks at random; refusals are none of our business.

    What has become of a call that failed, the API tells at the end.
    """

    def __init__(self, mars: MarsCluster) -> None:
        self._client = mars.client
        self._chance = random.Random(19)
        self._made = 0

    def act(self) -> None:
        """One thing."""
        names = [task.name for task in self._client.tasks() if task.name.startswith("t19_")]
        if len(names) < 5 or self._chance.random() < 0.4:
            self._create()
            return
        name = self._chance.choice(names)
        sql = self._chance.choice([ALL_ROWS, DNS_ROWS])
        deeds: list[Callable[[], object]] = [
            lambda: self._client.pause_task(name),
            lambda: self._client.resume_task(name),
            lambda: self._client.change_task(name, sql, options=OPTIONS),
            lambda: self._client.delete_task(name),
        ]
        self._chance.choice(deeds)()

    def _create(self) -> None:
        if self._made < TASKS:
            self._made += 1
            self._client.create_task(f"t19_{self._made}", ALL_ROWS, options=OPTIONS)


def _tolerant(call: Callable[[], object]) -> None:
    try:
        call()
    except MarsError:
        pass  # a server is away, or another call was faster: part of the test


def test_19_tasks_come_change_and_go_while_things_break(mars: MarsCluster) -> None:
    load = Load(mars, "f19", seconds=25, rows_per_s=200)
    users = Users(mars)

    def turn_of(turn: int) -> None:
        _tolerant(users.act)
        if turn % (5 * CHANGES_PER_S) == 5 * CHANGES_PER_S - 1:
            anything(mars, turn)

    with load.running():
        load.every(1 / CHANGES_PER_S, turn_of)

    load.check()
    names = _revive(mars)
    for name in names:
        _assert_exact_per_version(mars, name, load.rows)
    _assert_nothing_is_left(mars, names)


def _revive(mars: MarsCluster) -> list[str]:
    """Resume what is paused and wait until every task has caught up."""
    client = mars.client
    names = [task.name for task in client.tasks() if task.name.startswith("t19_")]
    for name in names:
        if client.task(name).state == "paused":
            client.resume_task(name)

    def caught_up(name: str) -> bool:
        task = client.task(name)
        assert task.state == "running", task.detail
        return task.lag is not None and task.lag.rows == 0 and client.ledger(name).open == 0

    for name in names:
        wait_for(f"{name} without lag", partial(caught_up, name), seconds=120)
    return names


def _assert_exact_per_version(mars: MarsCluster, name: str, rows: list[Row]) -> None:
    """I1 for each version: complete windows are the oracle's, none comes twice, none lacks."""
    wanted = {"all_rows": _totals(rows), "dns_rows": _totals(r for r in rows if r["type"] == "dns")}
    seen: set[tuple[str, int, str]] = set()
    windows: dict[int, set[int]] = defaultdict(set)
    for _key, value, headers in mars.read(f"mars.results.{name}"):
        at = (headers["mars-version"], value["window_start"], value["sip"])
        assert at not in seen, f"{name}: {at} came twice"
        seen.add(at)
        column = "all_rows" if "all_rows" in value else "dns_rows"
        found = (value[column], value["ids"], value["hashes"])
        exact = wanted[column][value["window_start"], value["sip"]]
        if headers["mars-complete"] == "1":
            windows[int(headers["mars-version"])].add(value["window_start"])
            assert found == exact, f"{name}: {at}"
        assert found[0] <= exact[0], f"{name}: {at} has more rows than there are"
    newest = windows[mars.client.task(name).version]
    if newest:
        last = max(start for start, _sip in wanted["all_rows"])
        assert newest == set(range(min(newest), last + 1, TASK_WINDOW_MS)), f"{name}: a hole"


def _totals(rows: Any) -> dict[tuple[int, str], tuple[int, int, int]]:
    found: dict[tuple[int, str], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for row in rows:
        at = (row["timestamp"] // TASK_WINDOW_MS * TASK_WINDOW_MS, row["sip"])
        count, ids, hashes = found[at]
        found[at] = (count + 1, ids + row["id"], hashes + row["hash"])
    return found


def _assert_nothing_is_left(mars: MarsCluster, names: list[str]) -> None:
    """All are deleted: no key of theirs stays."""
    for name in names:
        mars.client.delete_task(name)
    with Store(mars) as store:
        wait_for(
            "no keys",
            lambda: not [key for n in range(1, TASKS + 1) for key in store.keys_of(f"t19_{n}")],
        )


# ---------------------------------------------------------------------------------------- 21

GROUPS = 150_000
KEY_CHARACTERS = 100
"""15 MB of keys alone, twice what the cluster of these tests lets a task hold."""


def test_21_a_task_with_too_many_groups_fails_alone(mars: MarsCluster) -> None:
    mars.declare("f21_many", stream="f21_many", partitions=PARTITIONS)
    mars.client.create_task(
        "f21_many",
        "SELECT sip, timestamp, count(*) FROM f21_many GROUP BY sip, timestamp WINDOWING 1 h",
        options=OPTIONS,
    )
    with Load(mars, "f21").running() as load:
        start = load.rows[0]["timestamp"]
        mars.produce(
            "f21_many", [(number % PARTITIONS, _wide(number, start)) for number in range(GROUPS)]
        )
        wait_for("its end", lambda: mars.client.task("f21_many").state == "failed")

    load.check()
    detail = mars.client.task("f21_many").detail
    assert "bytes" in detail, detail
    assert mars.client.task("f21").state == "running"
    wait_for(
        "the incident",
        lambda: any(one.kind == "failed" for one in mars.client.incidents(task="f21_many")),
    )


def _wide(number: int, timestamp: int) -> bytes:
    return json.dumps({"timestamp": timestamp, "sip": f"{number:0{KEY_CHARACTERS}}"}).encode()
