from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.api.twins import World


@pytest.fixture
def world() -> Iterator[World]:
    """An API with the stream `flows` (2 partitions) declared, and nothing else."""
    made = World()
    assert made.declare().status_code == 201
    yield made
    made.close()
