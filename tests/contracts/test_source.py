from __future__ import annotations

import pytest

from mars.core.types import Topic
from mars.protocol.ports import SourceReader
from tests.contracts.kafka_servers import Cluster
from tests.contracts.reading import Reading
from tests.contracts.waiting import eventually

ROWS = [b"a", b"b", b"c"]


def read_alone(cluster: Cluster, topic: Topic, offset: int = 0) -> Reading:
    reading = Reading(cluster.alone())
    reading.seek(topic, 0, offset)
    return reading


def until_stable_end(cluster: Cluster, topic: Topic, end: int) -> None:
    """The marker of a transaction is written some time after the writer has its answer."""
    admin = cluster.admin()
    eventually(lambda: admin.ends(topic) == {0: end})


def test_values_offsets_and_times_come_in_order_and_end_where_the_partition_ends(
    cluster: Cluster,
) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"a", None, b""], timestamp_ms=1_000)
    cluster.append(topic, 0, [b"d"], timestamp_ms=500)
    reading = read_alone(cluster, topic)
    reading.until_end(topic)
    assert reading.values(topic) == [b"a", None, b"", b"d"]
    assert reading.offsets(topic) == [0, 1, 2, 3]
    times = [at for part in reading.records[topic, 0] for at in part.timestamps_ms]
    assert times == [1_000, 1_000, 1_000, 500]
    assert reading.ends[topic, 0] == reading.next(topic) == 4


def keys_of(reading: Reading, topic: Topic) -> list[list[bytes | None] | None]:
    parts = reading.records[topic, 0]
    return [None if part.keys is None else list(part.keys) for part in parts]


def test_records_carry_their_keys_where_they_are_wanted_only(cluster: Cluster) -> None:
    keyed, plain = cluster.topic(), cluster.topic()
    reading = Reading(cluster.alone())
    reading.reader.want_keys((keyed,))
    for topic in (keyed, plain):
        cluster.append(topic, 0, [b"a"], key=b"k")
        cluster.append(topic, 0, [b"b"])
        reading.seek(topic, 0, 0)
    for topic in (keyed, plain):
        reading.until_end(topic, end=2)
    assert [key for part in keys_of(reading, keyed) for key in part or ()] == [b"k", None]
    assert set(map(str, keys_of(reading, plain))) == {"None"}
    reading.reader.want_keys(())
    reading.seek(keyed, 0, 0)
    reading.until_end(keyed, end=2)
    assert set(map(str, keys_of(reading, keyed))) == {"None"}


def test_a_partition_that_is_sought_once_its_keys_are_wanted_brings_them_all(
    cluster: Cluster,
) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"a"], key=b"k")
    reading = join(cluster.member(), topic)
    reading.until_owned([(topic, 0)])
    reading.seek(topic, 0, 0)
    reading.until_end(topic, end=1)
    cluster.append(topic, 0, [b"b"], key=b"l")
    reading.reader.want_keys((topic,))
    reading.seek(topic, 0, 0)
    reading.until_end(topic, end=2)
    assert [key for part in keys_of(reading, topic) for key in part or ()] == [b"k", b"l"]
    assert reading.values(topic) == [b"a", b"b"]


def test_reading_goes_on_with_rows_that_come_after_the_end(cluster: Cluster) -> None:
    topic = cluster.topic()
    reading = read_alone(cluster, topic)
    reading.until_end(topic, end=0)
    cluster.append(topic, 0, ROWS)
    reading.until_end(topic, end=3)
    assert reading.values(topic) == ROWS


def test_offsets_of_aborted_rows_and_markers_are_passed_over_but_covered(
    cluster: Cluster,
) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"a"])
    aborted = cluster.writer()
    aborted.write(topic, 0, [b"x", b"y"])
    aborted.abort()
    until_stable_end(cluster, topic, 4)
    cluster.append(topic, 0, [b"b"])
    committed = cluster.writer()
    committed.write(topic, 0, [b"c"])
    committed.commit()
    reading = read_alone(cluster, topic)
    # a x y marker b c marker
    # 0 1 2 3      4 5 6
    reading.until_end(topic, end=7)
    assert reading.values(topic) == [b"a", b"b", b"c"]
    assert reading.offsets(topic) == [0, 4, 5]
    assert reading.records[topic, 0][0].first == 0
    assert reading.next(topic) == 7


def test_a_partition_of_nothing_but_aborted_rows_moves_the_position(cluster: Cluster) -> None:
    topic = cluster.topic()
    aborted = cluster.writer()
    aborted.write(topic, 0, [b"x"])
    aborted.abort()
    reading = read_alone(cluster, topic)
    reading.until_end(topic, end=2)
    assert reading.values(topic) == []
    assert reading.next(topic) == 2


