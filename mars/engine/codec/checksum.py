"""A checksum of result values that does not depend on their order."""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh3_64_intdigest

_MODULUS = 2**64


def checksum(values: Iterable[bytes]) -> int:
    """The sum modulo 2**64 of xxh3_64 over the values: one lost and one doubled row show."""
    return sum(map(xxh3_64_intdigest, values)) % _MODULUS
