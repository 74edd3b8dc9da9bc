"""Every error that Mars raises on purpose.

    MarsError
    ├── SettingsError          a configuration file or environment variable is wrong
    ├── LocalClusterError      the embedded cluster cannot start or stop
    ├── Unavailable            Kafka, Redis, ZooKeeper or Spark does not answer; waiting helps
    │   └── TopicRefused       Kafka answers: one topic is not for us; the others are not concerned
    ├── Fenced                 somebody newer owns what the caller thought it owned
    ├── Interrupted            an outcome is unknown: the caller must look before it goes on
    ├── TaskLimit              one task went over a limit; the others are not concerned
    ├── TaskAtFault            one task cannot commit as things are; the others can
    │   ├── OutputRefused      its output topic does not take its rows
    │   └── SourceMadeAnew     its source topic was deleted and made again
    ├── SnapshotLost           saved window state is not in Kafka as it was recorded
    ├── JobFailed              a Spark job cannot succeed, however often it is tried
    │   └── PartitionCut       a partition ends before rows that were read of it
    ├── WaitedTooLong          what was waited for did not come in the time that was given
    ├── JobCancelled           a Spark job was stopped because somebody asked for it
    └── RequestError           what a user asked for cannot be done as asked
        ├── NotFound           no such stream or task
        ├── Conflict           the name is taken, or the thing is in use
        ├── VersionMismatch    the caller's expected version is not the current one
        ├── NotAuthenticated   it is not known who asks: a key is missing or wrong
        ├── Forbidden          who asks may not do this
        ├── TooMany            there is no place for it now; waiting helps
        └── Rejected           the content is wrong
            └── SqlError       a query is wrong, at a line and column

Expected outcomes of the protocol (stale, paused, back-pressured ...) are return values, see
`mars.core.types`, never exceptions.
"""

from __future__ import annotations


class MarsError(Exception):
    """Base of all errors here; its text is one sentence that says what to do."""


class SettingsError(MarsError):
    """A configuration file or environment variable is wrong."""


class LocalClusterError(MarsError):
    """The embedded cluster cannot start, stop or be found."""


class Unavailable(MarsError):
    """A server does not answer; the same call may succeed later.

    `service` is one of `kafka`, `redis`, `zookeeper`, `spark`, `api`.
    """

    def __init__(self, service: str, detail: str) -> None:
        super().__init__(f"{service} is not available: {detail}")
        self.service = service
        self.detail = detail


class TopicRefused(Unavailable):
    """Kafka will not show or make this topic, whoever asks again: its name or rights are wrong."""

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__("kafka", f"topic {topic}: {detail}")
        self.args = (f"Kafka refuses topic {topic}: {detail}.",)
        self.topic = topic


class Fenced(MarsError):
    """A newer owner exists; the caller must stop and look again."""


class Interrupted(MarsError):
    """The call may or may not have taken effect; the caller must find out before going on."""


class TaskLimit(MarsError):
    """One task went over a stated limit."""


class StatesTooLarge(TaskLimit):
    """What some rows add to a task takes more room than one partial may; fewer rows may not."""


class TaskAtFault(MarsError):
    """Nothing was committed: `task` cannot go on as things are, the others of its bucket can."""

    def __init__(self, task: str, text: str) -> None:
        super().__init__(text)
        self.task = task


class OutputRefused(TaskAtFault):
    """An output topic is gone, or does not take a row."""

    def __init__(self, task: str, topic: str, detail: str) -> None:
        super().__init__(task, f"Task {task} cannot write to topic {topic}: {detail}.")
        self.topic = topic
        self.detail = detail


class SourceMadeAnew(TaskAtFault):
    """The topic that the task reads is another one than it was registered for."""


class SnapshotLost(MarsError):
    """Window state that a progress record names is not there, or is not what was written."""


class JobFailed(MarsError):
    """The rows or the plan of a Spark job are at fault: trying again will not help."""


class PartitionCut(JobFailed):
    """A partition ends at offset `end`, below what was read of it: offsets mean other rows now."""

    def __init__(self, text: str, end: int) -> None:
        super().__init__(text)
        self.end = end


class JobCancelled(MarsError):
    """A Spark job was stopped because somebody asked for it."""


class WaitedTooLong(MarsError):
    """What was waited for did not come in the time that was given."""


class RequestError(MarsError):
    """What the caller asked for cannot be done as asked."""


class NotFound(RequestError):
    """No stream or task of that name."""


class Conflict(RequestError):
    """The name is taken, or the thing is in use."""


class VersionMismatch(RequestError):
    """The caller expected another version than the current one."""


class NotAuthenticated(RequestError):
    """It is not known who asks: there is no key, or none that is known."""


class Forbidden(RequestError):
    """Who asks is known, and may not do this."""


class TooMany(RequestError):
    """All places for what was asked are taken; another try in some seconds may find one."""


class Rejected(RequestError):
    """The content of a request is wrong."""


class SqlError(Rejected):
    """A query is wrong at `line` and `column`, both counted from 1."""

    def __init__(self, detail: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {detail}")
        self.detail = detail
        self.line = line
        self.column = column
