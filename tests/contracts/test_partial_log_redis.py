"""What only a real server can show: its errors, its limits, its losses, and several connections."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from redis import exceptions

from mars.adapters.redis.connection import connect, unavailable
from mars.adapters.redis.keys import TaskKeys, store_key
from mars.adapters.redis.log import RedisPartialLog
from mars.adapters.redis.servers import open_servers
from mars.core.errors import SettingsError, Unavailable
from mars.core.settings import RedisSettings, Settings
from mars.core.types import Bucket, Lane, Sequence64, TaskName
from mars.local.network import free_port
from mars.local.servers import ValkeyServer
from mars.protocol.ports import Applied, Backpressure, Batch, IdleLease, NoTask, Stale
from tests.contracts.batches import (
    BUCKETS,
    EPOCH,
    LANE,
    LEADER,
    OTHER_LANE,
    OTHER_TASK,
    TASK,
    applied,
    base,
    batch,
    begin,
    born,
    drop,
    entries,
    server_of,
    start,
)
from tests.contracts.redis_servers import RedisStoreUnderTest
from tests.contracts.waiting import READY_WITHIN_S, eventually, started

SHORT_S = 0.3

CALLS: list[Callable[[RedisPartialLog], object]] = [
    lambda log: log.identity(),
    lambda log: log.seal(EPOCH, LEADER, "run"),
    lambda log: log.append(TASK, EPOCH, 1, batch(0, 10)),
    lambda log: log.append_together([Batch(TASK, EPOCH, 1, batch(0, 10))] * 2),
    lambda log: log.renew_idle([IdleLease(TASK, EPOCH, LANE, 0, 1)]),
    lambda log: log.head([TASK]),
    lambda log: log.read(TASK, Bucket(0), Sequence64(0), Sequence64(9)),
    lambda log: log.read(TASK, Bucket(0), Sequence64(1), Sequence64(9)),
    lambda log: log.trim(TASK, EPOCH, "life", Bucket(0), [Sequence64(1)]),
    lambda log: log.compact(TASK, EPOCH, "life", Bucket(0), base(1)),
    lambda log: log.initialise(TASK, EPOCH, start()),
    lambda log: log.set_active(TASK, EPOCH, LEADER, active=True),
    lambda log: log.begin_version(TASK, EPOCH, LEADER, "run", 2, after=1),
    lambda log: log.add_lanes(TASK, EPOCH, LEADER, {LANE: 0}),
    lambda log: log.drop(TASK, EPOCH, LEADER, 1),
]
"""Every call that goes to the server."""


@pytest.fixture
def own_server(valkey_server: ValkeyServer, tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server that a test may stop and start; skipped with the suite's own one."""
    assert valkey_server.running
    server = started(ValkeyServer(tmp_path / "valkey"))
    yield server
    server.resume()
    server.stop(READY_WITHIN_S)


@pytest.fixture
def own_log(own_server: ValkeyServer) -> Iterator[RedisPartialLog]:
    """A log on that server."""
    log = RedisPartialLog.open(Settings(redis=RedisSettings(url=own_server.url)), BUCKETS)
    yield log
    log.close()


@pytest.fixture
def hasty_log(own_server: ValkeyServer) -> Iterator[RedisPartialLog]:
    """Another one, with time-outs too short to wait for: for a server that stands still."""
    settings = RedisSettings(url=own_server.url)
    servers, bell = open_servers(settings, SHORT_S), open_servers(settings, SHORT_S)
    log = RedisPartialLog(servers, bell, "default", BUCKETS, 1_000_000)
    yield log
    log.close()


@pytest.fixture
def redis_log(redis_store: RedisStoreUnderTest) -> RedisPartialLog:
    """A log with one task on the suite's server."""
    log = redis_store.open()
    log.initialise(TASK, EPOCH, start())
    return log


# --------------------------------------------------------------------------------- errors


def error_classes() -> list[type[Exception]]:
    found = [kind for _, kind in inspect.getmembers(exceptions, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, exceptions.RedisError)]


