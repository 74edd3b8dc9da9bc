"""Answers in parts, asked one after the other or beside each other."""

from __future__ import annotations

from threading import Event

import pytest

from api.services.inside.missing import Missing
from mars.core.errors import Unavailable

PATIENCE_S = 30.0


def refuse() -> str:
    raise Unavailable("kafka", "no broker answers")


def test_what_is_begun_is_asked_while_other_things_are() -> None:
    missing, asked = Missing({}), Event()

    def waits() -> str:
        assert asked.wait(PATIENCE_S), "nothing else was asked meanwhile"
        return "ends"

    def answers() -> str:
        asked.set()
        return "head"

    ends = missing.begin("kafka", waits)
    assert missing.ask("redis", answers) == "head"
    assert ends() == "ends"
    assert missing.services == ()


def test_a_server_that_fails_in_the_background_is_named_once_its_answer_is_wanted() -> None:
    missing = Missing({})
    ends = missing.begin("kafka", refuse)
    assert ends() is None
    assert missing.services == ("kafka",)
    assert "no broker answers" in missing.sentences[0]


def test_a_server_known_to_be_away_is_not_asked_in_the_background() -> None:
    missing = Missing({"kafka": Unavailable("kafka", "no broker answers")})
    answer = missing.begin("kafka", lambda: pytest.fail("it was asked"))
    assert answer() is None
    assert missing.services == ("kafka",)


def test_after_a_failure_what_was_begun_before_is_not_waited_for() -> None:
    missing, go_on = Missing({}), Event()
    slow = missing.begin("kafka", lambda: go_on.wait(PATIENCE_S))
    try:
        assert missing.ask("kafka", refuse) is None
        assert slow() is None
    finally:
        go_on.set()


def test_other_errors_are_raised_where_the_answer_is_wanted() -> None:
    broken = Missing({}).begin("kafka", lambda: int("gone"))
    with pytest.raises(ValueError, match="gone"):
        broken()
