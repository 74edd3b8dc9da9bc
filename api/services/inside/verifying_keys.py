"""Finished windows that count the rows of each key, computed again from all rows before them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from api.services.context import Ports
from api.services.inside.progress import ProgressTail
from api.services.inside.rereading import NotReread, Rereading
from api.services.inside.verification import Verified, no_rows, words_of
from mars.client.answers import Verification
from mars.core.definitions import TaskDefinition
from mars.core.errors import Conflict, NotFound
from mars.core.plan import Plan
from mars.core.types import Topic
from mars.core.windows import Window
from mars.core.windows.counting import WindowNumber, first_place
from mars.core.words import counted
from mars.inspect.verifying import compare
from mars.inspect.verifying_keys import AtHand, KeyRecount, Records, at_hand, pieces_of_keys
from mars.protocol.ports import CommittedRow, WantedNumber

NEWEST_ROWS = 1_000
"""Rows of each partition of the output topic, which are verified where no window is named."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is compared: rows that records account for, of which `known` says what is missing."""

    definition: TaskDefinition
    plan: Plan
    records: Records
    rows: Sequence[tuple[WindowNumber, CommittedRow]]
    known: AtHand

    def of(self, partitions: set[int]) -> Sequence[tuple[WindowNumber, CommittedRow]]:
        """The rows of windows of some partitions."""
        return [(name, row) for name, row in self.rows if name.partition in partitions]


class KeyVerifier:
    """Verifies a window of a key, or the newest ones of all keys."""

    def __init__(self, ports: Ports, progress: ProgressTail, rereading: Rereading) -> None:
        self._ports = ports
        self._progress = progress
        self._rereading = rereading

    def verify(
        self, definition: TaskDefinition, plan: Plan, wanted: WantedNumber | None
    ) -> Verification:
        """Compute windows again and compare. Raises as `VerifyService.verify` does."""
        asked = self._asked(definition, plan, wanted)
        if not asked.rows:
            raise NotFound(no_rows(definition.name, wanted))
        if wanted is not None:
            name = wanted.name
            outcome = self._compared(asked, {name.partition})
            complete = all(row.complete for _name, row in asked.rows)
            about = words_of(wanted), definition.name, [plan.version], complete
            return outcome.told(*about, partition=name.partition, window_number=name.number)
        partitions = {name.partition for name, _row in asked.rows}
        if len(partitions) > 1:
            with suppress(NotReread):
                return self._newest(asked, partitions)
        newest, _row = max(asked.rows, key=lambda each: each[1].window)
        return self._newest(asked, {newest.partition})

    def _asked(self, definition: TaskDefinition, plan: Plan, wanted: WantedNumber | None) -> _Asked:
        records = {  # before the results: what these say is emitted can be read
            record.bucket: record
            for record in self._progress.records(definition)
            if record.version == plan.version
        }
        topic = Topic(plan.options.output_topic)
        found = self._ports.results.recent(topic, definition.name, NEWEST_ROWS, wanted)
        rows = []
        for row in found.rows:
            record = records.get(row.bucket)
            if row.version != plan.version or record is None or row.emit > record.emit:
                continue
            if row.numbered is None:
                raise Conflict("a result names no window that counts rows: somebody else wrote it")
            rows.append((row.numbered, row))
        known = at_hand(found, plan.version, records) if wanted is None else AtHand()
        return _Asked(definition, plan, records, rows, known)

    def _newest(self, asked: _Asked, partitions: set[int]) -> Verification:
        outcome = self._compared(asked, partitions)
        rows = [row for _name, row in asked.of(partitions)]
        windows = [row.window for row in rows]
        span = Window(max(one.end_ms for one in windows), min(one.start_ms for one in windows))
        words = f"the newest windows of {counted(len(partitions), 'partition')}"
        complete = all(row.complete for row in rows)
        about = words, asked.definition.name, [asked.plan.version], complete
        return outcome.told(*about, span, several=True)

    def _compared(self, asked: _Asked, partitions: set[int]) -> Verified:
        plan, rows = asked.plan, asked.of(partitions)
        buckets = {row.bucket for _name, row in rows} | asked.known.whole | asked.known.after.keys()
        pieces = pieces_of_keys(
            asked.definition.current, asked.records, partitions, buckets & asked.records.keys()
        )
        places = (first_place(name.partition) + name.number for name, _row in rows)
        recount = KeyRecount(plan, asked.records, places, asked.known)
        self._rereading.read(asked.definition, plan, pieces, recount, 0)
        computed, full = recount.rows()
        wrong = sum(row.complete != (row.key in full) for _name, row in rows if row.key in computed)
        return Verified(
            rows=len({row.key for _name, row in rows}),
            source_rows=recount.rows_read,
            differences=compare(plan.version, [row for _name, row in rows], computed),
            miscounted=f" mars-complete is wrong in {counted(wrong, 'row')}." if wrong else "",
        )
