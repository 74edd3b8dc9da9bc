"""Tasks that write the same keys into one output topic: allowed, and told to whoever asks for it.

Result keys are `[window_start, <the group keys>]`, with `window_end` behind where windows cumulate.
Those of two tasks can be equal where they have equally many parts of the same types: windows of any
two tasks begin together now and then.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.presenting import output_view
from api.services.compiling import TaskCompiler
from mars.core.definitions import TaskDefinition, TaskState
from mars.core.errors import RequestError
from mars.core.plan import Plan, ValueType
from mars.core.types import TaskName
from mars.protocol.ports import Registry

NAMED_MAX = 5
"""Other tasks that are named; the rest are counted."""

WHOLE_NUMBERS = frozenset({ValueType.INT64, ValueType.INTEGER, ValueType.TIMESTAMP})
"""Their values are written alike."""


class SharedTopics:
    """Who else writes where a task does."""

    def __init__(self, registry: Registry, compiler: TaskCompiler) -> None:
        self._registry = registry
        self._compiler = compiler

    def warnings(self, name: TaskName | None, plan: Plan) -> list[str]:
        """What to know before results of a plan are read; `name` is None for a query without."""
        others = sorted(self._writers_of_same_keys(name, plan))
        if not others:
            return []
        more = len(others) - NAMED_MAX
        named = ", ".join(others[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
        who = f"task {named} writes" if len(others) == 1 else f"tasks {named} write"
        key = ", ".join(output_view(plan).key)
        return [
            f"{who} into the output topic {plan.options.output_topic} under keys like those of "
            f"this one, [{key}], so consumers that tell rows apart by their keys mix them up; tell "
            "them apart by the header mars-task, or choose another output_topic"
        ]

    def _writers_of_same_keys(self, name: TaskName | None, plan: Plan) -> Iterator[TaskName]:
        topic, form = plan.options.output_topic, _form(plan)
        for task in self._registry.tasks().values():
            # The topic that is named after a task is refused to all others.
            shares = task.current.options.get("output_topic") == topic
            if task.name == name or task.state is TaskState.DELETED or not shares:
                continue
            other = self._stored(task)
            if other is not None and _form(other) == form:
                yield task.name

    def _stored(self, task: TaskDefinition) -> Plan | None:
        try:
            return self._compiler.stored(task.name, task.current)
        except RequestError:
            return None  # written by another release: its keys are not known


def _form(plan: Plan) -> list[str]:
    """Plans whose keys may be equal have the same."""
    kinds = [key.expression.type for key in plan.keys]
    end = [ValueType.TIMESTAMP] if plan.window.begin_together else []
    end += [ValueType.INT64, ValueType.INT64] if plan.counts_rows else []
    return ["whole number" if kind in WHOLE_NUMBERS else kind.value for kind in (*kinds, *end)]
