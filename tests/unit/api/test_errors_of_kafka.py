"""A topic that Kafka refuses is a matter of the request, not of a server that is away."""

from __future__ import annotations

from api.http.errors import problem_of
from mars.core.errors import TopicRefused, Unavailable


def test_a_refused_topic_is_wrong_content_and_is_named() -> None:
    problem = problem_of(TopicRefused("team_x", "choose another name"))

    assert (problem.status, problem.service) == (422, None)
    assert problem.detail == "Kafka refuses topic team_x: choose another name."


def test_a_broker_that_is_away_is_none_of_the_request() -> None:
    assert problem_of(Unavailable("kafka", "no answer")).status == 503
