"""The situations of which `mars bench balance` tells how long a decision takes."""

from __future__ import annotations

import pytest

from bench.deciding import BUCKETS, MEMBERS, Situation, situations
from mars.machines.balancing import moved_at_once
from mars.machines.leading_view import PublishAssignment

REASONS = {
    "spread": "use is uneven",
    "relieve": "is under pressure",
    "welcome": "has come",
    "house": "is gone",
}


@pytest.mark.parametrize("situation", situations(), ids=lambda situation: situation.name)
def test_each_situation_asks_for_its_decision(situation: Situation) -> None:
    (decision,), _took_ms = situation.decided()

    assert isinstance(decision, PublishAssignment)
    assert len(decision.assignment.owners) == BUCKETS
    if situation.name == "help":
        assert len(decision.assignment.assistants) == MEMBERS // 2
        return
    assert len(decision.moves) >= MEMBERS // 2
    assert all(REASONS[situation.name] in move.reason for move in decision.moves)
    if situation.name != "house":
        assert len(decision.moves) <= moved_at_once(BUCKETS)
