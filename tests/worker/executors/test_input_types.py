"""The inputs in a document, checked against the TypedDict of an executor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict

import pytest
import typing_extensions

from orchestrator.worker.executors.input_types import (
    InputProblem,
    describe_type,
    find_key_problems,
    find_problems,
    read_input_keys,
)


class Customer(TypedDict):
    name: str
    age: NotRequired[int]


class Order(TypedDict, total=False):
    customer: Required[Customer]
    note: Annotated[str, "for people"]


class Urgent(Order):
    until: str


class Elsewhere(typing_extensions.TypedDict):
    name: str


class ForCheckers(TypedDict):
    order: Missing  # type: ignore[name-defined]  # noqa: F821


def found(annotation: Any) -> dict[str, bool] | None:
    keys = read_input_keys(annotation)
    return None if keys is None else {key.name: key.is_required for key in keys}


# ---- which keys


def test_a_key_is_required_unless_it_is_marked_as_not_required() -> None:
    assert found(Customer) == {"name": True, "age": False}


def test_keys_are_optional_with_total_false_and_those_of_a_base_keep_their_rule() -> None:
    assert found(Order) == {"customer": True, "note": False}
    assert found(Urgent) == {"customer": True, "note": False, "until": True}


def test_the_typed_dict_of_the_extensions_is_one_too() -> None:
    assert found(Elsewhere) == {"name": True}


def test_annotated_around_the_typed_dict_is_ignored() -> None:
    assert found(Annotated[Customer, "ours"]) == {"name": True, "age": False}


@pytest.mark.parametrize("annotation", [dict, dict[str, int], Any, str, "Customer", None, ForCheckers])
def test_any_other_annotation_has_no_keys(annotation: Any) -> None:
    assert found(annotation) is None


# ---- in plain English


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (str, "a string"),
        (int, "a whole number"),
        (float, "a number"),
        (bool, "true or false"),
        (None, "nothing"),
        (Any, "anything"),
        (object, "anything"),
        (list, "a list"),
        (list[str], "a list (each a string)"),
        (Sequence[int], "a list (each a whole number)"),
        (dict, "a mapping"),
        (dict[str, int], "a mapping"),
        (Customer, "a mapping"),
        (Literal["a", 1], "'a' or 1"),
        (Optional[str], "a string or nothing"),  # noqa: UP045
        (int | None, "a whole number or nothing"),
        (Annotated[NotRequired[bool], "x"], "true or false"),
        (bytes, "bytes"),
        ("Order", "Order"),
    ],
)
def test_a_type_is_described_in_plain_english(annotation: Any, text: str) -> None:
    assert describe_type(annotation) == text


# ---- what fits


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("x", str),
        (1, int),
        (1, float),
        (1.5, float),
        (True, bool),
        (None, None),
        (None, str | None),
        ([], list),
        (["a"], list[str]),
        ({"a": 1}, dict[str, int]),
        ({"anything": "at all"}, dict),
        ({"name": "Ada"}, Customer),
        ({"name": "Ada"}, Customer | str),
        ("a", Literal["a", "b"]),
        (7, bytes),
        (7, Any),
        ({"var": "input.x"}, int),
        ([{"var": "input.x"}, 1], list[int]),
        ({"name": {"cat": ["a", "b"]}}, Customer),
        ({"$literal": {"name": "Ada"}}, Customer),
        ({"secret": "token"}, str),
        ({"secret": "token"}, str | None),
        ({"secret": "token"}, Literal["a"]),
        ({"secret": "token"}, Any),
        ({"secret": 3}, dict[str, int]),
    ],
)
def test_a_value_that_fits_has_no_problem(value: Any, annotation: Any) -> None:
    assert [*find_problems(value, annotation)] == []


@pytest.mark.parametrize(
    ("value", "annotation", "path", "message"),
    [
        (1, str, (), "expects a string here, not the number 1"),
        ("1", int, (), "expects a whole number here, not a string"),
        (1.5, int, (), "expects a whole number here, not the number 1.5"),
        (True, int, (), "expects a whole number here, not true"),
        (False, float, (), "expects a number here, not false"),
        (1, bool, (), "expects true or false here, not the number 1"),
        (0, None, (), "expects nothing here, not the number 0"),
        (None, str, (), "expects a string here, not nothing"),
        ("a", list[str], (), "expects a list (each a string) here, not a string"),
        (["a", 2], list[str], (1,), "expects a string here, not the number 2"),
        ({"a": "x"}, dict[str, int], ("a",), "expects a whole number here, not a string"),
        ([], Customer, (), "expects a mapping here, not a list"),
        ({"name": 3}, Customer, ("name",), "expects a string here, not the number 3"),
        ({"name": 3}, Customer | None, ("name",), "expects a string here, not the number 3"),
        (3, Customer | None, (), "expects a mapping or nothing here, not the number 3"),
        ({"a": 1}, dict[str, str] | Customer, (), "expects a mapping here, not a mapping"),
        ("c", Literal["a", "b"], (), "expects 'a' or 'b' here, not 'c'"),
        (1, Literal[True], (), "expects True here, not the number 1"),
        ("c" * 99, Literal["a"], (), "expects 'a' here, not a string"),
        ({"$literal": 1}, str, ("$literal",), "expects a string here, not the number 1"),
        ({"secret": "token"}, int, (), "expects a whole number here, not a secret, which is a string"),
        ({"secret": "token"}, Customer, (), "expects a mapping here, not a secret, which is a string"),
        ({"secret": "token"}, Literal[1, 2], (), "expects 1 or 2 here, not a secret, which is a string"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_path(
    value: Any, annotation: Any, path: tuple[str | int, ...], message: str
) -> None:
    assert [*find_problems(value, annotation)] == [InputProblem(path, message)]


def test_unknown_and_missing_keys_are_reported_at_every_depth() -> None:
    keys = read_input_keys(Order)
    assert keys is not None

    problems = [*find_key_problems({"custmer": {}, "customer": {"nam": "x"}, "y": 1}, keys, ("input",))]

    assert problems == [
        InputProblem(("input", "custmer"), "accepts no key 'custmer' here", "did you mean 'customer'?"),
        InputProblem(("input", "customer", "nam"), "accepts no key 'nam' here", "did you mean 'name'?"),
        InputProblem(("input", "customer"), "requires the key 'name' here, a string"),
        InputProblem(("input", "y"), "accepts no key 'y' here", "it accepts: customer, note"),
    ]


def test_a_typed_dict_without_keys_accepts_none() -> None:
    class Nothing(TypedDict):
        pass

    keys = read_input_keys(Nothing)

    assert keys == ()
    assert [*find_key_problems({"a": 1}, keys)] == [
        InputProblem(("a",), "accepts no key 'a' here", "it accepts: none")
    ]
