"""API keys as texts: how they are made, told apart, compared, and what their patterns match.

    mars_<id>_<secret>      mars_3f9c21ab_<64 hexadecimal digits>

The id is public: it names the key in lists and in the audit log. The secret is 256 random bits, of
which only the SHA-256 is kept (see docs/decisions/0015).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from mars.core.errors import Rejected
from mars.core.locations import literal
from mars.protocol.ports.keys import ApiKey, KeyId, Role

ID_BYTES = 4
"""Of a key's id: four thousand million of them, and creating one that is taken is noticed."""

SECRET_BYTES = 32
"""Of a key's secret: nobody guesses 256 bits, so no slow hash is needed."""

ENDING_CHARACTERS = 4
"""Of a key that are kept to recognise it by; 240 bits stay unknown."""

PATTERNS_MAX = 100
"""Patterns of a key, for reading and for writing each."""

PATTERN_CHARACTERS_MAX = 1_000
"""Of a pattern: a topic has at most 249, a path of files some more."""

NOTE_CHARACTERS_MAX = 200
"""Of a key's note: a name and a purpose."""

EVERYTHING = ("*",)

_KEY = re.compile(
    rf"mars_(?P<id>[0-9a-f]{{{2 * ID_BYTES}}})_(?P<secret>[0-9a-f]{{{2 * SECRET_BYTES}}})",
    re.ASCII,
)

_KEY_ANYWHERE = re.compile(r"mars_(?P<id>[0-9a-f]{8})_[0-9a-f]+", re.ASCII | re.IGNORECASE)
"""A key, also one that was cut short."""


def make_key(
    role: Role,
    now_ms: int,
    *,
    reads: Sequence[str] = EVERYTHING,
    writes: Sequence[str] = EVERYTHING,
    note: str = "",
) -> tuple[ApiKey, str]:
    """A new key: what is to be kept of it, and its text, to be shown once. Raises Rejected."""
    if role is Role.ADMIN and (*reads, *writes) != EVERYTHING * 2:
        raise Rejected("an admin makes keys for any topic, so topics would not limit it")
    if len(note) > NOTE_CHARACTERS_MAX:
        raise Rejected(f"a note may have at most {NOTE_CHARACTERS_MAX} characters")
    for patterns in (reads, writes):
        _check_patterns(patterns)
    identity, secret = secrets.token_hex(ID_BYTES), secrets.token_hex(SECRET_BYTES)
    key = ApiKey(
        id=KeyId(identity),
        role=role,
        hash=_digest(secret),
        ending=secret[-ENDING_CHARACTERS:],
        created_ms=now_ms,
        reads=tuple(reads),
        writes=tuple(writes),
        note=note,
    )
    return key, f"mars_{identity}_{secret}"


def find_key(keys: Mapping[KeyId, ApiKey], text: str) -> ApiKey | None:
    """The key that a text is, if it is one of these."""
    parts = _KEY.fullmatch(text)
    if parts is None:
        return None
    key = keys.get(KeyId(parts["id"]))
    if key is None or not hmac.compare_digest(_digest(parts["secret"]), key.hash):
        return None
    return key


def matches(patterns: Sequence[str], name: str) -> bool:
    """Whether a topic matches one of the patterns; for files see `mars.locations`."""
    return any(fnmatchcase(name, literal(pattern)) for pattern in patterns)


def without_secrets(text: str) -> str:
    """A text with the ids alone of all keys in it, as lines of logs may have it."""
    return _KEY_ANYWHERE.sub(r"\g<id>", text)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check_patterns(patterns: Sequence[str]) -> None:
    if len(patterns) > PATTERNS_MAX:
        raise Rejected(f"a key may have at most {PATTERNS_MAX} patterns; `*` stands for any text")
    for pattern in patterns:
        if not pattern.strip() or len(pattern) > PATTERN_CHARACTERS_MAX:
            raise Rejected(
                f"{pattern[:80]!a} is not a pattern of topics: write a topic's name, with `*` for "
                f"any text, in at most {PATTERN_CHARACTERS_MAX} characters"
            )
