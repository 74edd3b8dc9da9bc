"""The verdict on tasks whose queries change: invariant I1 for each version of each life of a task.

              starts of version 1     starts of version 2      deleted, and registered again
partition 0   ├──── version 1 ────────┤──── version 2 ───── ✗       ├──── version 3 ────▶
partition 1   ├──── version 1 ──┤────────── version 2 ── ✗            ├── version 3 ────▶
              └─────────────── a life ──────────────────┘             └─ another life ──▶

A row is of the version in whose offsets it lies. So each version has the results that DuckDB
computes over the rows of its offsets, windows cut by a change included, each group once. Of a life
that was ended only a beginning came: in each bucket all windows up to some moment.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.support.late import newest_revisions
from tests.support.queries import Query
from tests.support.rows import Group, Result, assert_same_groups

SHOWN = 5
"""Of what is wrong, so many are told."""

Value = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A message of the topic: where it lies, and its row; None if it has `rows` that are none."""

    partition: int
    offset: int
    row: Mapping[str, Any] | None
    rows: int = 1


@dataclass(frozen=True, slots=True)
class Version:
    """A version that has begun; a partition that `starts` does not name begins at 0."""

    number: int
    query: Query
    starts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Life:
    """The versions of a task from its registration to its end; `ended` if it was deleted."""

    task: str
    versions: tuple[Version, ...]
    ended: bool = False

    def spans(self) -> list[tuple[Version, Version | None]]:
        """Each version with the one after it."""
        return list(pairwise((*self.versions, None)))  # type: ignore[arg-type]


def assert_exact(
    task: str, lives: Sequence[Life], source: Sequence[SourceRow], results: Sequence[Result]
) -> None:
    """All that came for a task in all its lives is right, and nothing is missing."""
    came: dict[int, list[Result]] = defaultdict(list)
    for result in results:
        came[int(result[2]["mars-version"])].append(result)
    known = {version.number for life in lives for version in life.versions}
    assert came.keys() <= known, f"{task}: results of versions that never began: {came.keys()}"
    buckets = _buckets(results)
    for life in lives:
        for version, following in life.spans():
            results_of = _ResultsOf(task, version, following, source, came[version.number])
            results_of.check(buckets, ended=life.ended)


def rows_between(
    version: Version, following: Version | None, source: Iterable[SourceRow]
) -> list[SourceRow]:
    """The messages of a version."""
    return [
        each
        for each in source
        if not _lies_before(version, each) and (following is None or _lies_before(following, each))
    ]


def _lies_before(version: Version, row: SourceRow) -> bool:
    return row.offset < version.starts.get(row.partition, 0)


def _buckets(results: Iterable[Result]) -> dict[bytes, int]:
    """By the keys of a result without its window: the bucket, the same in all versions."""
    return {_keys(key, value): int(headers["mars-bucket"]) for key, value, headers in results}


def _keys(key: bytes, value: Mapping[str, Any]) -> bytes:
    """Texts all: where several windows begin together, a key ends with the window's end."""
    return json.dumps(
        [part for part in json.loads(key)[1:] if part != value["window_end"]]
    ).encode()


