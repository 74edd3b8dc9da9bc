"""Windows that count the rows of each key, while keys fall silent, owners change, rows are cut anew
and the store is lost anywhere.

What is emitted is compared with what the rows of each lane say one by one: each window once, with
the rows that it has to have. A window lies between two offsets, so that any row doubled or lost in
it shows.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pytest

from mars.core.types import Lane, Records, Topic
from mars.core.windows import CountingByKey
from mars.engine.kernel import decode, map_batch
from mars.inspect import verifying_keys
from mars.inspect.verifying_keys import AtHand, KeyRecount, pieces_of_keys
from tests.simulation.test_counting import FILTERED, LANES, ROWS, Found, Run, all_expected
from tests.unit.machines.reducing_rows import NAME, STREAM, RowSpec, message
from tests.unit.machines.reducing_world import BUCKETS

SEEDS = 10
EXPIRE_S = 40
SHAPES = tuple(
    CountingByKey(size, slide, EXPIRE_S * 1_000)
    for size, slide in ((4, 4), (6, 2), (5, 3), (3, 1), (1, 1))
)
KEYS = ("a", "a", "a", "b", "b", "c", "d", "e", FILTERED, "")

Place = tuple[int, int, str, int]
"""Version, partition, key, offset of the first row."""


class KeyRun(Run):
    """One task that counts the rows of each key, fed in batches that are cut anywhere."""

    def __init__(self, chance: random.Random, shape: CountingByKey, *, gaps: bool = False) -> None:
        super().__init__(chance, shape, gaps=gaps)
        self.rows = {lane: list(made(chance)) for lane in LANES}
        self.numbers = {lane: list(numbers(rows)) for lane, rows in self.rows.items()}

    def _first_number(self, lane: int, headers: Mapping[str, bytes]) -> int:
        """How many rows of its lane lie before a version."""
        number = int(headers["mars-version"])
        starts = next(one for one in self.task.definition.versions if one.version == number).starts
        return self.numbers[Lane(str(lane))][(starts or {}).get(Lane(str(lane)), 0)]

    def windows(self) -> dict[Place, Found]:
        """All that was emitted, each window once."""
        found: dict[Place, Found] = {}
        for partition in self.world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
            for record in partition.committed(0, partition.stable_end):
                row, headers = json.loads(record.value or b""), dict(record.headers)
                lane, first = row["partition"], row["window_first_offset"]
                number = self.numbers[Lane(str(lane))][first]
                assert row["window_number"] == number - self._first_number(lane, headers)
                key = [row["window_start"], row["k"], lane, row["window_number"]]
                assert json.loads(record.key or b"") == key
                place = int(headers["mars-version"]), lane, row["k"], first
                assert place not in found, f"emitted twice: {place}"
                found[place] = Found(
                    row["n"],
                    row["window_start"] // 1000,
                    row["window_end"] // 1000,
                    first,
                    row["window_last_offset"],
                    headers["mars-complete"] == b"1",
                )
        return found


class VerifiedRun(KeyRun):
    """The same, in which what has been emitted is computed again from the records now and then."""

    def _step(self) -> None:
        super()._step()
        if self.chance.random() < 0.1:
            self.check_records()

    def check_records(self) -> int:
        """How many windows of the newest version have been emitted: those that its records say."""
        version = self.task.definition.versions[-1]
        plan = self.task.plans[version.version]
        known = [one for one in self.world.newest() if one.version == version.version]
        records = {record.bucket: record for record in known}
        recount = KeyRecount(plan, records, (), AtHand(frozenset(records)))
        for piece in pieces_of_keys(version, records, map(int, LANES), records):
            lane, first, number = piece.part.lane, piece.part.first, 0
            while first < piece.part.next:
                after = min(first + self.chance.randrange(1, 40), piece.part.next)
                values = [message(row) for row in self.rows[lane][first:after]]
                offsets = range(first, after)
                batch = Records(lane, first, after, values, offsets, [-1] * len(offsets))
                mapped = map_batch(plan, BUCKETS, decode(STREAM, plan.fields, batch), number)
                recount.add(mapped, piece)
                first, number = after, mapped.numbered[lane].next
        computed, full = recount.rows()
        found = {key: (value, key in full) for key, (_bucket, value) in computed.items()}
        assert found == self._emitted_by(version.version)
        return len(found)

    def _emitted_by(self, version: int) -> dict[bytes | None, tuple[bytes | None, bool]]:
        found = {}
        for partition in self.world.broker.topics[Topic(f"mars.results.{NAME}")].partitions:
            for record in partition.committed(0, partition.stable_end):
                headers = dict(record.headers)
                if int(headers["mars-version"]) == version:
                    found[record.key] = record.value, headers["mars-complete"] == b"1"
        return found


def numbers(rows: Iterable[RowSpec]) -> Iterator[int]:
    """How many rows that count lie before each."""
    return accumulate((bool(key) and key != FILTERED for _at, key in rows), initial=0)


def made(chance: random.Random) -> Iterator[RowSpec]:
    """Event time that goes on, with rows far behind; keys that are silent for a while."""
    at, silent = 100, ""
    for _ in range(ROWS):
        at += chance.choice((0, 0, 1, 2, 3, 9, 30))
        if chance.random() < 0.1:
            silent = chance.choice(KEYS)
        key = chance.choice([key for key in KEYS if key != silent])
        yield max(0, at - chance.choice((0, 0, 0, 5, 30, 90))), key


@dataclass
class Life:
    """The rows of a key, and what was seen of event time with the last of them."""

    rows: list[tuple[int, int]] = field(default_factory=list)
    seen: int = 0


def expected(
    shape: CountingByKey,
    version: int,
    partition: int,
    rows: Sequence[RowSpec],
    first: int,
    *,
    ended: bool,
) -> dict[Place, Found]:
    """What the windows of a version hold whose rows begin at an offset, row by row."""
    assert isinstance(shape, CountingByKey)
    found: dict[Place, Found] = {}
    lives: dict[str, Life] = {}

    def tell(key: str, number: int, *, full: bool) -> None:
        begin = number * shape.slide
        own = lives[key].rows[begin : begin + shape.size]
        times = [at for _offset, at in own]
        place = version, partition, key, own[0][0]
        found[place] = Found(len(own), min(times), max(times), own[0][0], own[-1][0], full)

    def end(key: str) -> None:
        for begin in range(0, len(lives[key].rows), shape.slide):
            if begin + shape.size > len(lives[key].rows):
                tell(key, begin // shape.slide, full=False)
        del lives[key]

    seen = 0
    for offset, (at, key) in enumerate(rows, first):
        seen = max(seen, at) if key else seen
        if not key or key == FILTERED:
            continue
        if key in lives and seen - lives[key].seen > EXPIRE_S:
            end(key)
        life = lives.setdefault(key, Life())
        life.rows.append((offset, at))
        life.seen = seen
        begin = len(life.rows) - shape.size
        if begin >= 0 and begin % shape.slide == 0:
            tell(key, begin // shape.slide, full=True)
    for key in list(lives):
        if ended or seen - lives[key].seen > EXPIRE_S:
            end(key)
    return found


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_window_is_exact_whatever_fails(seed: int, shape: int) -> None:
    run = KeyRun(random.Random(seed), SHAPES[shape])
    run.run()

    assert run.windows() == all_expected(run, expected)
    run.check_ledgers()


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_new_version_counts_anew_and_the_last_windows_come_as_they_are(
    seed: int, shape: int
) -> None:
    chance = random.Random(seed)
    run = KeyRun(chance, SHAPES[shape])
    run.run(version_after=chance.randrange(5, 30))

    assert len(run.task.definition.versions) == 2
    assert run.windows() == all_expected(run, expected)
    run.check_ledgers()


@pytest.mark.parametrize("shape", range(len(SHAPES)))
@pytest.mark.parametrize("seed", range(4))
def test_records_and_rows_say_at_any_time_what_has_been_emitted(
    monkeypatch: pytest.MonkeyPatch, seed: int, shape: int
) -> None:
    """As `mars verify` computes it again, with as much or little at once as it likes."""
    chance = random.Random(seed)
    monkeypatch.setattr(verifying_keys, "ROWS_WAITING_MAX", chance.choice((0, 60, 10_000)))
    run = VerifiedRun(chance, SHAPES[shape])
    run.run(version_after=chance.choice((None, 10)))

    assert run.check_records()


def test_keys_fall_silent_and_stores_are_lost_on_the_way() -> None:
    runs = [KeyRun(random.Random(seed), SHAPES[1]) for seed in range(6)]
    for run in runs:
        run.run()
    assert sum(run.lost for run in runs) > 0
    told = Counter(one.complete for run in runs for one in run.windows().values())
    assert told[True] > 20
    assert told[False] > 20
