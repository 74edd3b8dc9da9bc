"""The room that Valkey has on one's own machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from mars.local.servers import ValkeyServer
from tests.conftest import missing_valkey, need

GIB = 2**30


@pytest.mark.parametrize(
    ("log_bytes_max", "room"), [(0, GIB), (GIB // 4, GIB), (GIB, 4 * GIB), (GIB // 8, GIB)]
)
def test_valkey_has_room_for_four_full_logs_and_for_a_gigabyte_at_the_least(
    tmp_path: Path, log_bytes_max: int, room: int
) -> None:
    need(missing_valkey())
    command = ValkeyServer(tmp_path, log_bytes_max=log_bytes_max).command()
    assert command[command.index("--maxmemory") + 1] == str(room)
