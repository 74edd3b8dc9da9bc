"""Directories and globs as the history of a task."""

from __future__ import annotations

import datetime
from pathlib import Path

import polars as pl
import pytest

from mars.adapters.spark import files as listing
from mars.adapters.spark.files import list_history
from mars.errors import Rejected
from mars.plan import Field, FieldType, Format, Stream
from mars.types import StreamName


def stream_of(kind: FieldType = FieldType.TIMESTAMP_MS) -> Stream:
    fields = (Field("at", kind), Field("name", FieldType.STRING))
    return Stream(StreamName("s"), "topic", Format.JSON, fields, "at")


S = stream_of()


def test_a_directory_is_its_files_of_the_format_in_order_of_their_paths(tmp_path: Path) -> None:
    (tmp_path / "b.ndjson").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jsonl").write_bytes(b"123")
    (tmp_path / "empty.ndjson").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"no")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / ".hidden.ndjson").write_bytes(b"no")
    found = list_history(str(tmp_path), "ndjson", S)
    spans = [(file.path, file.first, file.next) for file in found.files]
    assert spans == [(f"{tmp_path}/a/x.jsonl", 0, 3), (f"{tmp_path}/b.ndjson", 3, 8)]


def test_a_glob_takes_what_it_names_and_a_file_is_itself(tmp_path: Path) -> None:
    for name in ("day-1.log", "day-2.log", "night-1.log"):
        (tmp_path / name).write_bytes(b"x")
    globbed = list_history(f"{tmp_path}/day-*.log", "csv", S, csv_header=True, until_ms=7)
    assert [Path(file.path).name for file in globbed.files] == ["day-1.log", "day-2.log"]
    assert (globbed.csv_header, globbed.until_ms) == (True, 7)
    alone = list_history(f"{tmp_path}/night-1.log", "csv", S)
    assert [file.path for file in alone.files] == [f"{tmp_path}/night-1.log"]


@pytest.mark.parametrize(
    ("kind", "values", "earliest_ms"),
    [
        (FieldType.TIMESTAMP_MS, [7_000, 5_001], 5_001),
        (FieldType.TIMESTAMP_S, [7, 5], 5_000),
        (FieldType.TIMESTAMP_US, [7_000_000, 5_001_999], 5_001),
        (
            FieldType.TIMESTAMP_MS,
            [datetime.datetime(1970, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)],
            5_000,
        ),
        (FieldType.TIMESTAMP_ISO, ["1970-01-01T00:00:05Z"], None),
    ],
)
def test_rows_and_earliest_time_of_parquet_come_from_its_metadata(
    tmp_path: Path, kind: FieldType, values: list[object], earliest_ms: int | None
) -> None:
    pl.DataFrame({"at": values}).write_parquet(tmp_path / "a.parquet", row_group_size=1)
    (file,) = list_history(str(tmp_path), "parquet", stream_of(kind)).files
    assert (file.next - file.first, file.earliest_ms) == (len(values), earliest_ms)


def test_without_statistics_the_earliest_time_is_not_known(tmp_path: Path) -> None:
    pl.DataFrame({"at": [1, 2]}).write_parquet(tmp_path / "a.parquet", statistics=False)
    (file,) = list_history(str(tmp_path), "parquet", S).files
    assert file.earliest_ms is None


def test_what_cannot_be_a_history_is_refused_with_a_sentence(tmp_path: Path) -> None:
    def refused(location: str, format_: str, *, csv_header: bool = False) -> str:
        with pytest.raises(Rejected) as caught:
            list_history(location, format_, S, csv_header=csv_header)
        return str(caught.value)

    here = str(tmp_path)
    assert "no format of files" in refused(here, "orc")
    assert "csv only" in refused(here, "ndjson", csv_header=True)
    assert "absolute path" in refused("data/history", "csv")
    assert "directory with files" in refused(f"{here}/none", "parquet")
    assert "directory with files" in refused(here, "parquet")
    assert "No file is named" in refused(f"{here}/*.csv", "csv")
    (tmp_path / "a.ndjson.gz").write_bytes(b"x")
    assert "unpack it" in refused(here, "ndjson")
    (tmp_path / "a.csv").write_bytes(b"")
    assert "all empty" in refused(here, "csv")
    (tmp_path / "a.parquet").write_bytes(b"x")
    assert "no Parquet file" in refused(here, "parquet")
    pl.DataFrame({"name": ["a"]}).write_parquet(tmp_path / "a.parquet")
    assert "no column 'at'" in refused(here, "parquet")
    pl.DataFrame({"at": ["a"]}).write_parquet(tmp_path / "a.parquet")
    assert "not integers" in refused(here, "parquet")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FILES_MAX", 2)
    for number in range(3):
        (tmp_path / f"{number}.csv").write_bytes(b"x")
    with pytest.raises(Rejected, match="3 files, at most 2"):
        list_history(str(tmp_path), "csv", S)
