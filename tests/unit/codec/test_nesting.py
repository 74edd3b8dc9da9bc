from __future__ import annotations

import pytest

from mars.engine.decode.formats.nesting import (
    NESTING_MAX,
    SHALLOW_BYTES_MAX,
    is_too_deep,
    may_be_deep,
)


@pytest.mark.parametrize("brackets", [b"[]", b"{}"])
def test_limit_is_exact(brackets: bytes) -> None:
    opening, closing = brackets[:1], brackets[1:]
    assert not is_too_deep(opening * NESTING_MAX + closing * NESTING_MAX)
    assert is_too_deep(opening * (NESTING_MAX + 1) + closing * (NESTING_MAX + 1))


def test_brackets_that_close_again_do_not_add_up() -> None:
    assert not is_too_deep(b"[" + b"[]," * 2_000 + b"[]]")


def test_brackets_in_texts_do_not_count() -> None:
    assert not is_too_deep(b'["' + b"[" * 2_000 + b'\\"' + b"[" * 2_000 + b'"]')


def test_text_that_does_not_end_hides_what_follows() -> None:
    assert not is_too_deep(b'["' + b"[" * 2_000)


def test_one_deep_row_among_many_is_suspected() -> None:
    flat = [b'{"a":[1]}'] * 100
    assert not may_be_deep(flat)
    assert may_be_deep([*flat, b"[" * (NESTING_MAX + 1)])


def test_short_rows_cannot_be_deep() -> None:
    assert not is_too_deep(b"[" * NESTING_MAX + b"]" * NESTING_MAX)
    assert SHALLOW_BYTES_MAX == 2 * NESTING_MAX
