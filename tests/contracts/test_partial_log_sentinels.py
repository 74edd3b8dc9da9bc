"""The partial log behind sentinels: who was the primary once gets no more of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mars.adapters.probe import redis_ready
from mars.adapters.redis.log import RedisPartialLog
from mars.core.errors import Unavailable
from mars.core.settings import RedisSettings, Settings
from mars.core.types import Sequence64
from mars.local.network import free_port
from mars.local.servers import ValkeyServer
from mars.protocol.ports import Applied, StoreIdentity
from tests.contracts.batches import BUCKETS, EPOCH, LEADER, TASK, batch, start
from tests.contracts.waiting import eventually
from tests.support.sentinels import NAME, Guarded, guarded

pytestmark = pytest.mark.integration


@pytest.fixture
def servers(valkey_server: ValkeyServer, tmp_path: Path) -> Iterator[Guarded]:
    assert valkey_server.running
    with guarded(tmp_path) as found:
        yield found


@pytest.fixture
def log(servers: Guarded) -> Iterator[RedisPartialLog]:
    """With one task, and sealed."""
    log = RedisPartialLog.open(Settings(redis=RedisSettings(url=servers.url)), BUCKETS)
    assert log.initialise(TASK, EPOCH, start())
    assert log.seal(EPOCH, LEADER, log.identity().run_id)
    yield log
    log.close()


def seq_at(servers: Guarded, port: int) -> int:
    """Of the task, at one of the two servers, whoever is the primary."""
    with servers.client(port) as client:
        return int(client.get(f"mars:{{{TASK}}}:seq") or 0)


def head_seq(log: RedisPartialLog) -> int:
    head = log.head([TASK])[TASK]
    assert head is not None
    return head.seq


def identity(log: RedisPartialLog) -> StoreIdentity:
    """As soon as it can be asked for."""

    def asked() -> StoreIdentity | None:
        try:
            return log.identity()
        except Unavailable:
            return None

    found = eventually(asked)
    assert found is not None
    return found


def rings(log: RedisPartialLog, after: int) -> int:
    """Append until a bell is heard, since one may ring before it is listened to; the last SEQ."""
    seq = after

    def heard() -> bool:
        nonlocal seq
        seq += 1
        assert log.append(TASK, EPOCH, 1, batch(seq * 10 - 10, seq * 10)) == Applied(
            Sequence64(seq)
        )
        return log.wait(0.1) == {TASK}

    eventually(heard)
    return seq


def test_calls_follow_a_fail_over_which_is_a_loss_and_the_former_primary_gets_none(
    servers: Guarded, log: RedisPartialLog
) -> None:
    before = servers.primary()
    log.listen([TASK])
    log.wait(0.01)
    assert log.append(TASK, EPOCH, 1, batch(0, 10)) == Applied(Sequence64(1))
    sealed = log.identity()
    assert sealed.run_id == sealed.sealed_run_id
    eventually(lambda: seq_at(servers, next(p for p in servers.servers if p != before)) == 1)

    servers.servers[before].kill()
    after = servers.promoted(before)
    found = identity(log)

    # Every key looks intact, and so does the seal.
    assert (found.sealed_run_id, found.sealed_epoch) == (sealed.run_id, EPOCH)
    assert found.run_id != sealed.run_id
    head = log.head([TASK])[TASK]
    assert head is not None
    assert head.begun_on == sealed.run_id != head.run_id
    rings(log, 1)

    servers.servers[before].start()
    servers.follows(before)
    last = rings(log, head_seq(log))
    assert log.identity().run_id == found.run_id
    assert seq_at(servers, after) == last


def test_a_former_primary_that_goes_on_taking_writes_gets_none(
    servers: Guarded, log: RedisPartialLog
) -> None:
    before = servers.primary()
    log.listen([TASK])
    held = rings(log, 0)
    (after,) = (port for port in servers.servers if port != before)
    eventually(lambda: seq_at(servers, after) == held)

    with servers.client(after) as client:
        client.replicaof("NO", "ONE")
    servers.point_to(after)
    run_id = log.identity().run_id
    eventually(lambda: log.identity().run_id != run_id)

    last = rings(log, held)
    assert (seq_at(servers, before), seq_at(servers, after)) == (held, last)


def test_where_no_sentinel_answers_what_is_connected_goes_on(
    servers: Guarded, log: RedisPartialLog
) -> None:
    for sentinel in servers.sentinels:
        sentinel.kill()
    # Longer than it asks them.
    for seq in range(1, 31):
        assert log.append(TASK, EPOCH, 1, batch(seq * 10 - 10, seq * 10)) == Applied(
            Sequence64(seq)
        )
        log.wait(0.1)

    fresh = RedisPartialLog.open(Settings(redis=RedisSettings(url=servers.url)), BUCKETS)
    with pytest.raises(Unavailable, match=r"no sentinel names a primary.*redis\.url"):
        fresh.identity()
    fresh.close()


def test_what_is_wrong_with_sentinels_or_the_server_is_told(servers: Guarded) -> None:
    own = RedisSettings(url=servers.url)
    assert redis_ready(Settings(redis=own)) is None
    other = replace(own, url=servers.url.replace(NAME, "another"))
    assert "it knows no another" in str(redis_ready(Settings(redis=other)))
    absent = replace(own, url=f"redis+sentinel://127.0.0.1:{free_port()}/{NAME}")
    assert "redis.url" in str(redis_ready(Settings(redis=absent)))
    wrong = Settings(redis=replace(own, password="wrong"))
    assert "redis.password" in str(redis_ready(wrong))


def test_sentinels_and_servers_have_passwords_of_their_own(
    valkey_server: ValkeyServer, tmp_path: Path
) -> None:
    assert valkey_server.running
    with guarded(tmp_path, password="of-sentinels") as servers:
        for sentinel in servers.sentinels:
            sentinel.ask("SET", NAME, "auth-pass", "of-servers")
        for port in servers.servers:
            with servers.client(port) as client:
                client.config_set("masterauth", "of-servers")
                client.config_set("requirepass", "of-servers")

        url = servers.url.replace("://", "://:of-sentinels@")
        right = RedisSettings(url=url, password="of-servers")
        eventually(lambda: redis_ready(Settings(redis=right)) is None)
        missing = str(redis_ready(Settings(redis=replace(right, url=servers.url))))
        assert "Authentication required" in missing
        assert "redis.url" in missing
        for sentinel in servers.sentinels:
            sentinel.allow("mars", "of-mars", "+sentinel|masters")
        as_user = replace(right, url=url.replace("://:of-sentinels", "://mars:of-mars"))
        assert redis_ready(Settings(redis=as_user)) is None
        wrong = replace(right, password="other")
        assert "redis.password" in str(redis_ready(Settings(redis=wrong)))
