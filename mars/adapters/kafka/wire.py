"""The records of `mars.progress` and `mars.control` as JSON, and the keys of `mars.state`.

    topic      key                          value
    progress   ["<task>", version, bucket]  {"type": "progress", "format": 4, "record": {...}}
                                            5 where windows count rows, 6 of sessions
    progress   ["claim", bucket]            {"type": "claim", "format": 4, "record": {...}}
    state      ["<task>", version, bucket, part]   see `mars.engine.codec.snapshot`
    control    task:<name>                  a task definition, see `mars.core.definitions`
    control    leader:<G>:<name>            the same, as the leader of that epoch saw it; which of
                                            them counts: see `mars.adapters.copies`
    control    stream:<name>                a stream, the same; a tombstone where it is gone
    control    epochs                       {"leader": G, "store": E, "assignment": A}

Compaction keeps the last record of each key; keys of three members and of two cannot be the same.
A deleted task's last progress is a record, not a tombstone: whoever reads must see it. A record of
another format is refused: to guess at progress is to lose or to double rows.
"""

from __future__ import annotations

import msgspec

from mars.core.definitions import TaskDefinition, decode_definition, decode_stream
from mars.core.errors import MarsError
from mars.core.plan import Stream
from mars.core.types import AssignmentEpoch, Bucket, LeaderEpoch, StoreEpoch, StreamName, TaskName
from mars.protocol.ports import Claim, Progress, ProgressRecord

FORMAT = 4
"""That of records but for those below. To be raised with any change that an older release must not
pass over. Since 2 a record may name a snapshot, without which the windows that are in it cannot be
built again; since 3 it says which revisions of closed windows were emitted, and which are owed.
Since 4 it says up to where windows are closed key by key. What a tracker has `seen` may be passed
over: an owner that does so leaves it out, which others understand."""

FORMAT_OF_ROWS = 5
"""That of records of tasks whose windows count rows: a leader that passed over the numbers in them
would have rows counted anew."""

FORMAT_OF_ANCHORS = 6
"""That of records of sessions: an owner that did not begin with their snapshots would take rows for
those of open sessions that were too late for them."""

FORMATS_READ = (1, 2, 3, FORMAT, FORMAT_OF_ROWS, FORMAT_OF_ANCHORS)

EPOCHS_KEY = b"epochs"
"""Of the epochs that older releases noted, all leaders under one key."""

EPOCHS_KEY_PREFIX = b"epochs:"
TASK_KEY_PREFIX = b"task:"
LEADER_KEY_PREFIX = b"leader:"
DELETED_KEY_PREFIX = b"deleted:"
STREAM_KEY_PREFIX = b"stream:"


class _ProgressRow(msgspec.Struct, frozen=True, tag="progress"):
    format: int
    record: Progress


class _ClaimRow(msgspec.Struct, frozen=True, tag="claim"):
    format: int
    record: Claim


class Epochs(msgspec.Struct, frozen=True):
    """The highest epochs in use."""

    leader: LeaderEpoch
    store: StoreEpoch
    assignment: AssignmentEpoch


_rows = msgspec.json.Decoder(_ProgressRow | _ClaimRow)
_epochs = msgspec.json.Decoder(Epochs)


def progress_key(record: ProgressRecord) -> bytes:
    """What the record replaces when the topic is compacted."""
    if isinstance(record, Claim):
        return msgspec.json.encode(("claim", record.bucket))
    return msgspec.json.encode((record.task, record.version, record.bucket))


def encode_progress(record: ProgressRecord) -> bytes:
    """The value of a record of `mars.progress`."""
    if isinstance(record, Claim):
        return msgspec.json.encode(_ClaimRow(FORMAT, record))
    return msgspec.json.encode(_ProgressRow(_format_of(record), record))


def _format_of(record: Progress) -> int:
    if record.anchored:
        return FORMAT_OF_ANCHORS
    return FORMAT if record.rows is None else FORMAT_OF_ROWS


