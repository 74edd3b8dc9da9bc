"""What `mars bench groups` finds and saves."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.environment import Environment
from bench.measures import spread_of
from bench.tables import MIB, Grid
from mars.core.plan import FieldType, Format

DELAY_S = 1
"""Of both tasks."""


class LargeWindow(msgspec.Struct, frozen=True):
    """A window of the large task. `rows`: sent; `groups`: results that were committed.

    `lag_rows`: about as many were sent and not taken when it ended. `closed_s`: from its end and
    the delay until its last result was committed; None: it was not.
    """

    start_ms: int
    rows: int
    groups: int
    lag_rows: int
    closed_s: float | None


class SmallWindow(msgspec.Struct, frozen=True, array_like=True):
    """A window of the small task: its end, and from that and the delay until its last row came."""

    end_ms: int
    late_s: float


class GroupsReport(msgspec.Struct, frozen=True, tag="groups"):
    """One run. `rate`: rows/s of the large task; bytes unless a name says otherwise.

    `behind_s`: the most that a burst of its rows was late. `cores` by role, busy on average;
    `memory` of each mapper and reducer, `redis` (as it counts itself) and `log` (of the large task,
    uncompressed, of which a task may hold `budget`): the most at any look.
    """

    environment: Environment
    rate: int
    window_s: int
    format: Format
    keys: FieldType
    budget: int
    behind_s: float
    windows: list[LargeWindow]
    small: list[SmallWindow]
    cores: dict[str, float]
    memory: dict[str, int]
    redis: int
    log: int
    problems: list[str]


def grids(report: GroupsReport) -> list[Grid]:
    """What it cost, and each large window."""
    meanwhile, otherwise = apart(report)
    figures = {
        "large windows closed after, s: median, most": _told(
            [one.closed_s for one in report.windows if one.closed_s is not None], p99=False
        ),
        "small windows meanwhile, s: median, p99, most": _told(meanwhile),
        "small windows else, s: median, p99, most": _told(otherwise),
        "cores, all processes": f"{sum(report.cores.values()):.2f}",
        **{f"cores, {role}": f"{busy:.2f}" for role, busy in sorted(report.cores.items())},
        **{
            f"most memory of {name}, MiB": f"{held // MIB:,}"
            for name, held in sorted(report.memory.items())
        },
        "most memory of Redis, MiB": f"{report.redis // MIB:,}",
        "largest log of the task and its budget, MiB": (
            f"{report.log // MIB:,} of {report.budget // MIB:,}"
        ),
        "producer behind at most, s": f"{report.behind_s:.2f}",
        "correct": "no" if report.problems else "yes",
    }
    title = (
        f"A group a row, {report.keys.value} keys: {report.rate:,} rows/s of {report.format.value} "
        f"in windows of {report.window_s} s"
    )
    columns = ("window", "rows", "groups", "rows not taken at its end", "closed after, s")
    windows = [
        (
            str(number),
            f"{one.rows:,}",
            f"{one.groups:,}",
            f"{one.lag_rows:,}",
            "not" if one.closed_s is None else f"{one.closed_s:.2f}",
        )
        for number, one in enumerate(report.windows, 1)
    ]
    return [
        Grid(title, ("", ""), [list(row) for row in figures.items()]),
        Grid("Windows of the large task", columns, windows),
    ]


def apart(report: GroupsReport) -> tuple[list[float], list[float]]:
    """How late the small task's windows came: while a large one was due or open, and else."""
    due = [
        (end_s, end_s + DELAY_S + one.closed_s)
        for one in report.windows
        if one.closed_s is not None
        for end_s in [one.start_ms / 1000 + report.window_s]
    ]
    meanwhile, otherwise = list[float](), list[float]()
    for small in report.small:
        end_s = small.end_ms / 1000
        came_s = end_s + DELAY_S + small.late_s
        is_meanwhile = any(end_s <= closed_s and begun_s <= came_s for begun_s, closed_s in due)
        (meanwhile if is_meanwhile else otherwise).append(small.late_s)
    return meanwhile, otherwise


def _told(values: Sequence[float], *, p99: bool = True) -> str:
    if not values:
        return "none was"
    found = spread_of(values)
    told = (found.p50, found.p99, found.highest) if p99 else (found.p50, found.highest)
    return ", ".join(f"{one:.2f}" for one in told)
