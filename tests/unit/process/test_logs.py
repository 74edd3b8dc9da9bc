"""Lines of logs: what others wrote cannot be taken for a line, or a field, of ours."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from mars.core.settings import LoggingSettings
from mars.process.telemetry import logs

Written = Callable[[], str]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Written:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    return lambda: capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("/v1/tasks/a", "/v1/tasks/a"),
        ("mapper-1", "mapper-1"),
        (5, "5"),
        ("größer", "größer"),
        ("6.6.6.6 role=admin", '"6.6.6.6 role=admin"'),
        ("a=b", '"a=b"'),
        ("", '""'),
        ('"', '"\\""'),
        ("a\nWARNING b", '"a\\nWARNING b"'),
        ("\x1b[2J", '"\\u001b[2J"'),
        ("a\u202eb", '"a\\u202eb"'),
        (("a", 1), "\"('a', 1)\""),
    ],
)
def test_a_value_in_a_text_log_is_one_value(written: Written, value: object, shown: str) -> None:
    logs.configure(LoggingSettings(format="text"))
    logs.info(logs.logger("audit"), "request", address=value, role="none")
    assert written().endswith(f"INFO audit: request address={shown} role=none\n")


def test_a_message_is_one_line(written: Written) -> None:
    logs.configure(LoggingSettings(format="text"))
    logging.getLogger("a").warning("%s", "x\n12:00 INFO audit: \x1b[31m")
    line = written()
    assert line.count("\n") == 1
    assert "\x1b" not in line


def test_json_lines_hold_values_as_they_are(written: Written) -> None:
    logs.configure(LoggingSettings(format="json"))
    logs.info(logs.logger("audit"), "request", address="6.6.6.6 role=admin\n")
    line = written()
    assert json.loads(line)["address"] == "6.6.6.6 role=admin\n"
    assert line.count("\n") == 1
