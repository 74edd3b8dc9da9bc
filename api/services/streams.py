"""Streams: declare, list, show, remove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from api.names import known_stream_name, new_stream_name, no_stream
from api.schemas import FieldRequest, StreamRequest
from api.services.compiling import TaskCompiler
from api.services.context import Ports
from api.services.operation.restoring import check_whole
from mars.core.definitions import TaskDefinition, TaskState, encode_stream
from mars.core.errors import Conflict, Rejected, RequestError, Unavailable
from mars.core.plan import (
    ORIGIN_TYPES,
    RECORD_TIME_FIELD,
    Field,
    FieldType,
    Format,
    Origin,
    Plan,
    RecordTime,
    Stream,
    ValueType,
)
from mars.core.topics import is_internal, namespace_of_results
from mars.core.types import StreamName, Topic

STREAMS_MAX = 1_000
"""Streams of a namespace: each is a node of ZooKeeper and a line of every list."""

FIELDS_MAX = 1_000
"""Fields of a stream: far above any real one; every task keeps a copy of the declaration."""

FIELD_NAME_CHARACTERS_MAX = 200
"""Of one field's name."""

STREAM_BYTES_MAX = 64 * 1024
"""Of a declaration as JSON: a task holds one per version, and a ZooKeeper node 1 MiB in all."""

TOPIC_CHARACTERS_MAX = 249
"""Kafka's own limit for the name of a topic."""

TOPIC_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
"""Kafka's own rule for the name of a topic."""

TIMESTAMPS = tuple(kind.value for kind in FieldType if kind.value_type is ValueType.TIMESTAMP)


class StreamService:
    """What the paths under /v1/streams do."""

    def __init__(self, ports: Ports, compiler: TaskCompiler, namespace: str) -> None:
        self._ports = ports
        self._compiler = compiler
        self._namespace = namespace

    def list_all(self) -> list[Stream]:
        """All streams, by name. Raises Unavailable: see `check_whole`."""
        check_whole(self._ports)  # first: while they are brought back, some are there
        streams = self._ports.registry.streams()
        return [streams[name] for name in sorted(streams)]

    def show(self, name: str) -> Stream:
        """One stream. Raises NotFound."""
        stream = self._ports.registry.stream(known_stream_name(name))
        if stream is None:
            raise no_stream(name, (known.name for known in self.list_all()))
        return stream

    def put(self, name: str, request: StreamRequest) -> tuple[Stream, bool]:
        """Declare or replace; True if it is new. Raises Rejected, Conflict."""
        stream = self._declared(new_stream_name(name), request)
        check_whole(self._ports)
        before = self._ports.registry.stream(stream.name)
        if stream == before:
            return stream, False
        if before is not None:
            self._check_tasks(stream)
        elif len(self._ports.registry.streams()) >= STREAMS_MAX:
            raise Conflict(f"there are {STREAMS_MAX} streams already: remove one that is not used")
        self._ports.registry.put_stream(stream)
        self._ports.control.put_stream(stream)
        return stream, before is None

    def warnings(self, stream: Stream) -> list[str]:
        """What to know before tasks read a stream; asks Kafka, and says nothing if that is away."""
        with suppress(Unavailable):
            if self._ports.admin.describe(Topic(stream.topic)) is None:
                return [
                    f"Kafka has no topic {stream.topic} yet: create it, then register the tasks "
                    "that read it"
                ]
        return []

    def delete(self, name: str) -> None:
        """Remove a declaration. Raises NotFound, Conflict while tasks use it."""
        stream = self.show(name)
        check_whole(self._ports)  # its tasks come back after it
        users = sorted(task.name for task in self._users(stream.name))
        if users:
            raise Conflict(
                f"stream {name} is used by {_names(users)}: delete the "
                f"{'task' if len(users) == 1 else 'tasks'} before the stream"
            )
        if not self._ports.registry.delete_stream(stream.name):
            raise no_stream(name)
        self._ports.control.delete_stream(stream.name)

    # ------------------------------------------------------------------------ tasks of it

    def _users(self, name: StreamName) -> Iterator[TaskDefinition]:
        for task in self._ports.registry.tasks().values():
            deleted = task.state is TaskState.DELETED
            if not deleted and any(version.stream.name == name for version in task.versions):
                yield task

    def _check_tasks(self, stream: Stream) -> None:
        for task in self._users(stream.name):
            broken = self._broken(task, stream)
            if broken is not None:
                raise Conflict(
                    f"task {task.name} would break: {broken}; declare another stream, or delete "
                    "the task first"
                )

    def _broken(self, task: TaskDefinition, stream: Stream) -> str | None:
        """What of a task would not be the same under a new declaration; None: nothing."""
        for version in task.versions:
            if version.stream.name != stream.name:
                continue
            try:
                new = self._compiler.against(task.name, version, stream)
            except RequestError as error:
                return f"version {version.version} is no longer valid ({error})"
            changed = _changed(self._compiler.stored(task.name, version), new)
            if changed is not None:
                return changed
        return None

    # ------------------------------------------------------------------------ declarations

    def _declared(self, name: StreamName, request: StreamRequest) -> Stream:
        if request.name is not None and request.name != name:
            raise Rejected(f"member name must be left out, or be {name} as in the path")
        self._check_topic(request.topic)
        fields = _fields(request)
        kind = _format(request.format)
        _check_csv(kind, request)
        _check_names(kind, fields)
        _check_event_time(request, fields)
        stream = Stream(
            name=name,
            topic=request.topic,
            format=kind,
            fields=fields,
            event_time=request.event_time,
            csv_header=request.csv_header,
            csv_delimiter=request.csv_delimiter,
            csv_quote=request.csv_quote,
            record_time=RecordTime(request.record_time),
        )
        if len(encode_stream(stream)) > STREAM_BYTES_MAX:
            raise Rejected(f"the declaration has more than {STREAM_BYTES_MAX} bytes")
        return stream

    def _check_topic(self, topic: str) -> None:
        legal = topic not in {"", ".", ".."} and TOPIC_CHARACTERS.issuperset(topic)
        if not legal or len(topic) > TOPIC_CHARACTERS_MAX:
            raise Rejected(
                f"topic {topic[:80]!a} is not a valid topic name: use 1 to {TOPIC_CHARACTERS_MAX} "
                "of the characters a-z A-Z 0-9 . _ -"
            )
        if is_internal(topic):
            raise Rejected(f"topic {topic} is one of Mars's or Kafka's own: name another")
        if namespace_of_results(topic) not in {None, self._namespace}:
            raise Rejected(
                f"topic {topic} holds results of another namespace, which stay in it: a task there "
                "can write to a topic with a name of its own (output_topic), which may be declared"
            )


