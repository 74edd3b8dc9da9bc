"""What an extra of the package brings, told to whoever misses it."""

from __future__ import annotations


def not_installed(package: str, extra: str) -> str:
    """The sentence for a Python package that only `extra` installs, with the command."""
    return f"{package} is not installed. Run: pip install 'mars-statistics[{extra}]'"
