"""The one rule for names of streams and tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from mars.core.errors import NotFound, Rejected
from mars.core.types import StreamName, TaskName
from mars.protocol.ports import QueryId

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}", re.ASCII)

NAME_RULE = "a name is a letter or _, then at most 62 letters, digits, _ or -"


def new_stream_name(text: str) -> StreamName:
    """A name for a stream. Raises Rejected."""
    return StreamName(_checked("stream", text))


RESERVED_WORDS = ("validate", "preview")
"""Paths below /v1/tasks, which no task can have."""


def new_task_name(text: str) -> TaskName:
    """A name for a task. Raises Rejected."""
    if text in RESERVED_WORDS:
        raise Rejected(
            f"{text} cannot be the name of a task: /v1/tasks/{text} is a path of its own"
        )
    return TaskName(_checked("task", text))


def new_set_name(text: str) -> str:
    """A name for a set of tasks. Raises Rejected."""
    return _checked("set of tasks", text)


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


def no_stream(name: str, known: Iterable[str] = ()) -> NotFound:
    """There is no such stream, but perhaps one of a similar name."""
    hint = _similar(name, known) or "`mars stream list` (GET /v1/streams) shows all of them"
    return NotFound(f"there is no stream {name[:80]!a}; {hint}")


def no_task(name: str, known: Iterable[str] = ()) -> NotFound:
    """There is no such task, but perhaps one of a similar name."""
    hint = _similar(name, known) or "`mars task list` (GET /v1/tasks) shows all of them"
    return NotFound(f"there is no task {name[:80]!a}; {hint}")


def _similar(name: str, known: Iterable[str]) -> str:
    found = get_close_matches(name, list(known), n=1)
    return f"did you mean {found[0]}?" if found else ""


def known_query_id(text: str) -> QueryId:
    """An id that may exist. Raises NotFound for one that cannot."""
    if NAME.fullmatch(text):
        return QueryId(text)
    raise no_query(text)


def no_query(text: str) -> NotFound:
    """There is no such query, or no more."""
    return NotFound(
        f"there is no query {text[:80]!a} (any more); `mars query --list` (GET /v1/queries) shows "
        "those that are kept"
    )
