"""Queries of tasks to plans, with the names of a namespace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mars.core.definitions import TaskVersion
from mars.core.plan import Plan, Stream
from mars.core.types import StreamName, TaskName
from mars.protocol.ports import Registry
from mars.sql import StreamOf, ZoneOf, compile_task, find_name, only, pinned


def results_topic(namespace: str, task: TaskName) -> str:
    """The topic of a task's results unless its options name another."""
    prefix = "mars" if namespace == "default" else f"mars.{namespace}"
    return f"{prefix}.results.{task}"


def declared(registry: Registry) -> Callable[[str], Stream | None]:
    """Finds the streams of a registry; one that is written exactly so is read alone."""

    def found(name: str) -> Stream | None:
        return registry.stream(StreamName(name)) or declared_now(registry.streams())(name)

    return found


def declared_now(streams: Mapping[StreamName, Stream]) -> Callable[[str], Stream | None]:
    """Finds one of these streams, by the same rule."""

    def found(name: str) -> Stream | None:
        meant = find_name(name, streams)
        return None if meant is None else streams[StreamName(meant)]

    return found


def compile_request(
    sql: str,
    options: Mapping[str, object],
    *,
    task: TaskName,
    version: int,
    stream_of: StreamOf,
    namespace: str,
    zone_of: ZoneOf,
    begin_ms: int | None,
) -> Plan:
    """The plan of a query, of a task that begins then. Raises SqlError, Rejected."""
    return compile_task(
        sql,
        task=task,
        version=version,
        stream_of=stream_of,
        options=options,
        default_topic=results_topic(namespace, task),
        zone_of=zone_of,
        begin_ms=begin_ms,
    )


def compile_version(task: TaskName, version: TaskVersion, namespace: str) -> Plan:
    """The plan of a stored version, over the stream as it was declared when it was stored, with the
    time zone and the landmark as they were known then.

    Raises SqlError or Rejected if this release cannot compile it.
    """
    return compile_request(
        version.sql,
        version.options,
        task=task,
        version=version.version,
        stream_of=only(version.stream),
        namespace=namespace,
        zone_of=pinned(version.zone),
        begin_ms=version.landmark_ms,
    )


def same_query(one: TaskVersion, other: TaskVersion) -> bool:
    """Whether `compile_version` makes the same of both, which bear one number.

    A name may be given anew from the same number on, or a version be made and never stored.
    """
    mine, theirs = (
        (each.sql, each.options, each.stream, each.zone, each.landmark_ms) for each in (one, other)
    )
    return mine == theirs
