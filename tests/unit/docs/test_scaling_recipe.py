"""The loop of the page on scaling that lets compose follow the wanted numbers, with stand-ins."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "scaling.md"
WANTED = (
    '{"balance": {"wanted": [{"role": "mapper", "wanted": 9}, {"role": "reducer", "wanted": 2}]}}'
)


def body() -> str:
    """What the loop does each time."""
    found = re.search(r"while sleep 10; do\n(.*?)\ndone\n", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def calls(folder: Path, curl: str) -> list[str]:
    """How docker and curl were called, when curl does this."""
    for name, does in (("curl", curl), ("docker", ":")):
        stub = folder / name
        stub.write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/calls\n{does}\n', "utf-8")
        stub.chmod(0o755)
    (folder / "python3").symlink_to(sys.executable)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MARS_KEY": "the key"}
    subprocess.run(["bash", "-c", body()], env=environment, check=False, timeout=60)
    return (folder / "calls").read_text("utf-8").splitlines()


def test_compose_is_asked_for_what_is_wanted_and_no_more_than_four(tmp_path: Path) -> None:
    asked, scaled = calls(tmp_path, f"echo '{WANTED}'")

    assert "Authorization: Bearer the key" in asked
    assert scaled == ("docker compose up --detach --no-recreate --scale mapper=4 --scale reducer=2")


@pytest.mark.parametrize("curl", ["exit 22", "echo '{\"balance\": null}'"])
def test_nothing_is_changed_while_nothing_is_known(tmp_path: Path, curl: str) -> None:
    assert [call.split()[0] for call in calls(tmp_path, curl)] == ["curl"]
