from __future__ import annotations

from dataclasses import replace

import pytest

from mars.adapters.kafka.wire import encode_progress, progress_key
from mars.core.errors import MarsError
from mars.core.types import Bucket, Lane
from mars.protocol.ports import Progress, ProgressRecord, ProgressSlice, RowsRecord
from mars.protocol.ports.seen import Seen
from tests.contracts.kafka_servers import BUCKETS, Cluster, KafkaCluster
from tests.contracts.transactions import BUCKET, claim, progress

OTHER = Bucket(2)


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    """With the topics of Mars in it."""
    cluster.admin().ensure_internal(BUCKETS)
    return cluster


def write(
    cluster: Cluster,
    *records: ProgressRecord,
    bucket: Bucket = BUCKET,
    timestamp_ms: int | None = None,
) -> None:
    for record in records:
        cluster.append(
            cluster.names.progress,
            bucket,
            [encode_progress(record)],
            key=progress_key(record),
            timestamp_ms=timestamp_ms,
        )


def test_an_empty_partition_has_no_records(cluster: Cluster) -> None:
    slice_ = cluster.progress().read(BUCKET, 0)
    assert (slice_.records, slice_.next) == ((), 0)


def test_records_come_as_they_were_written_and_the_next_read_goes_on_behind_them(
    cluster: Cluster,
) -> None:
    log = cluster.progress()
    first = (claim(1), progress(1), progress(2, deleted=True))
    write(cluster, *first)
    write(cluster, progress(77), bucket=OTHER)
    slice_ = log.read(BUCKET, 0)
    assert (slice_.records, slice_.next) == (first, 3)
    assert log.read(BUCKET, 1).records == first[1:]
    write(cluster, progress(3))
    assert log.read(BUCKET, slice_.next).records == (progress(3),)
    assert log.read(BUCKET, 4).records == ()


def test_records_come_with_the_time_at_which_they_were_written(cluster: Cluster) -> None:
    log, times_ms = cluster.progress(), (1_700_000_000_123, 1_700_000_000_123, 1_700_000_009_000)
    for number, time_ms in enumerate(times_ms):
        write(cluster, progress(number), timestamp_ms=time_ms)

    assert log.read(BUCKET, 0).times_ms == times_ms
    assert log.read(BUCKET, 1).times_ms == times_ms[1:]
    assert log.read(OTHER, 0).times_ms == ()


def test_only_committed_records_are_read_and_the_rest_is_left_for_later(cluster: Cluster) -> None:
    log = cluster.progress()
    aborted = cluster.writer()
    aborted.write(cluster.names.progress, BUCKET, [encode_progress(progress(1))])
    aborted.abort()
    cluster.settled_end(cluster.names.progress, BUCKET)
    write(cluster, progress(2))
    pending = cluster.writer()
    pending.write(cluster.names.progress, BUCKET, [encode_progress(progress(3))])
    slice_ = log.read(BUCKET, 0)
    assert slice_.records == (progress(2),)
    assert log.read(BUCKET, slice_.next).records == ()
    pending.commit()
    cluster.settled_end(cluster.names.progress, BUCKET)
    assert log.read(BUCKET, slice_.next).records == (progress(3),)


def test_all_buckets_are_read_at_once_each_from_its_own_offset(cluster: Cluster) -> None:
    log = cluster.progress()
    write(cluster, progress(1), progress(2))
    write(cluster, progress(77), bucket=OTHER)
    found = log.read_all({BUCKET: 1, OTHER: 0, Bucket(3): 0})
    assert found == {
        BUCKET: ProgressSlice((progress(2),), 2),
        OTHER: ProgressSlice((progress(77),), 1),
        Bucket(3): ProgressSlice((), 0),
    }
    assert log.read_all({OTHER: 1}) == {OTHER: ProgressSlice((), 1)}
    assert log.read_all({}) == {}


def test_what_is_being_committed_lies_below_the_end_of_what_is_written(cluster: Cluster) -> None:
    log = cluster.progress()
    write(cluster, progress(1))
    pending = cluster.writer()
    pending.write(cluster.names.progress, BUCKET, [encode_progress(progress(2))])
    written = log.written([BUCKET, OTHER])
    assert written == {BUCKET: 2, OTHER: 0}
    assert log.read_all({BUCKET: 0})[BUCKET].next < written[BUCKET]
    pending.commit()
    cluster.settled_end(cluster.names.progress, BUCKET)
    slice_ = log.read_all({BUCKET: 0})[BUCKET]
    assert slice_.next >= written[BUCKET]
    assert slice_.records == (progress(1), progress(2))


def test_a_gap_at_the_end_is_passed_over(cluster: Cluster) -> None:
    log = cluster.progress()
    write(cluster, progress(1))
    aborted = cluster.writer()
    aborted.write(cluster.names.progress, BUCKET, [b"x", b"y"])
    aborted.abort()
    end = cluster.settled_end(cluster.names.progress, BUCKET)
    assert log.read(BUCKET, 0).next == end
    assert log.read(BUCKET, 1).records == ()


