"""One decoding of a batch for all tasks that read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

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
        self,
        plans: Sequence[Plan],
        others: Iterable[Plan],
        part: Part,
        rows_max: int = UNLIMITED,
    ) -> Iterator[tuple[Sequence[Plan], Decoded | Exception]]:
        """What is decoded for some plans of a stream: for all at once, or for each what it raises.

        Decoded are their fields and what else `others` read; of the same part in each call. Raises
        TooManyRows.
        """
        whole = self._whole(plans, others, part, rows_max)
        if whole is not None:
            yield plans, whole
            return
        for plan in plans:
            yield [plan], _alone(plan, part, rows_max)

    def _whole(
        self, plans: Sequence[Plan], others: Iterable[Plan], part: Part, rows_max: int
    ) -> Decoded | None:
        """The fields of all; None where their decoding has raised, now or before."""
        stream = plans[0].stream
        known = self._decoded.get(stream)
        if known is None and stream in self._decoded:
            return None
        if known is None or not all(known.holds(plan.fields) for plan in plans):
            try:
                known = part.decode(stream, _union(stream, [*plans, *others]), rows_max)
            except TooManyRows:
                raise
            except Exception:  # noqa: BLE001 -- decoded alone, where it may raise again
                known = None
            self._decoded[stream] = known
        return known


def _alone(plan: Plan, part: Part, rows_max: int) -> Decoded | Exception:
    try:
        return part.decode(plan.stream, plan.fields, rows_max)
    except TooManyRows:
        raise
    except Exception as problem:  # noqa: BLE001 -- whatever it is, only this task stops (I7)
        return problem


def _union(stream: Stream, plans: Iterable[Plan]) -> tuple[Field, ...]:
    """The fields that any of the plans reads from this very stream, in declared order; last what
    plans read of the records that no field declares.
    """
    read = {field for plan in plans if plan.stream == stream for field in plan.fields}
    declared = tuple(field for field in stream.fields if field in read)
    return declared + tuple(sorted(read.difference(declared), key=lambda field: field.name))