class _ResultsOf:
    """The results of one version beside its rows."""

    def __init__(
        self,
        task: str,
        version: Version,
        following: Version | None,
        source: Sequence[SourceRow],
        results: Sequence[Result],
    ) -> None:
        self.name = f"{task} version {version.number} ({version.query.name})"
        self.version, self.following = version, following
        self.query = version.query
        self.source = source
        own = rows_between(version, following, source)
        self.own = [each for each in own if each.row is not None and self.query.holds(each.row)]
        self.wanted = self.query.wanted([each.row for each in self.own if each.row is not None])
        self.results = results
        self.newest = newest_revisions(results, self.query.group)
        self.found = {self.query.group(value): _columns(value) for _, value, _ in self.newest}

    def check(self, buckets: Mapping[bytes, int], *, ended: bool) -> None:
        """Nothing lost, doubled, changed, or of another version."""
        self._check_once()
        self._check_ranges()
        if ended:
            self._check_beginning(buckets)
        else:
            assert_same_groups(self.found, self.wanted, self.name)
            if not self.query.windows_of_groups:
                self._check_numbers_of_rows()
        if not (ended and self.query.revises):
            self._check_values()
            self._check_complete()

    def _check_once(self) -> None:
        if not self.query.revises:
            again = [headers for _, _, headers in self.results if headers["mars-revision"] != "0"]
            assert not again, f"{self.name} revises nothing: {again[:SHOWN]}"

    def _check_values(self) -> None:
        wrong = [
            (value, self.wanted.get(group))
            for group, value in self.found.items()
            if value != self.wanted.get(group)
        ]
        assert not wrong, f"{self.name}: {len(wrong)} wrong (found, wanted): {wrong[:SHOWN]}"

    def _check_ranges(self) -> None:
        """No row was counted from offsets of another version."""
        for _key, value, headers in self.newest:
            for lane, (first, after) in json.loads(headers["mars-ranges"]).items():
                start = self.version.starts.get(int(lane), 0)
                end = self.following.starts.get(int(lane), 0) if self.following else after
                told = f"{self.name}: {value} of [{first}, {after}) of partition {lane}"
                assert start <= first <= after <= end, f"{told}, which is not all of the version"

    def _check_complete(self) -> None:
        """What is called complete is what the query gives over all rows that there are.

        Where late rows are revised, those that come once the next version has begun are its own.
        """
        known = self.source
        if self.query.revises and self.following is not None:
            known = [each for each in known if _lies_before(self.following, each)]
        whole = self.query.wanted(self.query.counted(each.row for each in known))
        wrong = [
            (value, whole.get(self.query.group(value)))
            for _key, value, headers in self.newest
            if headers["mars-complete"] == "1"
            and _columns(value) != whole.get(self.query.group(value))
        ]
        assert not wrong, f"{self.name}: called complete, and are not (all): {wrong[:SHOWN]}"

    def _check_numbers_of_rows(self) -> None:
        """`mars-rows` of all buckets together are the rows of the window."""
        told: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
        for _key, value, headers in self.newest:
            of_window = told[value["window_start"], value["window_end"]]
            bucket, rows = headers["mars-bucket"], int(headers["mars-rows"])
            of_window[bucket] = max(rows, of_window.get(bucket, 0))
        for (start, end), of_window in told.items():
            rows = sum(start <= each.row["timestamp"] < end for each in self.own if each.row)
            said = sum(of_window.values())
            assert said == rows, f"{self.name}: mars-rows of window {start}: {said} of {rows}"

    def _check_beginning(self, buckets: Mapping[bytes, int]) -> None:
        """Of each bucket, all windows up to the last one that came."""
        last: dict[int, int] = {}
        for _key, value, headers in self.results:
            bucket = int(headers["mars-bucket"])
            last[bucket] = max(value["window_end"], last.get(bucket, value["window_end"]))
        due = {
            group: line
            for group, line in self.wanted.items()
            if (bucket := buckets.get(json.dumps(list(group[2:])).encode(), -1)) in last
            and group[1] <= last[bucket]
        }
        lost = {
            group
            for group in due.keys() - self.found.keys()
            if not self.query.revises or self._was_read(group)
        }
        assert not lost, f"{self.name}: {len(lost)} never emitted: {sorted(lost)[:SHOWN]}"
        made_up: set[Group] = self.found.keys() - self.wanted.keys()
        assert not made_up, f"{self.name}: {len(made_up)} not in the data: {list(made_up)[:SHOWN]}"

    def _was_read(self, group: Group) -> bool:
        """Whether its window was emitted after a row of it was read: one that came later waited
        for a revision, and the task was deleted.
        """
        start, until, *keys = group
        ends: dict[str, int] = {}
        for _key, value, headers in self.results:
            if (value["window_start"], value["window_end"]) == (start, until):
                for lane, (_first, after) in json.loads(headers["mars-ranges"]).items():
                    ends[lane] = max(after, ends.get(lane, after))
        return any(
            each.offset < ends.get(str(each.partition), 0)
            and start <= each.row["timestamp"] < until
            and set(keys) <= set(each.row.values())
            for each in self.own
            if each.row is not None
        )


def _columns(value: Mapping[str, Any]) -> Value:
    return {name: value[name] for name in value if name != "window_local"}
