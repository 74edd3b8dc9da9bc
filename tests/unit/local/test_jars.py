"""Fetching jars, with a small shell script in the place of Ivy."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mars.core.errors import LocalClusterError
from mars.local import jars

JAR = b"the jar"

# Ivy's arguments: ... -ivy LIST -cache FOLDER ... -retrieve FOLDER/[artifact]...
WRITES = """
while [ $# -gt 0 ]; do
  [ "$1" = -cache ] && folder=$(dirname "$2")
  shift
done
mkdir -p "$folder/ivy"
echo x >> "$folder/../runs"
printf '\\tfound a#a;1 in public\\n[SUCCESSFUL ] a#a;1!a.jar\\n'
printf 'CONTENT' > "$folder/a-1.jar"
"""


@pytest.fixture(autouse=True)
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "lists"
    folder.mkdir()
    (folder / "small.ivy.xml").write_text('<dependency name="a"/>', "utf-8")
    (folder / "small.sha256").write_text(f"{hashlib.sha256(JAR).hexdigest()}  a-1.jar\n", "utf-8")
    monkeypatch.setattr(jars, "LISTS", folder)
    return folder


def writes(content: bytes = JAR) -> str:
    return WRITES.replace("CONTENT", content.decode())


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "cache" / "jars" / "runs").read_text("utf-8").split())


def test_jars_are_fetched_once(tmp_path: Path, fake_java: Callable[..., Path]) -> None:
    fake_java(otherwise=writes())
    steps: list[tuple[int, int]] = []
    folder = jars.ensure("small", lambda done, total: steps.append((done, total)))
    assert [path.name for path in folder.iterdir()] == ["a-1.jar"]
    assert steps[-1] == (2, 2)
    assert jars.ensure("small") == folder
    assert runs(tmp_path) == 1


def test_another_list_is_another_folder(lists: Path, fake_java: Callable[..., Path]) -> None:
    fake_java(otherwise=writes())
    folder = jars.ensure("small")
    (lists / "small.ivy.xml").write_text('<dependency name="a" rev="2"/>', "utf-8")
    assert jars.ensure("small") != folder


@pytest.mark.parametrize("content", [b"", b"another jar"])
def test_a_broken_download_is_removed_and_told(
    tmp_path: Path, fake_java: Callable[..., Path], content: bytes
) -> None:
    fake_java(otherwise=writes(content))
    with pytest.raises(LocalClusterError, match=r"a-1\.jar is not what"):
        jars.ensure("small")
    assert not list((tmp_path / "cache" / "jars").glob("small-*"))
    fake_java("17.0.2", otherwise=writes())
    assert jars.ensure("small").is_dir()


def test_a_jar_that_is_missing_is_told(lists: Path, fake_java: Callable[..., Path]) -> None:
    with (lists / "small.sha256").open("a") as file:
        file.write(f"{'0' * 64}  b-2.jar\n")
    fake_java(otherwise=writes())
    with pytest.raises(LocalClusterError, match=r"b-2\.jar is not what"):
        jars.ensure("small")


def test_a_failed_download_is_removed_and_told(
    tmp_path: Path, fake_java: Callable[..., Path]
) -> None:
    fake_java(otherwise=writes() + "exit 1")
    with pytest.raises(LocalClusterError, match=r"could not be downloaded \(exit code 1"):
        jars.ensure("small")
    assert not list((tmp_path / "cache" / "jars").glob("small-*"))


def test_two_at_once_fetch_once(tmp_path: Path, fake_java: Callable[..., Path]) -> None:
    fake_java(otherwise=writes())
    threads = [threading.Thread(target=jars.ensure, args=("small",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert jars.location("small").is_dir()
    assert runs(tmp_path) == 1


def test_a_full_disk_is_told(
    fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_java(otherwise=writes())
    monkeypatch.setattr(jars, "BYTES_NEEDED", 2**60)
    with pytest.raises(LocalClusterError, match="MARS_CACHE"):
        jars.ensure("small")


def test_checksums_can_be_recorded(
    lists: Path, fake_java: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (lists / "small.sha256").unlink()
    fake_java(otherwise=writes())
    monkeypatch.setenv("MARS_JARS_RECORD", "1")
    jars.ensure("small")
    recorded = (lists / "small.sha256").read_text("utf-8")
    assert recorded == f"{hashlib.sha256(JAR).hexdigest()}  a-1.jar\n"


def test_an_incomplete_checkout_is_told() -> None:
    with pytest.raises(LocalClusterError, match="reinstall Mars"):
        jars.ensure("large")


@pytest.mark.parametrize("name", ["kafka", "spark"])
def test_every_jar_of_a_committed_list_has_a_checksum(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    listed = (jars.LISTS / f"{name}.ivy.xml").read_text("utf-8").count("<dependency ")
    checksums = (jars.LISTS / f"{name}.sha256").read_text("utf-8").splitlines()
    assert len(checksums) == listed
    assert all(len(line.split()[0]) == 64 for line in checksums)


def test_a_wrong_name_is_one_sentence_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert jars.main(["large"]) == 1
    assert "reinstall Mars" in capsys.readouterr().err
