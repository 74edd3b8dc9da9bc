"""How many mappers and reducers `mars up --autoscale` keeps: as the leader wants, within bounds."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from mars.client.blocking import Client
from mars.core.errors import MarsError

ASK_EVERY_S = 2.0
"""Between two questions to the API: what it says is smoothed over ten seconds anyway."""

ROLES = ("mapper", "reducer")
"""The roles that are scaled."""


@dataclass(frozen=True, slots=True)
class ScaleBounds:
    """Of each of the roles at least `low` and at most `high` processes."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}:{self.high}"

    def within(self, count: int) -> int:
        """The nearest count that is allowed."""
        return max(self.low, min(self.high, count))


@dataclass(frozen=True, slots=True)
class Target:
    """`wanted` processes of a role, and why, seen when there were `present`."""

    present: int
    wanted: int
    reason: str


class ScaleAdvice:
    """What the leader wants, asked for in the background: the supervisor must not wait for it."""

    def __init__(self, api: str, bounds: ScaleBounds) -> None:
        self.bounds = bounds
        self._api = api
        self._targets: dict[str, Target] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="autoscale", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()

    def targets(self) -> dict[str, Target]:
        """By role; empty as long as nobody has answered, or nobody leads."""
        return self._targets

    def _run(self) -> None:
        with Client(self._api) as client:
            while not self._stop.wait(ASK_EVERY_S):
                self._targets = self._ask(client)

    def _ask(self, client: Client) -> dict[str, Target]:
        try:
            balance = client.cluster().balance
        except MarsError:
            return {}  # it is asked again, and until then everything stays as it is
        return {
            each.role: Target(each.present, self.bounds.within(each.wanted), each.reason)
            for each in (balance.wanted if balance is not None else ())
            if each.role in ROLES
        }
