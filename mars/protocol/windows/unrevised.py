"""What is so for all windows that are emitted once, and of which a row misses none or the only one.

CountState and SessionState have it in common.
"""

from __future__ import annotations

from collections.abc import Iterable

from mars.core.types import PaneRows
from mars.protocol.windows.open_panes import Size


class Unrevised:
    """Nothing waits but for its window, and nothing is revised; see `WindowState`."""

    def late_partly(self, panes: Iterable[PaneRows]) -> int:
        """No row misses some of its windows."""
        return 0

    @property
    def is_steady(self) -> bool:
        """Nobody knows when a window will close: rows tell."""
        return False

    @property
    def has_waiting(self) -> bool:
        """Nothing comes with any commit."""
        return False

    @property
    def owes(self) -> bool:
        """No window is revised."""
        return False

    @property
    def shows_all(self) -> bool:
        """Every group comes with its window."""
        return True

    def size_waiting(self) -> Size:
        """Nothing waits."""
        return Size()
