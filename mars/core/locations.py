"""Where files lie: locations in one spelling, the patterns of keys for them, and the roots.

    location   /srv/data/../data/a.csv   file:///srv/data   S3://Bucket/a//b   as it is named
    canonical  /srv/data/a.csv           /srv/data          s3://bucket/a/b    compared and opened
    place      the canonical location below a root, symbolic links followed

Only what lies below a root is ever read; see docs/decisions/0036.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from mars.core.errors import Rejected, SettingsError

SCHEMES = frozenset({"s3", "gs", "hdfs", "viewfs", "abfs", "abfss"})
"""File systems beside the local one that Arrow opens itself, without further packages."""

SHOWN_CHARACTERS = 200
"""Of a location in a message."""

ROOTS_SHOWN = 5
"""Of the roots in a message."""

SETTING = "bulk.files"

WILD = "*?["
"""What makes a location a pattern."""

_URI = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)(?P<path>.*)", re.S)


def canonical(location: str) -> str:
    """One spelling for all that mean the same: an absolute path, or a URI of a known scheme.

    Raises Rejected for what is neither.
    """
    uri = _URI.fullmatch(location)
    if uri is None:
        if not location.startswith("/") or "\0" in location:
            raise Rejected(
                f"{_shown(location)} is not an absolute path or URI; name it as the executors "
                "reach it"
            )
        return _path(location)
    scheme, authority = uri["scheme"].lower(), uri["authority"].lower()
    if "\0" in location:
        raise Rejected(f"{_shown(location)} holds a NUL, which no name of a file has")
    if scheme == "file":
        if authority not in {"", "localhost"}:
            raise Rejected(f"{_shown(location)} names another machine: write the path alone")
        return _path(uri["path"])
    if scheme not in SCHEMES:
        known = ", ".join(sorted(SCHEMES))
        raise Rejected(f"{_shown(location)}: files are read by path, or from {known}")
    return f"{scheme}://{authority}{_path(uri['path']).rstrip('/')}"


def is_for_files(pattern: str) -> bool:
    """Whether a pattern of a key is one for files: no topic begins with `/` or a scheme."""
    return pattern.startswith("/") or _URI.match(pattern) is not None


def matches_files(patterns: Sequence[str], location: str) -> bool:
    """Whether a canonical location matches one of the patterns that are for files."""
    return any(
        fnmatchcase(location, literal(spelt))
        for pattern in patterns
        if is_for_files(pattern) and (spelt := _pattern(pattern)) is not None
    )


def literal(pattern: str) -> str:
    """`*` is the only character with a meaning: those of fnmatch besides are taken as they are."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def _pattern(pattern: str) -> str | None:
    """A pattern in the spelling of locations; None for one that no location can match."""
    try:
        return canonical(pattern)
    except Rejected:
        return None


def _path(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _shown(location: str) -> str:
    return ascii(location[:SHOWN_CHARACTERS])


def is_below(location: str, folder: str) -> bool:
    """Whether a canonical location is a folder or lies in it."""
    return location == folder or location.startswith(folder.rstrip("/") + "/")


def is_local(location: str) -> bool:
    """Whether a canonical location is a path of this machine."""
    return location.startswith("/")


@dataclass(frozen=True, slots=True)
class FileRoots:
    """The folders below which files are read, in canonical spelling.

    `closed` are folders (of settings, which hold passwords) that no root opens which is or holds
    them; a root within one opens what lies below itself.
    """

    folders: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()

    @staticmethod
    def of(folders: Sequence[str], closed: Sequence[str] = ()) -> FileRoots:
        """The roots that the settings name. Raises SettingsError for what can be none."""
        return FileRoots(
            tuple(_setting("files", each) for each in folders),
            tuple(_setting("files_never", each) for each in closed),
        )

    def place(self, location: str) -> str:
        """Where a canonical location lies, links followed. Raises Rejected outside of the roots."""
        found = self._place(location)
        if found is None:
            raise Rejected(self._refusal(location))
        return found

    def check(self, location: str) -> None:
        """Raise Rejected where nothing that a canonical location or pattern names is to be read."""
        wild = next((at for at, letter in enumerate(location) if letter in WILD), None)
        base = location if wild is None else location[:wild].rpartition("/")[0] or "/"
        self.place(base)

    def _place(self, location: str) -> str | None:
        if not is_local(location):
            return location if any(is_below(location, root) for root in self.folders) else None
        resolved = os.path.realpath(location)
        opened = [
            (len(real), root, real)
            for root, real in self._local()
            if is_below(resolved, real) and not self._closes(real, resolved)
        ]
        if not opened:
            return None
        _length, root, real = max(opened)
        return _path(f"{root}/{resolved[len(real.rstrip('/')) :]}")

    def _local(self) -> list[tuple[str, str]]:
        return [(root, os.path.realpath(root)) for root in self.folders if is_local(root)]

    def _closes(self, root: str, resolved: str) -> bool:
        closed = [os.path.realpath(each) for each in self.closed]
        return any(is_below(resolved, each) and is_below(each, root) for each in closed)

    def _refusal(self, location: str) -> str:
        if not self.folders:
            return (
                f"{_shown(location)} cannot be read: files are read only below the folders that "
                f"the setting {SETTING} names, and it names none; ask whoever runs Mars to name one"
            )
        named = ", ".join(self.folders[:ROOTS_SHOWN])
        more = "" if len(self.folders) <= ROOTS_SHOWN else ", ..."
        return (
            f"{_shown(location)} does not lie below a folder that the setting {SETTING} names "
            f"({named}{more}), or is kept closed because settings lie there; name another, or ask "
            "whoever runs Mars for that one"
        )


def _setting(name: str, folder: str) -> str:
    try:
        if any(sign in folder for sign in "*?[#%@"):
            raise Rejected("a folder is named as it is, without any of * ? [ # % @")
        return canonical(folder)
    except Rejected as error:
        raise SettingsError(f"bulk.{name}: {error}.") from error
