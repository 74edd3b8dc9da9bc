"""Functions over text. Lengths and positions count characters (code points)."""

from __future__ import annotations

import re

import polars as pl

from mars.core.plan import Call, Literal

TEXT_BYTES_MAX = 256 * 1024
"""Longest text that CONCAT makes, in UTF-8; a longer one is NULL. It is as long as a key may be."""

_POSITION_MAX = 2**32
"""Positions and lengths of SUBSTR are cut to this, in characters: no text is longer, and sums
of two of them stay far inside 64 bits."""


def lower(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """In lower case."""
    return arguments[0].str.to_lowercase()


def upper(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """In upper case."""
    return arguments[0].str.to_uppercase()


def length(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Number of characters."""
    return arguments[0].str.len_chars().cast(pl.Int64)


def concatenate(_call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """The texts one after another; NULLs are left out, a text over TEXT_BYTES_MAX is NULL.

    It is not made first: of 16 rows of 50 kB it may take gigabytes.
    """
    sizes = [argument.str.len_bytes().cast(pl.Int64).fill_null(0) for argument in arguments]
    fits = pl.sum_horizontal(sizes) <= TEXT_BYTES_MAX
    parts = [pl.when(fits).then(argument) for argument in arguments]
    return pl.when(fits).then(pl.concat_str(parts, ignore_nulls=True))


def substring(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """The characters `[start, start + length)`, counted from 1, as far as they exist.

    A negative start counts from the end; a negative length reaches back from the start.
    """
    text, start = arguments[0], _position(arguments[1])
    size = text.str.len_chars().cast(pl.Int64)
    first = pl.when(start < 0).then(size + start + 1).otherwise(start)
    if len(call.arguments) == 2:
        begin, end = first, size + 1
    else:
        reach = first + _position(arguments[2])
        begin, end = pl.min_horizontal(first, reach), pl.max_horizontal(first, reach)
        # min_horizontal skips NULLs; a NULL length makes the whole NULL.
        begin = pl.when(reach.is_not_null()).then(begin)
    begin = begin.clip(1, None)
    taken = (end.clip(None, size + 1) - begin).clip(0, None)
    known = begin.is_not_null() & taken.is_not_null()
    return pl.when(known).then(text.str.slice(begin.fill_null(1) - 1, taken.fill_null(0)))


def like(call: Call, arguments: list[pl.Expr]) -> pl.Expr:
    """Whether the whole text matches a pattern of `%`, `_` and literal characters."""
    pattern, escape = _literal_text(call, 1), _literal_text(call, 2)
    if pattern is None:
        return pl.lit(None, dtype=pl.Boolean())
    return arguments[0].str.contains(_regex(pattern, escape), strict=True)


def _regex(pattern: str, escape: str | None) -> str:
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append(re.escape(next(characters)))
        else:
            parts.append({"%": ".*", "_": "."}.get(character) or re.escape(character))
    return rf"(?s)\A{''.join(parts)}\z"


def _position(value: pl.Expr) -> pl.Expr:
    return value.clip(-_POSITION_MAX, _POSITION_MAX).cast(pl.Int64)


def _literal_text(call: Call, at: int) -> str | None:
    match call.arguments[at : at + 1]:
        case (Literal(value=str(text)),):
            return text
    return None
