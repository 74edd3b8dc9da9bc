"""Parts that sentences share."""

from __future__ import annotations


def counted(count: int, noun: str, form: str = "") -> str:
    """`1 row` or `2 rows`; with the form `,` thousands are separated."""
    return f"{count:{form}} {noun if count == 1 else noun + 's'}"
