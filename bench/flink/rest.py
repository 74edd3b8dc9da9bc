"""What Flink's REST interface says of a job."""

from __future__ import annotations

import urllib.error
import urllib.parse
import urllib.request
from typing import TypeVar

import msgspec

from bench.errors import BenchError

ANSWER_S = 5.0
"""Longest answer; it takes milliseconds unless the machine is full."""


class _Job(msgspec.Struct):
    jid: str
    name: str
    state: str


class _Jobs(msgspec.Struct):
    jobs: list[_Job]


class _Vertex(msgspec.Struct):
    id: str
    name: str


class _Plan(msgspec.Struct):
    vertices: list[_Vertex]


class _Metric(msgspec.Struct):
    id: str
    sum: float | None = None


T = TypeVar("T")


class FlinkJob:
    """A job that was submitted under a name."""

    def __init__(self, rest: str, name: str, partitions: int) -> None:
        self._rest = rest
        self._name = name
        self._partitions = partitions
        self._places: tuple[str, list[str]] | None = None

    def state(self) -> str:
        """RUNNING, RESTARTING, FAILED ...; empty while there is no such job."""
        job = self._job()
        return "" if job is None else job.state

    def messages(self) -> int:
        """Messages that the sources have taken: the sum of their offsets. 0 before the first."""
        if self._places is None:
            self._places = self._find()
        if self._places is None:
            return 0
        path, metrics = self._places
        query = urllib.parse.urlencode({"get": ",".join(metrics), "agg": "sum"})
        found = self._get(f"{path}?{query}", list[_Metric])
        # The metric is the offset of the last message taken; -1 before the first.
        return sum(max(int(metric.sum), -1) + 1 for metric in found if metric.sum is not None)

    def _job(self) -> _Job | None:
        jobs = self._get("/jobs/overview", _Jobs).jobs
        return next((job for job in jobs if job.name == self._name), None)

    def _find(self) -> tuple[str, list[str]] | None:
        """The path of the source's metrics, and the names of those that tell its offsets."""
        job = self._job()
        if job is None:
            return None
        for vertex in self._get(f"/jobs/{job.jid}", _Plan).vertices:
            path = f"/jobs/{job.jid}/vertices/{vertex.id}/subtasks/metrics"
            names = [metric.id for metric in self._get(path, list[_Metric])]
            offsets = [name for name in names if name.endswith(".currentOffset")]
            if len(offsets) == self._partitions:
                return path, offsets
        return None

    def _get(self, path: str, kind: type[T]) -> T:
        try:
            with urllib.request.urlopen(self._rest + path, timeout=ANSWER_S) as answer:
                return msgspec.json.decode(answer.read(), type=kind)
        except (urllib.error.URLError, OSError, msgspec.MsgspecError) as error:
            raise BenchError(f"Flink does not answer {path} ({error}); see its logs.") from error
