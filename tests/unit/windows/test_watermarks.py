from __future__ import annotations

from mars.core.types import Lane, Mark
from mars.core.windows import Watermark, find_watermark

A, B, C = Lane("0"), Lane("1"), Lane("2")


def found(
    marks: dict[Lane, int],
    *,
    lanes: tuple[Lane, ...] = (A, B, C),
    idle: set[Lane] | None = None,
    finished: set[Lane] | None = None,
    taken: dict[Lane, int] | None = None,
    restored: Mark | None = None,
) -> Watermark:
    return find_watermark(
        lanes=lanes,
        marks_ms=marks,
        taken_ms=taken or {},
        idle=idle or set(),
        finished=finished or set(),
        delay_ms=5,
        idle_after_ms=100,
        now_ms=1_000,
        restored=restored,
    )


def test_slowest_lane_holds() -> None:
    # 0 ─────────▶ 70     1 ────▶ 40     2 ──────▶ 50
    assert found({A: 70, B: 40, C: 50}) == Watermark(35, B)


def test_lane_without_a_mark_holds_everything() -> None:
    # 0 ─────────▶ 70     1 (nothing)    2 ──────▶ 50
    assert found({A: 70, C: 50}) == Watermark(None, B)


def test_idle_lane_does_not_hold_with_a_mark_or_without() -> None:
    # 0 ─────────▶ 70     1 ─▶ 10 idle   2 (nothing) idle
    assert found({A: 70, B: 10}, idle={B, C}) == Watermark(65, A)


def test_finished_lane_does_not_hold() -> None:
    # 0 ─────────▶ 70     1 ─▶ 10 done   2 ──────▶ 50
    assert found({A: 70, B: 10, C: 50}, finished={B}) == Watermark(45, C)


def test_event_time_goes_on_from_the_highest_mark_where_all_lanes_are_idle_or_finished() -> None:
    # 0 ▶ 70 idle         1 ▶ 10 idle    2 ▶ 50 done          now 1000
    #   taken at 800        at 990         at 700
    taken = {A: 800, B: 990, C: 700}
    # 70 + (1000 - 800) - delay 5 - idle_after 100
    at = found({A: 70, B: 10, C: 50}, idle={A, B}, finished={C}, taken=taken)
    assert at == Watermark(165, None)


def test_finished_lane_may_have_the_highest_mark() -> None:
    # 0 ▶ 70 idle, taken at 800          1 ▶ 90 done, taken at 700          now 1000
    taken = {A: 800, B: 700}
    at = found({A: 70, B: 90}, lanes=(A, B), idle={A}, finished={B}, taken=taken)
    assert at == Watermark(285, None)


def test_event_time_never_goes_beyond_the_clock() -> None:
    # 0 ▶ 970 idle, taken at 900: 970 + 100 would be 1070                   now 1000
    assert found({A: 970}, lanes=(A,), idle={A}, taken={A: 900}) == Watermark(895, None)


def test_mark_that_was_taken_after_now_does_not_go_back() -> None:
    # 0 ▶ 970 idle, taken at 1020: the store's clock was set back           now 1000
    assert found({A: 970}, lanes=(A,), idle={A}, taken={A: 1_020}) == Watermark(865, None)


def test_of_equal_marks_event_time_goes_on_from_the_one_taken_last() -> None:
    # 0 ▶ 70 idle, taken at 800          1 ▶ 70 idle, taken at 900          now 1000
    idle, lanes = {A, B}, (A, B)
    taken = {A: 800, B: 900}
    assert found({A: 70, B: 70}, lanes=lanes, idle=idle, taken=taken) == Watermark(65, None)
    assert found({A: 70, B: 70}, lanes=lanes, idle=idle, taken={B: 900}) == Watermark(65, None)


def test_mark_of_an_older_release_goes_by_the_clock() -> None:
    # 0 ▶ 70 idle         1 ▶ 10 idle, taken at 990                         now 1000
    idle, lanes = {A, B}, (A, B)
    assert found({A: 70, B: 10}, lanes=lanes, idle=idle, taken={B: 990}) == Watermark(895, None)
    assert found({A: 10, B: 70}, lanes=lanes, idle=idle, taken={B: 990}) == Watermark(-25, None)


def test_nothing_closes_where_no_row_has_come() -> None:
    # 0 (nothing) idle    1 (nothing) idle
    assert found({}, lanes=(A, B), idle={A, B}) == Watermark(None, None)


def test_event_time_goes_on_from_what_a_lost_store_had_come_to() -> None:
    # restored 300, taken at 400         0 (nothing) idle                   now 1000
    restored = Mark(300, 400)
    assert found({}, lanes=(A,), idle={A}, restored=restored) == Watermark(795, None)
    # 0 ▶ 310 idle, taken at 950: it is higher, and so it leads
    higher = found({A: 310}, lanes=(A,), idle={A}, taken={A: 950}, restored=restored)
    assert higher == Watermark(255, None)


def test_what_was_restored_holds_nothing_and_lets_nothing_go() -> None:
    # restored 10         0 ─────────▶ 70       1 (nothing)
    restored = Mark(10, 400)
    assert found({A: 70}, lanes=(A,), restored=restored) == Watermark(65, A)
    assert found({A: 70}, lanes=(A, B), restored=Mark(900, 900)) == Watermark(None, B)


def test_nothing_is_known_without_lanes() -> None:
    assert found({}, lanes=()) == Watermark(None, None)
    assert found({}, lanes=(), restored=Mark(70, 80)) == Watermark(None, None)


def test_tie_is_held_by_the_first_lane_by_name() -> None:
    # 0 ────▶ 40          1 ────▶ 40     2 ────▶ 40
    assert found({C: 40, B: 40, A: 40}, lanes=(C, B, A)) == Watermark(35, A)


def test_mark_of_an_unknown_lane_is_not_looked_at() -> None:
    # 0 ────▶ 40          9 ▶ 1 (not one of the task's)
    assert found({A: 40, Lane("9"): 1}, lanes=(A,)) == Watermark(35, A)
