"""Mishaps that most runs do not have: each does what it says, and the checks see what it leaves."""

from __future__ import annotations

import ast
import inspect
import random
from collections.abc import Callable, Iterable
from dataclasses import fields, replace

import pytest

import mars.process.tasks
import mars.protocol.ports.control
import reducer.leader
import reducer.lookout
import reducer.reign
from mars.adapters.memory import store
from mars.core.types import Range
from mars.protocol.ports import (
    ControlLog,
    Coordinator,
    PartialLog,
    ProgressLog,
    Registry,
    TopicAdmin,
)
from tests.simulation.conditions import SILENT
from tests.simulation.mishaps import DECISIVE, LOOKS, OTHER_ACTIONS, OWN
from tests.simulation.weather import Weather
from tests.simulation.world import World

RARE = (
    "aborts_lost",
    "behind_ms",
    "changes",
    "copies_late",
    "deaf_ms",
    "held",
    "markers_lost",
    "retention_ms",
    "silence_ms",
    "watches_late",
)


def only(**mishaps: float) -> Callable[[Weather], Weather]:
    return lambda _drawn: replace(Weather.calm(), **mishaps)  # type: ignore[arg-type]


def told(seed: int, tune: Callable[[Weather], Weather]) -> list[str]:
    """The lines of a run that holds."""
    lines: list[str] = []
    World(seed, tell=lines.append, tune=tune).run()
    return lines


def count(lines: Iterable[str], text: str) -> int:
    return sum(text in line for line in lines)


def test_each_rare_mishap_comes_in_some_runs_and_several_come_together() -> None:
    drawn = [Weather.draw(random.Random(seed), seed) for seed in range(1_000)]
    for name in RARE:
        assert 50 <= sum(getattr(one, name) > 0 for one in drawn) <= 500, name
    many = [sum(getattr(one, name) > 0 for name in RARE) >= 4 for one in drawn]
    assert sum(many) >= 50
    assert not [one for one in drawn if one.retention_ms and one.silence_ms]


def test_nothing_rare_happens_in_calm_weather() -> None:
    assert not any(getattr(Weather.calm(), one.name) for one in fields(Weather))


GONE = only(retention_ms=1_500, kill_ms=2_500, flush_ms=3_000, user_ms=2_000)


@pytest.mark.parametrize("seed", [3, 5, 7, 13])
def test_rows_that_kafka_has_deleted_are_named_and_missed_and_nothing_else_is(seed: int) -> None:
    """In all but the first something was wrong when this weather was new."""
    assert count(told(seed, GONE), "no longer in Kafka") >= 1


def test_rows_are_late_only_where_their_lane_was_idle() -> None:
    late, leases = 0, []
    for seed in range(4):
        world = World(seed, tune=only(**SILENT))
        world.run()
        leases += [one for each in world.servers.watch.leases.values() for one in each]
        late += world.checks.late_rows()
    assert late
    assert any(one.alone for one in leases), "all lanes were never idle at once"
    assert not all(one.alone for one in leases), "no lane was idle while others were not"


def test_a_process_that_hears_nothing_of_a_server_hears_it_again() -> None:
    lines = told(1, only(deaf_ms=1_000))
    assert count(lines, "DEAF ") >= 3
    assert count(lines, "HEARS ") == count(lines, "DEAF ")


def test_a_mapper_is_left_behind_and_offers_rows_by_versions_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, refused = store._fits_version, 0

    def fits(found: store.StoredTask, version: int, part: Range) -> bool:
        nonlocal refused
        held = real(found, version, part)
        refused += not held and part.next <= found.bounds[found.version].get(part.lane, 0)
        return held

    monkeypatch.setattr(store, "_fits_version", fits)
    front = only(user_ms=600, changes=1.0, behind_ms=800, flush_ms=3_000, group_ms=500)
    for seed in (3, 10, 33):
        told(seed, front)
    assert refused, "no mapper offered a newer version's rows below the newest one's beginning"


def calls_of_a_leader() -> set[str]:
    """What the code of a leader calls on its ports, in what is its own and what it shares."""
    ports = (ControlLog, Coordinator, PartialLog, ProgressLog, Registry, TopicAdmin)
    known = {name for port in ports for name in dir(port) if not name.startswith("_")}
    parts = (
        reducer.leader,
        reducer.lookout,
        reducer.reign,
        mars.protocol.ports.control,
        mars.process.tasks,
    )
    nodes = (node for part in parts for node in ast.walk(ast.parse(inspect.getsource(part))))
    return known & {
        node.func.attr
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }


def test_it_is_known_of_every_call_of_a_leader_whether_it_may_stand_still_before_it() -> None:
    """A call that has another name now, or a new one, is to be put where it belongs."""
    sorts = (DECISIVE, OTHER_ACTIONS, LOOKS, OWN)
    assert sum(len(one) for one in sorts) == len(frozenset[str]().union(*sorts))
    assert frozenset[str]().union(*sorts) == calls_of_a_leader()


def test_a_leader_stands_still_before_an_action_until_others_have_acted() -> None:
    lines = told(0, only(held=0.3, user_ms=500))
    assert count(lines, "HOLD ") >= 2
    assert count(lines, "THAW ") == count(lines, "HOLD ")


def test_definitions_reach_the_copy_late() -> None:
    told(2, only(copies_late=0.8, user_ms=1_000, wipe_ms=4_000))
