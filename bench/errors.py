"""The error of the benchmarks.

MarsError
└── BenchError     a measurement cannot be made, or a contestant failed in it
"""

from __future__ import annotations

from mars.core.errors import MarsError


class BenchError(MarsError):
    """A measurement cannot be made as asked; its text says what to do."""
