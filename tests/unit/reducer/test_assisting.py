"""An assistant beside an owner that is slow, dead or replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mars.core.types import Bucket, MemberId
from mars.protocol.reducer.assisting import SEGMENT_SEQS, SHRINK_MAX, assists_of
from reducer.assisting import AssistLoop
from tests.unit.machines.reducing_rows import NAME, RowSpec, make_task
from tests.unit.machines.reducing_world import BUCKETS, Reducer, World, counted

BATCH: list[RowSpec] = [(number // 4, f"k{number % 30}") for number in range(40)]
"""Ten seconds of event time, in each batch the same."""

HELPER = MemberId("r2")

SEGMENTS = 3

BATCHES = SEGMENTS * SEGMENT_SEQS


class Scene:
    """A cluster of an owner of all buckets and its assistant."""

    def __init__(self) -> None:
        self.world = World(make_task())
        self.fed = 0
        self.assign("r1")
        self.owner = Reducer(self.world, "r1")
        self.helper = AssistLoop(self.world.store.connect())
        self.hear()

    def assign(self, owner: str) -> None:
        self.world.assign(dict.fromkeys(range(BUCKETS), owner))
        helped = {Bucket(number): (HELPER,) for number in range(BUCKETS)}
        self.world.assignment = replace(self.world.assignment, assistants=helped)

    def hear(self) -> None:
        self.helper.assigned(assists_of(HELPER, self.world.assignment))
        self.helper.tasks_changed(self.world.tasks)

    def feed(self, batches: int) -> None:
        for _ in range(batches):
            self.world.append(NAME, "0", self.fed * len(BATCH), BATCH)
            self.fed += 1

    def help(self, rounds: int = 2) -> None:
        for _ in range(rounds):
            self.helper.round()

    def emitted(self) -> dict[tuple[int, str], int]:
        for lane in ("0", "1"):
            first = self.fed * len(BATCH) if lane == "0" else 0
            self.world.append(NAME, lane, first, [(30, "end")])
        for _ in range(3):
            self.owner.run()
        return self.world.emitted(NAME)

    def wanted(self) -> dict[tuple[int, str], int]:
        return counted(BATCH * self.fed, 20)


def merged_of(scene: Scene) -> float:
    return scene.helper.load().get("assisted_segments_total", 0)


def test_an_owner_that_comes_late_finds_less_to_read() -> None:
    scene = Scene()
    scene.owner.run(2)
    scene.feed(BATCHES)
    scene.help()

    before = scene.owner.entries_read
    scene.owner.run()

    assert merged_of(scene) == SEGMENTS * BUCKETS
    assert scene.owner.entries_read - before == SEGMENTS * BUCKETS
    assert scene.emitted() == scene.wanted()


def test_it_tells_how_much_of_what_it_merges_remains_until_it_assists_others() -> None:
    scene = Scene()
    scene.owner.run(2)
    scene.feed(BATCHES)
    scene.help()

    remaining = scene.helper.load()["assisted_remaining"]
    assert 0 < remaining < SHRINK_MAX

    scene.hear()
    assert scene.helper.load()["assisted_remaining"] == remaining
    scene.helper.assigned(())
    assert "assisted_remaining" not in scene.helper.load()


def test_nothing_is_merged_before_the_owner_has_said_from_where_on() -> None:
    scene = Scene()
    scene.feed(BATCHES)
    scene.help()

    assert merged_of(scene) == 0
    scene.owner.run(2)
    assert scene.emitted() == scene.wanted()


def test_an_owner_does_not_wait_for_its_assistant() -> None:
    scene = Scene()
    scene.owner.run(2)
    scene.feed(BATCHES)
    scene.owner.run(2)
    scene.help()

    assert merged_of(scene) == 0
    assert scene.emitted() == scene.wanted()


def test_what_an_assistant_has_merged_when_its_owner_looks_again_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It read a segment, the owner went on, and then it came with what it had made of it."""
    scene = Scene()
    scene.owner.run(2)
    scene.feed(BATCHES)
    real = scene.helper._store.merge

    def merge(*given: Any) -> bool:
        scene.owner.run()
        return real(*given)

    monkeypatch.setattr(scene.helper._store, "merge", merge)
    scene.help(rounds=1)

    assert merged_of(scene) == 0
    assert scene.helper.load()["assisted_refused_total"] == BUCKETS
    assert scene.emitted() == scene.wanted()


def test_a_new_owner_reads_what_was_merged_for_the_former_one() -> None:
    scene = Scene()
    scene.owner.run(2)
    scene.feed(BATCHES)
    scene.help()
    scene.assign("r3")
    scene.owner = Reducer(scene.world, "r3")

    assert scene.emitted() == scene.wanted()


def test_an_assistant_of_a_former_owner_comes_too_late() -> None:
    scene = Scene()
    scene.owner.run(2)
    scene.assign("r3")
    scene.owner = Reducer(scene.world, "r3")
    scene.owner.run(2)
    scene.feed(BATCHES)
    scene.help()

    assert merged_of(scene) == 0
    assert scene.emitted() == scene.wanted()


def test_a_former_owner_that_goes_on_opens_no_log() -> None:
    scene = Scene()
    former = scene.owner
    former.run(2)
    scene.assign("r3")
    scene.owner = Reducer(scene.world, "r3")
    scene.owner.run(2)
    former.run(2)
    scene.feed(BATCHES)
    scene.help()
    former.run(2)

    assert merged_of(scene) == 0
    assert scene.emitted() == scene.wanted()


def test_two_assistants_share_the_segments() -> None:
    scene = Scene()
    other = AssistLoop(scene.world.store.connect())
    helped = {Bucket(number): (HELPER, MemberId("r4")) for number in range(BUCKETS)}
    scene.world.assignment = replace(scene.world.assignment, assistants=helped)
    scene.hear()
    other.assigned(assists_of(MemberId("r4"), scene.world.assignment))
    other.tasks_changed(scene.world.tasks)
    scene.owner.run(2)
    scene.feed(BATCHES)
    scene.help()
    other.round()

    assert merged_of(scene) == 2 * BUCKETS
    assert other.load() == {"assisted_segments_total": BUCKETS, "assisted_refused_total": 0}
    assert scene.emitted() == scene.wanted()


def test_the_store_that_is_away_is_no_error() -> None:
    scene = Scene()
    scene.owner.run(2)
    scene.feed(BATCHES)
    scene.helper._store.fail_next("merge")  # type: ignore[attr-defined]
    scene.help(rounds=1)
    assert merged_of(scene) == 0
    scene.helper._store.fail_next("merge", before=False)  # type: ignore[attr-defined]
    scene.help(rounds=3)

    assert merged_of(scene) == SEGMENTS * BUCKETS - 1
    assert scene.emitted() == scene.wanted()


def test_nobody_to_assist_is_nothing_to_tell() -> None:
    helper = AssistLoop(World(make_task()).store)
    helper.round()
    assert helper.load() == {}
    assert helper.buckets == frozenset()
