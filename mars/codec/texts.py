"""Where the rows of a message of text are."""

from __future__ import annotations

import msgspec

MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8, which Windows tools write; at the begin of a message it is no part
of it."""

BLANK = b" \t\r\n"

FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the parser of JSON raises for bytes that are none."""

_array = msgspec.json.Decoder(list[msgspec.Raw])


def without_mark(message: bytes) -> bytes:
    """The message behind its byte order mark, if it has one."""
    return message.removeprefix(MARK)


def filled_lines(text: bytes) -> list[bytes]:
    """The lines that are not blank."""
    return [line for line in text.split(b"\n") if line and not line.isspace()]


def filled_line(message: bytes, at: int) -> bytes:
    """One of the lines that are not blank; without any it is the first, beyond them the message.

    What comes behind it is not looked at: a message may have millions of lines.
    """
    text, begin = without_mark(message), 0
    if text.isspace():
        return text.partition(b"\n")[0]
    while begin <= len(text):
        end = text.find(b"\n", begin)
        line = text[begin : end if end >= 0 else len(text)]
        begin = end + 1 if end >= 0 else len(text) + 1
        if line and not line.isspace():
            if not at:
                return line
            at -= 1
    return message


def elements(message: bytes) -> list[bytes]:
    """What an array of JSON holds. Raises one of FAILURES where the message is none."""
    return [bytes(element) for element in _array.decode(without_mark(message))]


def elements_or_none(message: bytes) -> list[bytes]:
    """What an array of JSON holds; nothing where the message is none, or cannot be read."""
    if not without_mark(message).lstrip(BLANK).startswith(b"["):
        return []
    try:
        return elements(message)
    except FAILURES:
        return []
