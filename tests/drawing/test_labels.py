"""Text in a picture."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.drawing.labels import escape_text, estimate_width, make_visible, shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Überweisung 支払い 😀", "Überweisung 支払い 😀"),
        ("a\tb\nc\u00a0d", "a b c d"),
        ("\x00\x1b\x9b\x7f", r"\x00\x1b\x9b\x7f"),
        ("\u202eabc\u2066", r"\u202eabc\u2066"),
        ("\ud800\ufffe", r"\ud800\ufffe"),
    ],
)
def test_what_cannot_be_printed_is_an_escape(text: str, shown: str) -> None:
    assert make_visible(text) == shown


def test_characters_of_xml_are_escaped() -> None:
    assert escape_text("<a b=\"c\" d='&'>") == "&lt;a b=&quot;c&quot; d=&#x27;&amp;&#x27;&gt;"


@given(text=st.text(max_size=300), width=st.integers(40, 300), keeps_end=st.booleans())
def test_a_shortened_text_fits(text: str, width: int, keeps_end: bool) -> None:
    short = shorten(text, width, 13, keeps_end=keeps_end)

    assert estimate_width(short, 13) <= width + 1
    assert short.isprintable()
    if short != make_visible(text):
        assert "…" in short


def test_the_end_or_the_middle_is_left_out() -> None:
    text = "normalise-addresses-of-customers-in-europe"

    assert shorten(text, 140, 13) == "normalise-addresse…"
    assert shorten(text, 140, 13, keeps_end=True) == "normali…rs-in-europe"
    assert shorten(text, 1_000, 13) == text


def test_a_text_of_characters_without_a_width_is_cut_too() -> None:
    assert len(shorten("a" + "\u0301" * 5_000, 100, 13)) <= 101
    assert len(shorten("a" + "\u0301" * 5_000, 100, 13, keeps_end=True)) <= 201
