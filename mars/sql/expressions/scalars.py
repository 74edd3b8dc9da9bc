"""Scalar expressions of a query as typed expressions of a plan."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from mars.sql.expressions import constants, functions, operators
from mars.sql.expressions.compiler import Compiler, Forms
from mars.sql.expressions.scopes import Scope
from mars.sql.source import QueryText

FORMS: Final[Forms] = MappingProxyType({**constants.FORMS, **operators.FORMS, **functions.FORMS})
"""All that may stand in an expression, aggregates aside."""


def row_compiler(source: QueryText, scope: Scope) -> Compiler:
    """A compiler of expressions over single rows."""
    return Compiler(source, scope, FORMS)
