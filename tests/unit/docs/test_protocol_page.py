"""The book of the protocol: every rule that the code cites is in it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "internals" / "protocol.md"
CODE = ("mars", "mapper", "reducer", "api")

CITED = re.compile(r"\b[MRI][1-9]\b")
RULE = re.compile(r"^\*\*([MR][1-9]), ", re.MULTILINE)
INVARIANT = re.compile(r"^\| (I[1-9]) \|", re.MULTILINE)

STATISTICS = ROOT / "mars" / "aggregates" / "moments.py"
"""Its M2 is that of the textbooks."""


def rules() -> list[str]:
    page = PAGE.read_text("utf-8")
    return [*RULE.findall(page), *INVARIANT.findall(page)]


def cited() -> set[str]:
    files = (
        path
        for folder in CODE
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".lua"} and path != STATISTICS
    )
    return {rule for path in files for rule in CITED.findall(path.read_text("utf-8"))}


def test_the_book_has_all_rules_in_order() -> None:
    numbers = (("M", 5), ("R", 9), ("I", 8))
    assert rules() == [f"{letter}{n + 1}" for letter, most in numbers for n in range(most)]


def test_every_rule_that_the_code_cites_is_in_the_book() -> None:
    found = cited()
    assert {"M3", "R5", "I7"} <= found
    assert found <= set(rules()), f"cited and not defined: {sorted(found - set(rules()))}"
