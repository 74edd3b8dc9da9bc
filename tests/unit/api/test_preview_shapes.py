"""Previews of windows that count rows, and of sessions: against the rows one by one."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from api.services.previews import windows as preview_windows
from mars.core.types import Topic
from tests.unit.api.test_preview import NOW_MS, ask, flow, send
from tests.unit.api.twins import World

COUNTING = "SELECT sip, count(*), sum(bytes) FROM flows WHERE bytes > 3 GROUP BY sip WINDOWING {}"
SESSIONS = "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING SESSION 400 ms MAX 20 s"
NAMES = ("window_start", "window_end", "window_first_offset", "window_last_offset")


@pytest.fixture(autouse=True)
def clock(world: World) -> None:
    world.now_ms = NOW_MS
    world.broker.create_topic(Topic("flows"), 2)


def made(seed: int, count: int) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    times = [chance.randrange(-9_000, -500) for _ in range(count)]
    return [
        flow(at, chance.choice("abc")) | {"bytes": chance.randrange(10)} for at in sorted(times)
    ]


def the_windows(rows: list[dict[str, Any]], size: int, slide: int) -> list[dict[str, Any]]:
    """Of a partition: all that are full, and the first that is not."""
    passing = [(offset, row) for offset, row in enumerate(rows) if row["bytes"] > 3]
    found = []
    for number in range(max(0, (len(passing) - size) // slide + 1) + 1):
        own = passing[number * slide : number * slide + size]
        groups: defaultdict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        for offset, row in own:
            groups[row["sip"]].append((offset, row))
        if own:
            found.append(
                {
                    "window_number": number,
                    "complete": len(own) == size,
                    "window_start": min(row["timestamp"] for _offset, row in own),
                    "window_end": max(row["timestamp"] for _offset, row in own),
                    "rows": {
                        sip: (
                            len(part),
                            sum(row["bytes"] for _offset, row in part),
                            part[0][0],
                            part[-1][0],
                        )
                        for sip, part in groups.items()
                    },
                }
            )
    return found


def shown(window: dict[str, Any]) -> dict[str, Any]:
    """A window of the answer in the form of `the_windows`; its rows say its name, too."""
    name = {"partition": window["partition"], "window_number": window["window_number"]}
    assert all({key: row[key] for key in name} == name for row in window["rows"])
    assert window["groups"] == len(window["rows"])
    return {
        **{key: window[key] for key in ("window_number", "complete", *NAMES[:2])},
        "rows": {
            row["sip"]: (row["count"], row["sum_bytes"], *(row[one] for one in NAMES[2:]))
            for row in window["rows"]
        },
    }


@pytest.mark.parametrize(
    ("form", "size", "slide"),
    [("20 ROWS", 20, 20), ("30 ROWS SLIDE 7 ROWS", 30, 7), ("500 ROWS", 500, 500)],
)
def test_rows_are_counted_from_the_first_of_the_preview_on(
    world: World, monkeypatch: pytest.MonkeyPatch, form: str, size: int, slide: int
) -> None:
    monkeypatch.setattr(preview_windows, "WINDOWS_MAX", 100)
    sent = [made(1, 200), made(2, 77)]
    for partition, rows in enumerate(sent):
        send(world, rows, partition)

    found = ask(world, sql=COUNTING.format(form))

    for partition, rows in enumerate(sent):
        own = [shown(one) for one in found["windows"] if one["partition"] == partition]
        assert own == the_windows(rows, size, slide)
    full = sum(one["complete"] for one in found["windows"])
    assert (found["complete_windows"], found["more_windows"]) == (full, False)
    (note,) = found["notes"]
    assert f"and {full} windows are full." in note


def test_of_each_partition_the_newest_windows_are_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview_windows, "WINDOWS_MAX", 5)
    sent = [made(1, 200), made(2, 77)]
    for partition, rows in enumerate(sent):
        send(world, rows, partition)

    found = ask(world, sql=COUNTING.format("10 ROWS"))

    assert found["more_windows"] is True
    for partition, count in ((0, 3), (1, 2)):
        own = [shown(one) for one in found["windows"] if one["partition"] == partition]
        assert own == the_windows(sent[partition], 10, 10)[-count:]
    full = [one for rows in sent for one in the_windows(rows, 10, 10) if one["complete"]]
    assert found["complete_windows"] == len(full)


def test_cost_of_counting_is_by_the_rows_that_count(world: World) -> None:
    rows = made(1, 200)
    send(world, rows, ago_ms=9_000)
    send(world, [flow(-100)])
    passing = sum(row["bytes"] > 3 for row in rows) + 1

    told = ask(world, sql=COUNTING.format("50 ROWS SLIDE 10 ROWS"))["predictions"]

    assert told["windows_per_minute"] == pytest.approx(passing / 9 * 60 / 10, abs=0.1)
    assert (told["groups_per_window"], told["groups_at_least"]) == (3, False)
    assert (told["late"], told["late_by_key"], told["suggested_delay_ms"]) == ([], [], None)
    assert told["disorder_max_ms"] is None
    assert told["redis_bytes"] >= told["redis_bytes_merged"] > 0
    assert told["sentences"][-1].startswith("No row is late")
    assert "result rows" in told["sentences"][1]


def test_counting_more_rows_than_there_are_is_the_least(world: World) -> None:
    send(world, made(1, 20))
    few = ask(world, sql=COUNTING.format("50 ROWS"))["predictions"]
    many = ask(world, sql=COUNTING.format("5000 ROWS"))["predictions"]
    assert few["groups_at_least"] is True
    assert many["redis_bytes"] > 50 * few["redis_bytes"]


def test_many_windows_a_minute_and_few_are_said_in_plain_figures(world: World) -> None:
    send(world, made(1, 200), ago_ms=6_000)
    send(world, made(1, 1), ago_ms=0)
    many = ask(world, sql="SELECT count(*) FROM flows WINDOWING 1 ROWS")["predictions"]
    few = ask(world, sql="SELECT count(*) FROM flows WINDOWING 1000000 ROWS")["predictions"]
    assert many["windows_per_minute"] == pytest.approx(2_010)
    assert (
        "About 2,010 windows a minute in all partitions, with up to 2,010 result rows."
        in many["sentences"]
    )
    assert few["windows_per_minute"] == pytest.approx(0.00201)
    assert (
        "About 0.00201 windows a minute in all partitions, with up to 0.00201 result rows."
        in few["sentences"]
    )


def test_a_partition_without_rows_holds_no_window_of_rows_back(world: World) -> None:
    send(world, made(1, 20))
    assert "idle" not in str(ask(world, sql=COUNTING.format("5 ROWS"))["notes"])
    assert "idle" in str(ask(world)["notes"])


def test_no_row_that_passes_makes_no_window(world: World) -> None:
    send(world, [flow(-1_000) | {"bytes": 1}])
    found = ask(world, sql=COUNTING.format("5 ROWS"))
    assert (found["windows"], found["complete_windows"]) == ([], 0)
    assert "WHERE lets none of 1 rows through." in found["notes"]


# ----------------------------------------------------------------------------- sessions


def the_sessions(rows: list[dict[str, Any]]) -> Counter[tuple[int, int, str, int]]:
    times: defaultdict[str, list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda one: one["timestamp"]):
        times[row["sip"]].append(row["timestamp"])
    found: Counter[tuple[int, int, str, int]] = Counter()
    for sip, own in times.items():
        parts = [[own[0]]]
        for at in own[1:]:
            if at - parts[-1][-1] >= 400 or at // 20_000 != parts[-1][-1] // 20_000:
                parts.append([])
            parts[-1].append(at)
        for part in parts:
            end = min(part[-1] + 400, (part[0] // 20_000 + 1) * 20_000)
            found[part[0], end, sip, len(part)] += 1
    return found


def test_sessions_are_those_of_the_rows_and_say_which_are_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview_windows, "WINDOWS_MAX", 100)
    sent = [made(3, 30), made(4, 20)]
    for partition, rows in enumerate(sent):
        send(world, rows, partition)

    found = ask(world, sql=SESSIONS, options={"delay": "500ms"})

    rows = [row for part in sent for row in part]
    wanted = the_sessions(rows)
    assert len(wanted) > 10
    got = Counter(
        (one["window_start"], one["window_end"], row["sip"], row["count"])
        for one in found["windows"]
        for row in one["rows"]
    )
    assert got == wanted
    begin = max(part[0]["timestamp"] for part in sent)
    level = (min(part[-1]["timestamp"] for part in sent) - 500) // 100 * 100
    whole = [
        begin <= one["window_start"] - 399 and one["window_end"] <= level
        for one in found["windows"]
    ]
    assert [one["complete"] for one in found["windows"]] == whole
    assert 0 < sum(whole) == found["complete_windows"] < len(whole)
    assert f"{len(whole) - sum(whole)} of {len(whole)} sessions may have more rows" in str(
        found["notes"]
    )

    told = found["predictions"]
    assert told["groups_per_window"] is None
    assert told["sessions_per_group"] == round(len(whole) / 3, 2)
    upto = min(part[-1]["timestamp"] for part in sent)
    begun = sum(begin + 399 <= one["window_start"] < upto for one in found["windows"])
    assert told["windows_per_minute"] == round(begun * 60_000 / (upto - begin - 399), 6)
    assert [one["delay_ms"] for one in told["late"]][:3] == [0, 500, 1_000]


def test_the_newest_sessions_are_shown_and_having_chooses_among_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preview_windows, "WINDOWS_MAX", 3)
    rows = made(3, 60)
    found = ask(
        world, sql=SESSIONS.replace("WINDOWING", "HAVING count(*) > 1 WINDOWING"), rows=rows
    )
    wanted = sorted((end, start) for start, end, _sip, n in the_sessions(rows) if n > 1)
    got = [(one["window_end"], one["window_start"]) for one in found["windows"]]
    assert got == wanted[-3:]
    assert found["more_windows"] is True
    told = found["predictions"]
    assert told["sessions_per_group"] == round(sum(the_sessions(rows).values()) / 3, 2)
    assert told["windows_per_minute"] is None
    none = ask(
        world, sql=SESSIONS.replace("WINDOWING", "HAVING count(*) > 99 WINDOWING"), rows=rows
    )
    assert none["windows"] == []
    assert "HAVING lets no group through." in none["notes"]


def test_rows_of_the_request_have_none_before_them(world: World) -> None:
    rows = [flow(at) for at in (-9_000, -8_800, -3_000)]
    first, second = ask(world, sql=SESSIONS, rows=rows)["windows"]
    assert (first["complete"], second["complete"]) == (True, False)
    send(world, rows)
    first, second = ask(world, sql=SESSIONS)["windows"]
    assert (first["complete"], second["complete"]) == (False, False)


def test_rows_behind_by_more_than_the_delay_are_late_for_sessions(world: World) -> None:
    """They are cut by panes of 100 ms: of a row 50 ms behind half the places of borders are."""
    times = [-9_000, -8_000, -8_050, -4_000, -6_000, -3_000, -2_900, -2_800, -2_700, -2_600]
    send(world, [flow(at) for at in times])
    told = ask(world, sql=SESSIONS)["predictions"]
    shares = {one["delay_ms"]: one["share"] for one in told["late"]}
    assert (shares[0], shares[1_000], shares[5_000]) == (0.15, 0.1, 0)
    assert (told["disorder_max_ms"], told["suggested_delay_ms"]) == (2_000, 5_000)


def test_a_preview_shorter_than_a_gap_says_that_it_knows_little(world: World) -> None:
    send(world, made(3, 60))
    sql = "SELECT sip, count(*) FROM flows GROUP BY sip WINDOWING SESSION 30 min"
    found = ask(world, sql=sql)
    assert len(found["windows"]) == 3
    assert "No session is over within the preview, with a gap of 30 min" in str(found["notes"])
    assert found["predictions"]["windows_per_minute"] is None
    assert found["predictions"]["groups_at_least"] is True


def test_one_session_of_all_rows_and_none_without_rows(world: World) -> None:
    sql = "SELECT count(*) FROM flows WINDOWING SESSION 10 s MAX 1 h"
    (one,) = ask(world, sql=sql, rows=made(3, 60))["windows"]
    assert (one["rows"][0]["count"], one["groups"]) == (60, 1)
    empty = ask(world, sql=sql, rows=[])
    assert (empty["windows"], empty["complete_windows"]) == ([], 0)
    assert empty["predictions"]["sessions_per_group"] is None
