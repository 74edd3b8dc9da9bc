"""Arguments and answers of calls, short enough for one line of a trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mars.core.definitions import TaskDefinition
from mars.core.types import Entry, Mapped, Range
from mars.protocol.ports import (
    Assignment,
    Claim,
    Head,
    LogSlice,
    MemberInfo,
    Progress,
    ProgressSlice,
    ReadRequest,
    TaskStart,
)

LENGTH_MAX = 400


def told(*values: object) -> str:
    """The values in words."""
    return " ".join(_one(value) for value in values)[:LENGTH_MAX]


def _one(value: object) -> str:  # noqa: C901, PLR0911, PLR0912 -- one way per kind of value
    match value:
        case Range():
            return f"{value.lane}[{value.first},{value.next})"
        case Mapped():
            return told(value.ranges, "to", [partial.bucket for partial in value.partials])
        case Entry():
            panes = [(pane.start_ms, pane.rows) for pane in value.partial.panes]
            return f"#{value.seq} v{value.version} {_one(value.ranges)} {panes}"
        case LogSlice():
            return f"base {_one(value.base)} entries {_one(value.entries)}"
        case Head():
            active = "" if value.active else " inactive"
            return f"E{value.epoch} v{value.version}{active} #{value.seq} {_one(value.offsets)}"
        case Progress():
            closed, merged, needed = value.closed_ms, _one(value.merged), _one(value.needed)
            name = f"{value.task}/v{value.version}/{value.bucket}"
            saved = f" S {_one(value.snapshot.merged)}" if value.snapshot is not None else ""
            late = f" D {value.forgotten_ms} revised {_one(value.revisions)} owed {value.owed}"
            kept = late if value.forgotten_ms != value.closed_ms else ""
            marks = f"C {closed}{kept} M {merged} L {needed}{saved}"
            return f"{name} emit {value.emit} {marks} {value.ledger}"
        case Claim():
            return f"claim A{value.assignment_epoch} E{value.store_epoch} {value.member}"
        case TaskStart():
            cuts = _one(value.cuts)
            return f"v{value.version} active={value.active} {_one(value.offsets)} cuts {cuts}"
        case TaskDefinition():
            starts = [f"v{one.version} {_one(one.starts)}" for one in value.versions]
            return f"{value.name} {value.state} {starts}"
        case MemberInfo():
            return f"{value.role} {[(one.bucket, one.state) for one in value.buckets]}"
        case ProgressSlice():
            return f"{_one(value.records)} next {value.next}"
        case ReadRequest():
            return f"{value.task}/{value.bucket} ({value.after},{value.upto}]"
        case Assignment():
            owners = {number: f"{o.member} A{o.epoch}" for number, o in value.owners.items()}
            return f"G{value.leader_epoch} E{value.store_epoch} {_one(owners)}"
        case str():
            return value
        case Mapping():
            pairs = sorted(value.items(), key=lambda pair: str(pair[0]))
            return "{" + ", ".join(f"{key}: {_one(one)}" for key, one in pairs) + "}"
        case frozenset():
            return _one(sorted(value))
        case Sequence() if not isinstance(value, bytes):
            return "[" + ", ".join(_one(one) for one in value) + "]"
        case _:
            return str(value)


__all__ = ["told"]
