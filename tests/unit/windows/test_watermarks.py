from __future__ import annotations

from mars.types import Lane
from mars.windows import Watermark, find_watermark, watermark

A, B, C = Lane("0"), Lane("1"), Lane("2")


def found(
    marks: dict[Lane, int],
    *,
    lanes: tuple[Lane, ...] = (A, B, C),
    idle: set[Lane] | None = None,
    finished: set[Lane] | None = None,
) -> Watermark:
    return find_watermark(
        lanes=lanes,
        marks_ms=marks,
        idle=idle or set(),
        finished=finished or set(),
        delay_ms=5,
        idle_after_ms=100,
        now_ms=1_000,
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


def test_clock_drives_where_all_lanes_are_idle_or_finished() -> None:
    # 0 ▶ 70 idle         1 ▶ 10 idle    2 ▶ 50 done          now 1000
    assert found({A: 70, B: 10, C: 50}, idle={A, B}, finished={C}) == Watermark(895, None)


def test_nothing_is_known_without_lanes() -> None:
    assert found({}, lanes=()) == Watermark(None, None)


def test_tie_is_held_by_the_first_lane_by_name() -> None:
    # 0 ────▶ 40          1 ────▶ 40     2 ────▶ 40
    assert found({C: 40, B: 40, A: 40}, lanes=(C, B, A)) == Watermark(35, A)


def test_mark_of_an_unknown_lane_is_not_looked_at() -> None:
    # 0 ────▶ 40          9 ▶ 1 (not one of the task's)
    assert found({A: 40, Lane("9"): 1}, lanes=(A,)) == Watermark(35, A)


def test_watermark_is_the_time_alone() -> None:
    assert (
        watermark(lanes=[A], marks_ms={A: 40}, idle=(), delay_ms=0, idle_after_ms=0, now_ms=0) == 40
    )
