"""Stored versions of tasks to plans."""

from __future__ import annotations

from mars.definitions import TaskVersion
from mars.plan import Plan, Stream
from mars.sql import compile_task
from mars.types import TaskName


def results_topic(namespace: str, task: TaskName) -> str:
    """The topic of a task's results unless its options name another."""
    prefix = "mars" if namespace == "default" else f"mars.{namespace}"
    return f"{prefix}.results.{task}"


def compile_version(task: TaskName, version: TaskVersion, namespace: str) -> Plan:
    """The plan of a stored version, over the stream as it was declared when it was stored.

    Raises SqlError or Rejected if this release cannot compile it.
    """

    def declared(name: str) -> Stream | None:
        return version.stream if name == version.stream.name else None

    return compile_task(
        version.sql,
        task=task,
        version=version.version,
        stream_of=declared,
        options=version.options,
        default_topic=results_topic(namespace, task),
    )
