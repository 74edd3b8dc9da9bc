"""Places for what costs much, of which one key gets a share: so nobody takes all of them.

places  ■■■■ ■■■□ □□□□ □□□□     16, of which a key may hold 4
        key a  b
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock

from api.callers import asker
from mars.core.errors import TooMany
from mars.protocol.ports import KeyId

SHARES = 4
"""A key gets one part of so many: four who ask for all they can leave nothing, one or two do."""

BYTES_A_PLACE = 16 * 1024
"""Of a query: a longer one takes more places, for it takes as much longer."""


class Places:
    """Some places of one kind. Safe for threads.

    Where nobody is asked for a key, whoever asks may have all of them. `refusal` is said when all
    are taken.
    """

    def __init__(self, count: int, refusal: str, share: int | None = None) -> None:
        self.count = count
        self.share = max(1, count // SHARES) if share is None else share
        self._refusal = refusal
        self._lock = Lock()
        self._taken: Counter[KeyId | None] = Counter()

    @property
    def taken(self) -> int:
        """Places that are taken."""
        with self._lock:
            return self._taken.total()

    def take(self, price: int = 1) -> Callable[[], None]:
        """Take places (never more than a share) for the one who asks; call what it gives once.

        Raises TooMany.
        """
        who, price = asker(), min(price, self.share)
        with self._lock:
            if self._taken.total() + price > self.count:
                raise TooMany(self._refusal)
            if who is not None and self._taken[who] + price > self.share:
                raise TooMany(
                    f"key {who} has {self._taken[who]} of {self.count} places already, and "
                    f"{self.share} are for one key: wait for what it asked before, or try again "
                    "in some seconds"
                )
            self._taken[who] += price
        return lambda: self._give_back(who, price)

    def _give_back(self, who: KeyId | None, price: int) -> None:
        with self._lock:
            self._taken[who] -= price
            if not self._taken[who]:
                del self._taken[who]


def price_of(query: str) -> int:
    """How many places a query takes that is compiled."""
    return 1 + len(query) // BYTES_A_PLACE