def test_rows_of_an_open_transaction_and_rows_behind_it_wait_for_its_commit(
    cluster: Cluster,
) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"a"])
    writer = cluster.writer()
    writer.write(topic, 0, [b"b"])
    cluster.append(topic, 0, [b"c"])
    reading = read_alone(cluster, topic)
    reading.until_end(topic, end=1)
    assert reading.values(topic) == [b"a"]
    assert reading.reader.confirm_ends({(topic, 0): 1})
    writer.commit()
    reading.until_end(topic, end=4)
    assert reading.values(topic) == [b"a", b"b", b"c"]


def test_a_seek_back_and_forth_delivers_from_there_and_nothing_stale(cluster: Cluster) -> None:
    topic = cluster.topic()
    rows = [b"%d" % number for number in range(500)]
    cluster.append(topic, 0, rows)
    reading = read_alone(cluster, topic)
    reading.until_end(topic)
    for offset in (0, 250, 7, 499, 100, 101, 0):
        reading.seek(topic, 0, offset)
        reading.poll(5)
        reading.seek(topic, 0, offset + 1)
        reading.until_end(topic)
        assert reading.values(topic) == rows[offset + 1 :]


def test_a_poll_delivers_no_more_than_it_is_asked_for(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    for partition in (0, 1):
        cluster.append(topic, partition, [b"row"] * 25)
    reading = Reading(cluster.alone())
    for partition in (0, 1):
        reading.seek(topic, partition, 0)
    got = 0
    while got < 50:
        reading.poll(10)
        before, got = got, len(reading.values(topic, 0)) + len(reading.values(topic, 1))
        assert got - before <= 10


def test_a_paused_partition_delivers_nothing_until_it_is_resumed(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    reading = Reading(cluster.alone())
    for partition in (0, 1):
        reading.seek(topic, partition, 0)
        reading.until_end(topic, partition)
    reading.reader.pause(topic, 0)
    for partition in (0, 1):
        cluster.append(topic, partition, ROWS)
    reading.until_end(topic, 1, end=3)
    assert reading.values(topic, 0) == []
    reading.forget(topic, 0)
    reading.reader.resume(topic, 0, 1)
    reading.until_end(topic, 0, end=3)
    assert reading.values(topic, 0) == ROWS[1:]


def test_a_dropped_partition_delivers_nothing_more(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    reading = Reading(cluster.alone())
    for partition in (0, 1):
        reading.seek(topic, partition, 0)
    reading.reader.drop(topic, 0)
    for partition in (0, 1):
        cluster.append(topic, partition, ROWS)
    reading.until_end(topic, 1, end=3)
    assert reading.values(topic, 0) == []


def test_an_offset_that_retention_took_is_told_with_the_lowest_there_is(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, ROWS)
    cluster.truncate(topic, 0, 2)
    reading = read_alone(cluster, topic)
    gone = eventually(lambda: reading.poll() and reading.gone.get((topic, 0)))
    assert (gone.offset, gone.available) == (0, 2)
    reading.seek(topic, 0, gone.available)
    reading.until_end(topic)
    assert reading.values(topic) == [b"c"]


def test_an_offset_above_the_end_is_told_too(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, ROWS)
    reading = read_alone(cluster, topic, 17)
    gone = eventually(lambda: reading.poll() and reading.gone.get((topic, 0)))
    assert (gone.offset, gone.available) == (17, 0)


def test_the_end_is_confirmed_only_where_it_is(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, ROWS)
    reader = cluster.alone()
    at = (topic, 0)
    assert [reader.confirm_ends({at: offset}) for offset in (2, 3, 4)] == [set(), {at}, {at}]


def test_a_partition_that_is_not_there_hides_no_other_s_end(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    cluster.append(topic, 0, ROWS)
    ends = {(topic, 0): 3, (topic, 1): 0, (topic, 7): 0}
    assert cluster.alone().confirm_ends(ends) == {(topic, 0), (topic, 1)}


# ---------------------------------------------------------------------------------- in a group


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    topic = cluster.topic(4)
    for partition in range(4):
        cluster.append(topic, partition, ROWS)
    return topic


def join(member: SourceReader, *topics: Topic) -> Reading:
    reading = Reading(member)
    member.subscribe(topics)
    return reading


def places(topic: Topic, partitions: int = 4) -> list[tuple[Topic, int]]:
    return [(topic, partition) for partition in range(partitions)]


def test_an_assigned_partition_delivers_nothing_before_its_seek(
    cluster: Cluster, topic: Topic
) -> None:
    reading = join(cluster.member(), topic)
    reading.until_owned(places(topic))
    reading.seek(topic, 2, 1)
    reading.until_end(topic, 2)
    assert reading.values(topic, 2) == ROWS[1:]
    assert [reading.values(topic, partition) for partition in (0, 1, 3)] == [[], [], []]


def test_members_share_the_partitions_and_take_over_those_of_one_that_goes(
    cluster: Cluster, topic: Topic
) -> None:
    stays, goes = join(cluster.member(), topic), join(cluster.member(), topic)
    eventually(
        lambda: stays.poll() and goes.poll() and len(stays.owned) == 2 and len(goes.owned) == 2
    )
    assert stays.owned | goes.owned == set(places(topic))
    cluster.kill(goes.reader)
    stays.until_owned(places(topic))


def test_a_member_that_pauses_everything_keeps_its_partitions(
    cluster: Cluster, topic: Topic
) -> None:
    reading = join(cluster.member(), topic)
    reading.until_owned(places(topic))
    for place in places(topic):
        reading.reader.seek(*place, 0)
        reading.reader.pause(*place)
    other = join(cluster.member(), topic)
    eventually(lambda: reading.poll() and other.poll() and len(other.owned) == 2)
    cluster.kill(other.reader)
    reading.until_owned(places(topic))
    assert not any(reading.values(*place) for place in places(topic))


def test_a_seek_of_a_partition_that_went_to_another_member_does_nothing(
    cluster: Cluster, topic: Topic
) -> None:
    first = join(cluster.member(), topic)
    first.until_owned(places(topic))
    second = join(cluster.member(), topic)
    eventually(lambda: first.poll() and second.poll() and len(second.owned) == 2)
    for place in sorted(second.owned):
        first.seek(*place, 0)
    own = min(first.owned)
    first.seek(*own, 0)
    first.until_end(*own)
    assert not any(first.values(*place) for place in second.owned)


def test_the_list_of_topics_may_change(cluster: Cluster, topic: Topic) -> None:
    other = cluster.topic(1)
    reading = join(cluster.member(), topic)
    reading.until_owned(places(topic))
    reading.reader.subscribe([topic, other])
    reading.until_owned([*places(topic), (other, 0)])
    reading.reader.subscribe([other])
    reading.until_owned([(other, 0)])
    reading.reader.subscribe([])
    reading.until_owned([])
    reading.reader.subscribe([topic])
    reading.until_owned(places(topic))


def test_a_topic_that_does_not_exist_yet_joins_when_it_does(cluster: Cluster, topic: Topic) -> None:
    later = Topic(f"{topic}.later")
    reading = join(cluster.member(), topic, later)
    reading.until_owned(places(topic))
    cluster.admin().ensure_output(later, 1)
    reading.until_owned([*places(topic), (later, 0)])


def test_new_partitions_are_assigned(cluster: Cluster, topic: Topic) -> None:
    reading = join(cluster.member(), topic)
    reading.until_owned(places(topic))
    cluster.grow(topic, 5)
    reading.until_owned(places(topic, 5))


def test_partitions_of_a_deleted_topic_are_revoked(cluster: Cluster, topic: Topic) -> None:
    other = cluster.topic(1)
    reading = join(cluster.member(), topic, other)
    reading.until_owned([*places(topic), (other, 0)])
    reading.reader.seek(other, 0, 0)
    cluster.delete(other)
    reading.until_owned(places(topic))


def test_hints_never_move_the_reading(cluster: Cluster, topic: Topic) -> None:
    reading = join(cluster.member(), topic)
    reading.until_owned(places(topic))
    reading.reader.hint({(topic, 0): 2, (Topic("not_ours"), 0): 5})
    reading.seek(topic, 0, 0)
    reading.until_end(topic, 0)
    assert reading.values(topic, 0) == ROWS


def test_lags_say_how_many_messages_lie_ahead_of_what_was_read(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"row"] * 25)
    reading = Reading(cluster.alone())
    reading.seek(topic, 0, 0)
    eventually(lambda: reading.poll(10) and reading.values(topic))

    assert reading.reader.lags() == {(topic, 0): 25 - len(reading.values(topic))}
    reading.until_end(topic)
    assert reading.reader.lags() == {(topic, 0): 0}


def test_what_lay_ahead_of_a_paused_partition_is_not_forgotten(cluster: Cluster) -> None:
    topic = cluster.topic()
    cluster.append(topic, 0, [b"row"] * 25)
    reading = Reading(cluster.alone())
    reading.seek(topic, 0, 0)
    eventually(lambda: reading.poll(10) and reading.values(topic))
    left = 25 - len(reading.values(topic))
    reading.reader.pause(topic, 0)
    cluster.append(topic, 0, [b"row"] * 5)
    reading.poll()

    assert reading.reader.lags() == {(topic, 0): left}
    reading.reader.resume(topic, 0, 25 - left)
    reading.until_end(topic, end=30)
    assert reading.reader.lags() == {(topic, 0): 0}
    reading.reader.pause(topic, 0)
    reading.reader.drop(topic, 0)
    assert reading.reader.lags() == {}


def test_partitions_that_were_paused_and_are_revoked_have_no_lag(
    cluster: Cluster, topic: Topic
) -> None:
    one = join(cluster.member(), topic)
    one.until_owned(places(topic))
    for place in places(topic):
        one.reader.seek(*place, 0)
        one.reader.pause(*place)
    assert len(one.reader.lags()) == len(places(topic))
    two = join(cluster.member(), topic)

    eventually(lambda: one.poll() and two.poll() and one.owned and two.owned)

    assert set(one.reader.lags()) == one.owned
