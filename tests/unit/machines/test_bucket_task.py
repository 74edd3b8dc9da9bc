"""One task in one bucket: its log as read so far, and what it has to commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.plan import WatermarkScope
from mars.core.types import Bucket, StoreEpoch, Topic
from mars.engine.codec.checksum import checksum
from mars.protocol.ports import Ledger
from mars.protocol.reducer.task_in_bucket import TaskInBucket
from mars.protocol.windows.input import StoreWentBack
from tests.unit.machines.bucket_parts import begin, commit, emitted, read, two_versions
from tests.unit.machines.reducing_rows import (
    OWNER,
    P0,
    P1,
    SAVE_MS,
    PlanOptions,
    counts_of,
    make_emission,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_slice,
    make_task,
    make_version,
)


def test_a_log_from_which_entries_have_vanished_is_not_read() -> None:
    part = begin()
    lacking = replace(make_slice(make_entry(2, 1, [(1, "x")])), vanished=1)

    with pytest.raises(StoreWentBack, match="lacks 1 of the entries"):
        part.absorb(lacking)
    assert part.position.last_seq == 0


# -------------------------------------------------------------------------------- what is due


def test_a_window_is_due_when_all_lanes_have_passed_its_end_by_the_delay() -> None:
    part = begin(delay_ms=2_000)
    read(part, make_head(1, {P0: 2}, mark_s=11), make_entry(1, 0, [(1, "x"), (11, "y")]))
    assert part.due() is None

    part.drained(make_head(1, {P0: 2}, mark_s=12))
    assert part.due() is not None
    assert emitted(part) == {(0, "x"): 1}


def test_a_lane_without_a_mark_holds_everything() -> None:
    part = begin()
    head = make_head(1, {P0: 1, P1: 0}, marks_ms={P0: 50_000})
    read(part, head, make_entry(1, 0, [(1, "x")]))

    assert part.due() is None


def test_when_all_lanes_are_idle_windows_close_as_the_clock_goes_on_from_the_highest_mark() -> None:
    # mark 3 s, taken at 100 s: 10 s is reached 7 s later, and waited for by delay and idle_after
    part = begin(delay_ms=1_000, idle_after_ms=5_000)
    idle = make_head(
        1, {P0: 1}, mark_s=3, idle=frozenset({P0}), taken_ms={P0: 100_000}, now_ms=112_999
    )
    read(part, idle, make_entry(1, 0, [(3, "x")]))
    assert part.due() is None

    part.drained(replace(idle, now_ms=113_000))
    assert emitted(part) == {(0, "x"): 1}


def test_marks_of_an_older_release_let_the_stores_clock_close_windows() -> None:
    part = begin(delay_ms=1_000, idle_after_ms=5_000)
    entry = make_entry(1, 0, [(3, "x")])
    idle = make_head(1, {P0: 1}, mark_s=3, idle=frozenset({P0}), now_ms=15_999)
    read(part, idle, entry)
    assert part.due() is None

    part.drained(make_head(1, {P0: 1}, mark_s=3, idle=frozenset({P0}), now_ms=16_000))
    assert emitted(part) == {(0, "x"): 1}


def test_a_paused_task_closes_nothing_though_its_marks_have_passed() -> None:
    part = begin()
    read(part, make_head(1, {P0: 1}, mark_s=30, active=False), make_entry(1, 0, [(1, "x")]))

    (record,) = part.prepare().progress
    assert part.due() is None
    assert record.closed_ms is None
    assert record.merged == {P0: 1}


def caught_up(part: TaskInBucket) -> bool:
    """Asked anew each time."""
    return part.position.caught_up


def test_nothing_is_due_before_all_that_was_accounted_has_been_read_again() -> None:
    part = begin(make_progress({P0: 2, P1: 3}, needed={P0: 0, P1: 0}))
    read(part, make_head(1, {P0: 2, P1: 2}, mark_s=60), make_entry(1, 0, [(1, "x"), (2, "x")]))
    assert not caught_up(part)
    assert part.due() is None
    assert not part.stale()

    rest = make_entry(2, 0, [(3, "x"), (4, "x"), (5, "x")], lane=P1)
    read(part, make_head(2, {P0: 2, P1: 3}, mark_s=60), rest)
    assert caught_up(part)
    assert emitted(part) == {(0, "x"): 5}


# ------------------------------------------------------------------------------------ records


def test_a_record_goes_one_on_from_the_last_and_says_what_was_emitted() -> None:
    part = begin()
    read(part, make_head(1, {P0: 3}, mark_s=12), make_entry(1, 0, [(1, "y"), (1, "x"), (12, "z")]))

    prepared = part.prepare()
    (batch,) = prepared.results
    (record,) = prepared.progress

    assert (record.emit, record.closed_ms, record.watermark_ms) == (1, 10_000, 12_000)
    assert (record.merged, record.needed) == ({P0: 3}, {P0: 0})
    assert record.ledger == Ledger(read=3, counted=3, emitted=2)
    assert record.emission is not None
    assert (record.emission.emit, record.emission.count) == (1, 2)
    assert record.emission.checksum == checksum(batch.values)
    assert dict(batch.headers)["mars-emit"] == b"1"


def test_a_record_without_rows_keeps_naming_the_last_emission() -> None:
    part = begin(make_progress({P0: 0}, emit=4, emission=make_emission(emit=3)))
    read(part, make_head(1, {P0: 1}, mark_s=1), make_entry(1, 0, [(1, "x")]))

    (record,) = part.prepare().progress

    assert record.emit == 5
    assert record.emission == make_emission(emit=3)


def test_a_record_without_rows_follows_each_that_has_some() -> None:
    part = begin()
    read(part, make_head(1, {P0: 1}, mark_s=61), make_entry(1, 0, [(1, "x")]))
    (record,) = part.prepare().progress
    assert record.emission is not None
    part.committed(record)
    assert part.stale()
    (follower,) = part.prepare().progress
    part.committed(follower)
    assert not part.stale()


def test_a_record_names_the_life_of_the_store_that_it_was_committed_in() -> None:
    part = begin(make_progress({P0: 1}, store_epoch=StoreEpoch(0), emit=4))
    read(part, make_head(1, {P0: 1}, mark_s=1), make_entry(1, 0, [(1, "x")]))

    (record,) = commit(part)

    assert (record.store_epoch, record.emit) == (OWNER.store_epoch, 5)


def test_a_record_that_is_repeated_while_nothing_new_may_be_said_is_numbered_on() -> None:
    scope: PlanOptions = {"watermark": WatermarkScope.KEY, "key_lag_ms": 30_000}
    last = make_progress(
        {P0: 1, P1: 1}, store_epoch=StoreEpoch(0), emit=7, ledger=Ledger(2, counted=2)
    )
    part = begin(last, **scope)
    again = make_entry(1, 0, [(1, "x")], plan=make_plan(**scope))
    read(part, make_head(1, {P0: 1, P1: 0}, mark_s=1), again)

    (record,) = commit(part)

    assert record == replace(last, emit=8, store_epoch=OWNER.store_epoch)
    assert [one.emit for one in commit(part)] == [9]


def test_a_record_has_something_new_to_say_until_it_is_committed_and_one_more_follows_it() -> None:
    part = begin()
    read(part, make_head(1, {P0: 1}, mark_s=1), make_entry(1, 0, [(1, "x")]))
    assert part.stale()

    commit(part)
    commit(part)
    assert not part.stale()
    part.drained(make_head(1, {P0: 4}, mark_s=1))
    assert part.stale()

    commit(part)
    assert part.stale(), "whether that record hangs in Kafka is seen by the next one"
    commit(part)
    assert not part.stale()


def test_references_are_committed_once() -> None:
    part = begin()
    read(part, make_head(1, {P0: 1}, mark_s=1), make_entry(1, 0, [(0, "")]))

    assert len(part.prepare().dead) == 1
    commit(part)
    assert part.prepare().dead == ()


def test_complete_and_incomplete_windows_go_apart_with_their_headers() -> None:
    part = TaskInBucket(make_task(make_version(complete_from_ms=10_000)), OWNER, {}, SAVE_MS)
    read(part, make_head(1, {P0: 2}, mark_s=20), make_entry(1, 0, [(1, "x"), (11, "x")]))

    batches = part.prepare().results
    complete = {dict(batch.headers)["mars-complete"]: counts_of(batch.values) for batch in batches}

    assert complete == {b"0": {(0, "x"): 1}, b"1": {(10, "x"): 1}}


@pytest.mark.parametrize(
    ("unread_ms", "complete"),
    [
        ((10_000, 20_000), [b"1", b"0", b"1"]),
        ((9_999, 10_000), [b"0", b"1", b"1"]),
        ((9_999, 20_001), [b"0", b"0", b"0"]),
        ((12_000, 13_000), [b"1", b"0", b"1"]),
        ((20_000, 30_000), [b"1", b"1", b"0"]),
    ],
)
def test_windows_that_touch_what_is_not_read_are_incomplete(
    unread_ms: tuple[int, int], complete: list[bytes]
) -> None:
    part = TaskInBucket(make_task(make_version(unread_ms=unread_ms)), OWNER, {}, SAVE_MS)
    rows = [(1, "x"), (11, "x"), (21, "x")]
    read(part, make_head(1, {P0: 3}, mark_s=30), make_entry(1, 0, rows))

    said = {
        window: dict(batch.headers)["mars-complete"]
        for batch in part.prepare().results
        for window, _key in counts_of(batch.values)
    }

    assert [said[window] for window in (0, 10, 20)] == complete


def test_all_rows_of_a_bucket_go_to_one_output_partition() -> None:
    owner = OWNER.__class__(Bucket(3), OWNER.epoch, OWNER.store_epoch)
    part = TaskInBucket(make_task(), owner, {}, SAVE_MS)
    read(part, make_head(1, {P0: 2}, mark_s=20), make_entry(1, 0, [(1, "x"), (11, "x")]))

    places = {(batch.topic, batch.partition) for batch in part.prepare().results}

    assert places == {(Topic("mars.results.a"), 1)}


def test_what_is_needed_does_not_go_back_when_rows_come_again_in_longer_batches() -> None:
    # The earlier owner's batch began at 6; after a loss of the store, one from 2 holds it all.
    record = make_progress({P0: 8}, needed={P0: 6}, closed_ms=10_000, ledger=Ledger(8, counted=8))
    part = begin(record)
    again = [(1, "x")] * 4 + [(11, "x")] * 2
    read(part, make_head(1, {P0: 8}, mark_s=11), make_entry(1, 2, again))

    (renewed,) = part.prepare().progress
    assert renewed.needed == {P0: 6}


# ----------------------------------------------------------------------- a store that went back


def test_an_offset_below_one_that_was_seen_means_that_the_store_went_back() -> None:
    part = begin()
    part.drained(make_head(3, {P0: 9}))

    with pytest.raises(StoreWentBack, match="was 9"):
        part.drained(make_head(3, {P0: 8}))


def test_a_lane_that_vanished_means_that_the_store_went_back() -> None:
    part = begin()
    part.drained(make_head(3, {P0: 9}))

    with pytest.raises(StoreWentBack):
        part.drained(make_head(3, {P1: 9}))


def test_an_entry_below_one_that_was_read_means_that_the_store_went_back() -> None:
    part = begin()
    read(part, make_head(1, {P0: 3}), make_entry(1, 0, [(1, "x")] * 3))

    with pytest.raises(StoreWentBack, match="below 3"):
        part.absorb(make_slice(make_entry(2, 2, [(1, "x")] * 3)))


def test_a_lower_seq_than_before_is_a_store_that_went_back() -> None:
    """Mappers may have sent more again than was lost, in fewer entries: offsets look fine."""
    part = begin()
    part.absorb(make_slice(make_entry(5, 0, [(1, "x")])))
    part.drained(make_head(5, {P0: 1}, mark_s=1))
    with pytest.raises(StoreWentBack, match="SEQ is 4, was 5"):
        part.drained(make_head(4, {P0: 9}, mark_s=9))


def test_a_server_that_was_started_anew_is_a_store_that_went_back() -> None:
    """Whatever it held and was sent since: its entries are not those that were read before."""
    part = begin()
    part.drained(replace(make_head(1, {P0: 1}, mark_s=1), run_id="first"))
    with pytest.raises(StoreWentBack, match="started anew"):
        part.absorb(replace(make_slice(make_entry(2, 1, [(2, "x")])), run_id="second"))
    with pytest.raises(StoreWentBack, match="started anew"):
        part.drained(replace(make_head(2, {P0: 2}, mark_s=2), run_id="second"))


def test_a_task_begun_anew_in_the_same_epoch_is_a_store_that_went_back() -> None:
    """Its log may hold other entries under the same SEQs, in batches that end elsewhere."""
    part = begin()
    part.absorb(make_slice(make_entry(1, 0, [(1, "x")])))
    part.drained(replace(make_head(1, {P0: 1}, mark_s=1), born="first"))
    with pytest.raises(StoreWentBack, match="begun anew in the same epoch"):
        part.drained(replace(make_head(2, {P0: 3}, mark_s=2), born="second"))


def test_a_server_that_took_the_place_of_the_one_a_life_was_begun_on_went_back() -> None:
    """Also for an owner that has seen no other: it may lack what was written last."""
    part = begin()
    head = replace(make_head(1, {P0: 1}, mark_s=1), begun_on="first", run_id="second")
    with pytest.raises(StoreWentBack, match="started anew: its run id is second"):
        part.drained(head)


def test_a_life_that_an_older_release_has_begun_is_read_wherever_it_is() -> None:
    part = begin()
    part.drained(replace(make_head(1, {P0: 1}, mark_s=1), begun_on="", run_id="second"))
    assert part.position.through == {P0: 1}


# ------------------------------------------------------------------------------- two versions


def test_each_version_counts_and_emits_its_own_rows() -> None:
    part = two_versions()
    part.drained(make_head(2, {P0: 3}, mark_s=10))

    batches = part.prepare().results
    versions = {batch.version: counts_of(batch.values) for batch in batches}

    assert versions == {1: {(0, "x"): 2}, 2: {(0, "x"): 1}}
    assert [(one.version, one.ledger.read) for one in commit(part)] == [(1, 2), (2, 1)]


def test_an_older_version_is_done_once_its_rows_are_emitted() -> None:
    part = two_versions()
    assert [record.version for record in commit(part)] == [1, 2]

    part.drained(make_head(2, {P0: 3}, mark_s=10))
    commit(part)
    part.drained(make_head(2, {P0: 9}, mark_s=30))

    assert [record.version for record in commit(part)] == [2]


def test_an_older_version_that_never_committed_says_once_that_it_has_nothing() -> None:
    part = TaskInBucket(make_task(make_version(1), make_version(2, {P0: 0})), OWNER, {}, SAVE_MS)
    part.drained(make_head(0, {P0: 0}))

    assert [record.version for record in commit(part)] == [1, 2]
    assert [record.version for record in commit(part)] == [2]


def test_a_version_that_begins_while_the_log_is_read_takes_its_rows_from_there() -> None:
    part = begin()
    read(part, make_head(1, {P0: 2}, mark_s=5), make_entry(1, 0, [(1, "x"), (2, "x")]))
    part.update(make_task(make_version(1), make_version(2, {P0: 2})))
    new = make_entry(2, 2, [(3, "x")], plan=make_plan(version=2))
    read(part, make_head(2, {P0: 3}, mark_s=10, version=2), new)

    versions = {one.version: counts_of(one.values) for one in part.prepare().results}
    assert versions == {1: {(0, "x"): 2}, 2: {(0, "x"): 1}}


def test_a_version_whose_definition_has_not_come_is_not_known() -> None:
    part = begin()

    assert part.knows(1)
    assert not part.knows(2)
    part.update(make_task(make_version(1), make_version(2, {P0: 2})))
    assert part.knows(2)


def test_a_task_made_again_under_the_name_of_a_deleted_one_is_another_life() -> None:
    part = begin()

    assert part.same_life(make_task(make_version(1), make_version(2)))
    assert not part.same_life(make_task(make_version(2), first_version=2))


# -------------------------------------------------------------------------- how far rows had come


def test_the_record_tells_how_far_rows_had_come_though_the_store_has_forgotten() -> None:
    """The marks of rows that were filtered, or that a snapshot holds, do not come again."""
    part = begin()
    read(part, make_head(1, {P0: 2}, mark_s=30), make_entry(1, 0, [(1, "x"), (2, "x")]))
    (first,) = commit(part)
    assert first.newest_ms == 30_000

    successor = begin(first)
    read(successor, make_head(0, {P0: 2}))
    read(successor, make_head(1, {P0: 3}, mark_s=12), make_entry(1, 2, [(12, "x")]))

    assert [record.newest_ms for record in commit(successor)] == [30_000]
