"""What the machines need from outside, as Protocols; `mars.adapters` has the real ones and a twin
of each in memory.

Every method may raise `Unavailable` (the server does not answer; a write may still have taken
effect) and nothing else, unless its docstring says so. Calls block, for at most the time-outs that
the adapter states.

    source        SourceReader   Kafka topics of the users, read by mappers
    partial_log   PartialLog     Redis: offsets, marks, SEQ and the partial logs
    results       ResultSink     Kafka transactions of the reducers: results, dead letters,
                                 progress, snapshots of open panes
                  ProgressLog    the topic `mars.progress`, read
                  SavedPanes     the topic `mars.state`, read
    reading       ResultTail     output topics, read for people
                  DeadLetters    the topic `mars.dead`, read for people
                  SourceRows     rows of tasks, read again to check a result
    control       ControlLog     the topic `mars.control`
                  TopicAdmin     topics, partitions and offsets
    incidents     IncidentLog    the topic `mars.incidents`
    cluster       Registry       ZooKeeper: streams, tasks
                  Coordinator    ZooKeeper: members, election, assignment
    keys          KeyRegistry    ZooKeeper: API keys
    bulk          BulkEngine     Spark: jobs that map much at once
    queries       QueryRegistry  ZooKeeper: ad-hoc queries
                  QueryRows      their answers, in the topic `mars.queries`
                  ListHistory    files of a backfill or a query
    tracking      NoteBox        mailboxes of the tuple tracker's ackers, in Redis
"""

from __future__ import annotations

from mars.protocol.ports.bulk import BulkEngine, MapJob, QueryAnswer, QueryJob
from mars.protocol.ports.cluster import (
    Assignment,
    BucketStatus,
    Coordinator,
    Leadership,
    MemberInfo,
    Owner,
    PartitionReading,
    Registry,
    TaskWrite,
)
from mars.protocol.ports.control import (
    ControlLog,
    ControlState,
    TopicAdmin,
    TopicInfo,
    put_copies,
)
from mars.protocol.ports.incidents import Incident, IncidentKind, IncidentLog
from mars.protocol.ports.keys import ApiKey, KeyId, KeyRegistry, Role
from mars.protocol.ports.loads import (
    Assisted,
    Balance,
    BucketLoad,
    Lent,
    Move,
    MoveKind,
    StrategyChange,
    Wanted,
    WantedKind,
)
from mars.protocol.ports.partial_log import (
    AppendOutcome,
    Applied,
    Backpressure,
    Batch,
    Begun,
    Cleared,
    Clearing,
    Cut,
    Followed,
    Head,
    IdleLease,
    LogSlice,
    LogTrim,
    NoTask,
    PartialLog,
    ReadRequest,
    Stale,
    StoreIdentity,
    TaskLook,
    TaskPaused,
    TaskStart,
    WrongEpoch,
    WrongVersion,
)
from mars.protocol.ports.queries import (
    Answer,
    AnswerPlace,
    AnswerSlot,
    ListHistory,
    OutputRow,
    OutputRows,
    Query,
    QueryId,
    QueryRecord,
    QueryRegistry,
    QueryRows,
    QueryState,
    Written,
)
from mars.protocol.ports.reading import (
    CommittedRow,
    DeadLetter,
    DeadLetters,
    DeadPage,
    RecentRows,
    ResultFollower,
    ResultTail,
    SourceRows,
    WantedNumber,
    WantedSessions,
    WantedWindow,
    number_in_row,
    window_of_row,
)
from mars.protocol.ports.results import (
    Claim,
    Claimed,
    Committed,
    Emission,
    Frontier,
    Ledger,
    Progress,
    ProgressLog,
    ProgressRecord,
    ProgressSlice,
    References,
    ResultBatch,
    ResultSink,
    RowsRecord,
    SavedPanes,
    Snapshot,
    SnapshotParts,
    SourceTopic,
    Transaction,
)
from mars.protocol.ports.source import (
    Assigned,
    EndReached,
    Fetched,
    OffsetGone,
    Revoked,
    SourceEvent,
    SourceReader,
)
from mars.protocol.ports.tracking import NoteBox

__all__ = [
    "Answer",
    "AnswerPlace",
    "AnswerSlot",
    "ApiKey",
    "AppendOutcome",
    "Applied",
    "Assigned",
    "Assignment",
    "Assisted",
    "Backpressure",
    "Balance",
    "Batch",
    "Begun",
    "BucketLoad",
    "BucketStatus",
    "BulkEngine",
    "Claim",
    "Claimed",
    "Cleared",
    "Clearing",
    "Committed",
    "CommittedRow",
    "ControlLog",
    "ControlState",
    "Coordinator",
    "Cut",
    "DeadLetter",
    "DeadLetters",
    "DeadPage",
    "Emission",
    "EndReached",
    "Fetched",
    "Followed",
    "Frontier",
    "Head",
    "IdleLease",
    "Incident",
    "IncidentKind",
    "IncidentLog",
    "KeyId",
    "KeyRegistry",
    "Leadership",
    "Ledger",
    "Lent",
    "ListHistory",
    "LogSlice",
    "LogTrim",
    "MapJob",
    "MemberInfo",
    "Move",
    "MoveKind",
    "NoTask",
    "NoteBox",
    "OffsetGone",
    "OutputRow",
    "OutputRows",
    "Owner",
    "PartialLog",
    "PartitionReading",
    "Progress",
    "ProgressLog",
    "ProgressRecord",
    "ProgressSlice",
    "Query",
    "QueryAnswer",
    "QueryId",
    "QueryJob",
    "QueryRecord",
    "QueryRegistry",
    "QueryRows",
    "QueryState",
    "ReadRequest",
    "RecentRows",
    "References",
    "Registry",
    "ResultBatch",
    "ResultFollower",
    "ResultSink",
    "ResultTail",
    "Revoked",
    "Role",
    "RowsRecord",
    "SavedPanes",
    "Snapshot",
    "SnapshotParts",
    "SourceEvent",
    "SourceReader",
    "SourceRows",
    "SourceTopic",
    "Stale",
    "StoreIdentity",
    "StrategyChange",
    "TaskLook",
    "TaskPaused",
    "TaskStart",
    "TaskWrite",
    "TopicAdmin",
    "TopicInfo",
    "Transaction",
    "Wanted",
    "WantedKind",
    "WantedNumber",
    "WantedSessions",
    "WantedWindow",
    "Written",
    "WrongEpoch",
    "WrongVersion",
    "number_in_row",
    "put_copies",
    "window_of_row",
]
