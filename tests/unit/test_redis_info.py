"""What the server says of itself, as it is read."""

from __future__ import annotations

import gc

from mars.adapters.redis.connection import fields_of, run_id_of

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
