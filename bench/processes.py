"""What /proc says of processes: CPU seconds, memory, and who is whose child. Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
"""Unit of the times in /proc/<pid>/stat."""

KIB = 1024

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Stat:
    """A line of /proc/<pid>/stat.

    `cpu_s`: own time in user and kernel mode, and that of children that have ended and were
    waited for.
    """

    pid: int
    parent: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process: now, and the most it ever was."""

    now_bytes: int
    peak_bytes: int


def parse_stat(text: str, ticks_per_s: int = TICKS_PER_S) -> Stat:
    """Parse a stat line. The command, in parentheses, may hold spaces and parentheses itself.

    See proc_pid_stat(5): fields 4 (ppid), 14-17 (utime, stime, cutime, cstime), from 1.
    """
    pid = int(text.partition(" ")[0])
    rest = text[text.rindex(")") + 1 :].split()  # from field 3, the state
    ticks = sum(int(field) for field in rest[11:15])
    return Stat(pid, int(rest[1]), ticks / ticks_per_s)


def parse_memory(text: str) -> Memory:
    """VmRSS and VmHWM of /proc/<pid>/status; zeros for a process without memory (a zombie)."""
    kilobytes = dict.fromkeys(("VmRSS", "VmHWM"), 0)
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in kilobytes:
            kilobytes[name] = int(value.split()[0])
    return Memory(kilobytes["VmRSS"] * KIB, kilobytes["VmHWM"] * KIB)


def descendants(stats: Iterable[Stat], root: int) -> list[int]:
    """The pid `root` and those of all processes below it."""
    children: dict[int, list[int]] = {}
    for stat in stats:
        children.setdefault(stat.parent, []).append(stat.pid)
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def all_stats() -> Mapping[int, Stat]:
    """Every process of the machine that can be read now."""
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (stat := _read_stat(folder)) is not None:
            found[stat.pid] = stat
    return found


def _read_stat(folder: Path) -> Stat | None:
    try:
        return parse_stat((folder / "stat").read_text("utf-8", "replace"))
    except OSError:
        return None  # it has ended meanwhile


def memory_of(pid: int) -> Memory:
    """Memory of a process; zeros when it has ended."""
    try:
        return parse_memory((PROC / str(pid) / "status").read_text("utf-8", "replace"))
    except OSError:
        return Memory(0, 0)


@dataclass(frozen=True, slots=True)
class Watched:
    """A process of a contestant; `server` tells Kafka, ZooKeeper and Valkey from the rest."""

    name: str
    pid: int
    server: bool


@dataclass(frozen=True, slots=True)
class Use:
    """CPU seconds and memory of one watched process with all that is below it."""

    cpu_s: float
    memory: Memory


def look(watched: Iterable[Watched]) -> dict[str, Use]:
    """The use of each watched process so far, by name; what has ended is left out."""
    stats = all_stats()
    found = {}
    for process in watched:
        if process.pid not in stats:
            continue
        pids = descendants(stats.values(), process.pid)
        memories = [memory_of(pid) for pid in pids]
        found[process.name] = Use(
            sum(stats[pid].cpu_s for pid in pids if pid in stats),
            Memory(
                sum(memory.now_bytes for memory in memories),
                sum(memory.peak_bytes for memory in memories),
            ),
        )
    return found
