"""Rows of files on an executor: Parquet by rows, NDJSON and CSV by bytes.

A lane of files runs over all of them, one after the other. In a text file a line belongs to the
range in which it begins, so that ranges may be cut anywhere; blank lines are no rows. A bad line is
referenced by its own bytes and by the place of the block of lines that it lies in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq

from mars.core.definitions import REGISTER_AGAIN, FileHistory, HistoryFile
from mars.core.errors import JobFailed, Rejected, Unavailable
from mars.core.locations import FileRoots, canonical
from mars.core.plan import Plan
from mars.core.types import Lane, Range, Records
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.formats.texts import MARK
from mars.engine.decode.limits import MESSAGE_BYTES_MAX
from mars.engine.decode.messages import decode
from mars.engine.decode.parts import decode_slices

BATCH_ROWS = 50_000
"""Rows of a batch of Parquet, as of one of Kafka messages."""

BATCH_BYTES = 16 * 1024 * 1024
"""Text of a batch."""

BLOCK_BYTES = 256 * 1024
"""Lines that are one message to the codec: far above what it parses best, far below its limit."""

SCAN_BYTES = 64 * 1024
"""Read at once when the end of a line is looked for."""

BLANK = b" \t\r\n"
"""A line of nothing else is no row; where cells lie between such characters, they hold cells."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """`Source` of files, which every executor must be able to open under the same path.

    Each is looked at again where it is opened: a root may be gone, a link be another.
    """

    files: FileHistory
    roots: FileRoots

    def check(self) -> None:
        """Raise JobFailed where one of the files is outside of the roots."""
        for file in self.files.files:
            _place(file.path, self.roots)

    def batches(self, plan: Plan, part: Range) -> Iterator[Decoded | Range]:
        """The rows of a range of the lane. Raises Unavailable, JobFailed."""
        for file in self.files.files:
            first, after = max(part.first, file.first), min(part.next, file.next)
            if first < after:
                yield from self._of_file(plan, file, Range(part.lane, first, after))

    def _of_file(self, plan: Plan, file: HistoryFile, part: Range) -> Iterator[Decoded]:
        try:
            place = _place(file.path, self.roots)
            with open_file(place) as handle:
                _check_unwritten(file, place)
                if self.files.format == "parquet":
                    yield from _parquet(plan, handle, file, part)
                else:
                    yield from _text(plan, handle, file, part)
        except pa.ArrowException as error:
            raise JobFailed(f"{file.path} cannot be read: {error}") from error
        except FileNotFoundError as error:
            raise JobFailed(
                f"{file.path} is not there (any more); every executor must reach it by this path."
            ) from error
        except OSError as error:
            raise Unavailable("spark", f"{file.path} cannot be read ({error})") from error


def _place(path: str, roots: FileRoots) -> str:
    """Where a file lies now. Raises JobFailed outside of the roots."""
    try:
        return roots.place(canonical(path))
    except Rejected as error:
        raise JobFailed(f"{error}.") from error


def filesystem_of(path: str) -> tuple[arrow_fs.FileSystem, str]:
    """The file system of a path or URI (`hdfs://`, `s3://` ...), and the path in it."""
    if "://" in path:
        found, inside = arrow_fs.FileSystem.from_uri(path)
        return found, str(inside)
    return arrow_fs.LocalFileSystem(), path


def open_file(path: str) -> pa.NativeFile:
    """A file for reading anywhere in it. Raises OSError, ArrowException."""
    system, inside = filesystem_of(path)
    return system.open_input_file(inside)


def _check_unwritten(file: HistoryFile, place: str) -> None:
    """Raise JobFailed where a file was written since it was listed, as far as both times are known.

    It may be as long as before, and hold other rows. Asked once it is open: what is read is what
    lay there then.
    """
    system, inside = filesystem_of(place)
    now_ns = system.get_file_info(inside).mtime_ns
    if None not in (file.changed_ns, now_ns) and file.changed_ns != now_ns:
        raise _changed(file)


def _changed(file: HistoryFile) -> JobFailed:
    return JobFailed(
        f"{file.path} is not as it was when it was listed; files of a history must not change: "
        f"{REGISTER_AGAIN}."
    )


# ------------------------------------------------------------------------------------- Parquet


def _parquet(
    plan: Plan, handle: pa.NativeFile, file: HistoryFile, part: Range
) -> Iterator[Decoded]:
    """Rows of a Parquet file; its row groups before the range are passed over unread."""
    parquet = pq.ParquetFile(handle)
    present = set(parquet.schema_arrow.names)
    names = [field.name for field in plan.fields if field.name in present]
    begin, first, after = file.first, part.first, part.next
    if file.first + parquet.metadata.num_rows != file.next:
        raise _changed(file)
    for group in range(parquet.num_row_groups):
        end = begin + parquet.metadata.row_group(group).num_rows
        if begin < after and first < end:
            yield from _group(plan, parquet, group, names, begin, Range(part.lane, first, after))
        begin = end


def _group(
    plan: Plan, parquet: pq.ParquetFile, group: int, names: list[str], begin: int, part: Range
) -> Iterator[Decoded]:
    """The rows of one row group, which begins at the offset `begin`, that lie in the range."""
    at = begin
    for batch in parquet.iter_batches(BATCH_ROWS, [group], names, use_threads=False):
        first, after = max(at, part.first), min(at + batch.num_rows, part.next)
        if first < after:
            rows = batch.slice(first - at, after - first)
            yield decode_rows(plan, rows, part.lane, first)
        at += batch.num_rows
        if at >= part.next:
            return


def decode_rows(plan: Plan, rows: pa.RecordBatch, lane: Lane, first: int) -> Decoded:
    """Rows in columns as if each had been a message of its own at its own offset."""
    pieces = list(_messages(rows))
    counts = [piece.num_rows for piece, _message in pieces]
    bounds = np.cumsum([0, *counts])
    as_sent = Records(
        lane, 0, len(pieces), [one for _, one in pieces], range(len(pieces)), [-1] * len(pieces)
    )
    decoded = decode(plan.stream, plan.fields, as_sent)
    after = first + rows.num_rows
    own = Records(lane, first, after, _RowTexts(rows), range(first, after), [-1] * rows.num_rows)
    if not decoded.unreadable:
        return replace(decoded, records=own, messages=None)
    bad = {one.message for one in decoded.unreadable}
    kept = [np.arange(*bounds[at : at + 2]) for at in range(len(pieces)) if at not in bad]
    return replace(
        decoded,
        records=own,
        messages=pl.Series("message", np.concatenate([[], *kept]), dtype=pl.UInt32),
        unreadable=decoded.unreadable.moved(bounds),
    )


def _messages(rows: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """Arrow streams of some rows each, none larger than a message may be; else of one row."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    message = sink.getvalue()
    if message.size <= MESSAGE_BYTES_MAX or rows.num_rows <= 1:
        yield rows, message.to_pybytes()
        return
    half = rows.num_rows // 2
    yield from _messages(rows.slice(0, half))
    yield from _messages(rows.slice(half))


