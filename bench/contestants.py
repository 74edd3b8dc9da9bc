"""What the benchmarks ask of a system that they measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from bench.processes import Watched
from mars.core.plan import Format

DELAY_S = 1
"""How long contestants wait for rows that are out of order, unless they need more to be right."""

OUTPUT_PARTITIONS = 8
"""Of every contestant's output: as many as Mars has buckets."""


@dataclass(frozen=True, slots=True)
class Workload:
    """The query on a topic.

    `name` is new for each run. `earliest`: over what is in the topic, else over what comes.
    """

    name: str
    topic: str
    format: Format
    window_s: int
    earliest: bool = True

    @property
    def output(self) -> str:
        """The topic of the results, which `submit` makes."""
        return f"bench.out.{self.name}"


class Contestant(Protocol):
    """A system with its servers, on a data folder that holds Kafka's."""

    @property
    def name(self) -> str:
        """As it is called in tables: `mars`, `flink`, `quix`."""
        ...

    @property
    def version(self) -> str:
        """Its release."""
        ...

    @property
    def commit_interval_s(self) -> float:
        """How long a due result may wait to be committed, by the contestant's own settings."""
        ...

    @property
    def delay_s(self) -> float:
        """How long it waits for rows that are out of order: see DELAY_S."""
        ...

    def settings(self) -> Mapping[str, str]:
        """What was set, to be saved with the figures."""
        ...

    def running(self) -> AbstractContextManager[str]:
        """Start everything; gives Kafka's address; end everything. Raises MarsError."""
        ...

    def submit(self, workload: Workload) -> None:
        """Start the query; returns when it has been accepted. Raises MarsError."""
        ...

    def messages_taken(self) -> int:
        """Input messages of the query that were taken so far: cheap, asked twice a second."""
        ...

    def watched(self) -> Sequence[Watched]:
        """Its processes, servers included. Raises MarsError when one has died."""
        ...

    def withdraw(self) -> None:
        """End the query, so that another can be measured on the same data."""
        ...
