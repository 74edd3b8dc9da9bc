"""What became of the rows of one window."""

from __future__ import annotations

from collections.abc import Mapping

from api.services.compiling import TaskCompiler
from api.services.context import Ports
from api.services.inside.naming import AskedWindow, said_name, wanted_of
from api.services.inside.windows import BucketVersion, WindowService
from api.services.tasks import TaskService
from mars.client.answers import WindowLedger
from mars.core.definitions import TaskDefinition
from mars.core.errors import NotFound, Rejected
from mars.core.plan import Plan
from mars.core.types import Reason, Topic
from mars.core.windows import Window
from mars.protocol.ports import DeadLetter, WantedNumber, WantedSessions, WantedWindow

RESULT_ROWS_MAX = 100_000
"""Result rows of a window that are looked through, per partition."""

LETTERS_MAX = 10_000
"""References to late rows that are looked through."""


class WindowLedgerService:
    """What the path /v1/tasks/{name}/ledger does when it is asked for a window."""

    def __init__(
        self, ports: Ports, compiler: TaskCompiler, tasks: TaskService, windows: WindowService
    ) -> None:
        self._ports = ports
        self._compiler = compiler
        self._tasks = tasks
        self._windows = windows

    def of_window(self, name: str, asked: AskedWindow) -> WindowLedger:
        """The ledger of a window. Raises NotFound where no row of it is known, Rejected for
        what names none of its windows, Unavailable.
        """
        definition = self._tasks.show(name)
        plans = self._compiler.plans(definition)
        wanted = wanted_of(plans, definition.current.version, asked)
        if wanted is None:
            raise Rejected("no window is named: give window_start")
        if isinstance(wanted, WantedSessions):
            raise Rejected(
                "sessions have no ledger of their own: mars-rows of their results counts all of a "
                "bucket that came together; leave out window_start for the ledger of the task"
            )
        numbered = wanted if isinstance(wanted, WantedNumber) else None
        if numbered is not None:
            plans = {numbered.version: plans[numbered.version]}
        waiting = self._windows.rows_waiting(definition, plans, wanted)
        # Results second: a bucket that emits in between has its rows here, and not there any more.
        emitted = self._emitted(definition, plans, wanted)
        late = 0 if isinstance(wanted, WantedNumber) else self._late(definition, wanted)
        if not waiting and not emitted and not late:
            raise NotFound(f"task {name} has no row of a window that {wanted}")
        by_key = {number for number, plan in plans.items() if plan.closes_by_key}
        still_open = sum(
            rows for place, rows in waiting.items() if place not in emitted or place[1] in by_key
        )
        done = sum(emitted.values())
        plan = plans.get(definition.current.version) or next(iter(plans.values()))
        window = wanted.window if isinstance(wanted, WantedNumber) else wanted.among(plan.window)
        return WindowLedger(
            **said_name(
                window.start_ms, window.end_ms, None if numbered is None else numbered.name
            ),
            counted=done + still_open,
            emitted=done,
            open=still_open,
            late=late,
        )

    def _emitted(
        self,
        definition: TaskDefinition,
        plans: Mapping[int, Plan],
        wanted: WantedWindow | WantedNumber,
    ) -> dict[BucketVersion, int]:
        """Rows as the headers of the results have them, by bucket and version.

        A revision counts all rows of a window; where windows close key by key, each transaction
        counts those of its own groups.
        """
        topics = sorted({plan.options.output_topic for plan in plans.values()})
        found: dict[BucketVersion, dict[int, int]] = {}
        for topic in topics:
            for row in self._ports.results.recent(
                Topic(topic), definition.name, RESULT_ROWS_MAX, wanted
            ).rows:
                if row.version >= definition.first_version:
                    plan = plans.get(row.version)
                    part = row.emit if plan is not None and plan.closes_by_key else 0
                    found.setdefault((row.bucket, row.version), {})[part] = row.rows
        return {place: sum(parts.values()) for place, parts in found.items()}

    def _late(self, definition: TaskDefinition, wanted: WantedWindow) -> int | None:
        page = self._ports.dead.page(definition.name, Reason.LATE.value, {}, LETTERS_MAX)
        if page.next is not None:
            return None
        return sum(
            letter.rows
            for letter in page.letters
            if _is_of(letter, wanted) and letter.version >= definition.first_version
        )


def _is_of(letter: DeadLetter, wanted: WantedWindow) -> bool:
    """Whether late rows are named with a window: with the newest of which they were a part."""
    if letter.window_end_ms is None:  # an older release, of windows that their start names
        return letter.window_start_ms == wanted.start_ms
    start_ms, end_ms = letter.window_start_ms, letter.window_end_ms
    return start_ms is not None and wanted.is_of(Window(end_ms, start_ms))
