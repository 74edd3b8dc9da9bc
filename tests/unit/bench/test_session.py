"""What is measured, in which order, and how much is produced for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from bench.contestants import DELAY_S
from bench.errors import BenchError
from bench.load import CHUNK_ROWS, Load, LoadPlan
from bench.peers import PEERS, Peer, Say
from bench.session import Throughput, _order, groups_for, load_plan, loaded, throughput_session
from mars.core.plan import Format


def there(name: str) -> Peer:
    return replace(PEERS[name], fetch=lambda _say: None)


@pytest.mark.parametrize("name", PEERS)
def test_every_other_repeat_runs_in_the_opposite_order(name: str) -> None:
    found = _order(Throughput(repeat=2), there(name), Path(), [], lambda _: None)
    assert [(repeat, contestant.name) for repeat, contestant in found] == [
        (1, "mars"),
        (1, name),
        (2, name),
        (2, "mars"),
    ]


def test_peer_has_as_many_processes_as_mars_has_mappers() -> None:
    quix = PEERS["quix"]
    for contestant in (quix.for_throughput(Path(), 3), quix.for_latency(Path(), 3)):
        assert contestant.settings()["processes"] == "3"


def test_peers_wait_as_long_as_mars_where_rows_come_as_time_goes_on() -> None:
    assert {peer.for_latency(Path(), 2).delay_s for peer in PEERS.values()} == {DELAY_S}


def test_format_that_a_peer_cannot_read_is_refused_before_anything_starts(tmp_path: Path) -> None:
    asked = Throughput(format=Format.NDJSON, peer="quix", data=tmp_path / "data", folder=tmp_path)
    with pytest.raises(BenchError, match="Quix Streams is measured with --format json only"):
        throughput_session(asked, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_without_its_peer_the_measurement_goes_on() -> None:
    def fails(_say: Say) -> None:
        raise BenchError("Flink is not installed: there is no network.")

    notes: list[str] = []
    said: list[str] = []
    missing = replace(PEERS["flink"], fetch=fails)
    found = list(_order(Throughput(), missing, Path(), notes, said.append))
    assert [contestant.name for _, contestant in found] == ["mars"]
    assert notes == said
    assert notes[0].startswith("Flink is not installed: ")


def test_a_sweep_tries_every_batch_size_with_one_and_two_mappers() -> None:
    settings = [
        c.settings() for _, c in _order(Throughput(sweep=True), None, Path(), [], lambda _: None)
    ]
    tried = {(each["mappers"], each["mapper.batch_rows_max"]) for each in settings}
    assert len(tried) == 14
    assert {("1", "500"), ("2", "50000")} <= tried


def test_a_load_is_whole_chunks_in_every_partition() -> None:
    plan = load_plan(Throughput(rows=1_000_001))
    assert plan.rows_per_partition % CHUNK_ROWS == 0
    assert plan.rows_per_partition * plan.partitions >= 1_000_001


def test_several_windows_close_in_a_short_run() -> None:
    assert load_plan(Throughput(rows=1_000_000)).rows_per_window == 250_000


def test_more_groups_are_made_than_are_seen_in_a_window() -> None:
    assert 185_000 < groups_for(185_000, 2_000_000) < 200_000


def test_windows_too_small_for_so_many_groups_get_as_many_as_asked() -> None:
    assert groups_for(185_000, 1_000) == 185_000


def test_a_topic_that_is_full_is_used_again(tmp_path: Path) -> None:
    plan = LoadPlan("t", Format.JSON, 10, 5, 3)
    load = Load(plan, 10, 10, 0, ())
    (tmp_path / "load.json").write_bytes(msgspec.json.encode(load))
    assert loaded(tmp_path, plan, lambda _: None) == load


def test_another_load_in_the_folder_is_refused(tmp_path: Path) -> None:
    plan = LoadPlan("t", Format.JSON, 10, 5, 3)
    (tmp_path / "load.json").write_bytes(msgspec.json.encode(Load(plan, 10, 10, 0, ())))
    with pytest.raises(BenchError, match="holds another load"):
        loaded(tmp_path, LoadPlan("t", Format.JSON, 20, 5, 3), lambda _: None)
