"""What others wrote is shown and not obeyed."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from mars.cli.shared import messages, output, print_json, say
from mars.cli.tables import table
from mars.core.printable import LINES, OBEYED, printable, printable_json

EVIL = "a\x1b[2J\x9b31m\u202eb\u2066\u200f\x07\x7f\U000e0001"


def harmless(text: str) -> bool:
    return all(letter in LINES or unicodedata.category(letter) not in OBEYED for letter in text)


@given(text=st.text())
def test_nothing_in_a_text_is_obeyed(text: str) -> None:
    shown = printable(text, LINES)
    assert harmless(shown)
    if harmless(text):
        assert shown == text


@given(value=st.text())
def test_json_means_the_same(value: str) -> None:
    text = json.dumps({"a": value}, ensure_ascii=False)
    assert harmless(printable_json(text))
    assert json.loads(printable_json(text)) == {"a": value}


def test_texts_in_all_scripts_are_shown_as_they_are() -> None:
    for text in ("größer", "東京", "שלום", "نص", "e\u0301", "𝄞", "5 €"):
        assert printable(text) == text


def test_control_is_written_out() -> None:
    assert printable(EVIL) == (r"a\x1b[2J\x9b31m\u202eb\u2066\u200f\x07\x7f\U000e0001")


@pytest.mark.parametrize(
    "show",
    [
        lambda: output().print(EVIL),
        lambda: messages().print(EVIL),
        lambda: output().print(Text(EVIL)),
        lambda: output().print(table((EVIL,), [[EVIL]])),
        lambda: say(EVIL),
        lambda: say(EVIL, err=True),
        lambda: print_json({"sql": EVIL}),
    ],
)
def test_every_way_to_print_shows_it(capfd: pytest.CaptureFixture[str], show: object) -> None:
    assert callable(show)
    show()
    out, err = capfd.readouterr()
    assert "2J" in out + err
    assert harmless(out + err)
