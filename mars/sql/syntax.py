"""Text to a checked tree: one SELECT, of nothing but what is supported.

sqlglot parses; before it, whole clauses that are not supported are refused by their words, which
have exact places; after it, every node and every part of a node must be on a list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from typing import ClassVar, Final

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ErrorLevel, ParseError
from sqlglot.parsers.duckdb import DuckDBParser

from mars.core.errors import SqlError
from mars.core.plan import Stream
from mars.sql.source import DIALECT, GRAMMAR, QueryText, nesting
from mars.sql.table_call import TableCall, table_call

DEPTH_MAX: Final = 100
"""Deepest tree, operator chains included: each level costs a few of Python's stack frames, here
and wherever the plan is walked later."""

ONE_STREAM: Final = (
    "a query reads one stream, and joins and subqueries are not supported; write FROM and the name "
    "of the stream"
)
LIKE_FROM: Final = 0.7
"""How like FROM a word must be: FORM and FRM are."""

_UNSUPPORTED: Final[dict[TokenType, str]] = {
    TokenType.JOIN: ONE_STREAM,
    TokenType.LATERAL: ONE_STREAM,
    TokenType.WITH: "WITH is not supported; write one SELECT over one stream",
    TokenType.UNION: "UNION is not supported; register two tasks",
    TokenType.EXCEPT: "EXCEPT is not supported; use WHERE or HAVING",
    TokenType.INTERSECT: "INTERSECT is not supported; use WHERE or HAVING",
    TokenType.OVER: "window functions (OVER) are not supported; use GROUP BY",
    TokenType.QUALIFY: "QUALIFY is not supported; use HAVING, or ORDER BY ... LIMIT n",
    TokenType.WINDOW: "WINDOW is not supported; use WINDOWING 60 s",
    TokenType.OFFSET: "OFFSET is not supported; use LIMIT alone",
    TokenType.FETCH: "FETCH is not supported; use LIMIT n",
    TokenType.PIVOT: (
        "PIVOT is not supported; use GROUP BY, or an aggregate for each column: "
        "count(*) FILTER (WHERE type = 'tcp') AS tcp"
    ),
    TokenType.UNPIVOT: "UNPIVOT is not supported; use an item of SELECT for each column",
    TokenType.TABLE_SAMPLE: "sampling is not supported; use WHERE",
    TokenType.INTO: "INTO is not supported; use the option output_topic",
    TokenType.ILIKE: "ILIKE is not supported; use LOWER(x) LIKE 'pattern'",
    TokenType.PARAMETER: "parameters are not supported; write the value",
    TokenType.PLACEHOLDER: "parameters are not supported; write the value",
    TokenType.ROLLUP: "ROLLUP is not supported; register a task for each grouping",
    TokenType.CUBE: "CUBE is not supported; register a task for each grouping",
    TokenType.GROUPING_SETS: "GROUPING SETS is not supported; register a task for each grouping",
}
_SELECT_ALONE: Final = (
    "{word} is not supported; write the SELECT alone: a task writes its results to a topic of its "
    "own, or to the option output_topic"
)
_EMIT: Final = (
    "EMIT is not supported; leave it out: each window gives its result once, when it has closed"
)
_BY: Final = (TokenType.GROUP_BY, TokenType.ORDER_BY)
_CLAUSES: Final = frozenset([TokenType.WHERE, TokenType.HAVING, TokenType.LIMIT, *_BY])
_KEYWORDS: Final = ("WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "WINDOWING")
_NO_CLOCK: Final = (
    "the current time, user and place are not supported: results must be the same wherever and "
    "whenever they are computed; use window_start, window_end or a field"
)
_SIGNS: Final = frozenset(["(", ")", ",", ".", "*", "+", "-", "/", "%", "||", "::"])
_SIGNS_OF_COMPARISON: Final = frozenset(["=", "==", "<>", "!=", "<", "<=", ">", ">="])
_TOO_MANY = re.compile(r"The number of provided arguments \((\d+)\) is greater than .*\((\d+)\)")
_WORD = re.compile(r"[^\W\d][\w$]*(\s+[^\W\d][\w$]*)*")
_LITERALS: Final = frozenset([TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER])
_STRUCTURE: Final = frozenset(
    [
        *(TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY),
        *(TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.ALIAS),
        *(TokenType.AND, TokenType.OR, TokenType.NOT, TokenType.IN, TokenType.LIKE),
        *(TokenType.BETWEEN, TokenType.IS, TokenType.NULL, TokenType.TRUE, TokenType.FALSE),
        *(TokenType.CASE, TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.END),
        *(TokenType.DISTINCT, TokenType.ASC, TokenType.DESC, TokenType.ESCAPE),
    ]
)
"""Words that hold a query together; to use one as a name, it is put in double quotes."""

_NO_ITEM_AFTER: Final = frozenset([TokenType.COMMA, TokenType.SELECT, TokenType.L_PAREN])
_NO_ITEM_BEFORE: Final = frozenset(
    [
        *(TokenType.COMMA, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY),
        *(TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.R_PAREN),
    ]
)
_TEXT_TYPES: Final = frozenset(
    [TokenType.VARCHAR, TokenType.CHAR, TokenType.NVARCHAR, TokenType.NCHAR, TokenType.TEXT]
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A query cut in two: the SELECT, and what follows it from the word WINDOWING on.

    A `call` that stands for a stream is cut out of the SELECT, which names the stream instead.
    """

    source: QueryText
    select: tuple[Token, ...]
    windowing: tuple[Token, ...]
    call: TableCall | None = None

    @property
    def stream(self) -> Token:
        """The word that names the stream; raises `SqlError` where there is none."""
        for at, (token, depth) in enumerate(nesting(self.select)):
            if token.token_type is TokenType.FROM and depth == 0:
                return self._named_after(at)
        raise self._without_from()

    def _without_from(self) -> SqlError:
        """FROM is missing, or misspelt: a word like it, which stands between two others."""
        for token, following in pairwise(self.select[2:]):
            is_like = get_close_matches(token.text.upper(), ["FROM"], 1, LIKE_FROM)
            if is_like and _is_word(token) and _is_name(following):
                return self.source.error(
                    token, f"{token.text} is not understood; did you mean FROM?"
                )
        return self.source.error(self.select[-1], f"FROM is missing; write {GRAMMAR}")

    def _named_after(self, at: int) -> Token:
        following = self.select[at + 1 : at + 2]
        if not following:
            raise self.source.error(
                self.select[at], "the name of a stream is missing after FROM; write FROM flows"
            )
        token = following[0]
        if token.token_type is TokenType.L_PAREN:
            raise self.source.error(token, ONE_STREAM)
        if not _is_name(token):
            raise self.source.error(
                token, "the name of a stream is missing after FROM; write FROM flows"
            )
        return token


