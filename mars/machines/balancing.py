"""Which reducer should own which bucket."""

from __future__ import annotations

from collections.abc import Mapping

from mars.types import Bucket, MemberId


def balance(
    buckets: int, current: Mapping[Bucket, MemberId], reducers: frozenset[MemberId]
) -> dict[Bucket, MemberId]:
    """Every bucket to a living reducer, as evenly as possible, moving as few as possible.

    Equal input gives equal output. `reducers` must not be empty.
    """
    members = sorted(reducers)
    share, rest = divmod(buckets, len(members))
    held: dict[MemberId, list[Bucket]] = {member: [] for member in members}
    for number in range(buckets):
        owner = current.get(Bucket(number))
        if owner in held:
            held[owner].append(Bucket(number))
    fullest = sorted(members, key=lambda member: (-len(held[member]), member))
    quota = {member: share + (position < rest) for position, member in enumerate(fullest)}
    targets = {b: member for member in members for b in held[member][: quota[member]]}
    homeless = [Bucket(number) for number in range(buckets) if Bucket(number) not in targets]
    for member in members:
        wanted = quota[member] - min(len(held[member]), quota[member])
        for bucket in homeless[:wanted]:
            targets[bucket] = member
        homeless = homeless[wanted:]
    return targets
