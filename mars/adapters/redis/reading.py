"""Logs are read in transactions, not by scripts: Lua would copy every entry twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from mars.adapters.redis.connection import RUN_SECTIONS, run_id_of
from mars.adapters.redis.keys import TaskKeys
from mars.adapters.redis.servers import StoreServers, calling
from mars.adapters.redis.wire import base_entries, log_entries
from mars.core.types import Bucket, Entry, Sequence64, TaskName
from mars.protocol.ports import LogSlice, ReadRequest


class Reader:
    """Reads the logs of a namespace."""

    def __init__(self, servers: StoreServers, namespace: str) -> None:
        self._servers = servers
        self._namespace = namespace

    def read_many(self, requests: Sequence[ReadRequest]) -> list[LogSlice]:
        """See `RedisPartialLog`."""
        followed = self._follow([request for request in requests if request.after > 0])
        return [
            followed[request]
            if request.after > 0
            else self._read_whole([(request.task, request.bucket)], request.upto)[0]
            for request in requests
        ]

    def read_together(
        self, task: TaskName, buckets: Sequence[Bucket], upto: Sequence64
    ) -> list[LogSlice]:
        """See `RedisPartialLog`."""
        logs = [(task, bucket) for bucket in buckets]
        return self._read_whole(logs, upto, merged_upto="+inf")

    def _follow(self, requests: Sequence[ReadRequest]) -> dict[ReadRequest, LogSlice]:
        """Those of a task are of one moment, where a transaction may ask for all of them all."""
        parts: dict[TaskName | None, list[ReadRequest]] = {}
        for request in requests:
            part = None if self._servers.joins_tasks else request.task
            parts.setdefault(part, []).append(request)
        return {request: piece for part in parts.values() for request, piece in self._part(part)}

    def _part(self, requests: Sequence[ReadRequest]) -> Iterator[tuple[ReadRequest, LogSlice]]:
        with self._transaction(requests[0].task) as pipeline:
            for request in requests:
                keys = TaskKeys.of(self._namespace, request.task)
                log = keys.log(request.bucket)
                pipeline.xrange(log, f"{request.after + 1}-0", f"{request.upto}-0")
                pipeline.zrangebyscore(keys.merged(request.bucket), request.after + 1, request.upto)
                _count(pipeline, keys, request.bucket)
            pipeline.info(*RUN_SECTIONS)
            *answers, server = pipeline.execute()
        run_id = run_id_of(server)
        for request, (*found, counts) in zip(requests, _of_each(answers, 2), strict=True):
            entries = log_entries(*found)
            yield request, LogSlice(None, entries, run_id=run_id, vanished=_vanished(counts))

    @contextmanager
    def _transaction(self, task: TaskName) -> Iterator[redis.client.Pipeline]:
        """On the server of a task."""
        with calling(self._servers):
            client = self._servers.of(TaskKeys.of(self._namespace, task).meta)
            with client.pipeline(transaction=True) as pipeline:
                yield pipeline

    def _read_whole(
        self,
        logs: Sequence[tuple[TaskName, Bucket]],
        upto: Sequence64,
        merged_upto: Sequence64 | str | None = None,
    ) -> list[LogSlice]:
        """Bases and entries of whole logs of one task, all of one moment.

        `merged_upto`: the last merged entry that is looked at, if it may begin at or below `upto`.
        """
        if not logs:
            return []
        with self._transaction(logs[0][0]) as pipeline:
            for task, bucket in logs:
                keys = TaskKeys.of(self._namespace, task)
                pipeline.hgetall(keys.base(bucket))
                pipeline.xrange(keys.log(bucket), "-", f"{upto}-0")
                pipeline.zrangebyscore(keys.merged(bucket), "-inf", merged_upto or upto)
                _count(pipeline, keys, bucket)
            pipeline.info(*RUN_SECTIONS)
            *answers, server = pipeline.execute()
        run_id = run_id_of(server)
        return [
            _whole_slice(bases, _begun(log_entries(*found), upto), run_id, _vanished(counts))
            for bases, *found, counts in _of_each(answers, 3)
        ]


def _begun(entries: tuple[Entry, ...], upto: Sequence64) -> tuple[Entry, ...]:
    """Those that hold something of what was appended up to a SEQ."""
    return tuple(entry for entry in entries if entry.seqs[0] <= upto)


def _count(pipeline: redis.client.Pipeline, keys: TaskKeys, bucket: Bucket) -> None:
    """Ask how many entries a log should hold, and how many it does."""
    pipeline.hlen(keys.sizes(bucket))
    pipeline.xlen(keys.log(bucket))
    pipeline.zcard(keys.merged(bucket))


_COUNTS = 3
"""Answers to `_count`."""


def _of_each(answers: Sequence[Any], contents: int) -> Iterator[list[Any]]:
    """Of each log: so many answers, then its counts."""
    width = contents + _COUNTS
    for start in range(0, len(answers), width):
        one = answers[start : start + width]
        yield [*one[:contents], one[contents:]]


def _vanished(counts: Sequence[int]) -> int:
    noted, *held = counts
    return max(0, noted - sum(held))


def _whole_slice(
    merged: dict[bytes, bytes], entries: tuple[Entry, ...], run_id: str, vanished: int
) -> LogSlice:
    bases = base_entries(merged)
    first = bases[0] if bases else None
    return LogSlice(first, entries, tuple(bases[1:]), run_id, vanished)