def _fields(request: StreamRequest) -> tuple[Field, ...]:
    if not 1 <= len(request.fields) <= FIELDS_MAX:
        raise Rejected(f"fields must declare 1 to {FIELDS_MAX} fields, not {len(request.fields)}")
    fields = tuple(_field(_field_name(name), kind) for name, kind in request.fields.items())
    if all(field.origin is not None for field in fields):
        raise Rejected("fields must declare at least one that the messages themselves hold")
    others = tuple(field for field in fields if field != RECORD_TIME_FIELD)
    of_record = request.event_time == RECORD_TIME_FIELD.name
    if not of_record or any(field.name == RECORD_TIME_FIELD.name for field in others):
        return fields
    return (*others, RECORD_TIME_FIELD)


def _field(name: str, declared: str | FieldRequest) -> Field:
    if isinstance(declared, str) or declared.origin is None:
        kind = declared if isinstance(declared, str) else declared.type
        return Field(name, _type(name, kind))
    try:
        origin = Origin(declared.origin)
    except ValueError:
        raise Rejected(
            f"field {name} is taken from the unknown {declared.origin[:80]!a}: use one of "
            f"{', '.join(Origin)}"
        ) from None
    wanted = ORIGIN_TYPES[origin]
    if _type(name, declared.type) is not wanted:
        raise Rejected(
            f"field {name} is from {origin}, so its type must be {wanted}, not {declared.type}"
        )
    return Field(name, wanted, origin)


def _field_name(name: str) -> str:
    if 1 <= len(name) <= FIELD_NAME_CHARACTERS_MAX and name.isprintable():
        return name
    raise Rejected(
        f"field {name[:80]!a} cannot have this name: use 1 to {FIELD_NAME_CHARACTERS_MAX} "
        "printable characters"
    )


