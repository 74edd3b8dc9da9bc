"""Directories and globs of files to the history of a task: what there is, in which order.

Runs where a task is registered; nothing here needs Spark.
"""

from __future__ import annotations

import datetime
import fnmatch
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from mars.adapters.spark.file_reading import filesystem_of
from mars.adapters.spark.planning import FILE_FORMATS
from mars.adapters.spark.walking import Deadline, Found, look, walk
from mars.core.definitions import FileHistory, HistoryFile
from mars.core.errors import Rejected
from mars.core.locations import WILD, FileRoots, canonical
from mars.core.plan import FieldType, Stream, ValueType

FILES_MAX = 2_000
"""Files of one history: their names and sizes are kept in ZooKeeper, in at most a megabyte."""

ENDINGS = {
    "parquet": (".parquet", ".parq"),
    "ndjson": (".ndjson", ".jsonl", ".json"),
    "csv": (".csv",),
}
"""What is taken of a directory; a glob takes all that it names."""

COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".snappy", ".zip")
"""Text that is compressed as a whole cannot be cut among tasks."""


def list_history(
    location: str,
    format: str,
    stream: Stream,
    roots: FileRoots,
    *,
    csv_header: bool = False,
    until_ms: int | None = None,
) -> FileHistory:
    """The files of a directory or glob, in order of their paths, as the history of a task.

    `location` is an absolute path or a URI that every executor can open. Paths are places below
    the roots, links followed. Empty files are left out. Raises Rejected with a sentence for the
    person who named the location.
    """
    _check(format, csv_header=csv_header)
    location = canonical(location)
    deadline = Deadline(location)
    try:
        found = _listed(location, format, roots, deadline)
    except (OSError, ValueError, TypeError, ImportError, pa.ArrowException) as error:
        raise Rejected(f"{location} cannot be listed: {_brief(error)}") from error
    if not found:
        raise Rejected(_nothing(location, format))
    if len(found) > FILES_MAX:
        raise Rejected(
            f"{location} holds {len(found)} files, at most {FILES_MAX} can be one history; join "
            "them to larger ones."
        )
    measure = _measured_rows if format == "parquet" else _measured_bytes
    files = tuple(_placed(found, stream, measure, deadline))
    if not files:
        raise Rejected(f"The files of {location} are all empty.")
    return FileHistory(format, files, csv_header=csv_header, until_ms=until_ms)


def _check(format: str, *, csv_header: bool) -> None:
    if format not in FILE_FORMATS:
        known = ", ".join(FILE_FORMATS)
        raise Rejected(f"{format[:80]!r} is not a format of files; use {known}.")
    if csv_header and format != "csv":
        raise Rejected("csv_header is for files of the format csv only.")


# ------------------------------------------------------------------------------------- listing


def _listed(location: str, format: str, roots: FileRoots, deadline: Deadline) -> list[Found]:
    pattern = next((at for at, letter in enumerate(location) if letter in WILD), None)
    base = location if pattern is None else location[:pattern].rpartition("/")[0] or "/"
    place = roots.place(base)
    there = look(place)
    if there is None:
        return []
    if there.size is not None:
        return [Found(there.name, place, there.size, there.changed_ns)] if pattern is None else []
    kept = _by_ending(format) if pattern is None else _by_pattern(location, base)
    found = walk(place, roots, lambda name: kept(name) or kept(_uncompressed(name)), deadline)
    _refuse_compressed(format, [one.place for one in found])
    return [one for one in found if kept(one.name)]


def _by_ending(format: str) -> Callable[[str], bool]:
    return lambda name: name.lower().endswith(ENDINGS[format])


def _by_pattern(location: str, base: str) -> Callable[[str], bool]:
    pattern = location.removeprefix(base).lstrip("/")
    return lambda name: fnmatch.fnmatchcase(name, pattern)


def _uncompressed(name: str) -> str:
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    return name


