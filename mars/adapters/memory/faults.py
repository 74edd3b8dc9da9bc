"""How a twin is told to fail."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from mars.core.errors import Unavailable


class Faults:
    """The failures that wait for the next calls of a twin, per method, in order."""

    def __init__(self, service: str) -> None:
        self.service = service
        self._planned: defaultdict[str, deque[bool]] = defaultdict(deque)

    def plan(self, method: str, *, before: bool) -> None:
        """Let the next call of `method` that is not yet planned for fail."""
        self._planned[method].append(before)

    def take(self, method: str) -> bool | None:
        """How this call fails: True before it takes effect, False after, None not at all."""
        planned = self._planned.get(method)
        return planned.popleft() if planned else None

    def error(self, method: str, *, before: bool) -> Unavailable:
        """What a failed call raises."""
        when = "before" if before else "after"
        return Unavailable(self.service, f"told to fail {when} `{method}` took effect")


class Fallible(Protocol):
    """A twin that can be told to fail."""

    @property
    def faults(self) -> Faults:
        """Its planned failures."""


_Twin = TypeVar("_Twin", bound=Fallible)
_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer")


def fallible(
    method: Callable[Concatenate[_Twin, _Arguments], _Answer],
) -> Callable[Concatenate[_Twin, _Arguments], _Answer]:
    """Let a method of a twin raise `Unavailable` where that was planned."""
    name = method.__name__

    @wraps(method)
    def call(self: _Twin, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        before = self.faults.take(name)
        if before:
            raise self.faults.error(name, before=True)
        answer = method(self, *args, **kwargs)
        if before is False:
            raise self.faults.error(name, before=False)
        return answer

    return call
