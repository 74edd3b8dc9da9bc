"""The one rule for names of streams and tasks."""

from __future__ import annotations

import re

from mars.errors import NotFound, Rejected
from mars.ports import QueryId
from mars.types import StreamName, TaskName

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", re.ASCII)

NAME_RULE = "a name is a letter or _, then at most 62 letters, digits, _ or -"


def new_stream_name(text: str) -> StreamName:
    """A name for a stream. Raises Rejected."""
    return StreamName(_checked("stream", text))


def new_task_name(text: str) -> TaskName:
    """A name for a task. Raises Rejected."""
    return TaskName(_checked("task", text))


def _checked(what: str, text: str) -> str:
    if NAME.fullmatch(text):
        return text
    raise Rejected(f"{text[:80]!a} cannot be the name of a {what}: {NAME_RULE}")


def known_stream_name(text: str) -> StreamName:
    """A name that may exist. Raises NotFound for one that cannot."""
    if NAME.fullmatch(text):
        return StreamName(text)
    raise no_stream(text)


def known_task_name(text: str) -> TaskName:
    """A name that may exist. Raises NotFound for one that cannot."""
    if NAME.fullmatch(text):
        return TaskName(text)
    raise no_task(text)


def no_stream(name: str) -> NotFound:
    """There is no such stream."""
    return NotFound(f"there is no stream {name[:80]!a}; GET /v1/streams lists all of them")


def no_task(name: str) -> NotFound:
    """There is no such task."""
    return NotFound(f"there is no task {name[:80]!a}; GET /v1/tasks lists all of them")


def known_query_id(text: str) -> QueryId:
    """An id that may exist. Raises NotFound for one that cannot."""
    if NAME.fullmatch(text):
        return QueryId(text)
    raise no_query(text)


def no_query(text: str) -> NotFound:
    """There is no such query, or no more."""
    return NotFound(
        f"there is no query {text[:80]!a} (any more); GET /v1/queries lists those that are kept"
    )
