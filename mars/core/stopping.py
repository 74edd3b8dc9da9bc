"""Acting on signals without waiting for what the main thread holds."""

from __future__ import annotations

import logging
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType


def at_signals(numbers: Sequence[signal.Signals], act: Callable[[], None]) -> None:
    """Call `act` at each of these signals, in a thread of its own. To be called in the main thread.

    A handler runs between two steps of whatever the main thread does. Inside `Event.wait` that is
    while it has the event's lock: a handler that sets the event would wait for it for ever. The
    handler here only puts a note into a queue, which is allowed anywhere.
    """
    notes: queue.SimpleQueue[int] = queue.SimpleQueue()

    def note(number: int, _frame: FrameType | None) -> None:
        notes.put(number)

    def follow() -> None:
        while True:
            notes.get()
            try:
                act()
            except Exception:
                # The next signal is heard all the same.
                logging.getLogger("signals").exception("a signal was not acted on: this is a bug")

    threading.Thread(target=follow, name="signals", daemon=True).start()
    for number in numbers:
        signal.signal(number, note)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM does what Ctrl-C does meanwhile: KeyboardInterrupt. For the main thread."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
