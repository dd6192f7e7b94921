"""JSON for a terminal: a parser gets the same value back, and no character controls the terminal."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.output.escaping import format_json
from orchestrator.cli.output.json_progress import LoggedProgress

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, st.sampled_from([None, 2]))
def test_a_parser_gets_the_same_value_and_every_character_is_printable(
    value: object, indent: int | None
) -> None:
    text = format_json(value, indent)

    assert json.loads(text) == value
    assert all(line.isprintable() for line in text.split("\n"))
    assert indent is not None or "\n" not in text


@pytest.mark.parametrize(
    ("char", "escape"),
    [
        ("\x1b", "\\u001b"),
        ("\x7f", "\\u007f"),
        ("\x9b", "\\u009b"),
        ("\u202e", "\\u202e"),
        ("\u2028", "\\u2028"),
        ("\udc9b", "\\udc9b"),
        ("\U000e0001", "\\udb40\\udc01"),
    ],
)
def test_what_is_not_printable_becomes_an_escape_of_json(char: str, escape: str) -> None:
    text = format_json({f"key {char}": f"grün {char} 🎉"})

    assert text == f'{{"key {escape}": "grün {escape} 🎉"}}'


@pytest.mark.parametrize("line", ['{"a":  "\x9b31m"}', '{"a":\t"\x9b31m"}'])
def test_json_that_an_executor_prints_is_escaped_in_the_log(line: str) -> None:
    stream = io.StringIO()

    LoggedProgress(stream).print_text(line)

    assert stream.getvalue() == '{"a": "\\u009b31m"}\n'


def test_a_printable_json_line_passes_unchanged() -> None:
    stream = io.StringIO()

    LoggedProgress(stream).print_text('{"b":1,  "a": "grün"}')

    assert stream.getvalue() == '{"b":1,  "a": "grün"}\n'
