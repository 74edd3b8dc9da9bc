"""What the server says of itself, as it is read."""

from __future__ import annotations

import gc
from typing import cast

import redis

from mars.adapters.redis.connection import fields_of, run_id_of, run_id_of_all
from mars.adapters.redis.log import RedisPartialLog
from mars.adapters.redis.servers import OneServer

INFO = (
    b"# Server\r\nredis_version:8.1.4\r\nrun_id:0011\r\nexecutable:/usr/bin/valkey\r\n"
    b"config_file:\r\nlisteners:name=tcp,bind=127.0.0.1:6379\r\n\r\n"
    b"# Replication\r\nmaster_replid:2233\r\nrole:master\r\n"
)


def test_fields_are_texts_by_their_names() -> None:
    found = fields_of(INFO)
    assert found["run_id"] == "0011", "an id of digits is no number"
    assert found["config_file"] == ""
    assert found["listeners"] == "name=tcp,bind=127.0.0.1:6379"
    assert not any(name.startswith("#") for name in found)
    assert run_id_of(found) == "00112233"


def test_reading_it_leaves_nothing_that_only_the_collector_frees() -> None:
    gc.collect()
    fields_of(INFO)
    assert gc.collect() == 0


def test_a_store_has_another_id_as_soon_as_any_of_its_servers_has() -> None:
    assert run_id_of_all(["one"]) == "one"
    several = run_id_of_all(["one", "two", "three"])
    assert run_id_of_all(["three", "one", "two"]) == several
    others = [["four", "two", "three"], ["one", "four", "three"], ["one", "two", "four"]]
    fewer = [["one", "two"], ["one", "two", "three", "four"]]
    assert len({several, *map(run_id_of_all, [*others, *fewer])}) == 6


class Replaced:
    """A server whose place another one takes once it has answered one of the two questions."""

    def __init__(self) -> None:
        self.run_id = "old"

    def hmget(self, *_: str) -> list[bytes]:
        self.run_id = "new"
        return [b"7", b"oldhistory", b"7"]

    def info(self, *_: str) -> dict[str, str]:
        before, self.run_id = self.run_id, "new"
        return {"run_id": before, "master_replid": "history"}


def test_a_server_that_is_replaced_between_two_questions_is_not_the_one_that_was_sealed() -> None:
    servers = OneServer(cast("redis.Redis", Replaced()))
    found = RedisPartialLog(servers, servers, "default", 1, 1).identity()
    assert found.sealed_run_id == "oldhistory" != found.run_id
