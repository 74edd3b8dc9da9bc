"""Where a task that starts at a time has to begin, by what lies in the topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from confluent_kafka import Message

from tests.support.users import Registration
from tests.support.users_check import assert_starts_at

THERE = 2
"""How far the partition surely was when the task was asked for."""

ASKED = Registration("t", 1, start=100, answered_ms=200, there={0: THERE})


class Written:
    """A message of partition 0."""

    def __init__(self, offset: int, at_ms: int) -> None:
        self._offset, self._at_ms = offset, at_ms

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at_ms


def check(start: int, times_ms: Sequence[int]) -> None:
    messages = [cast("Message", Written(*place)) for place in enumerate(times_ms)]
    assert_starts_at(ASKED, {0: start}, messages)


@pytest.mark.parametrize(
    ("start", "times_ms"),
    [
        pytest.param(1, [99, 100, 101], id="the first that is not older"),
        pytest.param(1, [99, 100, 50, 101], id="an older one behind it"),
        pytest.param(2, [98, 99, 50], id="nothing was so young, and an older one came"),
        pytest.param(2, [98, 99, 50, 100], id="the same, and then a young one"),
    ],
)
def test_a_start_that_is_right(start: int, times_ms: Sequence[int]) -> None:
    check(start, times_ms)


@pytest.mark.parametrize(
    ("start", "times_ms"),
    [
        pytest.param(0, [99, 100, 101], id="an older one too many"),
        pytest.param(2, [99, 100, 101], id="one too few"),
        pytest.param(1, [97, 98, 99], id="before the end of then"),
        pytest.param(1, [97, 98, 99, 100], id="before the end of then, a young one came later"),
        pytest.param(3, [98, 50, 100, 101], id="behind the first, at what might be an end"),
    ],
)
def test_a_start_that_is_wrong(start: int, times_ms: Sequence[int]) -> None:
    with pytest.raises(AssertionError, match="is the first"):
        check(start, times_ms)
