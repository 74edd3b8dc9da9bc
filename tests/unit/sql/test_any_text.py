"""No text brings the compiler down: it becomes a plan or a complaint at a place in the text."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import TokenType

from mars.core.errors import SqlError
from mars.sql.source import tokenize
from tests.unit.sql.compiling import INSTEAD, compiled

QUERIES = [
    "SELECT sip, type, timestamp, count(*) FROM S GROUP BY sip, type, timestamp WINDOWING 60 s",
    "SELECT lower(sip) AS host, sum(bytes) / count(*) AS mean, avg(loss) FILTER (WHERE ok) AS l "
    "FROM S WHERE sport BETWEEN 1 AND 1024 AND type IN ('tcp', 'udp') OR NOT ok IS NULL "
    "GROUP BY host HAVING mean > 1.5 ORDER BY mean DESC LIMIT 10 WINDOWING 60 s SLIDE 10 s",
    "SELECT CASE type WHEN 'tcp' THEN 6 ELSE NULL END AS p, CAST(sip || '!' AS VARCHAR) AS s, "
    "count(DISTINCT dip), ROUND(max(loss), 2) AS r FROM S WHERE sip LIKE 'a!%%' ESCAPE '!' "
    "GROUP BY 1, 2, TUMBLE(timestamp, INTERVAL '60' SECOND)",
]
WORDS = sorted(
    {word for query in QUERIES for word in query.replace("(", " ( ").replace(",", " , ").split()}
    | {kind.name.replace("_", " ") for kind in TokenType}
    | {"''", '"', "'", "--", "/*", "*/", "::", "||", "->", "[", "]", "{", "}", "@", "$1", "?", ";"}
    | {"1e9", "0x1", "9" * 30, "$$", "E'\\n'", "\u0000", "é", "\ud800", "LANDMARK", "TIMEZONE"}
)


def complaint_about(sql: str) -> SqlError | None:
    try:
        compiled(sql)
    except SqlError as error:
        return error
    return None


def compiles_or_complains(sql: str) -> None:
    complaint = complaint_about(sql)
    if complaint:
        lines = sql.split("\n")
        assert 1 <= complaint.line <= len(lines)
        assert 1 <= complaint.column <= len(lines[complaint.line - 1]) + 1
        assert 0 < len(complaint.detail) < 1_000
        assert INSTEAD.search(complaint.detail), complaint.detail


@settings(max_examples=150)
@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    compiles_or_complains(text)
    compiles_or_complains(f"SELECT {text} FROM S WINDOWING 60 s")


@settings(max_examples=150)
@given(st.lists(st.sampled_from(WORDS), max_size=20))
def test_any_words(words: list[str]) -> None:
    text = " ".join(words)
    compiles_or_complains(text)
    compiles_or_complains(f"SELECT {text} FROM S GROUP BY sip WINDOWING 60 s")
    compiles_or_complains(f"SELECT count(*) FROM S {text} WINDOWING 60 s")
    compiles_or_complains(f"SELECT count(*) FROM S WHERE {text} WINDOWING 60 s")


@settings(max_examples=250)
@given(st.sampled_from(QUERIES), st.randoms(use_true_random=False), st.integers(1, 4))
def test_any_change_of_a_query(query: str, chance: random.Random, changes: int) -> None:
    words = query.split(" ")
    for _ in range(changes):
        at = chance.randrange(len(words))
        change = chance.randrange(5)
        if change == 0:
            words[at : at + 1] = []
        elif change == 1:
            words.insert(at, chance.choice(WORDS))
        elif change == 2:
            words[at] = chance.choice(WORDS)
        elif change == 3:
            words.insert(at, words[chance.randrange(len(words))])
        else:
            cut = chance.randrange(len(words[at]) + 1)
            words[at] = words[at][:cut] + chance.choice("'\"()*,.;-\n") + words[at][cut:]
        words = words or [""]
    compiles_or_complains(" ".join(words))


@pytest.mark.parametrize(
    "piece",
    [
        "(", ")", "[", "{", "CASE ", "CASE WHEN ", "NOT ", "- ", "-", "+", "lower(", "CAST(", "a.",
        "1+", "ok AND ", "ok OR ", "sip||", "'a' ", "x IN (", "BETWEEN ", "SELECT ", "INTERVAL ",
        "count(DISTINCT ", "a::", "a:", ",", "a,", "/*", "--", "\"", "'", "EXISTS(", "ok = ",
    ],
)  # fmt: skip
@pytest.mark.parametrize("times", [30, 1_000])
def test_any_repetition(piece: str, times: int) -> None:
    compiles_or_complains(f"SELECT count(*) FROM S WHERE {piece * times} WINDOWING 60 s")
    compiles_or_complains(f"SELECT {piece * times}1 AS x, count(*) FROM S WINDOWING 60 s")


@given(st.text(alphabet="\r\n\t aé漢🤦-/*", max_size=40))
def test_places_of_words_are_true(text: str) -> None:
    try:
        source = tokenize(text + "\n'wanted'")
    except SqlError:
        return
    for token in source.tokens:
        if token.text == "wanted":
            error = source.error(token, "here")
            assert (error.line, error.column) == (text.count("\n") + 2, 1)
