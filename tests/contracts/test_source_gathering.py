"""Messages to records, without a broker."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message

from mars.adapters.kafka.names import Place
from mars.adapters.kafka.source.gathering import Gathering
from mars.core.types import Records, Topic
from mars.engine.decode.limits import MESSAGE_BYTES_MAX, unusable
from mars.protocol.ports import EndReached, Fetched, SourceEvent

T, U = Topic("t"), Topic("u")


def row(offset: int, partition: int = 0, topic: Topic = T) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        value=b"%d" % offset,
        timestamp=(1, 1_000 + offset),
    )


def trouble(code: int, offset: int, partition: int = 0, topic: Topic | None = T) -> Message:
    error = KafkaError(code)
    return Message(topic=topic, partition=partition, offset=offset, error=error)


def end(offset: int, partition: int = 0) -> Message:
    return trouble(KafkaError._PARTITION_EOF, offset, partition)


def gather(positions: dict[Place, int], *portions: list[Message]) -> list[SourceEvent]:
    gathering = Gathering(positions)
    for portion in portions:
        gathering.add(portion)
    return gathering.take_events()


def records_of(event: SourceEvent) -> Records:
    assert isinstance(event, Fetched)
    return event.records


def test_contiguous_offsets_of_several_portions_become_one_range() -> None:
    positions = {(T, 0): 5}
    (event,) = gather(positions, [row(5), row(6)], [row(7)])
    records = records_of(event)
    assert records.offsets == range(5, 8)
    assert records.values == [b"5", b"6", b"7"]
    assert records.timestamps_ms == [1_005, 1_006, 1_007]
    assert (records.first, records.next, positions) == (5, 8, {(T, 0): 8})


def test_a_gap_between_two_portions_is_kept() -> None:
    (event,) = gather({(T, 0): 5}, [row(5), row(6)], [row(9)])
    records = records_of(event)
    assert (records.offsets, records.first, records.next) == ([5, 6, 9], 5, 10)


def test_a_gap_within_a_portion_is_kept() -> None:
    (event,) = gather({(T, 0): 3}, [row(5), row(7)])
    assert (records_of(event).offsets, records_of(event).first) == ([5, 7], 3)


def test_partitions_and_topics_that_take_turns_are_told_apart() -> None:
    positions = {(T, 0): 0, (T, 1): 0, (U, 0): 0}
    mixed = [row(0), row(1), row(0, 1), row(2), row(0, 0, U), row(1, 1)]
    events = gather(positions, mixed)
    found = {(e.topic, e.records.lane): e.records.values for e in events if isinstance(e, Fetched)}
    assert found == {(T, "0"): [b"0", b"1", b"2"], (T, "1"): [b"0", b"1"], (U, "0"): [b"0"]}


def test_an_end_behind_a_gap_moves_the_position_with_empty_records() -> None:
    positions = {(T, 0): 4}
    empty, reached = gather(positions, [end(9)])
    records = records_of(empty)
    assert (records.first, records.next, len(records.values), positions) == (4, 9, 0, {(T, 0): 9})
    assert reached == EndReached(T, 0, 9)


def test_rows_behind_an_end_in_the_same_poll_make_it_no_end() -> None:
    (event,) = gather({(T, 0): 0}, [row(0), end(1), row(1)])
    assert records_of(event).values == [b"0", b"1"]


def test_an_end_at_the_position_is_told_without_records() -> None:
    assert gather({(T, 0): 4}, [end(4)]) == [EndReached(T, 0, 4)]


def test_rows_of_partitions_without_a_position_are_left_out() -> None:
    (event,) = gather({(T, 0): 0}, [row(7, 1), row(0), end(8, 1)])
    assert isinstance(event, Fetched)
    assert event.records.values == [b"0"]


def test_rows_below_the_position_are_left_out() -> None:
    (event,) = gather({(T, 0): 6}, [row(4), row(5), row(6)])
    assert records_of(event).values == [b"6"]


def test_rows_behind_an_error_are_not_delivered() -> None:
    positions = {(T, 0): 0}
    gathering = Gathering(positions)
    gathering.add([row(0), trouble(KafkaError._BAD_MSG, 1), row(2)])
    (event,) = gathering.take_events()
    assert records_of(event).values == [b"0"]
    assert positions == {(T, 0): 1}
    assert [error.code() for error in gathering.failed.values()] == [KafkaError._BAD_MSG]


def test_a_lost_offset_is_told_with_the_position_it_was_sought_at() -> None:
    gathering = Gathering({(T, 0): 17})
    gathering.add([trouble(KafkaError._AUTO_OFFSET_RESET, 17)])
    assert gathering.take_events() == []
    assert gathering.lost == {(T, 0): 17}


def test_rows_of_a_partition_revoked_in_the_same_poll_are_left_out() -> None:
    positions = {(T, 0): 0, (T, 1): 0}
    gathering = Gathering(positions)
    gathering.add([row(0), row(0, 1)])
    del positions[T, 0]
    (event,) = gathering.take_events()
    assert records_of(event).lane == "1"


def test_an_error_of_no_partition_is_only_remarked() -> None:
    gathering = Gathering({(T, 0): 0})
    gathering.add([trouble(KafkaError.UNKNOWN_TOPIC_OR_PART, 0, 0, U), row(0)])
    assert len(gathering.take_events()) == 1
    assert len(gathering.remarks) == 1


def test_a_message_that_is_too_large_is_kept_only_as_far_as_shows_that() -> None:
    large = Message(topic=T, partition=0, offset=6, value=bytes(3 * MESSAGE_BYTES_MAX))
    (event,) = gather({(T, 0): 5}, [row(5), large, row(7)])
    values = records_of(event).values
    assert [len(value or b"") for value in values] == [1, MESSAGE_BYTES_MAX + 1, 1]
    assert unusable(values[1]) == unusable(large.value())


def undecodable(offset: int) -> Message:
    text = f"Decompression (codec 0x4) of message at {offset} of 9 bytes failed"
    error = KafkaError(KafkaError._BAD_COMPRESSION, text)
    return Message(topic=T, partition=0, offset=offset, error=error)


def test_what_comes_before_a_batch_that_cannot_be_unpacked_is_delivered_up_to_it() -> None:
    positions: dict[Place, int] = {(T, 0): 5}
    gathering = Gathering(positions)
    gathering.add([row(5), undecodable(8), row(9), undecodable(8)])
    (event,) = gathering.take_events()
    assert (records_of(event).values, records_of(event).next) == ([b"5"], 8)
    assert gathering.undecodable == {(T, 0): 8}
    assert not gathering.failed


def test_a_batch_that_fails_for_want_of_memory_is_asked_for_again() -> None:
    text = "Decompression (codec 0x2) of message at 5 of 9 bytes failed"
    error = KafkaError(KafkaError._CRIT_SYS_RESOURCE, text)
    gathering = Gathering({(T, 0): 5})
    gathering.add([Message(topic=T, partition=0, offset=5, error=error)])
    assert (T, 0) in gathering.failed
    assert not gathering.undecodable
