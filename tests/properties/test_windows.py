"""Window arithmetic against its definition, written out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mars.types import Lane, Mark
from mars.windows import (
    Sliding,
    closed_up_to,
    ending_between,
    find_watermark,
    first_pane_needed,
    is_late,
    last_window_end,
    pane_of,
    window_panes,
    window_starts,
    windows_of_panes,
)

TIMES = st.integers(-10_000, 10_000)


@st.composite
def shapes(draw: st.DrawFn) -> Sliding:
    slide = draw(st.integers(1, 60))
    return Sliding(draw(st.integers(slide, 300)), slide)


def all_starts(shape: Sliding, around: int) -> list[int]:
    """Starts of every window that begins within 2,000 of a time."""
    first = (around - 2_000) // shape.slide_ms
    return [n * shape.slide_ms for n in range(first, (around + 2_000) // shape.slide_ms)]


@given(shapes(), TIMES)
def test_row_is_in_the_windows_of_its_pane(shape: Sliding, time_ms: int) -> None:
    # pane        |--*--|
    # windows  |===========|        those that hold * are those that hold the pane
    #             |===========|
    pane = pane_of(time_ms, shape.pane_ms)
    assert pane <= time_ms < pane + shape.pane_ms
    holding = [at for at in all_starts(shape, time_ms) if at <= time_ms < at + shape.size_ms]
    assert list(window_starts(shape, pane)) == holding


BOUNDS = st.none() | st.integers(-3_000, 3_000)


@given(shapes(), st.sets(st.integers(-2_000, 2_000)), BOUNDS, BOUNDS)
def test_windows_of_panes_come_in_order_and_once(
    shape: Sliding, times: set[int], after: int | None, upto: int | None
) -> None:
    panes = {pane_of(time_ms, shape.pane_ms) for time_ms in times}
    wanted = {start for pane in panes for start in window_starts(shape, pane)}
    ends = {start: start + shape.size_ms for start in wanted}
    kept = [
        start
        for start in sorted(wanted)
        if (after is None or ends[start] > after) and (upto is None or ends[start] <= upto)
    ]
    assert list(windows_of_panes(shape, panes, after_ms=after, upto_ms=upto)) == kept


@given(shapes(), TIMES)
def test_panes_tile_their_window(shape: Sliding, time_ms: int) -> None:
    # window  |===============|
    # panes   |---|---|---|---|
    for start in window_starts(shape, pane_of(time_ms, shape.pane_ms)):
        panes = list(window_panes(shape, start))
        assert panes[0] == start
        assert panes[-1] + shape.pane_ms == start + shape.size_ms
        assert all(start in window_starts(shape, pane) for pane in panes)


@given(shapes(), TIMES, TIMES)
def test_each_window_closes_exactly_once(shape: Sliding, one: int, other: int) -> None:
    # closed ----C              W
    # ends     |     |     |     |     those in (C, W]
    closed, watermark = sorted((one, other))
    due = [
        start + shape.size_ms
        for start in all_starts(shape, closed) + all_starts(shape, watermark)
        if closed < start + shape.size_ms <= watermark
    ]
    near = range(closed, closed + 1_000)
    ends = [end for end in ending_between(shape, closed, watermark) if end in near]
    assert ends == sorted({end for end in due if end in near})
    assert list(ending_between(shape, watermark, closed)) == []


@given(shapes(), TIMES)
def test_closed_up_to_is_an_end_and_the_next_one_is_not_passed(
    shape: Sliding, watermark: int
) -> None:
    # ends     |     |     |
    #                closed  W  next
    closed = closed_up_to(shape, watermark)
    assert (closed - shape.size_ms) % shape.slide_ms == 0
    assert closed <= watermark < closed + shape.slide_ms


@given(shapes(), TIMES, TIMES)
def test_pane_is_late_when_no_window_can_take_it(shape: Sliding, time_ms: int, closed: int) -> None:
    # windows of the pane  |=====C      late when all of them end at or before C
    #                    |=======|
    pane = pane_of(time_ms, shape.pane_ms)
    ends = [start + shape.size_ms for start in window_starts(shape, pane)]
    assert last_window_end(shape, pane) == max(ends)
    assert is_late(shape, pane, closed) == all(end <= closed for end in ends)
    assert is_late(shape, pane, closed) == (pane < first_pane_needed(shape, closed))


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
