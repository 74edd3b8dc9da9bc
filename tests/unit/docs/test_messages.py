"""The list of all that Mars says to people, and what none of it may say."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.house import Source
from tests.messages import Message, messages, of_module

SPLICE = re.compile(r", (?:check|make|wait|start|point|look|choose|run|raise|lower|try) ")
"""Two sentences with a comma between: a semicolon or a colon parts what is from what to do."""

NOBODY_SAYS = re.compile(
    r"(?<!there )\bis no (?:[a-z]+ ){0,3}(?:name|number|duration|range|value|address|topic|text)\b|"
    r"(?<!there )\bis no \{|\bcannot be had\b|\bis there twice\b|\bat the begin\b"
)


@cache
def all_messages() -> tuple[Message, ...]:
    return tuple(messages())


def test_list_has_messages_of_each_kind() -> None:
    found = {(message.kind, message.text) for message in all_messages()}
    for kind, text in (
        ("raised", "there are {KEYS_MAX} keys already: remove some"),
        ("raised", "SUBSTR needs a start; write SUBSTR(x, 1, 3)"),
        ("logged", "ZooKeeper had lost everything: tasks and streams are back from mars.control"),
        ("help", "Show every row of a window."),
        ("help", "Resume a paused or failed task where it stopped."),
        ("described", "json, ndjson, csv or arrow"),
        ("said", "The task is paused: resume it to go on where it stopped."),
        ("dashboard", "No task has this name."),
    ):
        assert (kind, text) in found


@pytest.mark.parametrize("pattern", [SPLICE, NOBODY_SAYS])
def test_no_message_says_what_nobody_would(pattern: re.Pattern[str]) -> None:
    said = [one for one in all_messages() if one.kind in {"raised", "said", "logged"}]
    assert not [f"{one.place}:{one.line} {one.text}" for one in said if pattern.search(one.text)]


def texts_of(code: str) -> list[tuple[str, str]]:
    source = Source(Path("/nowhere.py"), tuple(code.splitlines()), ast.parse(code))
    return [(one.kind, one.text) for one in of_module(source, "nowhere.py")]


def test_text_in_parts_is_one_with_its_values_in_braces() -> None:
    code = 'raise Rejected(f"topic {topic!a} is not here: " + told + " and that is all")'
    assert texts_of(code) == [("raised", "topic {topic} is not here: {told} and that is all")]


def test_docstrings_names_and_statements_are_no_messages() -> None:
    code = '''
"""This is a docstring of many words."""
NAME = "mars_task_rows"
TEXT = "SELECT sip, count(*) FROM flows"
assert NAME, "only a bug shows this text"
'''
    assert texts_of(code) == []


def test_text_within_the_value_of_another_is_a_message_too() -> None:
    code = "logs.warning(log, f\"gone: {'nobody has heard of it' if lost else why}\")"
    assert ("logged", "nobody has heard of it") in texts_of(code)
