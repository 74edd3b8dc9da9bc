"""A job cut into tasks, and the plan that its tasks run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby, pairwise

from mars.core.definitions import FileHistory, TaskVersion, check_in_files
from mars.core.errors import JobFailed, Rejected, RequestError
from mars.core.plan import Format, Plan
from mars.core.types import Range, TaskName
from mars.protocol.ports import MapJob, QueryJob
from mars.sql import compile_task, only, pinned
from mars.sql.bounds import since, until

Task = tuple[Range, ...]
"""What one Spark task reads, in this order."""

FILE_FORMATS = {"parquet": Format.ARROW, "ndjson": Format.NDJSON, "csv": Format.CSV}
"""How the codec reads what `file_reading` makes of a file."""


def divide(ranges: Iterable[Range], offsets_max: int) -> list[Task]:
    """Tasks of at most `offsets_max` offsets, all of about the same size where a lane is long.

    It depends on nothing but its arguments, so a job that is run again has the same tasks.
    """
    tasks: list[Task] = []
    task: list[Range] = []
    room = offsets_max
    for piece in _pieces(ranges, offsets_max):
        size = piece.next - piece.first
        if size > room:
            tasks.append(tuple(task))
            task, room = [], offsets_max
        task.append(piece)
        room -= size
    return [*tasks, tuple(task)] if task else tasks


def tasks_of(plan: Plan, ranges: Iterable[Range], offsets_max: int) -> list[Task]:
    """The tasks of a query. Rows that are counted are read one after the other: a task a lane then,
    of ranges of at most `offsets_max` offsets.
    """
    if not plan.counts_rows:
        return divide(ranges, offsets_max)
    pieces = _pieces(ranges, offsets_max)
    return [tuple(lane) for _name, lane in groupby(pieces, key=lambda part: part.lane)]


def _pieces(ranges: Iterable[Range], offsets_max: int) -> Iterator[Range]:
    """Each range in equal pieces of at most `offsets_max`."""
    for whole in ranges:
        size = whole.next - whole.first
        count = -(-size // offsets_max)
        bounds = [whole.first + size * at // count for at in range(count + 1)] if count else []
        for first, after in pairwise(bounds):
            yield Range(whole.lane, first, after)


def plan_of_map(job: MapJob) -> Plan:
    """The plan of a map job. Raises JobFailed where this release cannot compile it."""
    version = job.version
    plan = _compiled(job.task, version.version, version, version.landmark_ms)
    if job.files is None:
        return plan
    return until(over_files(plan, job.files), job.files.until_ms)


def plan_of_query(job: QueryJob) -> Plan:
    """The plan of a query, with its bounds of time as a filter. Raises JobFailed."""
    plan = _compiled(TaskName(job.id), 1, job, None)
    plan = until(since(plan, job.from_ms), job.until_ms)
    if job.files is None:
        return plan
    return until(over_files(plan, job.files), job.files.until_ms)


def over_files(plan: Plan, files: FileHistory) -> Plan:
    """The same plan over what is in files instead of the stream's topic."""
    format_ = FILE_FORMATS.get(files.format)
    if format_ is None:
        known = ", ".join(FILE_FORMATS)
        raise JobFailed(f"Files of the format {files.format!r} cannot be read; use {known}.")
    try:
        check_in_files(plan.fields)
    except Rejected as error:
        raise JobFailed(f"{error}.") from error
    header = format_ is Format.CSV and files.csv_header
    return replace(plan, stream=replace(plan.stream, format=format_, csv_header=header))


def _compiled(
    task: TaskName, number: int, asked: TaskVersion | QueryJob, landmark_ms: int | None
) -> Plan:
    try:
        return compile_task(
            asked.sql,
            task=task,
            version=number,
            stream_of=only(asked.stream),
            options=asked.options,
            zone_of=pinned(asked.zone),
            begin_ms=landmark_ms,
        )
    except RequestError as error:
        raise JobFailed(f"The query of {task} cannot be compiled: {error}") from error
