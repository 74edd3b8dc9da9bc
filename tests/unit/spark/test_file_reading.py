"""Rows of files: wherever ranges are cut, each line and row is read once, at its place."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mars.adapters.spark import file_reading
from mars.adapters.spark.file_reading import FileSource, decode_rows, line_blocks, open_file
from mars.adapters.spark.files import list_history
from mars.adapters.spark.planning import over_files
from mars.core.definitions import FileHistory, HistoryFile, resume_helps
from mars.core.errors import JobFailed, Unavailable
from mars.core.locations import FileRoots
from mars.core.plan import Plan
from mars.core.types import Mapped, Range, Reason, RowCounts, file_lane
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.limits import MESSAGE_BYTES_MAX
from mars.engine.kernel import map_batch
from tests.unit.codec.samples import ARROW, CSV, NAME, NDJSON, plan_of

LANE = file_lane("b1")
TEXTS = st.lists(
    st.sampled_from([b"", b"a", b"bb\r", b" ", b"c" * 40, b"\t", b"dd"]), max_size=12
).map(b"\n".join)
ANY_FILE = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that small files have many blocks and batches."""
    monkeypatch.setattr(file_reading, "BLOCK_BYTES", 16)
    monkeypatch.setattr(file_reading, "SCAN_BYTES", 5)
    monkeypatch.setattr(file_reading, "BATCH_BYTES", 50)
    monkeypatch.setattr(file_reading, "BATCH_ROWS", 3)


def history(format_: str, *paths: Path, csv_header: bool = False) -> FileHistory:
    """Files one after the other, measured as they are."""
    files, first = [], 0
    for path in paths:
        size = pq.read_metadata(path).num_rows if format_ == "parquet" else path.stat().st_size
        files.append(HistoryFile(str(path), first, first + size))
        first += size
    return FileHistory(format_, tuple(files), csv_header=csv_header)


def batches(plan: Plan, files: FileHistory, first: int, after: int) -> list[Decoded]:
    source = FileSource(files, FileRoots(folders=("/",)))
    found = source.batches(over_files(plan, files), Range(LANE, first, after))
    return [one for one in found if isinstance(one, Decoded)]


def mapped(plan: Plan, files: FileHistory, *cuts: int) -> list[Mapped]:
    """All rows, cut into ranges at these places."""
    own = over_files(plan, files)
    bounds = sorted({0, *cuts, files.files[-1].next})
    return [
        map_batch(own, 4, batch)
        for first, after in pairwise(bounds)
        for batch in batches(plan, files, first, after)
    ]


def counts_of(results: list[Mapped]) -> RowCounts:
    return sum((part.counts for one in results for part in one.partials), RowCounts())


