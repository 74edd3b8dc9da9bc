"""Work in processes of their own: it is bounded, and nothing of it is left."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from api import aside
from api.aside import LISTING, Aside, Failure, ListedAside, Work, failure_of
from api.http.errors import status_of
from mars.core.errors import MarsError, Rejected, SqlError, TooMany, Unavailable
from mars.core.plan import Field, FieldType, Format, Stream
from mars.core.settings import MIB, BulkSettings, Settings
from mars.core.types import StreamName

S = Stream(StreamName("s"), "topic", Format.JSON, (Field("at", FieldType.TIMESTAMP_MS),), "at")


def listed(folder: Path, work: Work = LISTING) -> ListedAside:
    return ListedAside(Settings(bulk=BulkSettings(files=(str(folder),))), Aside(work))


def ask(listing: ListedAside, location: Path, format_: str = "csv") -> list[str]:
    found = listing(str(location), format_, S, csv_header=False, until_ms=None)
    return [file.path for file in found.files]


def test_a_listing_aside_is_what_it_would_be_here(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_bytes(b"x")
    assert ask(listed(tmp_path), tmp_path) == [f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"]


def test_what_is_wrong_with_a_question_comes_back(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(Rejected, match="not a Parquet file that can be read"):
        ask(listed(tmp_path), tmp_path, "parquet")


def test_outside_of_the_roots_no_process_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Aside, "run", lambda *_asked: pytest.fail("it was"))
    for location in ("/etc/passwd", "/x*", "/*"):
        with pytest.raises(Rejected, match=r"bulk\.files"):
            ask(listed(tmp_path), Path(location))


@pytest.mark.parametrize(
    ("limited", "told"),
    [
        (
            replace(LISTING, memory_bytes=48 * MIB),
            "takes more than 48 MiB of memory: name a folder",
        ),
        (replace(LISTING, time_s=0.001), "takes more than 0.001 s: name a folder"),
    ],
)
def test_memory_and_time_are_bounded(tmp_path: Path, limited: Work, told: str) -> None:
    (tmp_path / "a.csv").write_bytes(b"x")
    with pytest.raises(Rejected, match=told):
        ask(listed(tmp_path, limited), tmp_path)


def test_the_limit_of_memory_is_the_kernels() -> None:
    """Not what a process says of itself: it bounds what C, C++ and Rust allocate, too."""
    code = (
        "import sys; from api.aside_work import _limit; _limit(int(sys.argv[1])); "
        "import numpy; numpy.ones(300 * 2**20, dtype='uint8')"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run([*run, str(1024 * MIB)], check=False).returncode == 0
    over = subprocess.run([*run, str(256 * MIB)], check=False, capture_output=True, text=True)
    assert "MemoryError" in over.stderr
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY


def test_there_is_room_for_some_at_once(tmp_path: Path) -> None:
    asked = Aside(replace(LISTING, at_once=0, wait_s=0.0))
    with pytest.raises(TooMany, match="try again"):
        asked.run(b"")


def test_who_waits_when_the_process_stops_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"x")
    work = Aside(LISTING)
    work.close()
    listing = ListedAside(Settings(bulk=BulkSettings(files=(str(tmp_path),))), work)
    with pytest.raises(Unavailable, match="stopping"):
        ask(listing, tmp_path)


@pytest.mark.parametrize(
    "error", [Rejected("a"), Unavailable("kafka", "away"), SqlError("b", 1, 2)]
)
def test_errors_are_themselves_again(error: MarsError) -> None:
    failure = failure_of(error)
    assert isinstance(failure, Failure)
    again = aside._error_of(failure)
    assert status_of(again) is status_of(error)
    assert str(again) == str(error)
