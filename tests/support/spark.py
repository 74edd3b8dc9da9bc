"""One Spark session for all tests of a run: a process can have no more at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mars.core.settings import Settings

if TYPE_CHECKING:
    from mars.adapters.spark.engine import SparkEngine


class SparkShelf:
    """Keeps the engine that was asked for last; another one is made for other settings only."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._engine: SparkEngine | None = None

    def engine(self, settings: Settings) -> SparkEngine:
        """An engine with these settings; the one before it is closed if its were others."""
        from mars.adapters.spark.engine import SparkEngine  # takes a second, most runs need none

        if self._engine is None or settings != self._settings:
            self.close()
            self._settings, self._engine = settings, SparkEngine(settings)
        return self._engine

    def close(self) -> None:
        """Stop the session."""
        if self._engine is not None:
            self._engine.close()
        self._engine = None
