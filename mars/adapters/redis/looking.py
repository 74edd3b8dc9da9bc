"""Looks of the owners of logs on Redis: heads, and what is new in the logs, in few round trips.

tasks ──▶ pieces of 50 ──▶ one transaction each: clear.lua, head.lua of each task, run_id.lua

In a cluster each task has a transaction of its own: none may touch two slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import redis

from mars.adapters.redis.keys import TaskKeys
from mars.adapters.redis.scripts import CALLS_AT_ONCE_MAX, Argument, Call, Script
from mars.adapters.redis.servers import StoreServers, calling
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

    def __init__(self, servers: StoreServers, namespace: str) -> None:
        self._servers = servers
        self._namespace = namespace

    def look(
        self, followed: Followed, clearings: Sequence[Clearing] = ()
    ) -> dict[TaskName, TaskLook | None]:
        """See `PartialLog`. All of a task, and what is said of it, is of one moment."""
        looks: dict[TaskName, TaskLook | None] = {}
        for piece in _pieces(followed):
            looks |= self._piece(piece, [one for one in clearings if one.task in piece])
        return {task: looks[task] for task in followed}

    def _piece(
        self, followed: Followed, clearings: Sequence[Clearing]
    ) -> dict[TaskName, TaskLook | None]:
        looks: dict[TaskName, TaskLook | None] = {}
        with calling(self._servers):
            for client, parts in self._parts(followed).items():
                groups = [self._calls(part, clearings) for part in parts]
                if self._servers.joins_tasks:
                    answers = [Script.run_together(client, calls) for calls in groups]
                else:
                    answers = Script.run_apart(client, groups)
                for part, answer in zip(parts, answers, strict=True):
                    looks |= _looks(part, answer)
        return looks

    def _parts(self, followed: Followed) -> dict[redis.Redis, list[Followed]]:
        """By servers what is looked at in one transaction."""
        if self._servers.joins_tasks:
            return {client: [followed] for client in self._servers.each()}
        parts: dict[redis.Redis, list[Followed]] = {}
        for task, logs in followed.items():
            client = self._servers.of(TaskKeys.of(self._namespace, task).meta)
            parts.setdefault(client, []).append({task: logs})
        return parts

    def _calls(self, followed: Followed, clearings: Sequence[Clearing]) -> list[Call]:
        calls = self._clear_calls([one for one in clearings if one.task in followed])
        calls += [self._head_call(task, logs) for task, logs in followed.items()]
        return [*calls, (_RUN_ID, (), ())]

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


def _looks(followed: Followed, answers: Sequence[Any]) -> dict[TaskName, TaskLook | None]:
    """Before the answers to the heads come those to clearings, behind them the run id."""
    heads, run_id = answers[-1 - len(followed) : -1], answers[-1].decode()
    return {
        task: None if answer is None else _look(answer, logs, run_id)
        for (task, logs), answer in zip(followed.items(), heads, strict=True)
    }


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