@pytest.mark.parametrize(
    "value",
    [
        b"not json",
        b'{"type":"progress","format":3,"record":{}}',
        encode_progress(claim(1)).replace(b'"format":4', b'"format":7'),
        b'{"type":"merger","format":1,"record":{}}',
        b"",
    ],
)
def test_a_record_of_a_newer_release_is_refused_and_its_place_named(
    cluster: Cluster, value: bytes
) -> None:
    write(cluster, progress(1))
    cluster.append(cluster.names.progress, BUCKET, [value], key=b"[]")
    log = cluster.progress()
    with pytest.raises(MarsError, match=rf"progress\[{BUCKET}\] offset 1"):
        log.read(BUCKET, 0)
    assert log.read(BUCKET, 2).records == ()


FORMAT_1 = (
    b'{"type":"progress","format":1,"record":{"task":"by_sip","version":1,"bucket":1,'
    b'"assignment_epoch":1,"store_epoch":1,"emit":1,"closed_ms":60000,"merged":{"0":10,"0@b1":3},'
    b'"needed":{"0":5,"0@b1":3},"ledger":{"read":7,"filtered":1,"bad":0,"future":0,"late":0,'
    b'"counted":6,"emitted":2,"late_partly":0},"watermark_ms":60001,"incomplete_before_ms":null,'
    b'"emission":null,"deleted":false}}'
)
FORMAT_2 = FORMAT_1.replace(b'"format":1', b'"format":2').replace(
    b'"deleted":false', b'"deleted":false,"snapshot":null'
)
FORMAT_3_BEFORE_THE_TRACKER = FORMAT_2.replace(b'"format":2', b'"format":3').replace(
    b'"snapshot":null',
    b'"snapshot":null,"references":null,"forgotten_ms":null,"revisions":{},"owed":[]',
)
FORMAT_3 = FORMAT_3_BEFORE_THE_TRACKER.replace(b'"owed":[]', b'"owed":[],"seen":null')
"""As releases of these formats have written `progress(1)`."""


@pytest.mark.parametrize("written", [FORMAT_1, FORMAT_2, FORMAT_3_BEFORE_THE_TRACKER, FORMAT_3])
def test_a_record_of_an_older_release_has_no_revisions_and_saw_nothing(
    cluster: Cluster, written: bytes
) -> None:
    cluster.append(cluster.names.progress, BUCKET, [written], key=progress_key(progress(1)))

    (record,) = cluster.progress().read(BUCKET, 0).records
    assert record == progress(1)
    assert isinstance(record, Progress)
    assert (record.forgotten_ms, record.revisions, record.owed) == (None, {}, ())
    assert record.seen is None


def test_revisions_come_back_as_they_were_written(cluster: Cluster) -> None:
    record = replace(progress(1), forgotten_ms=-10, revisions={-20: 1, 30: 2}, owed=(0, 40))
    write(cluster, record)

    assert cluster.progress().read(BUCKET, 0).records == (record,)


def test_numbers_of_rows_come_back_as_they_were_written_and_have_a_format_of_their_own(
    cluster: Cluster,
) -> None:
    lane = Lane("0")
    rows = RowsRecord({lane: 7}, {lane: {5: 3, 10: 8}}, {lane: (2, 4)})
    record = replace(progress(1), rows=rows)
    write(cluster, record)

    assert cluster.progress().read(BUCKET, 0).records == (record,)
    assert b'"format":5' in encode_progress(record)
    assert b'"format":4' in encode_progress(progress(1))


def test_entries_that_were_seen_come_back_as_they_were_written(cluster: Cluster) -> None:
    record = replace(progress(1), seen=Seen(2, 9, bytes([0, 255])))
    write(cluster, record)

    assert cluster.progress().read(BUCKET, 0).records == (record,)


def test_a_release_that_does_not_know_what_was_seen_passes_over_it(cluster: Cluster) -> None:
    record = replace(progress(1), seen=Seen(2, 9, bytes([0, 255])))
    unknown = encode_progress(record).replace(b'"seen"', b'"unknown"')
    cluster.append(cluster.names.progress, BUCKET, [unknown], key=progress_key(record))

    assert cluster.progress().read(BUCKET, 0).records == (progress(1),)


@pytest.mark.integration
def test_the_first_read_of_a_long_partition_gets_all_of_it(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.admin().ensure_internal(BUCKETS)
    value = encode_progress(progress(1))
    kafka_cluster.append(kafka_cluster.names.progress, BUCKET, [value] * 5_000, key=b"same")
    slice_ = kafka_cluster.progress().read(BUCKET, 0)
    assert len(slice_.records) == slice_.next == 5_000
