"""Rows that were not counted, listed from `mars.dead`."""

from __future__ import annotations

from collections.abc import Mapping

from api.callers import caller
from api.services.context import Ports
from api.services.tasks import TaskService
from mars.client.answers import DeadRow, DeadRows
from mars.core.definitions import TaskDefinition
from mars.core.errors import Rejected
from mars.core.types import Reason
from mars.protocol.ports import DeadLetter

OFFSET_DIGITS = 18
"""Of what a 64-bit offset holds."""

NEWEST_MAX = 1_000
"""References that are asked for where the newest are wanted; how many are known says the port."""


class DeadService:
    """What the path /v1/tasks/{name}/dead does."""

    def __init__(self, ports: Ports, tasks: TaskService) -> None:
        self._ports = ports
        self._tasks = tasks

    def page(self, name: str, reason: str | None, after: str | None, limit: int) -> DeadRows:
        """The next rows. Raises NotFound, Rejected, Unavailable."""
        definition = self._tasks.show(name)
        _check_reason(reason)
        found = self._ports.dead.page(definition.name, reason, _positions(after), limit)
        # What a deleted task of the same name had left out is not this one's.
        own = [one for one in found.letters if one.version >= definition.first_version]
        following = None if found.next is None else _text(found.next)
        return DeadRows(rows=[_row(definition, one) for one in own], next=following)

    def newest(self, name: str, reason: str | None, after: str | None, limit: int) -> DeadRows:
        """The last rows, newest first, as far as they are in memory: there is no next page.

        Raises NotFound, Rejected, Unavailable.
        """
        definition = self._tasks.show(name)
        _check_reason(reason)
        if after is not None:
            raise Rejected("order=newest has one page: leave out after, or order, to list all")
        own = [
            one
            for one in self._ports.dead.recent(definition.name, NEWEST_MAX)
            if one.version >= definition.first_version and reason in (None, one.reason)
        ]
        return DeadRows(rows=[_row(definition, one) for one in own[:limit]], next=None)


def _check_reason(reason: str | None) -> None:
    known = [one.value for one in Reason]
    if reason is not None and reason not in known:
        raise Rejected(f"there is no reason {reason[:80]!a}: use one of {', '.join(known)}")


def _shows_rows(definition: TaskDefinition, letter: DeadLetter) -> bool:
    """Whether the caller may see rows of where these come from: a topic, or files of a history."""
    if letter.partition is not None:
        return caller().sees_rows(letter.topic)
    files = None if letter.lane is None else definition.files_of(letter.lane)
    if files is None:
        return False
    own = [one for one in files.files if one.first < letter.next and letter.first < one.next]
    return bool(own) and caller().sees_rows_of_files(one.path for one in own)


def _row(definition: TaskDefinition, letter: DeadLetter) -> DeadRow:
    shown = bool(letter.detail) and _shows_rows(definition, letter)
    return DeadRow(
        partition=letter.partition,
        lane=letter.lane,
        topic=letter.topic,
        offset=letter.first,
        next=letter.next,
        rows=letter.rows,
        reason=letter.reason,
        version=letter.version,
        window_start=letter.window_start_ms,
        window_end=letter.window_end_ms,
        detail=letter.detail,
        sample=letter.payload.decode(errors="replace") if shown else None,
    )


def _text(positions: Mapping[int, int]) -> str:
    """Partitions and offsets as `0:17,2:5`."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(positions.items()))


def _positions(text: str | None) -> dict[int, int]:
    """What `_text` wrote. Raises Rejected for anything else."""
    places = [pair.partition(":")[::2] for pair in text.split(",")] if text else []
    if not all(_is_number(part) for place in places for part in place):
        raise Rejected(
            "after must be the `next` of the page before: leave it out to start with the first page"
        )
    return {int(partition): int(offset) for partition, offset in places}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS
