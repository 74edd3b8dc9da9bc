"""The lock whose holder can let others go first."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mars.turn import Turn
from tests.contracts.waiting import eventually


def taking(turn: Turn, do: Callable[[], None]) -> threading.Thread:
    """A thread that waits for its turn already."""

    def take() -> None:
        with turn:
            do()

    before = turn.waiting
    thread = threading.Thread(target=take)
    thread.start()
    eventually(lambda: turn.waiting == before + 1)
    return thread


def test_one_thread_has_it_at_a_time() -> None:
    turn, count = Turn(), [0]

    def add() -> None:
        for _ in range(500):
            with turn:
                before = count[0]
                turn.give_way()
                count[0] += 1
            assert before >= 0

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (count[0], turn.waiting) == (2_000, 0)


def test_whoever_gives_way_goes_on_after_one_who_waited() -> None:
    turn, order = Turn(), list[str]()
    with turn:
        turn.give_way()  # to nobody
        thread = taking(turn, lambda: order.append("other"))
        turn.give_way()
        order.append("mine")
    thread.join()
    assert order == ["other", "mine"]


def test_others_have_it_while_it_is_released_and_it_is_held_again_afterwards() -> None:
    turn, order = Turn(), list[str]()
    with turn:
        with turn.released(), turn:
            order.append("within")
        late = taking(turn, lambda: order.append("late"))
        order.append("held")
    late.join()
    assert order == ["within", "held", "late"]
