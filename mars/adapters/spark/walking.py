"""The files below a folder: bounded in entries, depth and time, each of them once.

/srv/data ─┬─ a.csv            ──▶ a.csv   at /srv/data/a.csv
           ├─ b ──link──▶ a.csv            (the same place: once)
           ├─ loop ──link──▶ .             (leads to where it lies: passed over)
           └─ out ──link──▶ /etc           refused: outside of the roots
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow.fs as arrow_fs

from mars.adapters.spark.file_reading import filesystem_of
from mars.core.errors import Rejected
from mars.core.locations import FileRoots, is_below, is_local

ENTRIES_MAX = 20_000
"""Names that are looked at in one listing: ten times the files of one history."""

DEPTH_MAX = 20
"""Folders within each other: partitions by date, hour and some keys need half of that."""

LISTING_S = 30.0
"""For a listing and the footers of its files: what stores answer takes a fraction."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file: how it was come by from the folder, where it lies, its bytes, when it was written."""

    name: str
    place: str
    size: int
    changed_ns: int | None


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """What a folder holds; `size` is None for folders."""

    name: str
    size: int | None
    is_link: bool = False
    changed_ns: int | None = None


class Deadline:
    """The time that a listing may take."""

    def __init__(self, what: str, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock_s = clock_s
        self._end_s = clock_s() + LISTING_S

    def check(self) -> None:
        """Raise Rejected once it is over."""
        if self._clock_s() > self._end_s:
            raise Rejected(
                f"{self._what} takes longer than {LISTING_S:.0f} s to be listed: name a folder "
                "with fewer files, or larger ones"
            )


class _Tree(Protocol):
    """Files as one file system has them, by their places. Raises OSError, ArrowException."""

    def look(self, place: str) -> FolderEntry | None:
        """What lies there; None for nothing, and for what is neither file nor folder."""

    def children(self, place: str) -> Iterator[FolderEntry]:
        """What a folder holds, in any order."""


def look(place: str) -> FolderEntry | None:
    """What lies at a place; None for nothing, and for what is neither file nor folder."""
    return _tree_of(place).look(place)


def walk(
    folder: str, roots: FileRoots, wanted: Callable[[str], bool], deadline: Deadline
) -> list[Found]:
    """The wanted files below a folder, in order of their places.

    Names that begin with `.` or `_` are other programs' notes (`_SUCCESS`). Raises Rejected over a
    limit and for a link that leads out of the roots; OSError and ArrowException.
    """
    return _Walk(folder, roots, wanted, deadline).files()


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder on the way: `above` are the places of those that it was come to by."""

    name: str
    place: str
    above: tuple[str, ...]


class _Walk:
    def __init__(
        self, folder: str, roots: FileRoots, wanted: Callable[[str], bool], deadline: Deadline
    ) -> None:
        self._tree = _tree_of(folder)
        self._top = folder
        self._roots = roots
        self._wanted = wanted
        self._deadline = deadline
        self._entries = 0
        self._found: dict[str, Found] = {}

    def files(self) -> list[Found]:
        waiting = [_Folder("", self._top, ())]
        while waiting:
            self._deadline.check()
            folder = waiting.pop()
            waiting += self._below(folder)
        return [self._found[place] for place in sorted(self._found)]

    def _below(self, folder: _Folder) -> Iterator[_Folder]:
        """Take the files of a folder; gives the folders in it."""
        for entry in self._tree.children(folder.place):
            self._count()
            if entry.name.startswith((".", "_")):
                continue
            name = f"{folder.name}{entry.name}"
            if entry.size is None:
                yield from self._folder(folder, entry, name)
            elif self._wanted(name):
                place = self._place(folder, entry)
                self._found.setdefault(place, Found(name, place, entry.size, entry.changed_ns))

    def _folder(self, folder: _Folder, entry: FolderEntry, name: str) -> Iterator[_Folder]:
        place, above = self._place(folder, entry), (*folder.above, folder.place)
        if any(is_below(each, place) for each in above):
            return  # a link back to where we come from
        if len(above) >= DEPTH_MAX:
            raise Rejected(
                f"{self._top} has more than {DEPTH_MAX} folders within each other: name one of "
                "the inner ones"
            )
        yield _Folder(f"{name}/", place, above)

    def _place(self, folder: _Folder, entry: FolderEntry) -> str:
        location = f"{folder.place.rstrip('/')}/{entry.name}"
        return self._roots.place(location) if entry.is_link else location

    def _count(self) -> None:
        self._entries += 1
        if self._entries > ENTRIES_MAX:
            raise Rejected(
                f"{self._top} holds more than {ENTRIES_MAX} files and folders: name one that "
                "holds fewer, or join the files to larger ones"
            )


# ------------------------------------------------------------------------------- file systems


def _tree_of(place: str) -> _Tree:
    return _LocalTree() if is_local(place) else _StoreTree(place)


class _LocalTree:
    """Files of this machine."""

    def look(self, place: str) -> FolderEntry | None:
        try:
            return _entry(Path(place).name, Path(place).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def children(self, place: str) -> Iterator[FolderEntry]:
        with os.scandir(place) as listing:
            for each in listing:
                try:
                    found = _entry(each.name, each.stat(), is_link=each.is_symlink())
                except OSError:  # gone meanwhile, or a link to nowhere
                    continue
                if found is not None:
                    yield found


def _entry(name: str, found: os.stat_result, *, is_link: bool = False) -> FolderEntry | None:
    if stat.S_ISDIR(found.st_mode):
        return FolderEntry(name, None, is_link)
    if not stat.S_ISREG(found.st_mode):
        return None
    return FolderEntry(name, found.st_size, is_link, found.st_mtime_ns)


class _StoreTree:
    """Files of the file system that a URI names; such have no links that we could be led by."""

    def __init__(self, place: str) -> None:
        self._system, inside = filesystem_of(place)
        self._outside = place.removesuffix(inside)

    def look(self, place: str) -> FolderEntry | None:
        return _stored(self._system.get_file_info(self._inside(place)))

    def children(self, place: str) -> Iterator[FolderEntry]:
        selector = arrow_fs.FileSelector(self._inside(place), allow_not_found=True)
        for info in self._system.get_file_info(selector):
            found = _stored(info)
            if found is not None:
                yield found

    def _inside(self, place: str) -> str:
        return place.removeprefix(self._outside)


def _stored(info: arrow_fs.FileInfo) -> FolderEntry | None:
    if info.type == arrow_fs.FileType.Directory:
        return FolderEntry(info.base_name, None)
    if info.type != arrow_fs.FileType.File:
        return None
    return FolderEntry(info.base_name, info.size, changed_ns=info.mtime_ns)
