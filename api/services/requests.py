"""How many requests are answered, and how soon."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.core import Metric

BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histogram: most answers come from memory, some wait for a server."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
"""Methods that have a figure each; a client may invent others."""


class RequestFigures:
    """Counted by the gate, shown by /metrics. Thread-safe."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._answers = Counter(
            "mars_api_requests",
            "Requests answered by this API.",
            labelnames=["method", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "mars_api_request_seconds",
            "From a request to the beginning of its answer.",
            labelnames=["method"],
            buckets=BUCKETS_S,
            registry=self._registry,
        )

    def answered(self, method: str, status: int, seconds: float) -> None:
        """One request got an answer."""
        known = method if method in METHODS else "other"
        self._answers.labels(known, str(status)).inc()
        self._seconds.labels(known).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        """The figures as of now."""
        return self._registry.collect()