class _RowTexts(Sequence[bytes]):
    """The rows of a batch as JSON, made only for those that are looked at."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        (row,) = self._rows.slice(at, 1).to_pylist()
        return msgspec.json.encode(row, enc_hook=_as_text)


def _as_text(value: Any) -> str:
    return str(value)


# ---------------------------------------------------------------------------------------- text


def _text(plan: Plan, handle: pa.NativeFile, file: HistoryFile, part: Range) -> Iterator[Decoded]:
    """Lines of a text file that begin in the range, some blocks at a time."""
    if file.first + handle.size() != file.next:
        raise _changed(file)
    header = _first_line(handle) if plan.stream.csv_header else None
    blank = BLANK.replace(plan.stream.csv_delimiter.encode(), b"")
    batch: list[tuple[int, bytes]] = []
    size, first = 0, part.first
    for at, block in line_blocks(handle, part.first - file.first, part.next - file.first):
        if size + len(block) > BATCH_BYTES and batch:
            yield from _decoded(plan, header, batch, Range(part.lane, first, file.first + at))
            batch, size, first = [], 0, file.first + at
        lines = _without_blank_lines(block if at else block.removeprefix(MARK), blank)
        if header is not None and at == 0:
            lines = lines.partition(b"\n")[2]
        if lines:
            batch.append((file.first + at, lines))
            size += len(lines)
    yield from _decoded(plan, header, batch, Range(part.lane, first, part.next))


def _decoded(
    plan: Plan, header: bytes | None, batch: list[tuple[int, bytes]], part: Range
) -> Iterator[Decoded]:
    texts = [lines if header is None else header + b"\n" + lines for _at, lines in batch]
    # The codec passes over one mark where a message begins, which in a file is any line.
    values = [MARK + text if text.startswith(MARK) else text for text in texts]
    offsets = [at for at, _lines in batch]
    records = Records(part.lane, part.first, part.next, values, offsets, [-1] * len(values))
    return decode_slices(plan.stream, plan.fields, records)


def _first_line(handle: pa.NativeFile) -> bytes:
    end = min(_after_line(handle, 0), MESSAGE_BYTES_MAX)
    return _read(handle, 0, end).removeprefix(MARK).rstrip(b"\r\n")


def _without_blank_lines(block: bytes, blank: bytes) -> bytes:
    """The block's lines that hold anything, without the last line break."""
    text = block.rstrip(b"\r\n")
    if not (text[:1] in (b"\n", b"\r", b" ", b"\t") or _may_hold_blank_lines(text)):
        return text
    return b"\n".join([line for line in text.split(b"\n") if line.strip(blank)])


def _may_hold_blank_lines(text: bytes) -> bool:
    return any(mark in text for mark in (b"\n\n", b"\n\r", b"\n ", b"\n\t"))


def line_blocks(handle: pa.NativeFile, first: int, after: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines that begin at `[first, after)` of a file, in blocks, each with its place.

    Blocks are about BLOCK_BYTES long. A line longer than a message may be is cut off behind the
    first byte too many.
    """
    at = 0 if first == 0 else _after_line(handle, first - 1)
    end = _after_line(handle, after - 1)
    while at < end and at < after:
        block = _read(handle, at, min(BLOCK_BYTES, end - at))
        if at + len(block) < end:
            whole = block.rfind(b"\n") + 1
            if not whole:
                line_end = _after_line(handle, at + len(block))
                yield at, _read(handle, at, min(line_end - at, MESSAGE_BYTES_MAX + 1))
                at = line_end
                continue
            block = block[:whole]
        yield at, block
        at += len(block)


def _after_line(handle: pa.NativeFile, at: int) -> int:
    """Where the line that holds a place ends: behind its line break, or at the end of the file."""
    size = handle.size()
    while at < size:
        found = _read(handle, at, SCAN_BYTES).find(b"\n")
        if found >= 0:
            return at + found + 1
        at += SCAN_BYTES
    return int(size)


def _read(handle: pa.NativeFile, at: int, size: int) -> bytes:
    return bytes(handle.read_at(size, at))
