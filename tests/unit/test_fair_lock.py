"""The lock that threads share in the order in which they came."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mars.fair_lock import FairLock
from tests.contracts.waiting import eventually


def taking(lock: FairLock, do: Callable[[], None]) -> threading.Thread:
    """A thread that waits for the lock already."""

    def take() -> None:
        with lock:
            do()

    before = lock.waiting
    thread = threading.Thread(target=take)
    thread.start()
    eventually(lambda: lock.waiting == before + 1)
    return thread


def test_whoever_has_waited_longest_has_it_next() -> None:
    lock, order = FairLock(), list[int]()
    with lock:
        threads = [taking(lock, lambda number=number: order.append(number)) for number in range(9)]
    for thread in threads:
        thread.join()
    assert order == list(range(9))
    with lock:
        assert lock.waiting == 0


def test_whoever_gives_way_goes_on_after_those_who_waited() -> None:
    lock, order = FairLock(), list[str]()
    with lock:
        lock.give_way()  # to nobody
        threads = [taking(lock, lambda: order.append("other")) for _ in range(2)]
        lock.give_way()
        order.append("mine")
    for thread in threads:
        thread.join()
    assert order == ["other", "other", "mine"]


def test_others_have_it_while_it_is_released_and_it_is_held_again_afterwards() -> None:
    lock, order = FairLock(), list[str]()
    with lock:
        with lock.released():
            with lock:
                order.append("within")
        late = taking(lock, lambda: order.append("late"))
        order.append("held")
    late.join()
    assert order == ["within", "held", "late"]