def _check_names(kind: Format, fields: Sequence[Field]) -> None:
    """JSON has several ways to write such names, and its parser looks for one form alone."""
    names = [one.name for one in fields if one.origin is None]
    escaped = [name for name in names if '"' in name or "\\" in name]
    if escaped and kind in {Format.JSON, Format.NDJSON}:
        raise Rejected(
            f"field {escaped[0][:80]!a} cannot be read from {kind.value}, because its name has a "
            "quotation mark or a backslash; leave it out, or have its producer rename it"
        )


def _check_csv(kind: Format, request: StreamRequest) -> None:
    marks = {"csv_delimiter": request.csv_delimiter, "csv_quote": request.csv_quote}
    own = {name for name, mark in marks.items() if mark != StreamRequest.model_fields[name].default}
    if request.csv_header:
        own.add("csv_header")
    if own and kind is not Format.CSV:
        raise Rejected(f"{min(own)} is for the format csv only, not for {kind.value}")
    for name, mark in marks.items():
        if len(mark) != 1 or not mark.isascii() or mark.isalnum() or mark in "\r\n\0":
            raise Rejected(
                f"{name} {mark[:80]!a} must be one ASCII character, but no letter, digit, line "
                "break or NUL"
            )
    if request.csv_delimiter == request.csv_quote:
        raise Rejected(f"csv_delimiter and csv_quote are both {request.csv_quote!a}: change one")


def _type(name: str, kind: str) -> FieldType:
    try:
        return FieldType(kind)
    except ValueError:
        supported = ", ".join(FieldType)
        raise Rejected(
            f"field {name} has the unknown type {kind[:80]!a}: use one of {supported}"
        ) from None


def _format(text: str) -> Format:
    try:
        return Format(text)
    except ValueError:
        supported = ", ".join(Format)
        raise Rejected(f"format {text[:80]!a} is unknown: use one of {supported}") from None


def _check_event_time(request: StreamRequest, fields: Sequence[Field]) -> None:
    named = next((field for field in fields if field.name == request.event_time), None)
    if named is None:
        raise Rejected(
            f"event_time {request.event_time[:80]!a} is not a declared field; it must name "
            f"one of type {', '.join(TIMESTAMPS)}, or be {RECORD_TIME_FIELD.name}"
        )
    if named.type not in TIMESTAMPS:
        raise Rejected(
            f"event_time {request.event_time} is of type {named.type}; it must be one of "
            f"{', '.join(TIMESTAMPS)}"
        )
    if named.origin is not None and request.record_time == "ignore":
        raise Rejected(
            f"record_time ignore contradicts event_time {request.event_time}, which is the time of "
            "the record: leave out one of them"
        )


def _changed(old: Plan, new: Plan) -> str | None:
    """What two plans of one query read differently; None: the records mean the same to both."""
    before, after = old.stream, new.stream
    if before.topic != after.topic:
        return f"it reads topic {before.topic}, not {after.topic}"
    if _writing(before) != _writing(after):
        return f"it reads {before.format.value} as declared before"
    if before.event_time != after.event_time:
        return f"its event time is {before.event_time}, not {after.event_time}"
    if before.record_time != after.record_time:
        return f"its record_time is {before.record_time.value}, not {after.record_time.value}"
    for field in old.fields:
        if after.field(field.name) != field:
            taken = "" if field.origin is None else f" from {field.origin}"
            return f"it uses the field {field.name} as {field.type.value}{taken}"
    if before.format is Format.CSV and _places(old) != _places(new):
        return "it reads columns by their place, which would change"
    return None


def _writing(stream: Stream) -> tuple[Format, bool, str, str]:
    """How messages are written."""
    return stream.format, stream.csv_header, stream.csv_delimiter, stream.csv_quote


def _places(plan: Plan) -> list[int]:
    columns = plan.stream.message_fields
    return [columns.index(field) for field in plan.fields if field.origin is None]


SHOWN_NAMES_MAX = 5
"""Names in a message; the rest are counted."""


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN_NAMES_MAX])
    more = len(names) - SHOWN_NAMES_MAX
    return f"task {shown}" if more <= 0 else f"task {shown} and {more} more"
