"""The arithmetic behind the figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bench.measures import (
    Sample,
    committed_rate,
    committed_s,
    cpu_between,
    crossing_s,
    rss_total_peak,
    spread,
    started_s,
    steady,
)


def sample(at_s: float, rows: int, cpu_s: float = 0.0, rss: int = 0, committed: int = 0) -> Sample:
    return Sample(at_s, rows, {"p": cpu_s}, {"p": rss, "q": 1}, {0: committed})


def test_steady_rate_leaves_out_the_slow_start_and_the_end() -> None:
    #  rows  0 ... 0 (start-up) | 10 s at 100 rows/s | nothing more
    samples = [sample(0, 0), sample(5, 0), sample(15, 1000), sample(30, 1000)]
    part = steady(samples, 1000)
    assert part.first_s == pytest.approx(7)
    assert part.last_s == pytest.approx(14)
    assert part.rows_per_s == pytest.approx(100)


def test_a_slow_first_fifth_does_not_change_the_steady_rate() -> None:
    samples = [sample(0, 0), sample(20, 200), sample(24, 1000)]
    assert steady(samples, 1000).rows_per_s == pytest.approx(200)


def test_rows_that_were_never_taken_are_refused() -> None:
    with pytest.raises(ValueError, match="900 rows were never taken"):
        steady([sample(0, 0), sample(1, 500)], 1000)


def test_rows_that_go_by_at_the_first_look_are_refused() -> None:
    with pytest.raises(ValueError, match="between two samples"):
        steady([sample(1, 1000), sample(2, 1000)], 1000)


def test_crossing_lies_on_the_line_between_two_looks() -> None:
    assert crossing_s([sample(0, 0), sample(2, 100), sample(4, 500)], 300) == pytest.approx(3)


def test_cpu_between_two_times_is_interpolated() -> None:
    samples = [sample(0, 0, cpu_s=1.0), sample(10, 0, cpu_s=6.0)]
    assert cpu_between(samples, "p", 2, 8) == pytest.approx(3.0)
    assert cpu_between(samples, "unknown", 2, 8) == 0.0


def test_start_up_ends_at_the_last_look_without_rows() -> None:
    assert started_s([sample(0, 0), sample(1, 0), sample(2, 5)]) == 1
    assert started_s([sample(3, 5), sample(4, 9)]) == 3


def test_a_result_is_committed_once_the_stable_offset_is_beyond_it() -> None:
    samples = [sample(1, 0, committed=5), sample(2, 0, committed=6)]
    assert committed_s(samples, {0: 5}) == 2
    with pytest.raises(ValueError, match="not committed"):
        committed_s(samples, {0: 6})


def test_committed_rate_counts_windows_after_the_first_commit() -> None:
    assert committed_rate([(10.0, 500), (12.0, 400), (14.0, 400)]) == pytest.approx(200)


def test_one_commit_gives_no_rate() -> None:
    assert committed_rate([(10.0, 500), (10.0, 500)]) is None
    assert committed_rate([]) is None


def test_peak_memory_is_that_of_one_moment_not_of_all_peaks() -> None:
    samples = [sample(0, 0, rss=100), sample(1, 0, rss=50)]
    assert rss_total_peak(samples, ["p", "q"]) == 101
    assert rss_total_peak([], ["p"]) == 0


def test_percentiles_are_nearest_rank_and_weighted() -> None:
    found = spread(np.array([30.0, 10.0, 20.0]), np.array([1, 98, 1]))
    assert (found.count, found.p50, found.p90, found.p99, found.highest) == (100, 10, 10, 20, 30)


def test_percentiles_agree_with_values_written_out() -> None:
    generator = np.random.default_rng(7)
    values, weights = generator.random(50), generator.integers(1, 9, 50)
    written_out = np.repeat(values, weights)
    found = spread(values, weights)
    expected = np.percentile(written_out, [50, 90, 99], method="inverted_cdf")
    assert [found.p50, found.p90, found.p99] == pytest.approx(expected.tolist())


def test_no_value_has_no_percentile() -> None:
    found = spread(np.array([]), np.array([], dtype=np.int64))
    assert found.count == 0
    assert math.isnan(found.p99)
