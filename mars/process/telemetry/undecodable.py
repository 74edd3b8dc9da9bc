"""Says in the log of a mapper which messages cannot be unpacked: a line in 30 s for a partition."""

from __future__ import annotations

import logging

from mars.core.types import Mapped, Reason, Topic
from mars.engine.combining import rejected_for
from mars.engine.decode.limits import NOT_UNPACKED
from mars.process.telemetry import logs
from mars.process.telemetry.reminding import Reminders


class UndecodableRows:
    """Tells of those that a batch has, whichever task it is for."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._reminders = Reminders()

    def tell(self, topic: Topic, mapped: Mapped) -> None:
        """The batch was made, or stored."""
        for part in rejected_for(Reason.UNDECODABLE, mapped.partials):
            if self._reminders.due((topic, part.lane)):
                text = (
                    f"{topic} partition {part.lane}: {part.rows} messages from offset {part.first} "
                    f"to {part.next - 1} are bad rows: {NOT_UNPACKED}"
                )
                logs.warning(self._log, text, kind="undecodable")
