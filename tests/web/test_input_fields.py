"""The fields of a form for declared inputs: what they become, and what they are filled with."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.spec.validation import check_spec
from orchestrator.web.input_fields import (
    MAX_FIELD_CHARS,
    OTHERS,
    PREFIX,
    make_fields,
    prefill,
    read_inputs,
)
from worlds.documents import document, step

TYPES = ("string", "number", "integer", "boolean", "object", "array")


def spec_of(**inputs: Any) -> Any:
    return check_spec(document(step("a"), inputs=inputs)).spec


def read(declared: dict[str, Any], text: str, others: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    found = read_inputs(spec_of(x=declared), {f"{PREFIX}x": text, OTHERS: others})
    return found.inputs, found.errors


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "a", "a"),
        ("string", " 12 ", " 12 "),
        ("string", "two\r\nlines", "two\nlines"),
        ("string", "null", "null"),
        ("number", "1.5", 1.5),
        ("number", " -2 ", -2),
        ("number", "1e3", 1000.0),
        ("integer", "12", 12),
        ("integer", "123456789012345678901234567890", 123456789012345678901234567890),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("object", '{"a": [1]}', {"a": [1]}),
        ("array", "[null]", [None]),
        (None, "null", None),
        (None, '"text"', "text"),
        (None, "true", True),
    ],
)
def test_a_text_becomes_a_value_of_the_declared_type(kind: str | None, text: str, value: Any) -> None:
    declared = {"type": kind} if kind else {}

    assert read(declared, text) == ({"x": value}, {})


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ("number", ["a", "true", '"1"', "NaN", "Infinity", "1e999", "1,5", "[1]"]),
        ("integer", ["1.5", "1.0", "true", "0x10", "1e3"]),
        ("boolean", ["1", "yes", '"true"', "null"]),
        ("object", ["[]", "1", "{", "text", "{'a': 1}"]),
        ("array", ["{}", "1", "[", "a,b", "[" * 100_000]),
        (None, ["text", "{", "undefined", '"\\ud800"']),
    ],
)
def test_a_text_of_another_type_is_an_error_of_its_field(kind: str | None, texts: list[str]) -> None:
    declared = {"type": kind} if kind else {}

    for text in texts:
        inputs, errors = read(declared, text)
        assert (inputs, list(errors)) == ({}, ["x"]), text


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_blank_field_is_not_sent(kind: str, text: str) -> None:
    assert read({"type": kind}, text) == ({}, {})
    assert read({"type": kind, "required": True}, text) == ({}, {"x": "this input is required"})


def test_a_blank_field_leaves_the_default_to_the_start() -> None:
    assert read({"type": "string", "default": "d", "required": True}, "") == ({}, {})


def test_other_inputs_are_a_json_object_that_may_also_have_declared_ones() -> None:
    declared = {"type": "string", "required": True}

    assert read(declared, "", '{"x": "", "y": 1}') == ({"x": "", "y": 1}, {})
    assert list(read(declared, "a", '{"x": "b"}')[1]) == [OTHERS]
    assert list(read(declared, "a", "[1]")[1]) == [OTHERS]
    assert list(read(declared, "a", "{")[1]) == [OTHERS]
    assert read(declared, "", '{"x": 5}')[1] == {"x": "must be of type string, not the number 5"}


def test_a_value_beyond_the_limits_of_data_is_an_error() -> None:
    inputs, errors = read({}, "[" * 150 + "]" * 150)

    assert inputs
    assert errors


KINDS = {"string": "line", "number": "number", "integer": "number", "boolean": "choice", "object": "json"}


def test_fields_are_drawn_by_their_type_and_secrets_are_hidden() -> None:
    spec = spec_of(
        **{kind: {"type": kind} for kind in KINDS},
        free={},
        api_token={"type": "string", "default": "hidden-default"},
        note={"type": "string", "default": "d\u00e9", "required": True},
    )
    fields = {one.name: one for one in make_fields(spec, {"string": "a\nb"}, {"free": "wrong"}, {})}

    assert {name: fields[name].kind for name in KINDS if name != "string"} == {
        name: kind for name, kind in KINDS.items() if name != "string"
    }
    assert (fields["string"].kind, fields["free"].kind, fields["free"].error) == ("text", "json", "wrong")
    assert (fields["api_token"].kind, fields["api_token"].default) == ("secret", "")
    assert (fields["note"].default, fields["note"].is_required) == ('"dé"', False)


@pytest.mark.parametrize(
    "inputs",
    [
        {"s": "text", "n": 1.5, "i": 3, "b": False, "o": {"a": "é"}, "l": [1], "free": None},
        {"s": " two\n\tlines ", "free": {"a": 1}},
        {"s": "", "extra": 1},
        {"s": "bell \x07, carriage\r\nreturn", "free": "bidi \u202e"},
        {"s": "line\u2028separator \u200b"},
        {"i": 10**30, "n": -0.0, "free": "12"},
    ],
    ids=str,
)
def test_a_form_that_is_filled_and_sent_as_it_is_has_the_same_inputs(inputs: dict[str, Any]) -> None:
    names = {"s": "string", "n": "number", "i": "integer", "b": "boolean", "o": "object", "l": "array"}
    spec = spec_of(**{name: {"type": kind} for name, kind in names.items()}, free={})

    filled = prefill(spec, inputs, inputs)
    sent = {PREFIX + name: text.replace("\n", "\r\n") for name, text in filled.texts.items()}
    found = read_inputs(spec, {**sent, OTHERS: filled.others})

    assert (found.inputs, found.errors, filled.notes) == (inputs, {}, {})


def test_what_a_form_cannot_show_must_be_entered_again() -> None:
    reference = {"$payload": "0" * 64, "bytes": 5_000_000}
    inputs = {
        "secret": {"pw": "x"},
        "large": "x" * (MAX_FIELD_CHARS + 1),
        "kept": reference,
        "nested": [reference],
        "a": 1,
    }
    redacted = {**inputs, "secret": {"pw": "<redacted>"}}

    filled = prefill(spec_of(large={"type": "string"}, kept={}), inputs, redacted)

    assert filled.notes.keys() == {"secret", "large", "kept", "nested"}
    assert (filled.texts, filled.others) == ({}, '{\n  "a": 1\n}')
