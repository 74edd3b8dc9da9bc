"""One decoding of a batch for all tasks that read it."""

from __future__ import annotations

from collections.abc import Iterable

from mars.core.plan import Field, Plan, Stream
from mars.engine.decode.decoded import Decoded
from mars.engine.decode.parts import Part
from mars.engine.decode.too_many import UNLIMITED, TooManyRows


class SharedDecoding:
    """Rows that are decoded once for each stream and all fields that its tasks read (M2).

    Should that raise, whatever it is, one task's fields must not stop the others (I7): from then on
    each task has its own fields decoded alone, and only a task for which that raises is concerned.
    """

    def __init__(self) -> None:
        self._decoded: dict[Stream, Decoded | None] = {}

    def of(
        self, plan: Plan, plans: Iterable[Plan], part: Part, rows_max: int = UNLIMITED
    ) -> Decoded:
        """The fields of the plan, and what else `plans` read; of the same part in each call.

        Raises what the decoding of the plan's own fields raises, and TooManyRows.
        """
        stream = plan.stream
        known = self._decoded.get(stream)
        if known is not None and known.holds(plan.fields):
            return known
        if stream not in self._decoded or known is not None:
            try:
                known = part.decode(stream, _union(stream, [plan, *plans]), rows_max)
            except TooManyRows:
                raise
            except Exception:  # noqa: BLE001 -- decoded alone below, where it may raise again
                known = None
            self._decoded[stream] = known
        return part.decode(stream, plan.fields, rows_max) if known is None else known


def _union(stream: Stream, plans: Iterable[Plan]) -> tuple[Field, ...]:
    """The fields that any of the plans reads from this very stream, in declared order."""
    names = {field.name for plan in plans if plan.stream == stream for field in plan.fields}
    return tuple(field for field in stream.fields if field.name in names)
