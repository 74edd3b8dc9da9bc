"""What became of the rows of one window."""

from __future__ import annotations

from collections.abc import Mapping

from api.services.compiling import TaskCompiler
from api.services.context import Ports
from api.services.inside.windows import BucketVersion, WindowService
from api.services.tasks import TaskService
from mars.client.answers import WindowLedger
from mars.core.definitions import TaskDefinition
from mars.core.errors import NotFound
from mars.core.plan import Plan
from mars.core.types import Reason, Topic

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

    def of_window(self, name: str, start_ms: int) -> WindowLedger:
        """The ledger of a window. Raises NotFound where no row of it is known, Unavailable."""
        definition = self._tasks.show(name)
        plans = self._compiler.plans(definition)
        waiting = self._windows.rows_waiting(definition, plans, start_ms)
        # Results second: a bucket that emits in between has its rows here, and not there any more.
        emitted = self._emitted(definition, plans, start_ms)
        late = self._late(definition, start_ms)
        if not waiting and not emitted and not late:
            raise NotFound(f"task {name} has no row of a window that starts at {start_ms}")
        by_key = {number for number, plan in plans.items() if plan.closes_by_key}
        still_open = sum(
            rows for place, rows in waiting.items() if place not in emitted or place[1] in by_key
        )
        done = sum(emitted.values())
        plan = plans.get(definition.current.version) or next(iter(plans.values()))
        window = plan.window.window_of_start(start_ms)
        return WindowLedger(
            window_start=window.start_ms,
            window_end=window.end_ms,
            counted=done + still_open,
            emitted=done,
            open=still_open,
            late=late,
        )

    def _emitted(
        self, definition: TaskDefinition, plans: Mapping[int, Plan], start_ms: int
    ) -> dict[BucketVersion, int]:
        """Rows as the headers of the results have them, by bucket and version.

        A revision counts all rows of a window; where windows close key by key, each transaction
        counts those of its own groups.
        """
        topics = sorted({plan.options.output_topic for plan in plans.values()})
        found: dict[BucketVersion, dict[int, int]] = {}
        for topic in topics:
            for row in self._ports.results.recent(
                Topic(topic), definition.name, RESULT_ROWS_MAX, start_ms
            ).rows:
                if row.version >= definition.first_version:
                    plan = plans.get(row.version)
                    part = row.emit if plan is not None and plan.closes_by_key else 0
                    found.setdefault((row.bucket, row.version), {})[part] = row.rows
        return {place: sum(parts.values()) for place, parts in found.items()}

    def _late(self, definition: TaskDefinition, start_ms: int) -> int | None:
        page = self._ports.dead.page(definition.name, Reason.LATE.value, {}, LETTERS_MAX)
        if page.next is not None:
            return None
        return sum(
            letter.rows
            for letter in page.letters
            if letter.window_start_ms == start_ms and letter.version >= definition.first_version
        )
