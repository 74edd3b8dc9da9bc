"""Looks of the owners of logs on Redis: heads, and what is new in the logs, in few round trips.

tasks ──▶ pieces of 50 ──▶ one transaction each: clear.lua, head.lua of each task, run_id.lua
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import redis

from mars.adapters.redis.connection import translated
from mars.adapters.redis.keys import TaskKeys
from mars.adapters.redis.scripts import CALLS_AT_ONCE_MAX, Argument, Call, Script
from mars.adapters.redis.wire import read_head, read_news
from mars.adapters.store import LOOK_BYTES_MAX, LOOK_ENTRIES_MAX
from mars.core.types import Bucket, Sequence64, StoreEpoch, TaskName
from mars.engine.codec.entry import CorruptEntry
from mars.protocol.ports import Clearing, Followed, LogSlice, TaskLook

_CLEAR = Script.load("clear")
_HEAD = Script.load("head")
_RUN_ID = Script.load("run_id")


class Looker:
    """Looks at the tasks of a namespace."""

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    def look(
        self, followed: Followed, clearings: Sequence[Clearing] = ()
    ) -> dict[TaskName, TaskLook | None]:
        """See `PartialLog`. All of a task, and what is said of it, is of one moment."""
        looks: dict[TaskName, TaskLook | None] = {}
        for piece in _pieces(followed):
            looks |= self._piece(piece, [one for one in clearings if one.task in piece])
        return looks

    def _piece(
        self, followed: Followed, clearings: Sequence[Clearing]
    ) -> dict[TaskName, TaskLook | None]:
        calls = self._clear_calls(clearings)
        first = len(calls)
        calls += [self._head_call(task, logs) for task, logs in followed.items()]
        calls.append((_RUN_ID, (), ()))
        with translated():
            *answers, run_id = Script.run_together(self._client, calls)[first:]
        return {
            task: None if answer is None else _look(answer, logs, run_id.decode())
            for (task, logs), answer in zip(followed.items(), answers, strict=True)
        }

    def _head_call(self, task: TaskName, logs: Mapping[Bucket, Sequence64]) -> Call:
        keys = TaskKeys.of(self._namespace, task)
        names = [keys.meta, keys.offsets, keys.marks, keys.idle, keys.seq, keys.bytes]
        names += [keys.ends, keys.taken, keys.rows]
        for bucket in logs:
            names += [keys.log(bucket), keys.sizes(bucket), keys.merged(bucket)]
        return _HEAD, names, (LOOK_ENTRIES_MAX, LOOK_BYTES_MAX, *logs.values())

    def _clear_calls(self, clearings: Sequence[Clearing]) -> list[Call]:
        """One script for each task."""
        arguments: dict[tuple[TaskName, StoreEpoch], list[Argument]] = {}
        for one in clearings:
            said = arguments.setdefault((one.task, one.epoch), [one.epoch])
            said += [one.bucket, one.owner_epoch, int(one.opens)]
        return [
            (_CLEAR, [keys.meta, keys.seq, keys.cleared], said)
            for (task, _), said in arguments.items()
            for keys in [TaskKeys.of(self._namespace, task)]
        ]


def _pieces(followed: Followed) -> Iterator[Followed]:
    tasks = iter(followed.items())
    while piece := dict(islice(tasks, CALLS_AT_ONCE_MAX)):
        yield piece


def _look(answer: Sequence[Any], logs: Mapping[Bucket, Sequence64], run_id: str) -> TaskLook:
    *head, news = answer
    slices: dict[Bucket, LogSlice] = {}
    for bucket, found in zip(logs, news, strict=True):
        if found is not None:
            try:
                slices[bucket] = read_news(found, run_id)
            except CorruptEntry:
                continue  # whoever reads it by itself will see which task that is
    return TaskLook(read_head(head, run_id), slices)
