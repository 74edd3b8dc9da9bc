"""What a name means in each part of a query."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sqlglot import exp

from mars.core.errors import SqlError
from mars.core.plan import WINDOW_END, WINDOW_START, Column, Expression, Field, Stream, ValueType
from mars.sql.expressions.naming import find_name
from mars.sql.source import QueryText

WINDOW_COLUMNS: Mapping[str, Column] = {
    name: Column(name, ValueType.TIMESTAMP) for name in (WINDOW_START, WINDOW_END)
}

_ELSEWHERE: Final[Mapping[str, str]] = {
    "window_time": "write window_end: Flink's window_time is a millisecond before it"
}
"""What stands here for columns of other engines."""


class Scope(Protocol):
    """Turns the columns of one clause into expressions."""

    @property
    def clause(self) -> str:
        """The name of the clause, for messages."""

    def resolve(self, column: exp.Column) -> Expression:
        """The meaning of a column; raises `SqlError` where it has none."""


@dataclass(frozen=True, slots=True)
class ScopeNames:
    """The fields of the stream, by the names a query may use for them."""

    source: QueryText
    stream: Stream
    qualifiers: frozenset[str]
    fields: Mapping[str, Field]
    """Those of the stream by name: a query may name them thousands of times."""

    def field_of(self, column: exp.Column) -> Field | None:
        """The field a column names: see `find_name`."""
        self._check_qualifier(column)
        found = find_name(column.name, self.fields)
        return None if found is None else self.fields[found]

    def is_event_time(self, column: exp.Column) -> bool:
        """Whether a column is the stream's event time."""
        found = self.field_of(column)
        return found is not None and found.name == self.stream.event_time

    def unknown(self, column: exp.Column, others: Sequence[str] = ()) -> SqlError:
        """The error for a name that means nothing here."""
        known = [*(declared.name for declared in self.stream.fields), *others]
        shown = ", ".join(map(as_written, known[:20]))
        hint = _ELSEWHERE.get(column.name.lower()) or did_you_mean(column.name, known)
        hint = hint or f"there are {shown}"
        if column.this.quoted:
            hint = f"write text in single quotes, as in {_text(column.name)}; for columns, {hint}"
        return self.source.error(column, f"there is no column {column.name[:80]!r}; {hint}")

    def _check_qualifier(self, column: exp.Column) -> None:
        # Both mean the one stream, so that names which differ in case alone cannot be confused.
        if column.table and column.table.lower() not in map(str.lower, self.qualifiers):
            known = " or ".join(sorted(self.qualifiers))
            hint = f"use {known}"
            if found := find_name(f"{column.table}.{column.name}", self.fields):
                hint = f"write the field {as_written(found)} in double quotes"
            raise self.source.error(
                column, f"{column.table[:80]!r} is not the stream of this query; {hint}"
            )


_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def as_written(name: str) -> str:
    """A name as a query must write it: in double quotes where it has other signs than a word."""
    if _PLAIN.fullmatch(name):
        return name
    return '"' + name.replace('"', '""') + '"'


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question for the known name that is most like one, as a query must write it; empty where
    none is like it.
    """
    near = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean {as_written(near[0])}?" if near else ""


def _text(value: str) -> str:
    return "'" + value[:80].replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class RowScope:
    """WHERE, FILTER and what stands inside an aggregate: the fields of one row."""

    names: ScopeNames
    clause: str
    items: frozenset[str] = frozenset()
    """Names of SELECT items, for messages."""

    def resolve(self, column: exp.Column) -> Expression:
        """The field of that name."""
        found = self.names.field_of(column)
        if found:
            return Column(found.name, found.type.value_type)
        if column.name.lower() in WINDOW_COLUMNS:
            raise self.names.source.error(
                column,
                f"{column.name} is known after grouping only; use "
                f"{self.names.stream.event_time} in {self.clause}, or HAVING",
            )
        if find_name(column.name, self.items):
            raise self.names.source.error(
                column,
                f"{column.name} is an item of SELECT, and {self.clause} knows the fields of rows "
                "only; use HAVING",
            )
        raise self.names.unknown(column)


@dataclass(frozen=True, slots=True)
class KeyScope:
    """GROUP BY: the fields of one row, but for its time, which is the window's here."""

    names: ScopeNames
    clause: str = "GROUP BY"

    def resolve(self, column: exp.Column) -> Expression:
        """The field of that name; the window's columns must stand alone."""
        if is_window_column(self.names, column):
            raise self.names.source.error(
                column,
                f"{column.name} means the window in GROUP BY and must stand there alone; an "
                "expression over it belongs in the SELECT list",
            )
        return RowScope(self.names, self.clause).resolve(column)


def is_window_column(names: ScopeNames, column: exp.Column) -> bool:
    """Whether a column of SELECT or GROUP BY means the window: its time, start or end.

    With the stream before it, a name is a field's where the stream has one of that name.
    """
    if names.is_event_time(column):
        return True
    if column.name.lower() not in WINDOW_COLUMNS:
        return False
    return not column.table or names.field_of(column) is None


@dataclass(frozen=True, slots=True)
class GroupScope:
    """SELECT, HAVING and ORDER BY: window columns and, where allowed, names of SELECT items.

    Group keys are no names but expressions; they are found before a name is looked up.
    """

    names: ScopeNames
    clause: str
    aliases: Mapping[str, Expression] = field(default_factory=dict)

    def resolve(self, column: exp.Column) -> Expression:
        """The window's start or end, or a SELECT item."""
        if is_window_column(self.names, column):
            start = WINDOW_COLUMNS[WINDOW_START]
            return WINDOW_COLUMNS.get(column.name.lower(), start)
        alias = None if column.table else self._alias(column.name)
        if alias is not None:
            return alias
        if self.names.field_of(column):
            raise self.names.source.error(
                column,
                f"{column.name} differs from row to row of a group; add it to GROUP BY, or put it "
                f"into an aggregate such as max({column.name})",
            )
        raise self.names.unknown(column, [*self.aliases, *WINDOW_COLUMNS])

    def _alias(self, name: str) -> Expression | None:
        """The SELECT item of that name, see `find_name`."""
        found = find_name(name, self.aliases)
        return None if found is None else self.aliases[found]
