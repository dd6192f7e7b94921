"""What a TypedDict says of the inputs of an executor, held against what a document gives."""

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


def test_a_key_is_required_unless_it_says_that_it_is_not() -> None:
    assert found(Customer) == {"name": True, "age": False}


def test_keys_are_optional_where_not_all_are_demanded_and_those_of_a_base_are_as_it_says() -> None:
    assert found(Order) == {"customer": True, "note": False}
    assert found(Urgent) == {"customer": True, "note": False, "until": True}


def test_the_typed_dict_of_the_extensions_is_one_too() -> None:
    assert found(Elsewhere) == {"name": True}


def test_what_is_said_about_the_whole_is_passed_over() -> None:
    assert found(Annotated[Customer, "ours"]) == {"name": True, "age": False}


@pytest.mark.parametrize("annotation", [dict, dict[str, int], Any, str, "Customer", None, ForCheckers])
def test_anything_else_says_nothing_of_its_keys(annotation: Any) -> None:
    assert found(annotation) is None


# ---- in words


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (str, "a text"),
        (int, "a whole number"),
        (float, "a number"),
        (bool, "true or false"),
        (None, "nothing"),
        (Any, "anything"),
        (object, "anything"),
        (list, "a list"),
        (list[str], "a list (each a text)"),
        (Sequence[int], "a list (each a whole number)"),
        (dict, "a mapping"),
        (dict[str, int], "a mapping"),
        (Customer, "a mapping"),
        (Literal["a", 1], "'a' or 1"),
        (Optional[str], "a text or nothing"),  # noqa: UP045
        (int | None, "a whole number or nothing"),
        (Annotated[NotRequired[bool], "x"], "true or false"),
        (bytes, "bytes"),
        ("Order", "Order"),
    ],
)
def test_a_type_is_said_in_words(annotation: Any, words: str) -> None:
    assert describe_type(annotation) == words


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
def test_what_fits_passes(value: Any, annotation: Any) -> None:
    assert [*find_problems(value, annotation)] == []


@pytest.mark.parametrize(
    ("value", "annotation", "path", "message"),
    [
        (1, str, (), "wants a text here, not the number 1"),
        ("1", int, (), "wants a whole number here, not a text"),
        (1.5, int, (), "wants a whole number here, not the number 1.5"),
        (True, int, (), "wants a whole number here, not true"),
        (False, float, (), "wants a number here, not false"),
        (1, bool, (), "wants true or false here, not the number 1"),
        (0, None, (), "wants nothing here, not the number 0"),
        (None, str, (), "wants a text here, not nothing"),
        ("a", list[str], (), "wants a list (each a text) here, not a text"),
        (["a", 2], list[str], (1,), "wants a text here, not the number 2"),
        ({"a": "x"}, dict[str, int], ("a",), "wants a whole number here, not a text"),
        ([], Customer, (), "wants a mapping here, not a list"),
        ({"name": 3}, Customer, ("name",), "wants a text here, not the number 3"),
        ({"name": 3}, Customer | None, ("name",), "wants a text here, not the number 3"),
        (3, Customer | None, (), "wants a mapping or nothing here, not the number 3"),
        ({"a": 1}, dict[str, str] | Customer, (), "wants a mapping here, not a mapping"),
        ("c", Literal["a", "b"], (), "wants 'a' or 'b' here, not 'c'"),
        (1, Literal[True], (), "wants True here, not the number 1"),
        ("c" * 99, Literal["a"], (), "wants 'a' here, not a text"),
        ({"$literal": 1}, str, ("$literal",), "wants a text here, not the number 1"),
        ({"secret": "token"}, int, (), "wants a whole number here, not a secret, which is a text"),
        ({"secret": "token"}, Customer, (), "wants a mapping here, not a secret, which is a text"),
        ({"secret": "token"}, Literal[1, 2], (), "wants 1 or 2 here, not a secret, which is a text"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(
    value: Any, annotation: Any, path: tuple[str | int, ...], message: str
) -> None:
    assert [*find_problems(value, annotation)] == [InputProblem(path, message)]


def test_unknown_and_missing_keys_are_told_wherever_they_are() -> None:
    keys = read_input_keys(Order)
    assert keys is not None

    told = [*find_key_problems({"custmer": {}, "customer": {"nam": "x"}, "y": 1}, keys, ("input",))]

    assert told == [
        InputProblem(("input", "custmer"), "knows no key 'custmer' here", "did you mean 'customer'?"),
        InputProblem(("input", "customer", "nam"), "knows no key 'nam' here", "did you mean 'name'?"),
        InputProblem(("input", "customer"), "needs the key 'name' here, a text"),
        InputProblem(("input", "y"), "knows no key 'y' here", "it knows: customer, note"),
    ]


def test_who_wants_no_keys_says_so() -> None:
    class Nothing(TypedDict):
        pass

    keys = read_input_keys(Nothing)

    assert keys == ()
    assert [*find_key_problems({"a": 1}, keys)] == [
        InputProblem(("a",), "knows no key 'a' here", "it knows: none")
    ]
