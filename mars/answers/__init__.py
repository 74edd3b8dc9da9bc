"""What the REST API answers, as values: one for each kind of JSON object.

Times are epoch milliseconds. Members that this release does not know are ignored.
"""

from __future__ import annotations

from mars.answers.audits import (
    DeadRow,
    DeadRows,
    DifferentRow,
    Incident,
    Incidents,
    Verification,
    WindowLedger,
)
from mars.answers.balance import (
    AssistantChange,
    Assisted,
    Balance,
    Lent,
    Move,
    StrategyChange,
    Wanted,
)
from mars.answers.base import Answer, Row
from mars.answers.cluster import (
    Backlog,
    Bucket,
    BucketLoad,
    Cluster,
    Leader,
    Member,
    Owner,
    Partition,
    Readiness,
    TaskBacklog,
)
from mars.answers.keys import Key, Keys, NewKey
from mars.answers.ledgers import AllFigures, FigureList, FigurePoint, Lag, Ledger, Rates
from mars.answers.plans import Column, ComputedColumn, Order, Output, Plan, Validation, Window
from mars.answers.previews import (
    LateShare,
    Predictions,
    Preview,
    PreviewCounts,
    PreviewRejected,
    PreviewWindow,
)
from mars.answers.queries import Queries, Query, QueryAnswer, QueryCounts, QueryProgress
from mars.answers.reasons import Dropped, DroppedSample, HeldBy, PartitionWhy, Why, WindowWhy
from mars.answers.streams import FieldOfRecord, Stream, Streams
from mars.answers.tasks import (
    Backfill,
    BackfillLane,
    Task,
    TaskListed,
    Tasks,
    TaskSummary,
    TaskVersion,
)
from mars.answers.windows import (
    FinishedWindow,
    FinishedWindows,
    OpenWindow,
    OpenWindows,
    ResultEvent,
    RevisedWindow,
    WindowSource,
)

__all__ = [
    "AllFigures",
    "Answer",
    "AssistantChange",
    "Assisted",
    "Backfill",
    "BackfillLane",
    "Backlog",
    "Balance",
    "Bucket",
    "BucketLoad",
    "Cluster",
    "Column",
    "ComputedColumn",
    "DeadRow",
    "DeadRows",
    "DifferentRow",
    "Dropped",
    "DroppedSample",
    "FieldOfRecord",
    "FigureList",
    "FigurePoint",
    "FinishedWindow",
    "FinishedWindows",
    "HeldBy",
    "Incident",
    "Incidents",
    "Key",
    "Keys",
    "Lag",
    "LateShare",
    "Leader",
    "Ledger",
    "Lent",
    "Member",
    "Move",
    "NewKey",
    "OpenWindow",
    "OpenWindows",
    "Order",
    "Output",
    "Owner",
    "Partition",
    "PartitionWhy",
    "Plan",
    "Predictions",
    "Preview",
    "PreviewCounts",
    "PreviewRejected",
    "PreviewWindow",
    "Queries",
    "Query",
    "QueryAnswer",
    "QueryCounts",
    "QueryProgress",
    "Rates",
    "Readiness",
    "ResultEvent",
    "RevisedWindow",
    "Row",
    "StrategyChange",
    "Stream",
    "Streams",
    "Task",
    "TaskBacklog",
    "TaskListed",
    "TaskSummary",
    "TaskVersion",
    "Tasks",
    "Validation",
    "Verification",
    "Wanted",
    "Why",
    "Window",
    "WindowLedger",
    "WindowSource",
    "WindowWhy",
]
