"""Reducers with loads, for tests of what is decided about them."""

from __future__ import annotations

from collections.abc import Mapping

from mars.core.types import Bucket, MemberId
from mars.protocol.balance.placement import ReducerLoad
from mars.protocol.ports import BucketLoad


def bucket_load(number: int, use: float, backlog_bytes: int = 0) -> BucketLoad:
    return BucketLoad(Bucket(number), use, use * 1_000, use * 10_000, backlog_bytes)


def reducer(use: Mapping[int, float], **changes: object) -> ReducerLoad:
    """A reducer that does nothing but its buckets."""
    made: dict[str, object] = {
        "use": sum(use.values()),
        "buckets": {Bucket(number): bucket_load(number, each) for number, each in use.items()},
        "settled": frozenset(map(Bucket, use)),
    }
    return ReducerLoad(**(made | changes))  # type: ignore[arg-type]


def reducers(**uses: Mapping[int, float]) -> dict[MemberId, ReducerLoad]:
    return {MemberId(name): reducer(use) for name, use in uses.items()}


def owned_by(use: Mapping[int, float], owners: Mapping[int, str]) -> dict[MemberId, ReducerLoad]:
    """The same buckets under another assignment."""
    names = sorted(set(owners.values()))
    return {
        MemberId(name): reducer({b: use[b] for b, owner in owners.items() if owner == name})
        for name in names
    }
