"""Window arithmetic against its definition, written out."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from mars.core.types import Lane, Mark
from mars.core.windows import Sliding, Window, find_watermark
from tests.support.windows import panes_of

TIMES = st.integers(-10_000, 10_000)


@st.composite
def shapes(draw: st.DrawFn) -> Sliding:
    slide = draw(st.integers(1, 60))
    return Sliding(draw(st.integers(slide, 300)), slide)


def all_starts(shape: Sliding, around: int) -> list[int]:
    """Starts of every window that begins within 2,000 of a time."""
    first = (around - 2_000) // shape.slide_ms
    return [n * shape.slide_ms for n in range(first, (around + 2_000) // shape.slide_ms)]


def starts(windows: Iterable[Window]) -> list[int]:
    return [window.start_ms for window in windows]


@given(shapes(), TIMES)
def test_row_is_in_the_windows_of_its_pane(shape: Sliding, time_ms: int) -> None:
    # pane        |--*--|
    # windows  |===========|        those that hold * are those that hold the pane
    #             |===========|
    pane = shape.panes(time_ms)
    assert pane <= time_ms < shape.pane_end(pane)
    holding = [at for at in all_starts(shape, time_ms) if at <= time_ms < at + shape.size_ms]
    assert starts(shape.windows_of([pane])) == holding
    assert shape.first_end(pane) == holding[0] + shape.size_ms
    assert shape.last_window(pane) == shape.window_of_start(holding[-1])
    assert shape.last_end(pane) == shape.last_window(pane).end_ms


@given(shapes(), st.lists(TIMES, min_size=1))
def test_columns_of_times_fall_into_the_panes_of_each_and_panes_are_numbered_in_order(
    shape: Sliding, times: list[int]
) -> None:
    column = pl.DataFrame({"at": times}).select(shape.panes(pl.col("at"))).to_series()
    assert column.to_list() == [shape.panes(time_ms) for time_ms in times]
    numbers = shape.pane_numbers(column.to_numpy()).tolist()
    assert [shape.pane_numbered(number) for number in numbers] == column.to_list()
    following = shape.pane_end(column[0])
    assert shape.pane_numbered(numbers[0] + 1) == following


BOUNDS = st.none() | st.integers(-3_000, 3_000)


@given(shapes(), st.sets(st.integers(-2_000, 2_000)), BOUNDS, BOUNDS)
def test_windows_of_panes_come_in_order_and_once(
    shape: Sliding, times: set[int], after: int | None, upto: int | None
) -> None:
    panes = {shape.panes(time_ms) for time_ms in times}
    wanted = {
        Window(at + shape.size_ms, at)
        for at in {at for pane in panes for at in all_starts(shape, pane)}
        if any(at <= pane < at + shape.size_ms for pane in panes)
    }
    kept = [
        window
        for window in sorted(wanted)
        if (after is None or window.end_ms > after) and (upto is None or window.end_ms <= upto)
    ]
    assert list(shape.windows_of(panes, after_ms=after, upto_ms=upto)) == kept


@given(shapes(), TIMES)
def test_panes_tile_their_window(shape: Sliding, time_ms: int) -> None:
    # window  |===============|
    # panes   |---|---|---|---|
    held = list(shape.windows_of([shape.panes(time_ms)]))
    for window in {held[0], held[len(held) // 2], held[-1]}:
        panes = list(panes_of(shape, window))
        assert panes[0] == window.start_ms
        assert [shape.pane_end(pane) for pane in panes] == [*panes[1:], window.end_ms]
        assert all(shape.first_end(pane) <= window.end_ms for pane in panes)
        assert all(window.end_ms <= shape.last_end(pane) for pane in panes)
        assert len(panes) == shape.panes_in(window.end_ms - window.start_ms)
        assert window.end_ms - window.start_ms == shape.longest_ms


@given(shapes(), TIMES, TIMES)
def test_each_window_closes_exactly_once(shape: Sliding, one: int, other: int) -> None:
    # closed ----C              W
    # ends     |     |     |     |     those in (C, W]
    closed, watermark = sorted((one, other))
    due = [
        start + shape.size_ms
        for start in all_starts(shape, closed)
        if closed < start + shape.size_ms <= watermark
    ]
    near = {shape.panes(time_ms) for time_ms in range(closed - 300, closed + 1_300)}
    ends = [
        window.end_ms
        for window in shape.windows_of(near, after_ms=closed, upto_ms=watermark)
        if window.end_ms < closed + 1_000
    ]
    assert ends == [end for end in due if end < closed + 1_000]
    if closed < watermark:
        assert list(shape.windows_of(near, after_ms=watermark, upto_ms=closed)) == []


@given(shapes(), TIMES)
def test_closed_up_to_is_an_end_and_the_next_one_is_not_passed(
    shape: Sliding, watermark: int
) -> None:
    # ends     |     |     |
    #                closed  W  next
    closed = shape.closed_by(watermark)
    assert (closed - shape.size_ms) % shape.slide_ms == 0
    assert closed <= watermark < closed + shape.slide_ms


@given(shapes(), TIMES, TIMES)
def test_pane_is_late_when_no_window_can_take_it(shape: Sliding, time_ms: int, closed: int) -> None:
    # windows of the pane  |=====C      late when all of them end at or before C
    #                    |=======|
    pane = shape.panes(time_ms)
    late = shape.last_end(pane) <= closed
    assert late == (list(shape.windows_of([pane], after_ms=closed)) == [])
    assert late == (pane < shape.first_needed(closed))


LANES = [Lane(str(at)) for at in range(4)]


@given(
    st.dictionaries(st.sampled_from(LANES), TIMES),
    st.sets(st.sampled_from(LANES), max_size=len(LANES) - 1),
    st.sampled_from(LANES),
    st.integers(0, 1_000),
)
def test_watermark_never_falls_when_a_mark_rises(
    marks: dict[Lane, int], idle: set[Lane], risen: Lane, step: int
) -> None:
    # lane 0 ──▶ ─ ─▶        the lowest mark can only rise or stay
    # lane 1 ─────▶
    def level(known: dict[Lane, int]) -> int | None:
        return find_watermark(
            lanes=LANES,
            marks_ms=known,
            taken_ms={},
            idle=idle,
            delay_ms=7,
            idle_after_ms=5,
            now_ms=0,
        ).time_ms

    before = level(marks)
    after = level({**marks, risen: marks.get(risen, -(10**6)) + step})
    if before is not None and risen in marks:
        assert after is not None
        assert after >= before


DELAY_MS, IDLE_AFTER_MS = 7, 5
MARKS = st.dictionaries(st.sampled_from(LANES), TIMES)
SETS = st.sets(st.sampled_from(LANES))
RESTORED = st.none() | st.builds(Mark, TIMES, TIMES)


def by_the_clock(marks: dict[Lane, int], aside: set[Lane], now_ms: int) -> int | None:
    """The rule of releases that let the clock alone lead where all lanes are aside."""
    holding = [lane for lane in LANES if lane not in aside]
    if not holding:
        return now_ms - DELAY_MS - IDLE_AFTER_MS
    if any(lane not in marks for lane in holding):
        return None
    return min(marks[lane] for lane in holding) - DELAY_MS


def level_at(
    now_ms: int,
    marks: dict[Lane, int],
    taken: dict[Lane, int],
    idle: set[Lane],
    finished: set[Lane],
    restored: Mark | None,
) -> int | None:
    return find_watermark(
        lanes=LANES,
        marks_ms=marks,
        taken_ms=taken,
        idle=idle,
        delay_ms=DELAY_MS,
        idle_after_ms=IDLE_AFTER_MS,
        now_ms=now_ms,
        finished=finished,
        restored=restored,
    ).time_ms


@given(TIMES, MARKS, MARKS, SETS, SETS, RESTORED)
def test_watermark_is_never_ahead_of_the_clock_nor_of_what_lanes_hold(
    now_ms: int,
    marks: dict[Lane, int],
    taken: dict[Lane, int],
    idle: set[Lane],
    finished: set[Lane],
    restored: Mark | None,
) -> None:
    found = level_at(now_ms, marks, taken, idle, finished, restored)
    former = by_the_clock(marks, idle | finished, now_ms)
    assert found is None or (former is not None and found <= former)
    if len(idle | finished) < len(LANES):
        assert found == former


@given(TIMES, st.integers(0, 1_000), MARKS, MARKS, RESTORED)
def test_event_time_goes_on_no_faster_than_the_clock_while_no_row_comes(
    now_ms: int,
    passed_ms: int,
    marks: dict[Lane, int],
    taken: dict[Lane, int],
    restored: Mark | None,
) -> None:
    # clock       ──▶────▶                with every lane idle, and the same marks
    # watermark   ───▶──▶
    everyone = set(LANES)
    before = level_at(now_ms, marks, taken, everyone, set(), restored)
    after = level_at(now_ms + passed_ms, marks, taken, everyone, set(), restored)
    if before is None or after is None:
        assert before == after
        assert not marks
    else:
        assert before <= after <= before + passed_ms


@given(TIMES, MARKS, st.integers(0, 1_000), st.integers(0, 1_000))
def test_pause_closes_only_what_ends_soon_after_the_highest_mark(
    taken_ms: int, marks: dict[Lane, int], passed_ms: int, more_ms: int
) -> None:
    # mark 70 ──── pause P ────▶ up to 70 + P - delay - idle_after, whatever the clock says
    now_ms = taken_ms + passed_ms
    taken = dict.fromkeys(marks, taken_ms + more_ms)
    found = level_at(now_ms, marks, taken, set(LANES), set(), None)
    if marks:
        assert found is not None
        assert found <= max(marks.values()) + passed_ms - DELAY_MS - IDLE_AFTER_MS
    else:
        assert found is None