def cut(source: QueryText) -> Statement:
    """The SELECT and the WINDOWING clause of a query, as tokens."""
    tokens = list(source.tokens)
    if tokens[-1].token_type is TokenType.SEMICOLON and len(tokens) > 1:
        tokens.pop()
    if tokens[0].token_type is not TokenType.SELECT:
        raise source.error(tokens[0], _no_select(tokens[0]))
    following = next((token for token in tokens if token.token_type is TokenType.SEMICOLON), None)
    if following:
        raise source.error(following, "a task is one query; leave out what follows the ';'")
    call, tokens = _without_call(source, tokens)
    end = _windowing_at(tokens)
    _check_order(source, tokens[end:])
    return Statement(source, tuple(tokens[:end]), tuple(tokens[end:]), call)


def _no_select(first: Token) -> str:
    """What is wrong with a query that begins with another word."""
    if first.token_type in {TokenType.INSERT, TokenType.CREATE}:
        return _SELECT_ALONE.format(word=first.text.upper())
    if get_close_matches(first.text.upper(), ["SELECT"], 1, LIKE_FROM):
        return f"{first.text} is not understood; did you mean SELECT?"
    return _UNSUPPORTED.get(first.token_type, f"a query begins with SELECT; write {GRAMMAR}")


def _check_order(source: QueryText, windowing: Sequence[Token]) -> None:
    """Raise `SqlError` for what stands behind WINDOWING and belongs before it, or nowhere."""
    for token in windowing:
        if token.token_type in _CLAUSES:
            raise source.error(token, f"WINDOWING comes last; write {token.text.upper()} before it")
        if token.text.upper() == "EMIT":
            raise source.error(token, _EMIT)


