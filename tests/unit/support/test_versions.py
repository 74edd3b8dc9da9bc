"""The verdict on changing queries finds each way in which a version could be wrong.

            offsets 0 ... 4          5 ... 9                   deleted   10 ... 14
partition 0 ├──── version 1 ────────┤──── version 2 ────────▶    ✗       ├──── version 3
event time  0 .. 4 s                 5 .. 9 s                            10 .. 14 s
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.companions import KINDS
from tests.support.queries import TUMBLING, WHERES, Query
from tests.support.rows import Result
from tests.support.versions import Life, SourceRow, Version, assert_exact

TASK = "t"
ROWS = 10
CUT = 5
BUCKET = {"a": 0, "b": 1}
SUMS = Query(TUMBLING, WHERES[0], "1s")
LARGE = Query(TUMBLING, WHERES[2], "1s")
REVISED = Query(next(kind for kind in KINDS if kind.name == "revised"), WHERES[0], "0s")


def source(rows: int = ROWS) -> list[SourceRow]:
    """A row a second, and between them one that is none."""
    found = [
        SourceRow(
            0,
            number,
            {
                "timestamp": 1_000 * number,
                "sip": "ab"[number % 2],
                "type": "dns",
                "bytes": 800,
                "id": number,
                "hash": 7 * number,
            },
        )
        for number in range(rows)
    ]
    return [*found, SourceRow(1, 0, None)]


def life(first: Query = SUMS, second: Query = SUMS, *, ended: bool = False) -> Life:
    """Two versions, the second from CUT on."""
    versions = Version(1, first, {0: 0}), Version(2, second, {0: CUT})
    return Life(TASK, versions, ended)


def results(of: Life, rows: list[SourceRow]) -> list[Result]:
    """What a Mars without fault emits for a life."""
    found: list[Result] = []
    for version, following in of.spans():
        start = version.starts[0]
        end = following.starts[0] if following else ROWS
        own = [one for one in rows if one.row and start <= one.offset < end]
        whole = version.query.wanted([one.row for one in rows if one.row])
        size = 5_000 if version.query.revises else 3_000
        for group, value in version.query.wanted([one.row for one in own if one.row]).items():
            window = value["window_start"]
            in_bucket = [
                one
                for one in own
                if one.row
                and window <= one.row["timestamp"] < window + size
                and one.row["sip"] == value["sip"]
            ]
            headers = {
                "mars-task": TASK,
                "mars-version": str(version.number),
                "mars-revision": "0",
                "mars-complete": str(int(whole[group] == value)),
                "mars-bucket": str(BUCKET[value["sip"]]),
                "mars-emit": "1",
                "mars-ranges": json.dumps({"0": [in_bucket[0].offset, end]}),
                "mars-rows": str(len(in_bucket)),
            }
            found.append(
                (json.dumps(list(group)).encode(), {**value, "window_end": window + size}, headers)
            )
    return found


def changed(result: Result, headers: Mapping[str, str] | None = None, **columns: Any) -> Result:
    """A result with other columns or headers."""
    key, value, before = result
    return key, {**value, **columns}, {**before, **(headers or {})}


def counted_twice(found: list[Result]) -> list[Result]:
    """One row counts double in one group."""
    return [changed(found[0], n=found[0][1]["n"] + 1), *found[1:]]


def of_version(number: int, found: list[Result]) -> list[Result]:
    """The results of a version."""
    return [one for one in found if one[2]["mars-version"] == str(number)]


@pytest.mark.parametrize("queries", [(SUMS, SUMS), (SUMS, LARGE), (SUMS, REVISED)])
def test_what_is_right_passes(queries: tuple[Query, Query]) -> None:
    right = life(*queries)
    assert_exact(TASK, [right], source(), results(right, source()))


def test_a_row_lost_between_two_versions_is_found() -> None:
    """The second version began one row later than it says."""
    late = Life(TASK, (Version(1, SUMS, {0: 0}), Version(2, SUMS, {0: CUT + 1})))
    came = of_version(1, results(life(), source())) + of_version(2, results(late, source()))

    with pytest.raises(AssertionError, match=r"version 2 .*(wrong|never emitted)"):
        assert_exact(TASK, [life()], source(), came)


def test_a_row_in_two_versions_is_found() -> None:
    """The first version went on for one row more than it may."""
    longer = Life(TASK, (Version(1, SUMS, {0: 0}), Version(2, SUMS, {0: CUT + 1})))
    came = of_version(1, results(longer, source())) + of_version(2, results(life(), source()))

    with pytest.raises(AssertionError, match=r"version 1 .*(wrong|not in the data|not all of)"):
        assert_exact(TASK, [life()], source(), came)


def test_a_row_counted_in_the_wrong_version_is_found() -> None:
    """Together the two have all rows, one on the wrong side of the cut."""
    moved = Life(TASK, (Version(1, SUMS, {0: 0}), Version(2, SUMS, {0: CUT - 1})))

    with pytest.raises(AssertionError, match="version 1"):
        assert_exact(TASK, [life()], source(), results(moved, source()))


def _twice(found: list[Result]) -> list[Result]:
    return [*found, found[0]]


def _missing(found: list[Result]) -> list[Result]:
    return found[1:]


def _other_version(found: list[Result]) -> list[Result]:
    """The old version emits a whole window that the new one counts."""
    last = found[-1]
    return [*found[:-1], changed(last, {"mars-version": "1"})]


def _never_began(found: list[Result]) -> list[Result]:
    return [*found, changed(found[0], {"mars-version": "9"})]


def _complete(found: list[Result]) -> list[Result]:
    """A window that was cut says that it was not."""
    at = next(at for at, one in enumerate(found) if one[2]["mars-complete"] == "0")
    return [*found[:at], changed(found[at], {"mars-complete": "1"}), *found[at + 1 :]]


def _offsets(found: list[Result]) -> list[Result]:
    """Right by chance: it was counted from rows of the version before, too."""
    ranges = {"mars-ranges": json.dumps({"0": [CUT - 1, ROWS]})}
    return [*found[:-1], changed(found[-1], ranges)]


def _number_of_rows(found: list[Result]) -> list[Result]:
    return [changed(found[0], {"mars-rows": "7"}), *found[1:]]


def _revised(found: list[Result]) -> list[Result]:
    return [*found, changed(found[0], {"mars-revision": "1"})]


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (counted_twice, "wrong"),
        (_twice, "revision"),
        (_missing, "never emitted"),
        (_other_version, "not in the data|not all of the version"),
        (_never_began, "never began"),
        (_complete, "called complete"),
        (_offsets, "not all of the version"),
        (_number_of_rows, "mars-rows"),
        (_revised, "revises nothing"),
    ],
)
def test_what_is_wrong_is_found(spoil: Callable[[list[Result]], list[Result]], told: str) -> None:
    wrong = spoil(results(life(), source()))

    with pytest.raises(AssertionError, match=told):
        assert_exact(TASK, [life()], source(), wrong)


def test_of_a_life_that_ended_each_bucket_may_have_emitted_a_beginning() -> None:
    ended = life(ended=True)
    came = results(ended, source())
    without_last = [
        one for one in came if not (one[1]["window_start"] >= 6_000 and one[1]["sip"] == "a")
    ]
    assert len(without_last) < len(came)

    assert_exact(TASK, [ended], source(), without_last)
    assert_exact(TASK, [ended], source(), [])


@pytest.mark.parametrize("spoil", [counted_twice, _twice, _complete, _offsets])
def test_what_came_of_a_life_that_ended_must_be_right(
    spoil: Callable[[list[Result]], list[Result]],
) -> None:
    ended = life(ended=True)

    with pytest.raises(AssertionError):
        assert_exact(TASK, [ended], source(), spoil(results(ended, source())))


def test_a_hole_in_what_came_of_a_life_that_ended_is_found() -> None:
    ended = life(ended=True)
    came = results(ended, source())
    first = min(value["window_start"] for _, value, _ in came)
    hole = [one for one in came if not (one[1]["window_start"] == first and one[1]["sip"] == "a")]

    with pytest.raises(AssertionError, match="never emitted"):
        assert_exact(TASK, [ended], source(), hole)


def test_a_life_begins_after_the_one_before_and_may_count_its_rows_again() -> None:
    before = life(ended=True)
    again = Life(TASK, (Version(3, SUMS, {0: 0}),))
    only = results(again, source())

    assert_exact(TASK, [before, again], source(), [*results(before, source()), *only])

    with pytest.raises(AssertionError, match="version 3"):
        assert_exact(TASK, [before, again], source(), [*results(before, source()), *only[1:]])


def test_the_newest_revision_is_what_counts() -> None:
    revised = Life(TASK, (Version(1, replace(REVISED), {0: 0}),))
    came = results(revised, source())
    early = changed(came[0], n=came[0][1]["n"] - 1)
    late = changed(came[0], {"mars-revision": "1"})

    assert_exact(TASK, [revised], source(), [early, late, *came[1:]])

    with pytest.raises(AssertionError, match="wrong"):
        assert_exact(
            TASK, [revised], source(), [came[0], changed(early, {"mars-revision": "1"}), *came[1:]]
        )
