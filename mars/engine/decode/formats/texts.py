"""Where the rows of a message of text are."""

from __future__ import annotations

import sys

import msgspec

from mars.engine.decode.too_many import TooManyRows

MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which Windows tools write; at the begin of a message it is no part
of it."""

BLANK = b" \t\r\n"

FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the parser of JSON raises for bytes that are none."""

_array = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder(msgspec.Raw)


def without_mark(message: bytes) -> bytes:
    """The message behind its byte order mark, if it has one."""
    return message.removeprefix(MARK)


def filled_lines(text: bytes) -> list[bytes]:
    """The lines that are not blank."""
    return [line for line in text.split(b"\n") if line and not line.isspace()]


def is_array(message: bytes) -> bool:
    """Whether a message of JSON can be nothing but an array."""
    return without_mark(message).lstrip(BLANK).startswith(b"[")


def elements(message: bytes, rows_max: int = sys.maxsize) -> list[bytes]:
    """What an array of JSON holds.

    Raises one of FAILURES where the message is none, and TooManyRows rather than take apart one
    that may have more than `rows_max` elements.
    """
    if message.count(b",") >= rows_max:
        _any.decode(without_mark(message))
        raise TooManyRows
    return [bytes(element) for element in _array.decode(without_mark(message))]


def elements_or_whole(message: bytes) -> list[bytes]:
    """The elements of an array of JSON; what is none stands for itself."""
    if not is_array(message):
        return [message]
    try:
        return elements(message)
    except FAILURES:
        return [message]