@ANY_FILE
@given(TEXTS, st.booleans(), st.lists(st.integers(0, 200), max_size=4))
def test_each_line_belongs_to_the_range_in_which_it_begins(
    tmp_path: Path, text: bytes, ended: bool, cuts: list[int]
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(text + b"\n" if ended else text)
    size = path.stat().st_size
    found = []
    with open_file(str(path)) as handle:
        for first, after in pairwise(sorted({0, *(min(cut, size) for cut in cuts), size})):
            for at, block in line_blocks(handle, first, after):
                assert first <= at < after
                found.append((at, block))
    assert b"".join(block for _at, block in found) == path.read_bytes()
    assert all(block.endswith(b"\n") for _at, block in found[:-1])
    ends = [at + len(block) for at, block in found]
    assert [at for at, _block in found[1:]] == ends[:-1]


@pytest.mark.parametrize("cuts", [(), (1,), (30, 31, 32), tuple(range(0, 400, 7))])
def test_ndjson_is_counted_once_wherever_it_is_cut(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    lines = [json.dumps({"at": number, "name": f"n{number % 3}"}) for number in range(20)]
    (tmp_path / "a").write_text("\ufeff" + "\n".join(lines[:12]) + "\r\n\r\n  \n", "utf-8")
    (tmp_path / "b").write_text("\n" + "\n".join(lines[12:]), "utf-8")
    files = history("ndjson", tmp_path / "a", tmp_path / "b")
    results = mapped(plan_of(NAME), files, *cuts)
    assert counts_of(results) == RowCounts(counted=20)
    ranges = [part for one in results for part in one.ranges]
    assert all(left.next == right.first for left, right in pairwise(ranges))
    assert (ranges[0].first, ranges[-1].next) == (0, files.files[-1].next)


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("cuts", [(), (1, 2, 3), tuple(range(0, 300, 11))])
def test_csv_is_counted_once_wherever_it_is_cut(
    tmp_path: Path, header: bool, cuts: tuple[int, ...]
) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{number},n{number % 3},1,0.5,true" for number in range(15)]
    path.write_text("\n".join([*(["at,name,size,load,ok"] if header else []), *rows]) + "\n\n")
    files = history("csv", path, csv_header=header)
    results = mapped(plan_of(NAME), files, *cuts)
    assert counts_of(results) == RowCounts(counted=15)


@pytest.mark.parametrize("format_", ["ndjson", "csv"])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("cuts", [(), (60, 150), tuple(range(0, 400, 7)), tuple(range(400))])
def test_a_byte_order_mark_is_none_of_the_file_at_its_begin_and_data_elsewhere(
    tmp_path: Path, cuts: tuple[int, ...], header: bool, format_: str
) -> None:
    """It was passed over where a task began, by `bulk.task_bytes`, and at each block's begin."""
    mark, path = "\ufeff", tmp_path / "a"
    rows = [f"{number},n,1,0.5,true" for number in range(9)]
    if format_ == "ndjson":
        rows = [json.dumps({"at": number, "name": "n"}) for number in range(9)]
    rows[3:6] = [f"{mark}{row}" for row in rows[3:6]]
    top = ["at,name,size,load,ok"] if header and format_ == "csv" else []
    path.write_text(mark + "\n".join([*top, *rows]), "utf-8")
    files = history(format_, path, csv_header=bool(top))
    results = mapped(plan_of(NAME), files, *cuts)
    bad = [row for one in results for part in one.partials for row in part.rejections.rows]
    assert counts_of(results) == RowCounts(counted=6, bad=3)
    assert {row.payload for row in bad} == {row.encode() for row in rows[3:6]}


@pytest.mark.parametrize("cuts", [(), (1, 2, 3), tuple(range(0, 300, 11))])
def test_csv_with_the_stream_s_own_marks_is_read_from_files_as_from_a_topic(
    tmp_path: Path, cuts: tuple[int, ...]
) -> None:
    stream = replace(CSV, csv_delimiter="\t", csv_quote="'")
    path = tmp_path / "a.tsv"
    rows = [f"{number}\t'n\t{number % 3}'\t1\t0.5\ttrue" for number in range(15)]
    path.write_text("\n".join([*rows, "\t\t\t\t", "", " ", rows[0]]) + "\n")
    results = mapped(plan_of(NAME, stream=stream), history("csv", path), *cuts)
    assert counts_of(results) == RowCounts(counted=16, bad=1)  # a line of tabs is a row of cells


def test_a_bad_line_is_named_by_its_bytes_and_the_place_of_its_block(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"at":1,"name":"a"}\n{oops\n{"at":2,"name":"b"}\n')
    results = mapped(plan_of(NAME), history("ndjson", path))
    (row,) = [row for one in results for part in one.partials for row in part.rejections.rows]
    assert (row.payload, row.reason) == (b"{oops", Reason.UNREADABLE)
    assert row.offset <= 20
    assert counts_of(results) == RowCounts(counted=2, bad=1)


def test_a_line_too_long_for_a_message_is_one_bad_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reading, "SCAN_BYTES", 100_000)
    path = tmp_path / "a"
    long = b"x" * (MESSAGE_BYTES_MAX + 100)
    path.write_bytes(b'{"at":1}\n' + long + b'\n{"at":2}\n')
    results = mapped(plan_of(), history("ndjson", path))
    reasons = [
        row.reason for one in results for part in one.partials for row in part.rejections.rows
    ]
    assert reasons == [Reason.TOO_LARGE]
    assert counts_of(results) == RowCounts(counted=2, bad=1)


# ------------------------------------------------------------------------------------- Parquet


@pytest.mark.parametrize("cuts", [(), (1,), (4, 5, 11), tuple(range(20))])
def test_parquet_is_counted_once_wherever_it_is_cut(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    frame = pl.DataFrame({"at": range(20), "name": [f"n{n % 3}" for n in range(20)], "other": 1})
    frame[:13].write_parquet(tmp_path / "a", row_group_size=4)
    frame[13:].write_parquet(tmp_path / "b", row_group_size=100)
    files = history("parquet", tmp_path / "a", tmp_path / "b")
    results = mapped(plan_of(NAME), files, *cuts)
    assert counts_of(results) == RowCounts(counted=20)
    ranges = [part for one in results for part in one.ranges]
    assert all(left.next == right.first for left, right in pairwise(ranges))


def test_a_column_that_a_file_lacks_is_null(tmp_path: Path) -> None:
    pl.DataFrame({"at": [1, 2]}).write_parquet(tmp_path / "a")
    results = mapped(plan_of(NAME), history("parquet", tmp_path / "a"))
    assert counts_of(results) == RowCounts(counted=2)


def test_bad_rows_of_parquet_are_named_by_their_number_with_their_values(tmp_path: Path) -> None:
    frame = pl.DataFrame({"at": [1, None, 3], "name": ["a", "b", None]})
    frame.write_parquet(tmp_path / "a")
    results = mapped(plan_of(NAME), history("parquet", tmp_path / "a"))
    (row,) = [row for one in results for part in one.partials for row in part.rejections.rows]
    assert (row.offset, row.reason) == (1, Reason.NO_EVENT_TIME)
    assert json.loads(row.payload) == {"at": None, "name": "b"}
    assert counts_of(results) == RowCounts(counted=2, bad=1)


def test_rows_whose_values_are_too_large_are_bad_and_the_others_are_read() -> None:
    names = ["a", "x" * (MESSAGE_BYTES_MAX + 1), "c"]
    rows = pa.RecordBatch.from_pydict({"at": [1, 2, 3], "name": names})
    plan = replace(plan_of(NAME), stream=ARROW)
    result = map_batch(plan, 4, decode_rows(plan, rows, LANE, 10))
    named = [row for part in result.partials for row in part.rejections.rows]
    assert [(row.offset, row.reason) for row in named] == [(11, Reason.TOO_LARGE)]
    assert counts_of([result]) == RowCounts(counted=2, bad=1)
    assert result.ranges == (Range(LANE, 10, 13),)


# --------------------------------------------------------------------------------------- errors


def test_a_file_that_is_gone_fails_the_job(tmp_path: Path) -> None:
    files = FileHistory("ndjson", (HistoryFile(str(tmp_path / "none"), 0, 5),))
    with pytest.raises(JobFailed, match="not there"):
        batches(plan_of(NAME), files, 0, 5)


def test_a_file_of_another_length_fails_the_job(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"at":1}\n')
    files = FileHistory("ndjson", (HistoryFile(str(tmp_path / "a"), 0, 5),))
    with pytest.raises(JobFailed, match="when it was listed"):
        batches(plan_of(NAME), files, 0, 5)


@pytest.mark.parametrize("format_", ["ndjson", "parquet"])
def test_a_file_that_was_written_since_fails_the_job_though_it_is_as_long(
    tmp_path: Path, format_: str
) -> None:
    path, rows = tmp_path / f"a.{format_}", [{"at": 1, "name": "x"}, {"at": 2, "name": "y"}]
    (pl.DataFrame(rows).write_ndjson if format_ == "ndjson" else pl.DataFrame(rows).write_parquet)(
        path
    )
    listed = list_history(str(path), format_, NDJSON, FileRoots(folders=("/",)))
    (file,) = listed.files
    assert file.changed_ns == path.stat().st_mtime_ns
    assert counts_of(mapped(plan_of(NAME), listed)) == RowCounts(counted=2)

    os.utime(path, ns=(0, file.changed_ns + 1))

    with pytest.raises(JobFailed, match="not as it was when it was listed") as failed:
        batches(plan_of(NAME), listed, 0, file.next)
    assert not resume_helps(str(failed.value))
    of_before = replace(listed, files=(replace(file, changed_ns=None),))
    assert counts_of(mapped(plan_of(NAME), of_before)) == RowCounts(counted=2)


def test_a_broken_parquet_file_fails_the_job(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"no parquet at all")
    files = FileHistory("parquet", (HistoryFile(str(tmp_path / "a"), 0, 5),))
    with pytest.raises(JobFailed, match="cannot be read"):
        batches(plan_of(NAME), files, 0, 5)


def test_a_file_that_cannot_be_opened_now_is_tried_again(tmp_path: Path) -> None:
    files = FileHistory("ndjson", (HistoryFile(str(tmp_path), 0, 5),))
    with pytest.raises((Unavailable, JobFailed)):
        batches(plan_of(NAME), files, 0, 5)


def test_a_link_that_was_changed_since_is_noticed_where_the_file_is_opened(tmp_path: Path) -> None:
    history_folder = tmp_path / "history"
    history_folder.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (history_folder / "a.csv").write_bytes(b"abc")
    source = FileSource(
        history("csv", history_folder / "a.csv"), FileRoots.of([str(history_folder)])
    )
    source.check()
    (history_folder / "a.csv").unlink()
    (history_folder / "a.csv").symlink_to(tmp_path / "secret")
    with pytest.raises(JobFailed, match=r"bulk\.files"):
        list(source.batches(plan_of(NAME, stream=ARROW), Range(LANE, 0, 3)))