def decode_progress(raw: bytes | None, place: str) -> ProgressRecord:
    """What `encode_progress` wrote; `place` names topic, partition and offset for people.

    Raises MarsError where it cannot be read.
    """
    try:
        row: _ProgressRow | _ClaimRow = _rows.decode(raw or b"")
    except msgspec.MsgspecError as error:
        raise _unreadable(place, error) from error
    if row.format not in FORMATS_READ:
        newest = FORMATS_READ[-1]
        raise _unreadable(place, f"its format is {row.format}; this release reads up to {newest}")
    return row.record


def state_key(task: TaskName, version: int, bucket: Bucket, part: int) -> bytes:
    """The key of a part of a snapshot in `mars.state`."""
    return msgspec.json.encode((task, version, bucket, part))


def task_key(name: TaskName, leader: LeaderEpoch | None = None) -> bytes:
    """The key of a definition in `mars.control`: that of a leader's copy, or of a user's change."""
    if leader is None:
        return TASK_KEY_PREFIX + name.encode()
    return b"%s%d:%s" % (LEADER_KEY_PREFIX, leader, name.encode())


def copied_task(key: bytes) -> tuple[TaskName, LeaderEpoch | None] | None:
    """Whose copy of which task a key of `mars.control` is; None for any other key."""
    if key.startswith(TASK_KEY_PREFIX):
        return TaskName(key.removeprefix(TASK_KEY_PREFIX).decode()), None
    if not key.startswith(LEADER_KEY_PREFIX):
        return None
    epoch, _, name = key.removeprefix(LEADER_KEY_PREFIX).partition(b":")
    return TaskName(name.decode()), LeaderEpoch(int(epoch))


def deleted_key(name: TaskName) -> bytes:
    """The key in `mars.control` of what says that a task is deleted for good."""
    return DELETED_KEY_PREFIX + name.encode()


def decode_task(raw: bytes, place: str) -> TaskDefinition:
    """A task definition. Raises MarsError where it cannot be read."""
    try:
        return decode_definition(raw)
    except msgspec.MsgspecError as error:
        raise _unreadable(place, error) from error


def stream_key(name: StreamName) -> bytes:
    """The key of a stream in `mars.control`."""
    return STREAM_KEY_PREFIX + name.encode()


def stream_named(key: bytes) -> StreamName:
    """The name in a stream's key."""
    return StreamName(key.removeprefix(STREAM_KEY_PREFIX).decode())


def decode_declared(raw: bytes, place: str) -> Stream:
    """A stream. Raises MarsError where it cannot be read."""
    try:
        return decode_stream(raw)
    except msgspec.MsgspecError as error:
        raise _unreadable(place, error) from error


def epochs_key(leader: LeaderEpoch) -> bytes:
    """The key in `mars.control` of the epochs that one leader noted."""
    return b"%s%d" % (EPOCHS_KEY_PREFIX, leader)


def noted_epochs(key: bytes) -> LeaderEpoch | None:
    """Which leader's epochs lie under a key of `mars.control`; 0 where it does not say, None for
    any other key."""
    if key == EPOCHS_KEY:
        return LeaderEpoch(0)
    if not key.startswith(EPOCHS_KEY_PREFIX):
        return None
    return LeaderEpoch(int(key.removeprefix(EPOCHS_KEY_PREFIX)))


def encode_epochs(epochs: Epochs) -> bytes:
    """The value of the epochs' record."""
    return msgspec.json.encode(epochs)


def decode_epochs(raw: bytes, place: str) -> Epochs:
    """What `encode_epochs` wrote. Raises MarsError where it cannot be read."""
    try:
        return _epochs.decode(raw)
    except msgspec.MsgspecError as error:
        raise _unreadable(place, error) from error


def _unreadable(place: str, detail: object) -> MarsError:
    return MarsError(
        f"The record at {place} cannot be read ({detail}): a newer release of Mars wrote it, or "
        "something else did; run the newest release everywhere."
    )
