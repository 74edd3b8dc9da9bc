"""What a mapper knows of one task."""

from __future__ import annotations

from dataclasses import replace

from mars.core.definitions import TaskState
from mars.protocol.mapper.task_view import TaskView
from tests.unit.machines.reducing_rows import E1, P0, P1, make_head, make_task, make_version


def known() -> TaskView:
    view = TaskView(make_task())
    view.learn(make_head(1, {P0: 5}))
    return view


def test_a_task_is_offered_nothing_before_the_store_has_told_where_it_is() -> None:
    view = TaskView(make_task())
    assert not view.ready(P0)

    view.learn(make_head(1, {P0: 5}))
    assert view.ready(P0)
    assert not view.ready(P1)
    assert (view.epoch, view.offsets) == (E1, {P0: 5})


def test_a_head_that_is_missing_or_inactive_leaves_the_task_unknown() -> None:
    view = known()
    view.learn(None)
    assert not view.ready(P0)

    view.learn(make_head(1, {P0: 5}, active=False))
    assert not view.ready(P0)


def test_the_head_of_a_deleted_task_of_the_same_name_leaves_the_task_unknown() -> None:
    view = TaskView(make_task(make_version(2), first_version=2))
    view.learn(make_head(1, {P0: 5}))
    assert not view.ready(P0)

    view.learn(replace(make_head(1, {P0: 5}), version=2))
    assert view.ready(P0)


def test_a_task_that_is_not_running_is_offered_nothing_though_the_store_would_take_it() -> None:
    view = known()

    for state in (TaskState.PAUSED, TaskState.FAILED):
        assert not view.updated(make_task(state=state)).ready(P0)
    assert view.updated(make_task()).ready(P0)


def test_a_stopped_task_needs_the_stores_word_again() -> None:
    view = known()
    view.stop()
    assert not view.ready(P0)

    view.learn(make_head(1, {P0: 6}))
    assert view.ready(P0)


def test_a_refused_lane_is_offered_again_after_its_pause() -> None:
    view = known()
    view.block(P0, until_ms=200)

    assert view.blocked(P0, 199)
    assert not view.blocked(P0, 200)
    assert not view.blocked(P1, 0)


def test_what_another_mapper_may_have_done_to_a_lane_is_forgotten() -> None:
    view = known()
    view.cuts[P0] = 7
    view.block(P0, until_ms=200)
    view.saw_rows(P0, 150)

    view.forget_lane(P0)

    assert (view.cuts, view.blocked(P0, 0), view.row_seen_ms(P0, 900)) == ({}, False, 900)


def test_the_idle_time_is_that_of_the_newest_version_that_has_begun() -> None:
    task = make_task(make_version(1), make_version(2, {P0: 9}), idle_after_ms=7_000)
    older, newer = task.plans[1], task.plans[2]
    plans = {1: older, 2: replace(newer, options=replace(newer.options, idle_after_ms=9_000))}

    assert TaskView(replace(task, plans=plans)).idle_after_ms == 9_000


def test_a_lane_that_a_bulk_process_catches_up_is_not_ready_below_its_fence() -> None:
    task = make_task()
    view = TaskView(replace(task, definition=replace(task.definition, catch_up={P0: 6})))

    view.learn(make_head(1, {P0: 5}))
    assert not view.ready(P0)
    view.learn(make_head(2, {P0: 6}))
    assert view.ready(P0)


def test_a_lane_may_close_a_window_whatever_was_asked_of_lanes_before() -> None:
    asked_often = known()
    for number in range(200):
        mark_ms, read_ms = 59_000 + 37 * number % 2_500, 100 + 61 * number % 900
        for drafted in (False, True):
            fresh = known()
            for view in (asked_often, fresh):
                view.marked(P0, mark_ms, 0)
            assert asked_often.may_close(P0, read_ms, drafted=drafted) == fresh.may_close(
                P0, read_ms, drafted=drafted
            ), (mark_ms, read_ms)


def test_a_lane_closes_a_window_once_event_time_would_have_passed_its_end() -> None:
    view = known()
    view.marked(P0, 58_000, 0)  # of windows of 10 s

    assert [view.may_close(P0, at, drafted=False) for at in (500, 1_999, 2_000)] == [
        False,
        False,
        True,
    ]
