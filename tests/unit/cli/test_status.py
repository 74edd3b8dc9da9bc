"""What `mars status` says of the balance."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from mars.cli import run

BALANCE = {
    "mean_use": 0.42,
    "strategy": "greedy",
    "strategy_reason": "uneven: rows per reducer max/min 3.0",
    "rows_ratio": 3.0,
    "deviation": 0.05,
    "pressure": {"reducer-1": 0.1},
    "wanted": [{"role": "mapper", "present": 2, "wanted": 3, "reason": "mean load 90%"}],
    "moves": [
        {"bucket": 5, "source": None, "target": "reducer-1", "reason": "nobody owned it", "at": 0},
        {"bucket": 5, "source": "a", "target": "b", "reason": "use is uneven", "at": 60_000_000},
    ],
    "lent": [{"bucket": 7, "home": "a", "borrower": "b"}],
    "lent_total": 1,
    "strategy_changes": [{"strategy": "split", "reason": "bucket 3 is hot", "at": 60_000}],
    "assistant_changes": [
        {"bucket": 3, "assistants": ["b"], "reason": "b merges for it", "at": 60_000},
        {"bucket": 3, "assistants": [], "reason": "its owner does that alone", "at": 90_000},
    ],
}


def test_status_tells_moves_with_their_reasons_and_how_many_members_are_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answered(url: str, **_options: object) -> httpx.Response:
        request = httpx.Request("GET", url)
        return httpx.Response(200, content=json.dumps({"balance": BALANCE}), request=request)

    monkeypatch.setattr(httpx, "get", answered)

    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Shanghai")
        time.tzset()
        assert run(["status", "--data", "nowhere", "--api", "http://api"]) == 0
    time.tzset()

    said = capsys.readouterr().out
    assert "balance: mean use of a reducer 42% of a core, deviation 0.05" in said
    assert "strategy: greedy (uneven: rows per reducer max/min 3.0)" in said
    assert "wanted: 3 mappers (running: 2): mean load 90%" in said
    assert "bucket 5, nobody -> reducer-1: nobody owned it" in said
    assert "moved 1970-01-01 16:40:00 UTC: bucket 5, a -> b: use is uneven" in said
    assert "lent: bucket 7 of a, to b" in said
    assert "strategy 1970-01-01 00:01:00 UTC: split (bucket 3 is hot)" in said
    assert "assisted 1970-01-01 00:01:00 UTC: bucket 3, by b: b merges for it" in said
    assert "bucket 3, by nobody: its owner does that alone" in said


def test_status_shows_members_as_a_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    member = {
        "id": "mapper-1",
        "host": "here",
        "pid": 1,
        "started": 0,
        "role": "mapper",
        "load": {"rows_per_second": 120.0, "cpu_use": 0.25, "resident_bytes": 2**27},
        "missing": ["redis"],
        "partitions": [],
        "buckets": [],
        "age_s": 1.25,
    }
    answer = {"leader": None, "backlog": {"lag": 7}, "members": [member], "missing": ["redis"]}

    def answered(url: str, **_options: object) -> httpx.Response:
        request = httpx.Request("GET", url)
        return httpx.Response(200, content=json.dumps(answer), request=request)

    monkeypatch.setattr(httpx, "get", answered)
    assert run(["status", "--data", "nowhere", "--api", "http://api"]) == 0
    said = capsys.readouterr().out
    assert "leader: nobody yet" in said
    assert "not available: redis" in said
    assert "oldest report: of mapper-1, 1.2 s ago" in said
    assert ["mapper-1", "mapper", "120", "0.25", "128", "0", "partitions", "redis"] in [
        line.split() for line in said.splitlines()
    ]
