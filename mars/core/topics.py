"""Which topics are Mars's own, in any namespace: all that write or read a topic for somebody ask.

    default     mars.progress          mars.results.TASK
    others      mars.NAME.progress     mars.NAME.results.TASK

`mars.adapters.kafka.names` makes these names; a test keeps both together.
"""

from __future__ import annotations

import re
from typing import Final

DEFAULT_NAMESPACE: Final = "default"
"""The only namespace whose name is not in those of its topics."""

INTERNAL: Final = ("progress", "state", "control", "dead", "incidents", "queries")
"""What Mars writes for itself: whatever else lies in one of these breaks it."""

# `mars.results.progress` is where a task named progress writes, so `results` is no namespace.
_PREFIX = r"mars\.(?:(?!results\.)(?P<namespace>[^.]+)\.)?"
_INTERNAL = re.compile(_PREFIX + rf"(?:{'|'.join(INTERNAL)})")
_RESULTS = re.compile(_PREFIX + r"results\.[^.]+")


def is_internal(topic: str) -> bool:
    """Whether a topic is one that Mars writes for itself, or Kafka."""
    return topic.startswith("__") or _INTERNAL.fullmatch(topic) is not None


def namespace_of_results(topic: str) -> str | None:
    """The namespace whose task has this topic for its results by default; None: no task has."""
    found = _RESULTS.fullmatch(topic)
    return None if found is None else found["namespace"] or DEFAULT_NAMESPACE
