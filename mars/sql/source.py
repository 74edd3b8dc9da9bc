"""The text of a query, its tokens, and where in it a complaint belongs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError

from mars.core.errors import SqlError

TEXT_BYTES_MAX: Final = 64 * 1024
"""Longest query in bytes: far beyond what people write, and short enough to parse at once."""

TOKENS_MAX: Final = 10_000
"""Most words and signs of a query: keeps parsing well under a second."""

NESTING_MAX: Final = 20
"""Deepest nesting of brackets, CASE and NOT. The parser takes up to 25 of Python's 1,000 stack
frames for each level, and the caller needs some too."""

GRAMMAR: Final = (
    "SELECT items FROM stream [WHERE ...] GROUP BY ... [HAVING ...] "
    "[ORDER BY ... [DESC]] [LIMIT n] WINDOWING 60 s [SLIDE 10 s | EVERY 10 s] [OFFSET 5 s] "
    "[TIMEZONE 'UTC'] or WINDOWING LANDMARK ['2026-01-01'] EVERY 10 s"
)


class _Dialect(DuckDB):
    """DuckDB's reading of text: `/` is true division, backslashes mean nothing, NULLs sort last.

    Names may also stand in backticks, as Flink and Spark write them.
    """

    class Tokenizer(DuckDB.Tokenizer):
        IDENTIFIERS: ClassVar = ['"', "`"]


DIALECT: Final = _Dialect()

_UNCLOSED = re.compile(
    r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|(?P<open>'|"|`|/\*)""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class QueryText:
    """A query's text with its tokens; makes errors that know line and column."""

    text: str
    tokens: tuple[Token, ...]
    places: Mapping[int, int]
    """The index of the token that begins at an offset."""

    def error(self, where: Token | exp.Expr | int, detail: str) -> SqlError:
        """The error to raise at a token, at the first character of a node, or at an offset."""
        offset = self._offset(where)
        line = self.text.count("\n", 0, offset) + 1
        column = offset - (self.text.rfind("\n", 0, offset) + 1) + 1
        return SqlError(detail, line, column)

    def called(self, node: exp.Expr) -> str:
        """The name of the function that a node calls, as it is written; empty if it calls none."""
        at = self.index_of(node)
        if at is None or [token.text for token in self.tokens[at + 1 : at + 2]] != ["("]:
            return ""
        return self.text[self.tokens[at].start : self.tokens[at].end + 1]

    def _offset(self, where: Token | exp.Expr | int) -> int:
        if isinstance(where, int):
            return where
        if isinstance(where, Token):
            return where.start
        node: exp.Expr | None = where
        while node is not None:
            first = self.index_of(node)
            if first is not None:
                return self.tokens[first].start
            node = node.parent
        return 0

    def index_of(self, node: exp.Expr) -> int | None:
        """Index of the token at which a node begins, if the parser noted enough to know it.

        sqlglot notes the place of names, literals and functions only, so the place of anything
        else is that of its first part, less the words that stand before it.
        """
        start = node.meta.get("start")
        if start is not None:
            return self.places.get(start)
        found = [self.index_of(child) for child in node.iter_expressions()]
        parts = [at for at in found if at is not None]
        if not parts:
            return None
        return self._back_over(min(parts), _leading(node))

    def _back_over(self, at: int, leading: Sequence[tuple[str, ...]]) -> int:
        """The index less the words before it, where those are among the given ones."""
        for words in leading:
            before = tuple(
                token.text.upper() for token in self.tokens[max(0, at - len(words)) : at]
            )
            if before == words:
                return at - len(words)
        return at


def _leading(node: exp.Expr) -> Sequence[tuple[str, ...]]:
    """The words with which a node of this kind may begin, before its first part."""
    if type(node) in _LEADING:
        return _LEADING[type(node)]
    return [(name, "(") for name in node.sql_names()] if isinstance(node, exp.Func) else ()


_LEADING: Final[dict[type[exp.Expr], Sequence[tuple[str, ...]]]] = {
    exp.Paren: [("(",)],
    exp.Tuple: [("(",)],
    exp.Neg: [("-",)],
    exp.Not: [("NOT",)],
    exp.Case: [("CASE",)],
    exp.If: [("WHEN",), ("IF", "(")],
    exp.Cast: [("CAST", "(")],
    exp.TryCast: [("TRY_CAST", "(")],
    exp.Interval: [("INTERVAL",)],
}


def tokenize(text: str) -> QueryText:
    """A query as tokens; comments are gone, places are true.

    Raises `SqlError` for text that is too long, too deep, or not closed.
    """
    empty = QueryText(text, (), {})
    _check_text(empty)
    try:
        tokens = DIALECT.tokenize(text)
    except (SqlglotError, RecursionError, ValueError) as error:
        unclosed = next((found for found in _UNCLOSED.finditer(text) if found["open"]), None)
        if unclosed:
            what = f"{unclosed['open']} is opened here and never closed; close it"
            raise empty.error(unclosed.start(), what) from error
        raise empty.error(len(text), f"the query cannot be read; write {GRAMMAR}") from error
    source = QueryText(text, tuple(tokens), {token.start: at for at, token in enumerate(tokens)})
    if not tokens:
        raise source.error(0, f"the query is empty; write {GRAMMAR}")
    if len(tokens) > TOKENS_MAX:
        raise source.error(tokens[TOKENS_MAX], f"a query has at most {TOKENS_MAX} words and signs")
    _check_nesting(source)
    return source


def _check_text(source: QueryText) -> None:
    try:
        size = len(source.text.encode())
    except UnicodeEncodeError as error:
        raise source.error(
            error.start, "this is half a character, not valid Unicode; write the whole one"
        ) from error
    if size > TEXT_BYTES_MAX:
        raise source.error(0, f"a query has at most {TEXT_BYTES_MAX} bytes, this has {size}")


def _check_nesting(source: QueryText) -> None:
    for token, depth in nesting(source.tokens):
        if depth > NESTING_MAX:
            raise source.error(
                token, f"this is nested deeper than {NESTING_MAX} levels; simplify it"
            )
    opened: list[Token] = []
    for token in source.tokens:
        if token.token_type is TokenType.L_PAREN:
            opened.append(token)
        elif token.token_type is TokenType.R_PAREN:
            if not opened:
                raise source.error(token, "this ')' closes nothing; leave it out")
            opened.pop()
    if opened:
        raise source.error(opened[-1], "this '(' is never closed; add a ')'")


def nesting(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    """Each token with the number of brackets, CASEs and NOTs that are open before it."""
    depth, prefixes = 0, 0
    for token in tokens:
        if token.token_type in (TokenType.R_PAREN, TokenType.END):
            depth = max(0, depth - 1)
        yield token, depth + prefixes
        if token.token_type in (TokenType.L_PAREN, TokenType.CASE):
            depth += 1
        prefixes = prefixes + 1 if token.token_type in (TokenType.NOT, TokenType.DASH) else 0
