"""What `redis.url` may say, and which of several sentinels is believed."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis
from redis.sentinel import MasterNotFoundError, SentinelManagedSSLConnection

from mars.adapters.redis.addresses import read_address
from mars.adapters.redis.connection import connect
from mars.adapters.redis.sentinels import PrimaryPool, Sentinels
from mars.core.errors import SettingsError
from mars.core.settings import RedisSettings, load


def test_sentinels_are_named_with_their_password_and_the_name_of_the_primary() -> None:
    found = read_address("redis+sentinel://me:p%40ss@one,[::1]:5000/mymaster")
    assert found.servers == (("one", 26379), ("::1", 5000))
    assert found.name == "mymaster"
    assert found.credentials == {"username": "me", "password": "p@ss"}
    assert str(found) == "Redis mymaster behind sentinels one:26379, ::1:5000"
    assert "p@ss" not in repr(found)


def test_nodes_of_a_cluster_are_named() -> None:
    found = read_address("rediss+cluster://one,two:7000")
    assert found.is_cluster
    assert not found.is_sentinel
    assert found.servers == (("one", 6379), ("two", 7000))


def test_one_server_is_named() -> None:
    assert str(read_address("redis://:secret@host/3")) == "Redis at host:6379"


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://one,two",
        "redis+sentinel://one,two/",
        "redis+sentinel://one,/mymaster",
        "redis+sentinel://one:secret/mymaster",
        "http://secret",
    ],
)
def test_what_cannot_be_read_says_what_to_write_and_no_password(url: str) -> None:
    with pytest.raises(SettingsError, match=r"redis\.url.*redis\+sentinel://") as caught:
        connect(RedisSettings(url=url))
    assert "secret" not in str(caught.value)


def test_settings_refuse_other_schemes() -> None:
    with pytest.raises(SettingsError, match=r"redis\+sentinel://"):
        load(None, {"MARS_REDIS_URL": "http://host"})
    assert load(None, {"MARS_REDIS_URL": "rediss+sentinel://a/b"}).redis.url.endswith("a/b")


def test_tls_is_spoken_with_sentinels_and_servers() -> None:
    settings = RedisSettings(url="rediss+sentinel://one/mymaster", tls_ca_location="ca.pem")
    pool = cast("Any", connect(settings).connection_pool)
    assert pool.connection_class is SentinelManagedSSLConnection
    assert pool.connection_kwargs["ssl_ca_certs"] == "ca.pem"
    (sentinel,) = pool.sentinel_manager.sentinels
    assert sentinel.connection_pool.connection_class is redis.SSLConnection
    assert sentinel.connection_pool.connection_kwargs["ssl_ca_certs"] == "ca.pem"


class StubSentinel:
    """Answers with one address and config epoch, or not at all."""

    def __init__(self, port: int, epoch: int) -> None:
        self.port, self.epoch = port, epoch
        self.asked = 0
        self.silent = False

    def sentinel_masters(self) -> dict[str, dict[str, Any]]:
        self.asked += 1
        if self.silent:
            raise redis.TimeoutError("late")
        state = {"ip": "host", "port": self.port, "config-epoch": self.epoch}
        return {
            "m": {**state, "is_master": True, "is_sdown": False, "is_odown": False}
            | {"num-other-sentinels": 2}
        }


def sentinels(*stubs: StubSentinel) -> Sentinels:
    found = Sentinels([])
    found.sentinels = [cast("redis.Redis", stub) for stub in stubs]
    return found


def test_a_sentinel_that_has_not_heard_of_a_fail_over_is_not_believed() -> None:
    cut_off, first, second = StubSentinel(1, 7), StubSentinel(2, 8), StubSentinel(2, 8)
    found = sentinels(cut_off, first, second)
    assert {found.discover_master("m")[1] for _ in range(9)} == {2}
    assert cut_off.asked == 3


def test_sentinels_that_were_set_up_anew_are_believed() -> None:
    one, two = StubSentinel(1, 8), StubSentinel(1, 8)
    found = sentinels(one, two)
    assert found.discover_master("m") == ("host", 1)
    for each in (one, two):
        each.port, each.epoch = 2, 0
    assert found.discover_master("m") == ("host", 2)


def test_a_sentinel_that_is_silent_is_asked_after_the_others_for_a_while() -> None:
    dark, one, two = StubSentinel(1, 0), StubSentinel(1, 0), StubSentinel(1, 0)
    dark.silent = True
    found = sentinels(one, dark, two)
    for _ in range(9):
        assert found.discover_master("m") == ("host", 1)
    assert dark.asked == 1
    one.silent = two.silent = True
    with pytest.raises(MasterNotFoundError, match="late"):
        found.discover_master("m")
    assert dark.asked == 2


def test_while_no_sentinel_answers_a_tenth_of_the_time_goes_into_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = asked = 0.0

    class Dark:
        def discover_master(self, _name: str) -> None:
            nonlocal now_s, asked
            now_s += 3.0
            asked += 3.0
            raise MasterNotFoundError("dark")

    monkeypatch.setattr("mars.adapters.redis.sentinels.time.monotonic", lambda: now_s)
    pool = PrimaryPool("m", Dark())
    pool.proxy.master_address = ("host", 1)
    while now_s < 300:
        pool.follow()
        now_s += 0.1

    assert 24 <= asked <= 33