def _without_call(source: QueryText, tokens: list[Token]) -> tuple[TableCall | None, list[Token]]:
    """The call behind FROM, if one is there, and the tokens with its stream in its place."""
    for at, (token, depth) in enumerate(nesting(tokens)):
        if token.token_type is TokenType.FROM and depth == 0:
            found = table_call(source, tokens, at + 1)
            if found is not None:
                call, end = found
                return call, [*tokens[: at + 1], call.stream, *tokens[end:]]
            break
    return None, tokens


def _windowing_at(tokens: Sequence[Token]) -> int:
    """Where the WINDOWING clause begins; a column may have that name, too."""
    after_from = False
    for at, (token, depth) in enumerate(nesting(tokens)):
        after_from = after_from or token.token_type is TokenType.FROM
        if depth or not after_from or token.token_type is not TokenType.VAR:
            continue
        if token.text.upper() == "WINDOWING" and _begins_clause(tokens, at):
            return at
    return len(tokens)


def _begins_clause(tokens: Sequence[Token], at: int) -> bool:
    following = tokens[at + 1 : at + 2]
    if following and (
        following[0].token_type is TokenType.NUMBER or following[0].text.upper() == "LANDMARK"
    ):
        return True
    before = tokens[at - 1]
    return (
        before.token_type in _LITERALS
        or before.token_type is TokenType.R_PAREN
        or (
            _is_word(before)
            and before.token_type not in _STRUCTURE - {TokenType.END, TokenType.DESC}
        )
    )


def _is_name(token: Token) -> bool:
    return token.token_type is TokenType.IDENTIFIER or _is_word(token)


def _is_word(token: Token) -> bool:
    return token.token_type not in _LITERALS and _WORD.fullmatch(token.text) is not None


def _placed(make: Callable[[], exp.Expr]) -> Callable[[DuckDBParser, Token], exp.Expr]:
    return lambda _parser, token: make().update_positions(token)


def _any_value(arguments: list[exp.Expr]) -> exp.Expr:
    found = exp.AnyValue.from_arg_list(arguments)
    return found if len(arguments) > 1 else exp.IgnoreNulls(this=found)


def _mod(arguments: list[exp.Expr]) -> exp.Expr:
    if len(arguments) > 2:
        # Another function of two arguments: of MOD, an operator to sqlglot, nobody counts them.
        return exp.Pow(this=arguments[0], expression=arguments[1])
    found: exp.Expr = DuckDBParser.FUNCTIONS["MOD"](arguments)
    return found


class _Parser(DuckDBParser):
    """DuckDB's parser, which forgets where NULL, TRUE and FALSE stand, and third arguments of MOD
    and second ones of ANY_VALUE; this one does not.
    """

    FUNCTIONS: ClassVar = {
        **DuckDBParser.FUNCTIONS,
        "ANY_VALUE": _any_value,
        "MOD": _mod,
    }

    PRIMARY_PARSERS: ClassVar = {
        **DuckDBParser.PRIMARY_PARSERS,
        TokenType.NULL: _placed(exp.Null),
        TokenType.TRUE: _placed(partial(exp.Boolean, this=True)),
        TokenType.FALSE: _placed(partial(exp.Boolean, this=False)),
    }


