"""What tests say of windows by their definition."""

from __future__ import annotations

from collections.abc import Iterator

from mars.core.windows import Shape, Window


def panes_of(shape: Shape, window: Window) -> Iterator[int]:
    """The panes of which a window is made, one after the other."""
    pane = shape.panes(window.start_ms)
    while pane < window.end_ms:
        yield pane
        pane = shape.pane_end(pane)
