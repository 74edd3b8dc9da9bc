"""Ad-hoc queries: what is kept, compare-and-set, and being told of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mars.core.definitions import FileHistory, HistoryFile
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import MemberId, RowCounts, StreamName, Topic
from mars.protocol.ports import (
    AnswerPlace,
    AnswerSlot,
    Query,
    QueryId,
    QueryRecord,
    QueryRegistry,
    QueryState,
)
from tests.contracts.waiting import Changes
from tests.contracts.zookeeper_servers import Ensemble

ID = QueryId("q-1")


def record(query: QueryId = ID) -> QueryRecord:
    """Everything that a query can have."""
    fields = (Field("timestamp", FieldType.TIMESTAMP_MS), Field("sip", FieldType.STRING))
    stream = Stream(StreamName("flows"), "flows", Format.NDJSON, fields, "timestamp")
    return QueryRecord(
        Query(
            id=query,
            sql="SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING 60 s -- Gänse „“ 統計",
            options={"future_limit": "1s"},
            stream=stream,
            created_ms=1_700_000_000_000,
            from_ms=-1,
            until_ms=2**53,
            rows_max=10,
            timeout_ms=1_500,
            files=FileHistory("csv", (HistoryFile("/a", 0, 2**40, None),), csv_header=True),
            output_topic=Topic("mine"),
        ),
        state=QueryState.DONE,
        attempt=2,
        member=MemberId("bulk-1"),
        started_ms=5,
        ended_ms=6,
        slot=AnswerSlot(3, 2**40),
        input_offsets=7,
        counts=RowCounts(1, 2, 3, 4),
        place=AnswerPlace(3, 2**40, 2**40 + 2, 10, 1_000),
        detail="why",
    )


def version_of(registry: QueryRegistry, query: QueryId = ID) -> int:
    found = registry.get(query)
    assert found is not None
    return found[1]


def test_query_is_read_back_as_it_was_created(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.queries(), ensemble.queries()
    assert ours.all() == []
    assert ours.get(ID) is None
    assert ours.create(record())
    found = theirs.get(ID)
    assert found is not None
    assert found[0] == record()
    assert theirs.all() == [record()]


def test_id_can_be_used_once_while_it_is_kept(ensemble: Ensemble) -> None:
    registry = ensemble.queries()
    assert registry.create(record())
    assert not registry.create(replace(record(), detail="other"))
    assert registry.delete(ID)
    assert not registry.delete(ID)
    assert registry.all() == []
    assert registry.create(record())


def test_query_is_replaced_only_by_who_saw_its_last_version(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.queries(), ensemble.queries()
    ours.create(record())
    seen = version_of(theirs)
    running = replace(record(), state=QueryState.RUNNING)
    assert ours.replace(running, version_of(ours))
    assert not theirs.replace(replace(record(), state=QueryState.CANCELLED), seen)
    assert theirs.all() == [running]
    assert theirs.replace(record(), version_of(theirs))


def test_unknown_query_is_not_replaced(ensemble: Ensemble) -> None:
    registry = ensemble.queries()
    assert not registry.replace(record(), 0)
    registry.create(record())
    registry.delete(ID)
    assert not registry.replace(record(), 0)
    assert registry.all() == []


def test_every_change_of_a_query_is_told_to_all_who_watch(ensemble: Ensemble) -> None:
    ours, theirs = ensemble.queries(), ensemble.queries()
    told = [Changes(), Changes()]
    for registry, changes in zip((ours, theirs), told, strict=True):
        registry.watch(changes)
        changes.more_than(0)
    other = QueryId("q-2")
    steps: list[Callable[[], object]] = [
        lambda: ours.create(record()),
        lambda: theirs.create(record(other)),
        lambda: ours.replace(record(), version_of(ours)),
        lambda: theirs.delete(other),
    ]
    for step in steps:
        seen = [changes.seen() for changes in told]
        assert step()
        for changes, count in zip(told, seen, strict=True):
            changes.more_than(count)
    assert theirs.all() == [record()]
