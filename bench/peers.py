"""The systems that can be measured beside Mars, and how each is set up for a purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.contestants import Contestant
from bench.flink import side as flink
from bench.flink.query import Tuning
from bench.quix import install
from bench.quix.side import QuixSide
from mars.core.plan import Format

THROUGHPUT_COMMIT_S = 10.0
LATENCY_COMMIT_S = 1.0
"""Flink's checkpoints and Quix's commits for each purpose: seldom costs least, often is soonest."""

LATENCY_WATERMARK_MS = 50
"""Flink's."""

CATCH_UP_GRACE_S = 60.0
"""Quix's over a full topic, whose partitions it reads as they come: see bench/quix/job.py."""

Say = Callable[[str], None]
"""Told one line for a person."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A system beside Mars, made for a folder of data and as many mappers as Mars has.

    `fetch` raises BenchError where it is not installed and cannot be. `saved_as` begins the names
    of its reports, so that they are not taken for those that the pages show.
    """

    title: str
    fetch: Callable[[Say], None]
    for_throughput: Callable[[Path, int], Contestant]
    for_latency: Callable[[Path, int], Contestant]
    formats: frozenset[Format] = frozenset({Format.JSON, Format.NDJSON})
    saved_as: str = ""


PEERS: Mapping[str, Peer] = {
    "flink": Peer(
        title="Flink SQL",
        fetch=flink.fetch,
        for_throughput=lambda data, _: flink.FlinkSide(data, Tuning(THROUGHPUT_COMMIT_S)),
        for_latency=lambda data, _: flink.FlinkSide(
            data, Tuning(LATENCY_COMMIT_S, LATENCY_WATERMARK_MS)
        ),
    ),
    "quix": Peer(
        title="Quix Streams",
        fetch=install.fetch,
        for_throughput=lambda data, mappers: QuixSide(
            data, THROUGHPUT_COMMIT_S, mappers, CATCH_UP_GRACE_S
        ),
        for_latency=lambda data, mappers: QuixSide(data, LATENCY_COMMIT_S, mappers),
        formats=frozenset({Format.JSON}),
        saved_as="quix-",
    ),
}
