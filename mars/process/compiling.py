"""Queries of tasks to plans, with the names of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mars.definitions import TaskVersion
from mars.plan import Plan, Stream
from mars.sql import compile_task
from mars.types import TaskName

StreamOf = Callable[[str], Stream | None]
"""Finds a declared stream by its name."""


def results_topic(namespace: str, task: TaskName) -> str:
    """The topic of a task's results unless its options name another."""
    prefix = "mars" if namespace == "default" else f"mars.{namespace}"
    return f"{prefix}.results.{task}"


def compile_request(
    sql: str,
    options: Mapping[str, object],
    *,
    task: TaskName,
    version: int,
    stream_of: StreamOf,
    namespace: str,
) -> Plan:
    """The plan of a query. Raises SqlError, Rejected."""
    return compile_task(
        sql,
        task=task,
        version=version,
        stream_of=stream_of,
        options=options,
        default_topic=results_topic(namespace, task),
    )


def compile_version(task: TaskName, version: TaskVersion, namespace: str) -> Plan:
    """The plan of a stored version, over the stream as it was declared when it was stored.

    Raises SqlError or Rejected if this release cannot compile it.
    """
    return compile_request(
        version.sql,
        version.options,
        task=task,
        version=version.version,
        stream_of=only(version.stream),
        namespace=namespace,
    )


def only(stream: Stream) -> StreamOf:
    """Finds this stream and no other."""
    return lambda name: stream if name == stream.name else None
