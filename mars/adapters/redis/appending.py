"""M3 on Redis: batches go into the logs of their tasks, each by a script that compares and sets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import redis
from redis.exceptions import OutOfMemoryError

from mars.adapters.redis.keys import TaskKeys
from mars.adapters.redis.scripts import CALLS_AT_ONCE_MAX, Argument, Call, Script
from mars.adapters.redis.servers import StoreServers, calling, where_they_lie
from mars.adapters.redis.wire import append_arguments, append_outcome
from mars.adapters.store import check_batch, holder_limit
from mars.core.errors import Unavailable
from mars.protocol.ports import AppendOutcome, Batch

APPEND_BYTES_AT_ONCE = 4 * 1024 * 1024
"""Of states in one round trip, unless a single batch has more."""

_APPEND = Script.load("append")
_APPEND_WITHOUT_MEMORY = _APPEND.without_memory()


class Appender:
    """Stores batches for a namespace with so many buckets; `budget`: bytes of a task's log."""

    def __init__(self, servers: StoreServers, namespace: str, buckets: int, budget: int) -> None:
        self._servers = servers
        self._namespace = namespace
        self._buckets = buckets
        self._budget = budget

    def append(self, batch: Batch) -> AppendOutcome:
        """See `PartialLog`."""
        script, keys, arguments = self._call(batch)
        with calling(self._servers):
            client = self._servers.of(keys[0])
            try:
                answer = script.run(client, keys, arguments)
            except OutOfMemoryError:
                # The server ran nothing. Without any budget, only holders get past the check.
                arguments = self._arguments(batch, 0)
                answer = _APPEND_WITHOUT_MEMORY.run(client, keys, arguments)
        return append_outcome(answer)

    def append_together(self, batches: Sequence[Batch]) -> list[AppendOutcome | Unavailable]:
        """See `PartialLog`."""
        return [outcome for piece in _at_once(batches) for outcome in self._piece(piece)]

    def _piece(self, batches: Sequence[Batch]) -> list[AppendOutcome | Unavailable]:
        """One round trip to each server. What it has refused as a whole has changed nothing: sent
        by itself, it is found out why. Raises Unavailable where no server answers.
        """
        calls = [self._call(batch) for batch in batches]
        with calling(self._servers):
            answers = where_they_lie(self._servers, calls, self._answers)
        silent = [answer for answer in answers if isinstance(answer, Unavailable)]
        if len(silent) == len(answers):
            raise silent[0]
        return [
            self._outcome(batch, answer) for batch, answer in zip(batches, answers, strict=True)
        ]

    def _answers(self, client: redis.Redis, calls: Sequence[Call]) -> list[Any]:
        """Of one server; one that does not answer keeps nobody from the others."""
        try:
            with calling(self._servers):
                return Script.answers_of(client, calls)
        except Unavailable as problem:
            return [problem] * len(calls)

    def _outcome(self, batch: Batch, answer: Any) -> AppendOutcome | Unavailable:
        if isinstance(answer, Unavailable):
            return answer
        return self._alone(batch) if isinstance(answer, Exception) else append_outcome(answer)

    def _alone(self, batch: Batch) -> AppendOutcome | Unavailable:
        try:
            return self.append(batch)
        except Unavailable as problem:
            return problem

    def _call(self, batch: Batch) -> Call:
        check_batch(batch.mapped, self._buckets)
        keys = TaskKeys.of(self._namespace, batch.task)
        names = [keys.meta, keys.offsets, keys.marks, keys.idle, keys.seq, keys.bytes]
        names += [keys.bounds, keys.cuts, keys.ends, keys.bell, keys.taken, keys.rows]
        for partial in batch.mapped.partials:
            names += [keys.log(partial.bucket), keys.sizes(partial.bucket)]
        return _APPEND, names, self._arguments(batch, self._budget)

    def _arguments(self, batch: Batch, budget: int) -> list[Argument]:
        limit = holder_limit(self._budget)
        return append_arguments(batch.epoch, batch.version, batch.mapped, budget, limit)


def _at_once(batches: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """Cut where a round trip would keep the server busy for long."""
    piece: list[Batch] = []
    size = 0
    for batch in batches:
        own = sum(len(partial.states) for partial in batch.mapped.partials)
        if piece and (len(piece) == CALLS_AT_ONCE_MAX or size + own > APPEND_BYTES_AT_ONCE):
            yield piece
            piece, size = [], 0
        piece.append(batch)
        size += own
    if piece:
        yield piece
