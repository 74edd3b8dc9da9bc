"""The REST interface from Python: `Client` has each call; `mars.aio` has them for event loops."""

from __future__ import annotations

from mars.client.blocking import Client

__all__ = ["Client"]
