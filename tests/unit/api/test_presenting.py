"""Plans as text."""

from __future__ import annotations

import pytest

from api.presenting import text_of
from mars.core.plan import Call, Column, Expression, Function, Literal, ValueType

TEXT = ValueType.STRING
NUMBER = ValueType.INT64
TRUTH = ValueType.BOOL

NAME = Column("name", TEXT)
SIZE = Column("size", NUMBER)
ONE = Literal(1, NUMBER)
QUOTED = Literal("it's", TEXT)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Call(Function.ADD, (SIZE, ONE), NUMBER), "(size + 1)"),
        (Call(Function.EQUAL, (NAME, QUOTED), TRUTH), "(name = 'it''s')"),
        (
            Call(Function.AND, (Literal(True, TRUTH), Literal(None, TRUTH)), TRUTH),
            "(true AND NULL)",
        ),
        (Call(Function.NOT, (Literal(False, TRUTH),), TRUTH), "(NOT false)"),
        (Call(Function.NEGATE, (SIZE,), NUMBER), "(-size)"),
        (Call(Function.IS_NULL, (NAME,), TRUTH), "(name IS NULL)"),
        (Call(Function.IN, (SIZE, ONE, Literal(2, NUMBER)), TRUTH), "(size IN (1, 2))"),
        (Call(Function.LIKE, (NAME, QUOTED), TRUTH), "(name LIKE 'it''s')"),
        (
            Call(Function.LIKE, (NAME, QUOTED, Literal("!", TEXT)), TRUTH),
            "(name LIKE 'it''s' ESCAPE '!')",
        ),
        (Call(Function.CAST, (SIZE,), TEXT), "cast(size AS string)"),
        (
            Call(Function.CASE, (Literal(True, TRUTH), ONE, Literal(None, NUMBER)), NUMBER),
            "CASE WHEN true THEN 1 ELSE NULL END",
        ),
        (Call(Function.COALESCE, (SIZE, Literal(1.5, NUMBER)), NUMBER), "coalesce(size, 1.5)"),
    ],
)
def test_expression_reads_like_sql(expression: Expression, text: str) -> None:
    assert text_of(expression) == text


def test_slots_are_shown_as_what_they_stand_for() -> None:
    ratio = Call(Function.DIVIDE, (Column("a0", NUMBER), Column("a1", NUMBER)), NUMBER)
    assert text_of(ratio, {"a0": "sum(size)", "a1": "count(*)"}) == "(sum(size) / count(*))"
