"""Directories and globs as the history of a task."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import polars as pl
import pytest

from mars.adapters.spark import files as listing
from mars.adapters.spark import walking
from mars.adapters.spark.files import list_history
from mars.core.errors import Rejected
from mars.core.locations import FileRoots
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.types import StreamName


def stream_of(kind: FieldType = FieldType.TIMESTAMP_MS) -> Stream:
    fields = (Field("at", kind), Field("name", FieldType.STRING))
    return Stream(StreamName("s"), "topic", Format.JSON, fields, "at")


S = stream_of()


def below(*folders: Path, closed: tuple[Path, ...] = ()) -> FileRoots:
    return FileRoots.of([str(each) for each in folders], [str(each) for each in closed])


def test_a_directory_is_its_files_of_the_format_in_order_of_their_paths(tmp_path: Path) -> None:
    (tmp_path / "b.ndjson").write_bytes(b"12345")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jsonl").write_bytes(b"123")
    (tmp_path / "empty.ndjson").write_bytes(b"")
    (tmp_path / "notes.txt").write_bytes(b"no")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / ".hidden.ndjson").write_bytes(b"no")
    found = list_history(str(tmp_path), "ndjson", S, below(tmp_path))
    spans = [(file.path, file.first, file.next) for file in found.files]
    assert spans == [(f"{tmp_path}/a/x.jsonl", 0, 3), (f"{tmp_path}/b.ndjson", 3, 8)]


def test_a_glob_takes_what_it_names_and_a_file_is_itself(tmp_path: Path) -> None:
    for name in ("day-1.log", "day-2.log", "night-1.log"):
        (tmp_path / name).write_bytes(b"x")
    globbed = list_history(
        f"{tmp_path}/day-*.log", "csv", S, below(tmp_path), csv_header=True, until_ms=7
    )
    assert [Path(file.path).name for file in globbed.files] == ["day-1.log", "day-2.log"]
    assert (globbed.csv_header, globbed.until_ms) == (True, 7)
    alone = list_history(f"{tmp_path}/night-1.log", "csv", S, below(tmp_path))
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
    (file,) = list_history(str(tmp_path), "parquet", stream_of(kind), below(tmp_path)).files
    assert (file.next - file.first, file.earliest_ms) == (len(values), earliest_ms)


def test_without_statistics_the_earliest_time_is_not_known(tmp_path: Path) -> None:
    pl.DataFrame({"at": [1, 2]}).write_parquet(tmp_path / "a.parquet", statistics=False)
    (file,) = list_history(str(tmp_path), "parquet", S, below(tmp_path)).files
    assert file.earliest_ms is None


def test_what_cannot_be_a_history_is_refused_with_a_sentence(tmp_path: Path) -> None:
    def refused(location: str, format_: str, *, csv_header: bool = False) -> str:
        with pytest.raises(Rejected) as caught:
            list_history(location, format_, S, below(tmp_path), csv_header=csv_header)
        return str(caught.value)

    here = str(tmp_path)
    assert "not a format of files" in refused(here, "orc")
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
    assert "not a Parquet file" in refused(here, "parquet")
    pl.DataFrame({"name": ["a"]}).write_parquet(tmp_path / "a.parquet")
    assert "no column 'at'" in refused(here, "parquet")
    pl.DataFrame({"at": ["a"]}).write_parquet(tmp_path / "a.parquet")
    assert "not integers" in refused(here, "parquet")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "FILES_MAX", 2)
    for number in range(3):
        (tmp_path / f"{number}.csv").write_bytes(b"x")
    with pytest.raises(Rejected, match="3 files, at most 2"):
        list_history(str(tmp_path), "csv", S, below(tmp_path))


# ------------------------------------------------------------------------------- where one may look


def listed(location: str, roots: FileRoots) -> list[str]:
    return [file.path for file in list_history(location, "csv", S, roots).files]


def refused(location: str, roots: FileRoots) -> str:
    with pytest.raises(Rejected) as caught:
        list_history(location, "csv", S, roots)
    return str(caught.value)


def test_nothing_is_read_where_no_root_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x")
    sentence = refused(f"{tmp_path}/a.csv", below())
    assert "bulk.files names, and it names none" in sentence
    # Whether something is there is not told: the sentence is that of a file that is not.
    assert refused(f"{tmp_path}/b.csv", below()) == sentence.replace("a.csv", "b.csv")


@pytest.mark.parametrize(
    "location",
    [
        "{}/private/a.csv",
        "{}/history/../private/a.csv",
        "{}/history2/a.csv",
        "file://{}/private",
        "FILE://localhost{}/history/../private",
        "{}/*/a.csv",
        "{}/history/out/a.csv",
        "{}/history/out",
        "{}/history/out*/a.csv",
        "s3://bucket/a.csv",
        "/",
        "/etc/passwd",
    ],
)
def test_only_what_lies_below_a_root_is_read(tmp_path: Path, location: str) -> None:
    for folder in ("history", "history2", "private"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_bytes(b"x")
    roots = below(tmp_path / "history")
    assert listed(f"{tmp_path}/history", roots) == [f"{tmp_path}/history/a.csv"]
    (tmp_path / "history" / "out").symlink_to(tmp_path / "private")
    assert "bulk.files" in refused(location.format(tmp_path), roots)


def test_a_link_that_leads_out_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_bytes(b"x")
    history = tmp_path / "history"
    history.mkdir()
    (history / "a.csv").write_bytes(b"x")
    (history / "note.txt").symlink_to(tmp_path / "secret.csv")
    assert listed(str(history), below(history)) == [f"{history}/a.csv"]
    (history / "b.csv").symlink_to(tmp_path / "secret.csv")
    assert "b.csv" in refused(str(history), below(history))


def test_a_file_counts_once_however_many_links_lead_to_it(tmp_path: Path) -> None:
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "a.csv").write_bytes(b"x")
    (tmp_path / "loop").symlink_to(".")
    (tmp_path / "day" / "up").symlink_to("..")
    (tmp_path / "again").symlink_to("day")
    (tmp_path / "b.csv").symlink_to("day/a.csv")
    (tmp_path / "self.csv").symlink_to("self.csv")
    assert listed(str(tmp_path), below(tmp_path)) == [f"{tmp_path}/day/a.csv"]
    assert listed(f"{tmp_path}/again/*.csv", below(tmp_path)) == [f"{tmp_path}/day/a.csv"]


def test_a_root_may_be_a_link_and_files_keep_its_name(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "a.csv").write_bytes(b"x")
    (tmp_path / "history").symlink_to("disk")
    assert listed(f"{tmp_path}/history", below(tmp_path / "history")) == [
        f"{tmp_path}/history/a.csv"
    ]


def test_the_folder_of_the_settings_is_closed_unless_a_folder_in_it_is_a_root(
    tmp_path: Path,
) -> None:
    settings = tmp_path / "mars"
    (settings / "history").mkdir(parents=True)
    (settings / "history" / "a.csv").write_bytes(b"x")
    (settings / "mars.csv").write_bytes(b"password")
    for root in (tmp_path, settings, Path("/")):
        roots = below(root, closed=(settings,))
        assert "settings lie there" in refused(f"{settings}/mars.csv", roots)
        assert "settings lie there" in refused(f"{settings}/history", roots)
    roots = below(tmp_path, settings / "history", closed=(settings,))
    assert listed(f"{settings}/history", roots) == [f"{settings}/history/a.csv"]
    (settings / "history" / "b.csv").symlink_to(settings / "mars.csv")
    assert "b.csv" in refused(f"{settings}/history", roots)


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [
        ("ENTRIES_MAX", 4, "more than 4 files and folders"),
        ("DEPTH_MAX", 2, "more than 2 folders"),
        ("LISTING_S", -1.0, "takes longer than"),
    ],
)
def test_a_listing_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, told: str
) -> None:
    inner = tmp_path / "1" / "2" / "3"
    inner.mkdir(parents=True)
    for number in range(3):
        (inner / f"{number}.csv").write_bytes(b"x")
    assert len(listed(str(tmp_path), below(tmp_path))) == 3
    monkeypatch.setattr(walking, limit, value)
    assert told in refused(str(tmp_path), below(tmp_path))


@pytest.mark.parametrize("location", ["hf://x/y", "http://x/y", "mock://x", "file://there/x"])
def test_what_no_file_system_of_ours_opens_is_refused_at_once(location: str) -> None:
    with pytest.raises(Rejected, match=r"files are read by path|another machine"):
        list_history(location, "csv", S, below(Path("/")))


def test_a_special_file_is_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is neither a file" in refused(f"{tmp_path}/pipe.csv", below(tmp_path))
    assert "is neither a file" in refused(str(tmp_path), below(tmp_path))