def _refuse_compressed(format: str, places: list[str]) -> None:
    squeezed = [place for place in places if place.endswith(COMPRESSED)]
    if squeezed and format != "parquet":
        raise Rejected(
            f"{squeezed[0]} is compressed and cannot be cut among tasks; unpack it, or write "
            "Parquet, which is compressed inside."
        )


def _nothing(location: str, format: str) -> str:
    if any(letter in location for letter in WILD):
        return f"No file is named like {location}."
    return (
        f"{location} is neither a file nor a directory with files of the format {format} "
        f"({', '.join(ENDINGS[format])})."
    )


# ------------------------------------------------------------------------------------- measuring

_Measured = tuple[int, int | None]
"""Offsets of a file, and its earliest event time."""


def _placed(
    found: list[Found],
    stream: Stream,
    measure: Callable[[Found, Stream], _Measured],
    deadline: Deadline,
) -> Iterator[HistoryFile]:
    """The files one after the other in the lane."""
    first = 0
    for file in found:
        deadline.check()
        size, earliest_ms = measure(file, stream)
        if size:
            yield HistoryFile(file.place, first, first + size, earliest_ms, file.changed_ns)
            first += size


def _measured_bytes(file: Found, _stream: Stream) -> _Measured:
    return file.size, None


def _measured_rows(file: Found, stream: Stream) -> _Measured:
    try:
        system, inside = filesystem_of(file.place)
        with system.open_input_file(inside) as handle:
            parquet = pq.ParquetFile(handle)
            kind = _check_event_time(file.place, parquet.schema_arrow, stream)
            return parquet.metadata.num_rows, _earliest(parquet.metadata, stream, kind)
    except (OSError, pa.ArrowException) as error:
        raise Rejected(
            f"{file.place} is not a Parquet file that can be read: {_brief(error)}"
        ) from error


def _check_event_time(path: str, schema: pa.Schema, stream: Stream) -> pa.DataType:
    """The type of the event time's column, which must be one that can hold it."""
    name = stream.event_time
    if name not in schema.names:
        raise Rejected(f"{path} has no column {name!r}, which is the stream's event time.")
    kind = schema.field(name).type
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    declared = stream.field(name)
    iso = declared is not None and declared.type is FieldType.TIMESTAMP_ISO
    fits = text if iso else pa.types.is_integer(kind)
    if not (fits or pa.types.is_timestamp(kind)):
        wanted = "text" if iso else "integers"
        raise Rejected(f"{path}: the event time {name!r} is {kind}, not {wanted} or timestamps.")
    return kind


def _earliest(metadata: pq.FileMetaData, stream: Stream, kind: pa.DataType) -> int | None:
    """The earliest event time by the statistics of all row groups, or None."""
    lowest: int | None = None
    for group in range(metadata.num_row_groups):
        found = _earliest_of_group(metadata.row_group(group), stream, kind)
        if found is None:
            return None
        lowest = found if lowest is None else min(found, lowest)
    return lowest


def _earliest_of_group(group: pq.RowGroupMetaData, stream: Stream, kind: pa.DataType) -> int | None:
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == stream.event_time:
            statistics = column.statistics
            if statistics is None or not statistics.has_min_max:
                return None
            return _in_ms(statistics.min, stream, kind)
    return None


def _in_ms(value: object, stream: Stream, kind: pa.DataType) -> int | None:
    """A statistic as epoch ms, rounded down; None for texts, which do not order by time."""
    if isinstance(value, datetime.datetime):
        zoned = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        delta = zoned - datetime.datetime.fromtimestamp(0, datetime.UTC)
        return delta // datetime.timedelta(milliseconds=1)
    declared = stream.field(stream.event_time)
    if not isinstance(value, int) or declared is None or not pa.types.is_integer(kind):
        return None
    assert declared.type.value_type is ValueType.TIMESTAMP  # noqa: S101 -- streams are checked
    match declared.type:
        case FieldType.TIMESTAMP_S:
            return value * 1000
        case FieldType.TIMESTAMP_US:
            return value // 1000
        case _:
            return value


def _brief(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
