"""What one bucket of a reducer commits, and when, and what it does with the log after it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mars.core.definitions import TaskState
from mars.core.types import Sequence64, TaskName, Topic
from mars.protocol.ports import SourceTopic
from mars.protocol.reducer.commit_plan import OVER_BUDGET_MS
from mars.protocol.reducer.events import (
    CommitTransaction,
    CompactLog,
    FailTask,
    ReadLog,
    TellTracker,
    TrimLog,
)
from mars.protocol.reducer.owner import OwnerState
from mars.protocol.windows import turns
from tests.unit.machines.owned_bucket import LIMITS, OTHER, Bucket, names, only
from tests.unit.machines.reducing_rows import (
    BUCKET,
    E1,
    NAME,
    P0,
    make_entry,
    make_head,
    make_plan,
    make_progress,
    make_task,
)


def test_a_due_window_is_committed_with_progress_at_the_known_end() -> None:
    here = Bucket()
    here.own(make_progress({P0: 0}, emit=4))
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))

    commit = only(here.machine.ticked(1), CommitTransaction)

    assert (commit.term, commit.next) == (here.term, 2)
    assert [len(batch.values) for batch in commit.transaction.results] == [1]
    assert [record.emit for record in commit.transaction.progress] == [5]


def test_nothing_is_read_or_committed_while_a_commit_is_under_way() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))
    here.machine.ticked(1)

    assert here.machine.heads_read({NAME: make_head(2, {P0: 2})}) == []
    assert here.machine.ticked(60_000) == []
    assert here.machine.status == "committing"


def test_a_task_that_fails_and_is_resumed_while_a_commit_is_under_way_goes_on_with_its_record() -> (
    None
):
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))
    commit = only(here.machine.ticked(1), CommitTransaction)
    prepared = here.machine.term.parts[NAME]

    here.change(make_task(state=TaskState.FAILED))
    here.change(make_task())
    here.commit(commit)

    assert here.machine.term.parts[NAME] is prepared


def test_a_task_that_fails_while_a_commit_is_under_way_is_left_out_after_it() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))
    commit = only(here.machine.ticked(1), CommitTransaction)

    here.change(make_task(state=TaskState.FAILED))
    here.commit(commit)
    assert NAME not in here.machine.term.parts

    here.change(make_task())
    assert here.machine.term.parts[NAME].position.last_seq == 0, "it is read anew"


def test_what_a_commit_keeps_a_bucket_from_reading_is_left_for_later() -> None:
    here = Bucket()
    here.own()
    first, more = make_head(1, {P0: 1}, mark_s=10), make_head(2, {P0: 2})
    assert here.machine.left({NAME: first}) == set()  # it is read at once
    here.read(first, make_entry(1, 0, [(1, "x")]))
    commit = only(here.machine.ticked(1), CommitTransaction)

    assert here.machine.left({NAME: first}) == set()
    assert here.machine.left({NAME: more}) == {NAME}
    here.commit(commit)
    assert here.machine.left({NAME: more}) == set()


def test_after_a_commit_entries_that_nobody_needs_are_trimmed() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))

    given = here.commit(only(here.machine.ticked(1), CommitTransaction))

    assert given == [TrimLog(BUCKET, NAME, E1, "", (Sequence64(1),))]
    assert here.machine.state is OwnerState.OWNING


def test_only_the_life_of_the_log_that_was_read_is_trimmed() -> None:
    here = Bucket()
    here.own()
    head = replace(make_head(1, {P0: 1}, mark_s=10), born="life")
    here.read(head, make_entry(1, 0, [(1, "x")]))

    given = here.commit(only(here.machine.ticked(1), CommitTransaction))

    assert given == [TrimLog(BUCKET, NAME, E1, "life", (Sequence64(1),))]


def test_the_tracker_is_told_of_entries_once_the_commit_that_counts_them_has_succeeded() -> None:
    here = Bucket(limits=replace(LIMITS, tracked=True))
    here.own()
    entries = [make_entry(seq, seq - 1, [(1, "x")]) for seq in (1, 2)]
    here.read(make_head(3, {P0: 2}, mark_s=10), *entries)

    commit = only(here.machine.ticked(1), CommitTransaction)
    told = [one for one in here.commit(commit) if isinstance(one, TellTracker)]

    (record,) = commit.transaction.progress
    assert record.seen is not None
    assert [seq for seq in range(1, 5) if record.seen.holds(seq)] == [1, 2]
    assert record.seen.through == 3
    assert told == [TellTracker(BUCKET, NAME, E1, ((1, Sequence64(1)), (1, Sequence64(2))))]


def test_without_a_tracker_nobody_is_told_and_records_stay_small() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))

    commit = only(here.machine.ticked(1), CommitTransaction)

    assert commit.transaction.progress[0].seen is None
    assert not [one for one in here.commit(commit) if isinstance(one, TellTracker)]


def test_progress_is_committed_without_rows_once_it_is_old_and_not_before() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=1), make_entry(1, 0, [(1, "x")]))
    assert here.machine.ticked(9_999) == []

    commit = only(here.machine.ticked(10_000), CommitTransaction)
    assert commit.transaction.results == ()
    assert commit.transaction.progress[0].merged == {P0: 1}

    here.commit(commit)
    follower = only(here.machine.ticked(20_000), CommitTransaction)
    assert follower.transaction.progress[0].merged == {P0: 1}
    here.commit(follower)
    assert here.machine.ticked(30_000) == []


def test_progress_waits_for_a_window_that_is_about_to_close_and_comes_with_it() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=9), make_entry(1, 0, [(9, "x")]))
    assert here.machine.ticked(10_000) == []

    here.read(make_head(2, {P0: 2}, mark_s=10), make_entry(2, 1, [(10, "x")]))
    commit = only(here.machine.ticked(10_500), CommitTransaction)

    assert len(commit.transaction.results) == 1
    here.commit(commit)
    here.read(make_head(3, {P0: 3}, mark_s=11), make_entry(3, 2, [(11, "x")]))
    assert here.machine.ticked(20_499) == []
    assert only(here.machine.ticked(20_500), CommitTransaction).transaction.results == ()


def test_progress_does_not_wait_for_ever_for_a_window_that_does_not_close() -> None:
    here = Bucket()
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=9), make_entry(1, 0, [(9, "x")]))
    times = range(10_000, 20_000, 100)
    assert [here.machine.ticked(now_ms) for now_ms in times] == [[]] * len(times)

    assert only(here.machine.ticked(20_000), CommitTransaction).transaction.results == ()


def test_a_commit_of_rows_takes_the_progress_of_other_tasks_along_once_it_is_half_as_old() -> None:
    here = Bucket(make_task(), make_task(name=OTHER))
    here.own()
    other = make_entry(1, 0, [(1, "x")], plan=make_plan(OTHER))
    here.read(make_head(1, {P0: 1}, mark_s=1), other, name=OTHER)
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))
    early = only(here.machine.ticked(4_999), CommitTransaction)
    here.commit(early)
    here.read(make_head(2, {P0: 2}, mark_s=20), make_entry(2, 1, [(11, "x")]))
    late = only(here.machine.ticked(5_000), CommitTransaction)

    assert (names(early), names(late)) == ([NAME], [NAME, OTHER])


def test_a_commit_says_which_topics_its_rows_were_read_of() -> None:
    here = Bucket(make_task(), make_task(name=OTHER))
    here.own()
    other = make_entry(1, 0, [(1, "x")], plan=make_plan(OTHER))
    here.read(make_head(1, {P0: 1}, mark_s=1), other, name=OTHER)
    here.read(make_head(1, {P0: 1}, mark_s=10), make_entry(1, 0, [(1, "x")]))
    commit = only(here.machine.ticked(20_000), CommitTransaction)

    current = make_task().definition.current
    read = SourceTopic(NAME, Topic(current.stream.topic), current.topic_id)
    assert (names(commit), commit.transaction.sources) == ([NAME, OTHER], (read,))


def test_windows_close_in_a_bucket_without_rows_though_nothing_of_it_is_read_again() -> None:
    here = Bucket()
    here.own(make_progress({P0: 1}, closed_ms=0))

    here.read(make_head(1, {P0: 1}, mark_s=10))
    commit = only(here.machine.ticked(10_000), CommitTransaction)

    (closed_ms,) = [record.closed_ms for record in commit.transaction.progress]
    assert (closed_ms or 0) > 0
    here.commit(commit)
    assert here.machine.ticked(20_000) == []


def test_a_large_task_gets_a_transaction_of_its_own_after_the_small_ones() -> None:
    here = Bucket(make_task(), make_task(name=OTHER))
    here.own()
    many = [(1, f"k{number}") for number in range(4)]
    here.read(make_head(1, {P0: 4}, mark_s=10), make_entry(1, 0, many))
    few = make_entry(1, 0, [(1, "x")], plan=make_plan(OTHER))
    here.read(make_head(1, {P0: 1}, mark_s=10), few, name=OTHER)

    first = only(here.machine.ticked(1), CommitTransaction)
    here.commit(first)
    second = only(here.machine.ticked(2), CommitTransaction)

    assert (names(first), names(second)) == ([OTHER], [NAME])


def _with_slow_ones(monkeypatch: pytest.MonkeyPatch, *slow: TaskName) -> Bucket:
    """Of these seven windows are due, which is long; nothing is of OTHER yet."""
    monkeypatch.setattr(turns, "PANES_AT_ONCE", 4)
    here = Bucket(*(make_task(name=name) for name in {OTHER: 0, **dict.fromkeys(slow)}))
    here.own()
    for name in slow:
        entry = make_entry(1, 0, [(10 * at, "x") for at in range(7)], plan=make_plan(name))
        here.read(make_head(1, {P0: 7}, mark_s=95), entry, name=name)
    return here


def _one_more(here: Bucket, number: int) -> None:
    """A window of OTHER is due."""
    row = (10 * number, "x")
    entry = make_entry(number, number - 1, [row], plan=make_plan(OTHER))
    here.read(make_head(number, {P0: number}, mark_s=10 * number + 10), entry, name=OTHER)


def test_what_is_closed_quickly_takes_turns_with_what_takes_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = _with_slow_ones(monkeypatch, NAME)
    order = []
    for number in (1, 2, 3):
        _one_more(here, number)
        for now_ms in (2 * number, 2 * number + 1):
            if asked := here.machine.ticked(now_ms):
                order.append(names(only(asked, CommitTransaction)))
                here.commit(only(asked, CommitTransaction))

    assert order == [[OTHER], [NAME], [OTHER], [NAME], [OTHER]]


def test_what_takes_long_waits_for_the_turn_of_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    here = _with_slow_ones(monkeypatch, NAME)
    assert here.machine.ticked(1, in_turn=False) == []
    for number in (1, 2):
        _one_more(here, number)
        quick = only(here.machine.ticked(2, in_turn=False), CommitTransaction)
        assert names(quick) == [OTHER]
        here.commit(quick)
    assert here.machine.ticked(3, in_turn=False) == []

    assert names(only(here.machine.ticked(4), CommitTransaction)) == [NAME]


def test_tasks_that_take_long_take_turns_among_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    third = TaskName("third")
    here = _with_slow_ones(monkeypatch, NAME, third)
    order = []
    for now_ms in range(1, 5):
        commit = only(here.machine.ticked(now_ms), CommitTransaction)
        order += names(commit)
        here.commit(commit)

    assert order == [NAME, third, NAME, third]


def test_a_crowded_log_is_merged_while_windows_of_others_are_due() -> None:
    """Else a task of which something is always due would fill the logs of all others."""
    here = Bucket(make_task(), make_task(name=OTHER))
    here.own()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(2, "x")])
    here.read(make_head(2, {P0: 2}, mark_s=2, log_bytes=501), *entries)
    _one_more(here, 1)

    commit = only(here.machine.ticked(1), CommitTransaction)

    assert names(commit) == [OTHER, NAME]
    assert only(here.commit(commit), CompactLog).task == NAME


def test_logs_are_read_between_two_commits_however_much_is_due() -> None:
    """Else a bucket whose commits take longer than its snapshots last would never read again."""
    here = Bucket(limits=replace(LIMITS, snapshot_every_ms=10))
    here.own()
    here.read(make_head(1, {P0: 1}, mark_s=2), make_entry(1, 0, [(1, "x")]))
    here.machine.ticked(1)
    commit = only(here.machine.ticked(100), CommitTransaction)
    here.machine.ticked(1_000)

    given = here.commit(commit)

    assert not [each for each in given if isinstance(each, CommitTransaction)]
    asked = here.machine.heads_read({NAME: make_head(2, {P0: 2}, mark_s=2)})
    assert only(asked, ReadLog).after == 1


def test_small_tasks_share_a_transaction() -> None:
    here = Bucket(make_task(), make_task(name=OTHER))
    here.own()
    for name in (NAME, OTHER):
        entry = make_entry(1, 0, [(1, "x")], plan=make_plan(name))
        here.read(make_head(1, {P0: 1}, mark_s=10), entry, name=name)

    assert names(only(here.machine.ticked(1), CommitTransaction)) == [NAME, OTHER]


def test_a_crowded_log_is_committed_and_merged_though_no_window_is_due() -> None:
    here = Bucket()
    here.own()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(2, "x")])
    here.read(make_head(2, {P0: 2}, mark_s=2, log_bytes=501), *entries)

    commit = only(here.machine.ticked(1), CommitTransaction)
    compact = only(here.commit(commit), CompactLog)

    assert compact.base.seq == 2
    assert [pane.rows for pane in compact.base.partial.panes] == [2]
    assert here.machine.ticked(2) == []


def test_a_task_that_is_found_over_a_limit_when_its_log_is_merged_fails_alone() -> None:
    here = Bucket(make_task(max_keys=1), make_task(name=OTHER))
    here.own()
    rows = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(2, "y")])
    here.read(make_head(2, {P0: 2}, mark_s=2, log_bytes=501), *rows)

    commit = only(here.machine.ticked(1), CommitTransaction)
    failed = only(here.commit(commit), FailTask)

    assert failed.task == NAME
    assert "2 groups so far, and max_keys is 1" in failed.detail
    entry = make_entry(1, 0, [(1, "x")], plan=make_plan(OTHER))
    assert here.read(make_head(1, {P0: 1}, mark_s=10), entry, name=OTHER) == []
    assert names(only(here.machine.ticked(2), CommitTransaction)) == [OTHER]


def test_what_fails_after_a_commit_leaves_out_no_run_that_came_during_it() -> None:
    """Another bucket had failed it, and nothing more is told of tasks that go on."""
    here = Bucket(make_task(max_keys=1))
    here.own()
    rows = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(2, "y")])
    here.read(make_head(2, {P0: 2}, mark_s=2, log_bytes=501), *rows)
    commit = only(here.machine.ticked(1), CommitTransaction)
    here.change(make_task(resumes=1))

    assert only(here.commit(commit), FailTask).run == (1, 0), "of which nothing comes"

    assert here.read(make_head(2, {P0: 2}, mark_s=10), *rows) == []
    assert names(only(here.machine.ticked(2), CommitTransaction)) == [NAME]


def test_a_base_is_taken_away_when_its_windows_are_closed() -> None:
    here = Bucket()
    here.own()
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(2, "x")])
    here.read(make_head(2, {P0: 2}, mark_s=2, log_bytes=501), *entries)
    here.commit(only(here.machine.ticked(1), CommitTransaction))
    here.read(make_head(2, {P0: 2}, mark_s=10))

    compact = only(here.commit(only(here.machine.ticked(2), CommitTransaction)), CompactLog)

    assert compact.base.partial.panes == ()


def merged(here: Bucket, log_bytes: int) -> None:
    """Two entries are merged, and the store says that the task holds so much after that."""
    entries = make_entry(1, 0, [(1, "x")]), make_entry(2, 1, [(2, "x")])
    here.read(make_head(2, {P0: 2}, mark_s=2, log_bytes=log_bytes), *entries)
    here.commit(only(here.machine.ticked(1), CommitTransaction))
    assert here.look(log_bytes) == []


def test_a_task_that_is_over_its_budget_when_it_is_merged_fails_and_says_what_to_do() -> None:
    here = Bucket()
    here.own()
    merged(here, 1_001)

    assert here.machine.ticked(2) == []
    assert here.machine.ticked(OVER_BUDGET_MS + 1) == []
    (failed,) = here.machine.ticked(OVER_BUDGET_MS + 2)

    assert isinstance(failed, FailTask)
    assert failed.task == NAME
    assert "1001 bytes" in failed.detail
    assert "1000" in failed.detail
    assert "cluster.log_bytes_max" in failed.detail
    assert here.machine.ticked(OVER_BUDGET_MS + 3) == []


def test_a_task_at_its_budget_goes_on() -> None:
    here = Bucket()
    here.own()
    merged(here, 1_000)

    assert here.machine.ticked(OVER_BUDGET_MS + 1) == []


def test_a_task_that_came_down_to_its_budget_meanwhile_goes_on() -> None:
    here = Bucket()
    here.own()
    merged(here, 1_001)
    here.look(1_000)
    here.machine.ticked(OVER_BUDGET_MS)
    here.look(1_001)

    assert here.machine.ticked(OVER_BUDGET_MS + 1) == []


def test_a_bucket_with_less_than_its_share_waits_for_the_others_to_merge() -> None:
    limits = replace(LIMITS, log_bytes_max=100_000)
    here = Bucket(limits=limits)
    here.own()
    merged(here, 150_000)

    assert here.machine.ticked(OVER_BUDGET_MS + 1) == []


def test_a_deleted_task_commits_a_last_record_and_is_dropped() -> None:
    here = Bucket()
    here.own(make_progress({P0: 3}, emit=4))
    here.change(make_task(state=TaskState.DELETED))

    commit = only(here.machine.ticked(1), CommitTransaction)
    (record,) = commit.transaction.progress
    assert (record.deleted, record.emit) == (True, 5)

    assert here.commit(commit) == []
    assert here.machine.heads_read({NAME: make_head(1, {P0: 4})}) == []
    assert here.machine.ticked(60_000) == []


def test_a_bucket_that_waits_for_what_it_has_read_once_says_so() -> None:
    here = Bucket()
    here.own(make_progress({P0: 3}))
    assert here.machine.status == "catching_up"

    here.read(make_head(1, {P0: 3}), make_entry(1, 0, [(1, "x")] * 3))
    assert here.machine.status == "owning"


def test_a_task_that_zookeeper_has_lost_is_not_taken_for_a_deleted_one() -> None:
    bucket = Bucket(make_task(), make_task(name=OTHER))
    bucket.own(make_progress({P0: 2}), make_progress({P0: 2}, OTHER))

    bucket.tasks = {NAME: make_task()}
    bucket.machine.tasks_changed(bucket.tasks)
    assert bucket.machine.ticked(1) == []

    bucket.machine.tasks_changed({})
    assert bucket.machine.ticked(2) == []
