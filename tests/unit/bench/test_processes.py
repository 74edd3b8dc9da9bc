"""What is read from /proc."""

from __future__ import annotations

import os
import sys

import pytest

from bench.processes import Memory, Stat, Watched, descendants, look, parse_memory, parse_stat

LINE = (
    "4711 (a) (strange) name) S 42 4711 4711 0 -1 4194560 1000 2000 3 4 150 50 7 3 20 0 9 0 100 "
    "1000000 500 18446744073709551615"
)


def test_stat_takes_a_command_with_spaces_and_parentheses() -> None:
    assert parse_stat(LINE, ticks_per_s=100) == Stat(pid=4711, parent=42, cpu_s=2.1)


def test_cpu_counts_ended_children() -> None:
    without = parse_stat(LINE.replace(" 7 3 20 ", " 0 0 20 "), ticks_per_s=100)
    assert without.cpu_s == pytest.approx(2.0)


def test_memory_is_in_bytes() -> None:
    text = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t   1024 kB\nThreads:\t3\n"
    assert parse_memory(text) == Memory(now_bytes=1024 * 1024, peak_bytes=2048 * 1024)


def test_a_zombie_has_no_memory() -> None:
    assert parse_memory("Name:\tx\nState:\tZ (zombie)\n") == Memory(0, 0)


def test_descendants_are_found_through_all_generations() -> None:
    #   1 ── 2 ── 4
    #   └─── 3         9 (another's)
    stats = [Stat(1, 0, 0), Stat(2, 1, 0), Stat(3, 1, 0), Stat(4, 2, 0), Stat(9, 8, 0)]
    assert sorted(descendants(stats, 1)) == [1, 2, 3, 4]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_looking_at_this_process_sees_its_cpu_and_memory() -> None:
    uses = look([Watched("me", os.getpid(), server=False), Watched("gone", 2**22 + 1, server=True)])
    assert uses.keys() == {"me"}
    assert uses["me"].cpu_s > 0
    assert uses["me"].memory.peak_bytes >= uses["me"].memory.now_bytes > 0
