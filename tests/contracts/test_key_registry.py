"""API keys: what is kept of them, and being told of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mars.protocol.ports import ApiKey, KeyId, Role
from tests.contracts.waiting import Changes
from tests.contracts.zookeeper_servers import Ensemble

KEY = ApiKey(
    id=KeyId("3f9c21ab"),
    role=Role.OPERATOR,
    hash="0" * 64,
    ending="beef",
    created_ms=1_700_000_000_000,
    reads=("flows*", "/data/*"),
    writes=(),
    note="Gänse „“ 統計",
)


def test_key_is_read_back_as_it_was_created(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.keys(), ensemble.keys()
    assert ours.all() == []
    assert ours.create(KEY)
    assert theirs.all() == [KEY]


def test_id_can_be_used_once_while_its_key_is_kept(ensemble: Ensemble) -> None:
    registry = ensemble.keys()
    assert registry.create(KEY)
    assert not registry.create(replace(KEY, role=Role.ADMIN))
    assert registry.all() == [KEY]
    assert registry.delete(KEY.id)
    assert not registry.delete(KEY.id)
    assert registry.all() == []


def test_every_change_of_a_key_is_told_to_all_who_watch(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.keys(), ensemble.keys()
    told = [Changes(), Changes()]
    for registry, changes in zip((ours, theirs), told, strict=True):
        registry.watch(changes)
        changes.more_than(0)
    steps: list[Callable[[], object]] = [
        lambda: ours.create(KEY),
        lambda: theirs.delete(KEY.id),
    ]
    for step in steps:
        seen = [changes.seen() for changes in told]
        assert step()
        for changes, count in zip(told, seen, strict=True):
            changes.more_than(count)