def parse(statement: Statement, stream: Stream) -> exp.Select:
    """The SELECT as a tree of which every clause is supported.

    The declared fields' names are ordinary names, whatever they mean in SQL otherwise.
    """
    source = statement.source
    tokens = _names_as_names(statement, {field.name.lower() for field in stream.fields})
    _check_tokens(source, tokens)
    parser = _Parser(
        error_level=ErrorLevel.IMMEDIATE,
        error_message_context=len(source.text) + 1,
        dialect=DIALECT,
    )
    try:
        trees = parser.parse(list(tokens), source.text)
    except ParseError as error:
        raise _syntax_error(source, error) from error
    except RecursionError as error:
        raise source.error(0, "the query is nested too deeply to be read; simplify it") from error
    except Exception as error:
        # Whatever a parser trips over, no text may bring the service down.
        raise source.error(0, f"the query cannot be read; write {GRAMMAR}") from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Select):
        raise source.error(0, f"a task is one SELECT; write {GRAMMAR}")
    _check_depth(source, tree)
    return tree


def _names_as_names(statement: Statement, fields: set[str]) -> tuple[Token, ...]:
    """The tokens, those that name the stream, a field or an item as if in double quotes.

    So `timestamp` is a column here, and still the type in CAST(x AS timestamp) and a call where
    a bracket or a string follows.
    """
    tokens, stream = statement.select, statement.stream
    given = set(_given_names(tokens))
    names = fields | {tokens[at].text.lower() for at in given}
    result = []
    for at, token in enumerate(tokens):
        following = tokens[at + 1].token_type if at + 1 < len(tokens) else None
        is_name = (
            token.text.lower() in names
            and token.token_type not in _STRUCTURE
            and following not in (TokenType.L_PAREN, TokenType.STRING)
            and tokens[at - 1].token_type not in (TokenType.ALIAS, TokenType.DCOLON)
        )
        is_name = is_name or at in given or token is stream
        if is_name and _is_word(token):
            result.append(_retyped(token, TokenType.IDENTIFIER))
        elif token.token_type is TokenType.SESSION and following is TokenType.L_PAREN:
            result.append(_retyped(token, TokenType.VAR))  # a call like any other
        else:
            result.append(token)
    return tuple(result)


def _given_names(tokens: Sequence[Token]) -> Iterator[int]:
    """The indices of the names after AS, but not of the types in CAST(x AS type)."""
    casts: list[bool] = []
    for at, token in enumerate(tokens):
        if token.token_type is TokenType.L_PAREN:
            casts.append(tokens[at - 1].text.upper() in ("CAST", "TRY_CAST"))
        elif token.token_type is TokenType.R_PAREN and casts:
            casts.pop()
        elif tokens[at - 1].token_type is TokenType.ALIAS and not (casts and casts[-1]):
            yield at


def _retyped(token: Token, kind: TokenType) -> Token:
    return Token(kind, token.text, token.line, token.col, token.start, token.end, [])


def _check_tokens(source: QueryText, tokens: Sequence[Token]) -> None:
    for at, token in enumerate(tokens):
        before = tokens[at - 1] if at else None
        following = tokens[at + 1] if at + 1 < len(tokens) else None
        complaint = _complaint(token, before, following, first=at == 0)
        if complaint:
            raise source.error(token, complaint)
        if token.token_type is TokenType.DISTINCT and not _is_count(tokens[max(0, at - 2) : at]):
            raise source.error(
                token,
                "DISTINCT is supported in count(DISTINCT x) only; for distinct rows use GROUP BY",
            )


def _is_count(before: Sequence[Token]) -> bool:
    return len(before) == 2 and before[0].text.upper() == "COUNT" and before[1].text == "("