def test_every_error_of_the_client_has_a_sentence() -> None:
    assert len(error_classes()) > 20
    plain: list[type[Exception]] = [OSError, ConnectionResetError, BrokenPipeError, TimeoutError]
    for kind in [*error_classes(), *plain]:
        error = unavailable(kind.__new__(kind))
        assert error.service == "redis"
        assert len(error.detail) > 20


@pytest.mark.parametrize("call", CALLS)
def test_absent_server_is_unavailable_whatever_is_called(
    call: Callable[[RedisPartialLog], object],
) -> None:
    settings = Settings(redis=RedisSettings(url=f"redis://127.0.0.1:{free_port()}/0"))
    log = RedisPartialLog.open(settings, BUCKETS)
    with pytest.raises(Unavailable, match="redis is not available"):
        call(log)
    assert "redis is not available" in str(log.ping())
    log.close()


def test_unreadable_url_is_an_error_of_the_settings() -> None:
    with pytest.raises(SettingsError, match=r"redis\.url"):
        connect(RedisSettings(url="redis://127.0.0.1:port/0"))


@pytest.mark.integration
def test_server_that_stands_still_is_unavailable_in_time(
    own_server: ValkeyServer, own_log: RedisPartialLog, hasty_log: RedisPartialLog
) -> None:
    own_log.initialise(TASK, EPOCH, start())
    assert own_log.ping() is None
    own_server.pause()
    for call in CALLS[:5]:
        began = time.monotonic()
        with pytest.raises(Unavailable, match="no answer"):
            call(hasty_log)
        assert time.monotonic() - began < 4 * SHORT_S
    assert "no answer" in str(hasty_log.ping())


@pytest.mark.integration
def test_call_that_timed_out_is_never_repeated_by_the_client(
    own_server: ValkeyServer, own_log: RedisPartialLog, hasty_log: RedisPartialLog
) -> None:
    own_log.initialise(TASK, EPOCH, start())
    own_log.append(TASK, EPOCH, 1, batch(0, 10))
    own_server.pause()
    with pytest.raises(Unavailable):
        hasty_log.append(TASK, EPOCH, 1, batch(10, 20))
    own_server.resume()
    # It may have taken effect, once; the compare-and-set tells.
    assert own_log.append(TASK, EPOCH, 1, batch(10, 20)) in (applied(2), Stale(LANE, 20))
    assert [entry.seq for entry in entries(own_log)] == [1, 2]


