"""What a namespace is called in Kafka: topics, consumer groups, transactional ids."""

from __future__ import annotations

from dataclasses import dataclass

from mars.core.topics import DEFAULT_NAMESPACE
from mars.core.types import Bucket, Topic
from mars.protocol.ports.queries import QueryId

__all__ = ["DEFAULT_NAMESPACE", "Names", "Place"]

Place = tuple[Topic, int]
"""A partition of a topic."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of one namespace; only those of topics leave out `default`.

    Each of these topics is in `mars.topics.INTERNAL`: tasks and streams keep away from them.
    """

    namespace: str

    @property
    def progress(self) -> Topic:
        """What the buckets have emitted: partition = bucket."""
        return self._topic("progress")

    @property
    def state(self) -> Topic:
        """Snapshots of the panes that have been open for long: partition = bucket."""
        return self._topic("state")

    @property
    def control(self) -> Topic:
        """Definitions and epochs: one partition."""
        return self._topic("control")

    @property
    def dead(self) -> Topic:
        """References to rows that were not counted."""
        return self._topic("dead")

    @property
    def incidents(self) -> Topic:
        """What happened that people should hear of: one partition."""
        return self._topic("incidents")

    @property
    def queries(self) -> Topic:
        """The answers of ad-hoc queries."""
        return self._topic("queries")

    @property
    def mappers(self) -> str:
        """The consumer group of the mappers."""
        return f"mars.{self.namespace}.mappers"

    @property
    def readers(self) -> str:
        """The group id of consumers that are in no group: the client library wants one."""
        return f"mars.{self.namespace}.readers"

    def transactional_id(self, bucket: Bucket) -> str:
        """Whoever initialises a producer of this id fences the older one."""
        return f"mars.{self.namespace}.{bucket}"

    def query_transactional_id(self, query: QueryId) -> str:
        """The same for the answer of a query; no bucket is called so."""
        return f"mars.{self.namespace}.query.{query}"

    def _topic(self, name: str) -> Topic:
        if self.namespace == DEFAULT_NAMESPACE:
            return Topic(f"mars.{name}")
        return Topic(f"mars.{self.namespace}.{name}")
