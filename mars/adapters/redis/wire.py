"""What goes into the scripts and what comes out of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mars.adapters.redis.scripts import Argument
from mars.adapters.store import content_of, has_rows
from mars.core.types import (
    AssignmentEpoch,
    Entry,
    Lane,
    LeaderEpoch,
    Mapped,
    Mark,
    Sequence64,
    StoreEpoch,
)
from mars.engine.codec.entry import decode_entry, decode_merged
from mars.protocol.ports import (
    AppendOutcome,
    Applied,
    Backpressure,
    Begun,
    Cleared,
    Cut,
    Head,
    LogSlice,
    NoTask,
    Stale,
    TaskPaused,
    TaskStart,
    WrongEpoch,
    WrongVersion,
)


def append_arguments(
    epoch: StoreEpoch, version: int, mapped: Mapped, budget: int, holder_max: int
) -> list[Argument]:
    """The arguments of `lua/append.lua`; `budget` and `holder_max` in bytes."""
    arguments: list[Argument] = [epoch, version, budget, holder_max]
    arguments += [int(has_rows(mapped)), len(mapped.ranges)]
    for part in mapped.ranges:
        arguments += [part.lane, part.first, part.next, mapped.marks_ms.get(part.lane, "")]
        numbers = mapped.numbered.get(part.lane)
        arguments += ["", ""] if numbers is None else [numbers.first, numbers.next]
    for partial in mapped.partials:
        arguments += content_of(version, mapped.ranges, partial)
    return arguments


def initialise_arguments(epoch: StoreEpoch, buckets: int, start: TaskStart) -> list[Argument]:
    """The arguments of `lua/initialise.lua`."""
    versions = start.versions
    bounds = {
        f"{number}:{lane}": at for number, each in versions.items() for lane, at in each.items()
    }
    newest = {str(lane): at for lane, at in versions[start.version].items()}
    cuts = {
        lane: ",".join(str(offset) for offset in sorted(offsets))
        for lane, offsets in start.cuts.items()
    }
    arguments: list[Argument] = [epoch, start.leader, ",".join(map(str, versions)), start.version]
    arguments += [int(start.active), buckets, *_mark_arguments(start.restored)]
    rows = {str(lane): number for lane, number in start.rows.items()} | {
        f"{offset}:{lane}": number
        for lane, below in start.numbers.items()
        for offset, number in below.items()
    }
    for values in (start.offsets, bounds | newest, cuts, start.ends, rows):
        arguments += [len(values), *pairs(values)]
    return arguments


def _mark_arguments(mark: Mark | None) -> list[Argument]:
    if mark is None:
        return ["", ""]
    return [mark.time_ms, "" if mark.taken_ms is None else mark.taken_ms]


def append_outcome(answer: Any) -> AppendOutcome:
    """What `lua/append.lua` answered."""
    match answer:
        case [b"APPLIED", seq]:
            return Applied(Sequence64(int(seq)))
        case [b"NO_TASK"]:
            return NoTask()
        case [b"WRONG_EPOCH", current]:
            return WrongEpoch(StoreEpoch(int(current)))
        case [b"PAUSED"]:
            return TaskPaused()
        case [b"STALE", lane, current, rows]:
            return Stale(Lane(lane.decode()), int(current), int(rows))
        case [b"WRONG_VERSION", current]:
            return WrongVersion(int(current))
        case [b"CUT", lane, offset]:
            return Cut(Lane(lane.decode()), int(offset))
        case [b"BACKPRESSURE"]:
            return Backpressure()
    raise AssertionError(f"append.lua never answers {answer!r}")


def read_head(answer: Sequence[Any], run_id: str) -> Head:
    """What `lua/head.lua` answered, where it knew the task, in that life of the server."""
    epoch, version, active, offsets, marks, idle, seq, now_ms, log_bytes, ends, leader = answer[:11]
    taken, restored, born, begun_on, rows = answer[11:]
    counted = _lanes(rows)
    return Head(
        epoch=StoreEpoch(int(epoch)),
        version=int(version),
        active=active == b"1",
        offsets=_lanes(offsets),
        marks_ms=_lanes(marks),
        idle=frozenset(Lane(lane.decode()) for lane in idle),
        seq=Sequence64(int(seq)),
        now_ms=int(now_ms),
        log_bytes=int(log_bytes),
        ends=_lanes(ends),
        run_id=run_id,
        leader=LeaderEpoch(int(leader)),
        taken_ms=_lanes(taken),
        restored=_mark(restored),
        born=born.decode(),
        begun_on=begun_on.decode(),
        rows={lane: number for lane, number in counted.items() if ":" not in lane},
        numbers=_numbers(counted),
    )


def read_news(answer: Sequence[Any], run_id: str) -> LogSlice:
    """What `lua/head.lua` answered of one log. Raises CorruptEntry."""
    single, merged, noted, held = answer
    parts = zip(single[::3], single[1::3], single[2::3], strict=True)
    found = ((seq, {b"h": header, b"d": states}) for seq, header, states in parts)
    return LogSlice(None, log_entries(found, merged), run_id=run_id, vanished=max(0, noted - held))


def read_begun(answer: Sequence[Any]) -> Begun:
    """What `lua/begin_version.lua` answered, where it refused nothing."""
    starts, marks, rows = answer
    return Begun(_lanes(starts), _lanes(marks), _lanes(rows))


def _numbers(fields: Mapping[Lane, int]) -> dict[Lane, dict[int, int]]:
    """What the fields `<offset>:<lane>` say."""
    found: dict[Lane, dict[int, int]] = {}
    for name, number in fields.items():
        offset, _, lane = name.partition(":")
        if lane and offset.isdecimal():
            found.setdefault(Lane(lane), {})[int(offset)] = number
    return found


def _mark(found: Sequence[bytes]) -> Mark | None:
    """A mark and when it was taken, each of which may be missing."""
    values = [int(value) for value in found]
    return Mark(values[0], next(iter(values[1:]), None)) if values else None


def _lanes(flat: Sequence[bytes]) -> dict[Lane, int]:
    return {
        Lane(lane.decode()): int(value) for lane, value in zip(flat[::2], flat[1::2], strict=True)
    }


def log_entries(
    answer: Iterable[tuple[bytes, dict[bytes, bytes]]], merged: Iterable[bytes] = ()
) -> tuple[Entry, ...]:
    """The entries in the answer to an XRANGE, and those that stand for several, by their SEQs."""
    single = tuple(
        decode_entry(Sequence64(int(number.partition(b"-")[0])), fields[b"h"], fields[b"d"])
        for number, fields in answer
    )
    several = tuple(map(decode_merged, merged))
    return tuple(sorted((*single, *several), key=lambda one: one.seq)) if several else single


def read_cleared(value: bytes) -> Cleared:
    """What `lua/clear.lua` noted."""
    owner, _, after = value.partition(b":")
    return Cleared(AssignmentEpoch(int(owner)), Sequence64(int(after)) if after else None)


def base_entries(found: Mapping[bytes, bytes]) -> list[Entry]:
    """The entries in a base as `lua/compact.lua` keeps it, the newest version's first."""
    if not found:
        return []
    seq = Sequence64(int(found[b"seq"]))
    numbers = [b"", *(b"%d" % number for number in range(1, len(found)))]
    return [
        decode_entry(seq, found[b"h" + number], found[b"d" + number])
        for number in numbers
        if b"h" + number in found
    ]


def pairs(
    values: Mapping[Lane, int] | Mapping[Lane, str] | Mapping[str, int],
) -> list[Argument]:
    """Lane, value, lane, value ... as the scripts take them."""
    return [part for pair in values.items() for part in pair]
