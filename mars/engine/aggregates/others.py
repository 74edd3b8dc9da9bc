"""A limit on the groups of a window (`max_keys`): over it the task fails, or folds.

Folding: the groups that came first keep their rows, all others become one group, whose states are
the merged states of all of them. So no row is lost from the totals, and each group that keeps its
row has all of its rows in it.

    groups, in order of first appearance    a  b  c  d  e      max_keys 2
                                            a  b  others

A window of several panes is folded twice. Each pane keeps its first `max_keys` groups, which bounds
the memory. Of those, the window keeps the groups that no pane has put among the others, again the
first `max_keys` of them:

    pane 0     a  b  others
    pane 1     a  c                        a lies in each pane that folds as a group of its own
    window     a  others                   b, c may have rows among the others of pane 0 too: c has
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from mars.core.errors import TaskLimit
from mars.core.plan import Plan, ValueType
from mars.core.windows import Window
from mars.core.windows.telling import called
from mars.engine.aggregates.states import OTHERS, PANE, key_names, merge, stacked
from mars.engine.evaluate.values import dtype_of

OTHERS_KEY = "__other__"
"""What stands in keys that are text; other keys are NULL."""

_FOLDING_PANES = "__folding_panes"


def limited(plan: Plan, states: pl.DataFrame) -> pl.DataFrame:
    """Merged states of one pane, or of one window, within the task's limit.

    `states` are in order of first appearance, and so is the result; it may be limited again after
    more has been merged into it, with the same outcome as if all had come at once. Raises
    TaskLimit where the task does not fold.
    """
    keys_max = plan.options.max_keys
    if keys_max is None or states.height <= keys_max:
        return states
    if not plan.folds:
        raise _too_many(plan, states, keys_max)
    own, others = _apart(states)
    if own.height <= keys_max:
        return states
    return _folded(plan, own.head(keys_max), [others, own.slice(keys_max)])


def limited_window(plan: Plan, window: Window, panes: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The merged states of a window: of its panes, each of them limited, in order of time.

    The column `pane` of the result is the window's start. Raises TaskLimit where there are too many
    groups and the task does not fold.
    """
    start = pl.lit(window.start_ms, pl.Int64).alias(PANE)
    whole = merge(plan, [stacked(panes).with_columns(start)])
    folding = [plan.folds and bool(pane.get_column(OTHERS).any()) for pane in panes]
    if any(folding):
        whole = _without_divided(plan, whole, panes, folding)
    return limited(plan, whole)


def _without_divided(
    plan: Plan, whole: pl.DataFrame, panes: Sequence[pl.DataFrame], folding: Sequence[bool]
) -> pl.DataFrame:
    """A window's states with those groups among the others that may have rows there already."""
    own, others = _apart(whole)
    kept_in = pl.concat(
        _apart(pane)[0].select(*key_names(plan), pl.lit(int(folds)).alias(_FOLDING_PANES))
        for pane, folds in zip(panes, folding, strict=True)
    )
    counts = kept_in.group_by(key_names(plan), maintain_order=True).agg(
        pl.col(_FOLDING_PANES).sum()
    )
    # Grouped by the same keys in the same order, the rows are those of `own`.
    whole_ones = counts.get_column(_FOLDING_PANES) == sum(folding)
    return _folded(plan, own.filter(whole_ones), [others, own.filter(~whole_ones)])


def _apart(states: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The groups that have their own rows, and the one of all others."""
    return states.filter(~pl.col(OTHERS)), states.filter(OTHERS)


def _folded(plan: Plan, own: pl.DataFrame, others: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The groups that keep their rows, then one of all others."""
    renamed = pl.concat(others).with_columns(
        *(_others_key(key.slot, key.expression.type) for key in plan.keys),
        pl.lit(True).alias(OTHERS),
    )
    return pl.concat([own, merge(plan, [renamed])])


def _others_key(slot: str, kind: ValueType) -> pl.Expr:
    name = OTHERS_KEY if kind is ValueType.STRING else None
    return pl.lit(name, dtype_of(kind)).alias(slot)


def _too_many(plan: Plan, states: pl.DataFrame, keys_max: int) -> TaskLimit:
    window = plan.window.last_window(states.item(0, PANE))
    name = called(plan.window, window)
    return TaskLimit(
        f"the window {name} has {states.height} groups so far, and "
        f"max_keys is {keys_max}: delete the task and register it again with a larger max_keys or "
        "none, with over_max_keys 'fold', with fewer groups or with a shorter window"
    )