def _complaint(
    token: Token, before: Token | None, following: Token | None, *, first: bool
) -> str | None:
    """What is wrong with a token whatever the tree, or None."""
    kind = token.token_type
    if kind in _UNSUPPORTED:
        return _UNSUPPORTED[kind]
    if kind is TokenType.SELECT and not first:
        return ONE_STREAM
    if kind not in _LITERALS and not _is_word(token):
        if token.text not in _SIGNS | _SIGNS_OF_COMPARISON:
            return f"{token.text[:20]!r} is not supported; there are + - * / % || and comparisons"
        if kind is TokenType.COMMA and before is not None and before.token_type in _NO_ITEM_AFTER:
            return "something is missing before this ','; add it, or leave the ',' out"
        if kind is TokenType.COMMA and (
            following is None or following.token_type in _NO_ITEM_BEFORE
        ):
            return "something is missing after this ','; add it, or leave the ',' out"
    return _complaint_of_pair(token, following)


def _complaint_of_pair(token: Token, following: Token | None) -> str | None:
    if token.token_type.name.endswith("STRING") and token.token_type is not TokenType.STRING:
        return "only plain strings are supported; write 'text'"
    if token.token_type in DuckDBParser.NO_PAREN_FUNCTIONS:
        return _NO_CLOCK
    if following is None:
        return None
    if token.token_type in _BY and following.text.upper() == "ALL":
        return f"{token.text.upper()} ALL is not supported; name the columns"
    if token.token_type is TokenType.STRING and following.token_type is TokenType.STRING:
        return "two strings stand side by side; use || or CONCAT"
    glued = following.start == token.end + 1 and _is_word(following)
    if token.token_type is TokenType.NUMBER and glued:
        text = f"{token.text}{following.text[:20]}"
        return f'{text} is not a number; write "{text}" if it is a name'
    if token.token_type in _TEXT_TYPES and following.token_type is TokenType.L_PAREN:
        return "text types have no length here; write VARCHAR"
    return None


def _syntax_error(source: QueryText, error: ParseError) -> SqlError:
    """sqlglot's complaint in words for people, at the place it means."""
    first = error.errors[0]
    offset = len(first.get("start_context") or "")
    shown = str(first.get("highlight") or source.text[offset : offset + 1])[:40]
    description = str(first.get("description"))
    if shown.upper() == "EMIT":
        return source.error(offset, _EMIT)
    if description.startswith("Expecting )"):
        return source.error(offset, f"a ')' is missing at {shown!r}; write it before that")
    if description.startswith("Found multiple"):
        return source.error(offset, f"{shown} stands here twice; write it once")
    too_many = _TOO_MANY.match(description)
    if too_many:
        given, taken = too_many.groups()
        problem = f"{given} arguments are given, and at most {taken} taken; leave out the others"
        return source.error(offset, problem)
    if description.startswith("Required keyword"):
        return source.error(offset, f"something is missing at {shown!r}; add it, or leave that out")
    misspelt = _misspelt(source, offset)
    if misspelt is not None:
        return misspelt
    hint = "a name that is also a word of SQL needs double quotes"
    return source.error(offset, f"{shown!r} is not understood here; write {GRAMMAR} ({hint})")


def _misspelt(source: QueryText, offset: int) -> SqlError | None:
    """A word like one that begins a clause: at this place, or taken for a name before it."""
    for token in reversed([token for token in source.tokens if token.start <= offset][-2:]):
        meant = get_close_matches(token.text.upper(), _KEYWORDS, 1, LIKE_FROM)
        if meant and meant[0] != token.text.upper():
            return source.error(token, f"{token.text} is not understood; did you mean {meant[0]}?")
    return None


def _check_depth(source: QueryText, tree: exp.Expr) -> None:
    pending: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if depth > DEPTH_MAX:
            raise source.error(
                0,
                f"an expression is a chain of more than {DEPTH_MAX} operators; use IN, brackets "
                "or fewer of them",
            )
        pending.extend((child, depth + 1) for child in node.iter_expressions())