@pytest.mark.integration
def test_wrong_password_says_which_settings_to_check(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    admin = redis.Redis.from_url(own_server.url)
    admin.config_set("requirepass", "right")
    admin.close()
    for password, expected in (("", "refuses"), ("wrong", "refuses"), ("right", None)):
        settings = Settings(redis=RedisSettings(url=own_server.url, password=password))
        log = RedisPartialLog.open(settings, BUCKETS)
        missing = log.ping()
        log.close()
        assert missing is None if expected is None else "redis.password" in str(missing)


@pytest.mark.integration
def test_replica_says_to_use_the_primary(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    own_log.initialise(TASK, EPOCH, start())
    admin = redis.Redis.from_url(own_server.url)
    admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
    admin.close()
    with pytest.raises(Unavailable, match="primary"):
        own_log.append(TASK, EPOCH, 1, batch(0, 10))


@pytest.mark.integration
def test_server_that_throws_data_away_is_not_ready(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    admin = redis.Redis.from_url(own_server.url)
    admin.config_set("maxmemory-policy", "allkeys-lru")
    assert "noeviction" in str(own_log.ping())
    admin.config_set("maxmemory-policy", "noeviction")
    admin.close()
    assert own_log.ping() is None


# --------------------------------------------------------------------------------- memory


@pytest.mark.integration
def test_server_without_memory_takes_rows_of_the_watermark_holder_only(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    own_log.initialise(TASK, EPOCH, start())
    own_log.append(TASK, EPOCH, 1, batch(0, 10, mark_ms=100))
    own_log.append(TASK, EPOCH, 1, batch(0, 10, lane=OTHER_LANE, mark_ms=50))
    admin = redis.Redis.from_url(own_server.url)
    admin.config_set("maxmemory", 100_000)

    assert own_log.append(TASK, EPOCH, 1, batch(10, 20, mark_ms=200)) == Backpressure()
    assert own_log.append(TASK, EPOCH, 1, batch(0, 20)) == Stale(LANE, 10)
    ahead = batch(10, 20, lane=OTHER_LANE, mark_ms=150)
    assert own_log.append(TASK, EPOCH, 1, ahead) == applied(3)
    both = [
        Batch(TASK, EPOCH, 1, batch(10, 20, mark_ms=200)),
        Batch(TASK, EPOCH, 1, batch(20, 30, mark_ms=300)),
    ]
    assert own_log.append_together(both) == [applied(4), Backpressure()]
    admin.close()


@pytest.mark.integration
def test_server_without_memory_still_reads_frees_and_leases(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    own_log.initialise(TASK, EPOCH, start())
    for first in range(0, 40, 10):
        own_log.append(TASK, EPOCH, 1, batch(first, first + 10))
    admin = redis.Redis.from_url(own_server.url)
    admin.config_set("maxmemory", 100_000)

    assert own_log.head([TASK])[TASK] is not None
    assert len(entries(own_log)) == 4
    assert own_log.renew_idle([IdleLease(TASK, EPOCH, LANE, 40, 1)]) == [True]
    assert own_log.trim(TASK, EPOCH, born(own_log), Bucket(0), [Sequence64(1)])
    assert own_log.compact(TASK, EPOCH, born(own_log), Bucket(0), base(4))
    assert own_log.put_base(TASK, EPOCH, born(own_log), Bucket(1), (base(0, bucket=1),))
    assert own_log.set_active(TASK, EPOCH, LEADER, active=True)
    assert own_log.initialise(OTHER_TASK, EPOCH, start())
    own_log.seal(EPOCH, LEADER, "run")
    drop(own_log)
    admin.close()


# -------------------------------------------------------------------------------- scripts


@pytest.mark.integration
def test_scripts_that_the_server_forgot_are_sent_again_and_run_once(
    redis_store: RedisStoreUnderTest, redis_log: RedisPartialLog
) -> None:
    for number in range(3):
        redis_store.client.script_flush()
        sent = batch(number * 10, number * 10 + 10)
        assert redis_log.append(TASK, EPOCH, 1, sent) == applied(number + 1)
    redis_store.client.script_flush()
    head = redis_log.head([TASK, OTHER_TASK])[TASK]
    assert head is not None
    assert head.seq == 3
    redis_store.client.script_flush()
    leases = [IdleLease(TASK, EPOCH, LANE, 30, 1), IdleLease(TASK, EPOCH, OTHER_LANE, 0, 1)]
    assert redis_log.renew_idle(leases) == [True, True]
    redis_store.client.script_flush()
    sent_together = [Batch(TASK, EPOCH, 1, batch(at, at + 10)) for at in (30, 40, 50)]
    assert redis_log.append_together(sent_together) == [applied(4), applied(5), applied(6)]


@pytest.mark.integration
def test_a_task_whose_keys_are_broken_does_not_keep_the_batches_of_others_away(
    redis_store: RedisStoreUnderTest, redis_log: RedisPartialLog
) -> None:
    redis_log.initialise(OTHER_TASK, EPOCH, start())
    offsets = TaskKeys.of(redis_store.namespace, TASK).offsets
    redis_store.client.delete(offsets)
    redis_store.client.set(offsets, "no hash")

    sent = [Batch(name, EPOCH, 1, batch(0, 10)) for name in (TASK, OTHER_TASK)]
    broken, whole = redis_log.append_together(sent)

    assert isinstance(broken, Unavailable)
    assert whole == applied(1)


@pytest.mark.integration
def test_everything_runs_in_a_cluster_because_a_task_is_one_hash_slot(
    valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    assert valkey_server.running
    # Its own choice, 10,000 above the other one, may be no port at all.
    cluster = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
    server = started(ValkeyServer(tmp_path / "valkey", options=cluster))
    admin = redis.Redis.from_url(server.url)
    admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
    eventually(lambda: b"cluster_state:ok" in admin.execute_command("CLUSTER", "INFO"))
    admin.close()

    log = RedisPartialLog.open(Settings(redis=RedisSettings(url=server.url)), BUCKETS)
    log.listen([TASK])
    log.wait(0.05)
    for call in CALLS[9:]:
        call(log)
    log.initialise(TASK, EPOCH, start())
    for call in CALLS[:9]:
        call(log)
    assert eventually(lambda: log.wait(0.1))
    drop(log)
    log.close()
    server.stop(READY_WITHIN_S)


@pytest.mark.integration
def test_a_task_that_is_listened_to_again_needs_no_other_connection(
    redis_log: RedisPartialLog,
) -> None:
    redis_log.listen([TASK])
    redis_log.wait(0.01)
    before = dict(redis_log._doorbell._pubsubs)
    assert before
    redis_log.listen([])
    redis_log.wait(0.01)
    redis_log.listen([TASK])
    sent = iter(range(0, 10_000, 10))

    def heard() -> bool:
        first = next(sent)
        assert isinstance(redis_log.append(TASK, EPOCH, 1, batch(first, first + 10)), Applied)
        return redis_log.wait(0.1) == {TASK}

    eventually(heard)
    assert redis_log._doorbell._pubsubs == before


@pytest.mark.integration
def test_the_store_that_is_one_server_has_that_ones_id(redis_log: RedisPartialLog) -> None:
    assert redis_log.identity().run_id == server_of(redis_log) != ""


@pytest.mark.integration
def test_keys_are_named_as_documented(redis_store: RedisStoreUnderTest) -> None:
    log = redis_store.open()
    name = TaskName(f"keys_{redis_store.namespace}")
    log.initialise(name, EPOCH, start(cuts={LANE: (5,)}, bounds={1: {LANE: 0}}))
    log.append(name, EPOCH, 1, batch(0, 5, mark_ms=1))
    log.compact(name, EPOCH, born(log, name), Bucket(0), base(0))
    log.renew_idle([IdleLease(name, EPOCH, LANE, 5, 1)])
    log.seal(EPOCH, LEADER, "run")
    prefix = f"mars:{redis_store.namespace}"
    parts = ["meta", "offsets", "bounds", "cuts", "marks", "taken", "idle", "seq", "bytes"]
    parts += ["log:0", "sizes:0", "base:0"]
    expected = {f"{prefix}:{{{name}}}:{part}" for part in parts} | {f"{prefix}:store"}
    assert {key.decode() for key in redis_store.dump()} == expected

    default = RedisPartialLog.open(Settings(redis=RedisSettings(url=redis_store.url)), BUCKETS)
    default.initialise(name, EPOCH, start())
    assert redis_store.client.exists(f"mars:{{{name}}}:meta")
    default.drop(name, EPOCH, LEADER, 1)
    default.close()


# --------------------------------------------------------------------------- older releases


def as_an_older_release_left_it(store: RedisStoreUnderTest) -> None:
    """Its version 2 began at 10, and it knew that of the newest version only."""
    keys = TaskKeys.of(store.namespace, TASK)
    store.client.hset(keys.meta, mapping={"epoch": 7, "version": 2, "active": 1, "buckets": 4})
    store.client.hset(keys.offsets, LANE, 10)
    store.client.hset(keys.bounds, LANE, 10)


@pytest.mark.integration
def test_a_task_that_does_not_know_its_versions_takes_no_rows(
    redis_store: RedisStoreUnderTest,
) -> None:
    log = redis_store.open()
    as_an_older_release_left_it(redis_store)
    assert log.append(TASK, EPOCH, 2, batch(10, 20)) == NoTask()
    assert begin(log, 3) is None
    head = log.head([TASK])[TASK]
    assert head is not None
    assert (head.version, head.leader, head.offsets) == (2, 0, {LANE: 10})


@pytest.mark.integration
def test_a_task_that_was_given_a_version_by_an_older_release_takes_no_rows(
    redis_store: RedisStoreUnderTest,
) -> None:
    log = redis_store.open()
    log.initialise(TASK, EPOCH, start({LANE: 10}))
    keys = TaskKeys.of(redis_store.namespace, TASK)
    redis_store.client.unlink(keys.bounds)
    redis_store.client.hset(keys.bounds, LANE, 10)
    redis_store.client.hset(keys.meta, mapping={"version": 2, "active": 1})
    assert log.append(TASK, EPOCH, 1, batch(10, 20)) == NoTask()
    assert log.append(TASK, EPOCH, 2, batch(10, 20)) == NoTask()
    head = log.head([TASK])[TASK]
    assert head is not None
    assert head.version == 1


@pytest.mark.integration
def test_an_older_release_finds_where_the_newest_version_begins(
    redis_store: RedisStoreUnderTest,
) -> None:
    log = redis_store.open()
    bounds = {1: {LANE: 3}, 2: {LANE: 10}}
    log.initialise(TASK, EPOCH, start({LANE: 15}, version=2, bounds=bounds))
    keys = TaskKeys.of(redis_store.namespace, TASK)
    assert redis_store.client.hget(keys.bounds, LANE) == b"10"
    begin(log, 3)
    assert redis_store.client.hget(keys.bounds, LANE) == b"15"
    assert redis_store.client.hget(keys.meta, "version") == b"3"


@pytest.mark.integration
def test_the_seal_of_an_older_release_is_none(
    redis_store: RedisStoreUnderTest,
) -> None:
    log = redis_store.open()
    sealed = store_key(redis_store.namespace)
    redis_store.client.hset(sealed, mapping={"epoch": 7, "run_id": "run"})
    assert log.identity().sealed_epoch is None
    log.seal(EPOCH, LEADER, "run")
    assert log.identity().sealed_epoch == EPOCH
    redis_store.client.hset(sealed, mapping={"epoch": 8, "run_id": "run"})
    assert log.identity().sealed_epoch is None


# ------------------------------------------------------------------------------ at one time


def run_together(*runs: Callable[[], None]) -> None:
    threads = [threading.Thread(target=run) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.integration
def test_two_mappers_that_race_for_a_lane_never_both_get_an_offset(
    redis_store: RedisStoreUnderTest, redis_log: RedisPartialLog
) -> None:
    rounds = 100
    logs = [redis_log, redis_store.open()]
    taken: list[list[int]] = [[], []]
    barrier = threading.Barrier(2)

    def run(mapper: int) -> None:
        barrier.wait()
        offset = 0
        while offset < rounds:
            match logs[mapper].append(TASK, EPOCH, 1, batch(offset, offset + 1)):
                case Applied():
                    taken[mapper].append(offset)
                    offset += 1
                case Stale(_, current):
                    offset = current

    run_together(lambda: run(0), lambda: run(1))
    assert sorted(taken[0] + taken[1]) == list(range(rounds))
    assert [entry.ranges[0].first for entry in entries(redis_log)] == list(range(rounds))
    assert [entry.seq for entry in entries(redis_log)] == list(range(1, rounds + 1))


@pytest.mark.integration
def test_threads_that_share_a_log_do_not_mix_up_their_answers(redis_log: RedisPartialLog) -> None:
    rounds = 50
    outcomes: dict[Lane, list[object]] = {LANE: [], OTHER_LANE: []}

    def run(lane: Lane) -> None:
        for offset in range(rounds):
            sent = batch(offset, offset + 1, lane=lane)
            outcomes[lane].append(redis_log.append(TASK, EPOCH, 1, sent))

    run_together(lambda: run(LANE), lambda: run(OTHER_LANE))
    seqs = [one.seq for some in outcomes.values() for one in some if isinstance(one, Applied)]
    assert sorted(seqs) == list(range(1, 2 * rounds + 1))


@pytest.mark.integration
def test_compaction_beside_appends_keeps_the_count_of_bytes_right(
    redis_store: RedisStoreUnderTest, redis_log: RedisPartialLog
) -> None:
    reducer, rounds = redis_store.open(), 100

    def map_() -> None:
        for offset in range(rounds):
            redis_log.append(TASK, EPOCH, 1, batch(offset, offset + 1))

    def reduce_() -> None:
        for seq in range(10, rounds, 10):
            eventually(partial(entries, reducer, after=seq - 1, upto=seq))
            reducer.compact(TASK, EPOCH, born(reducer), Bucket(0), base(seq))

    run_together(map_, reduce_)
    reducer.compact(TASK, EPOCH, born(reducer), Bucket(0), None)
    left = entries(reducer)
    reducer.trim(TASK, EPOCH, born(reducer), Bucket(0), [entry.seq for entry in left])
    head = reducer.head([TASK])[TASK]
    assert head is not None
    assert head.log_bytes == 0
    assert 10 <= len(left) <= 11


# -------------------------------------------------------------------------------- restarts


@pytest.mark.integration
def test_restarted_server_is_another_one_and_empty(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    own_log.initialise(TASK, EPOCH, start())
    before = own_log.identity()
    own_log.seal(EPOCH, LEADER, before.run_id)
    own_server.kill()
    with pytest.raises(Unavailable):
        own_log.append(TASK, EPOCH, 1, batch(0, 10))
    own_server.start()
    own_server.wait_ready(READY_WITHIN_S)
    after = own_log.identity()
    assert after.run_id != before.run_id
    assert after.sealed_epoch is None
    assert own_log.head([TASK]) == {TASK: None}


@pytest.mark.integration
def test_a_server_that_was_a_replica_meanwhile_is_another_one(
    own_server: ValkeyServer, own_log: RedisPartialLog, valkey_server: ValkeyServer
) -> None:
    """Promoted again, it holds what the other one held: its own run id would not tell."""
    own_log.initialise(TASK, EPOCH, start())
    before = own_log.identity()
    head = own_log.head([TASK])[TASK]
    assert head is not None
    assert head.run_id == before.run_id
    admin = redis.Redis.from_url(own_server.url)
    own_id = admin.info("server")["run_id"]

    with redis.Redis.from_url(valkey_server.url) as other:
        other.config_set("repl-diskless-sync-delay", 0)
    port = urlsplit(valkey_server.url).port
    admin.execute_command("REPLICAOF", "127.0.0.1", str(port))
    eventually(lambda: admin.info("replication")["master_link_status"] == "up")
    admin.execute_command("REPLICAOF", "NO", "ONE")
    own_log.initialise(TASK, EPOCH, start())

    after = own_log.identity()
    head = own_log.head([TASK])[TASK]
    assert admin.info("server")["run_id"] == own_id
    admin.close()
    assert after.run_id != before.run_id
    assert head is not None
    assert head.run_id == after.run_id


@pytest.mark.integration
def test_doorbell_is_heard_again_after_a_restart_and_never_raises(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    own_log.listen([TASK])
    assert not own_log.wait(0.05)
    own_server.kill()
    for _ in range(3):
        began = time.monotonic()
        assert not own_log.wait(0.05)
        assert 0.04 < time.monotonic() - began < 1.0
    own_server.start()
    own_server.wait_ready(READY_WITHIN_S)
    own_log.initialise(TASK, EPOCH, start({LANE: 0}))
    offsets = iter(range(10_000))

    def heard() -> bool:
        offset = next(offsets)
        own_log.append(TASK, EPOCH, 1, batch(offset, offset + 1))
        return bool(own_log.wait(0.05))

    assert eventually(heard)


@pytest.mark.integration
def test_doorbell_of_a_server_that_stands_still_never_raises(
    own_server: ValkeyServer, own_log: RedisPartialLog
) -> None:
    own_log.listen([TASK])
    own_log.wait(0.05)
    own_server.pause()
    own_log.listen([TASK, OTHER_TASK])
    assert not own_log.wait(0.05)
    own_server.resume()
    own_log.initialise(OTHER_TASK, EPOCH, start({LANE: 0}))
    own_log.append(OTHER_TASK, EPOCH, 1, batch(0, 1))
    assert eventually(lambda: own_log.wait(0.1))
