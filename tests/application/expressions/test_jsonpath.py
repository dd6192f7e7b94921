"""The JSONPath subset: what it finds, in which order, and what it rejects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.jsonpath import MAX_DATA_DEPTH, MAX_SEGMENTS, BadPath, parse
from orchestrator.application.expressions.meter import Meter

STORE: dict[str, Any] = {
    "book": [
        {"title": "Sayings", "price": 8.95, "category": "reference", "tags": ["old", "wise"]},
        {"title": "Sword", "price": 12.99, "category": "fiction"},
        {"title": "Moby", "price": 8.99, "category": "fiction", "isbn": None},
    ],
    "bicycle": {"colour": "red", "price": 19.95},
    "front-page": {"a.b": 1, "it's": 2},
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$", [STORE]),
        ("bicycle.colour", ["red"]),
        ("$.bicycle.colour", ["red"]),
        (".bicycle.colour", ["red"]),
        ("$['bicycle'][\"colour\"]", ["red"]),
        ("['bicycle'].colour", ["red"]),
        ('$."front-page"."a.b"', [1]),
        ("front-page['a.b']", [1]),
        (r"front-page['it\'s']", [2]),
        ("book[0].title", ["Sayings"]),
        ("book[-1].title", ["Moby"]),
        ("book[-3].title", ["Sayings"]),
        ("book[ 1 ].title", ["Sword"]),
        ("book[*].price", [8.95, 12.99, 8.99]),
        ("book.*.price", [8.95, 12.99, 8.99]),
        ("bicycle[*]", ["red", 19.95]),
        ("bicycle.*", ["red", 19.95]),
        ("*.colour", ["red"]),
        ("book[0:2].title", ["Sayings", "Sword"]),
        ("book[1:].title", ["Sword", "Moby"]),
        ("book[:-1].title", ["Sayings", "Sword"]),
        ("book[:].title", ["Sayings", "Sword", "Moby"]),
        ("..price", [8.95, 12.99, 8.99, 19.95]),
        ("$..tags[*]", ["old", "wise"]),
        ("book..title", ["Sayings", "Sword", "Moby"]),
        ("book[?(@.price < 10)].title", ["Sayings", "Moby"]),
        ("book[?(@.price <= 8.95)].title", ["Sayings"]),
        ("book[?(@.price > 8.99)].title", ["Sword"]),
        ("book[?(@.price >= 8.99)].title", ["Sword", "Moby"]),
        ("book[?(@.category == 'fiction')].title", ["Sword", "Moby"]),
        ("book[?(@.category != 'fiction')].title", ["Sayings"]),
        ("book[?(@.category == 'fiction' & @.price < 10)].title", ["Moby"]),
        ("book[?category='fiction' & price<10].title", ["Moby"]),
        ("book[?@.category=='fiction'].price", [12.99, 8.99]),
        ("book[?(@.isbn)].title", ["Moby"]),
        ("book[?isbn=null].title", ["Moby"]),
        ("book[?(@['title'] == \"Moby\")].price", [8.99]),
        ("$[?(@.colour == 'red')].price", [19.95]),
    ],
)
def test_a_path_finds_its_values_in_document_order(path: str, expected: list[Any]) -> None:
    assert parse(path).find(STORE) == expected


@pytest.mark.parametrize(
    "path",
    [
        "nowhere",
        "book[3]",
        "book[-4]",
        "book.title",
        "bicycle[0]",
        "bicycle.colour.x",
        "book[0:1].x",
        "..nowhere",
    ],
)
def test_a_path_without_a_match_gives_an_empty_list(path: str) -> None:
    assert parse(path).find(STORE) == []


def test_a_filter_compares_only_values_of_one_kind() -> None:
    items = [{"n": 1}, {"n": True}, {"n": "1"}, {"n": 1.0}, {"n": None}, {"n": [1]}, {}]

    assert parse("[?(@.n == 1)]").find(items) == [{"n": 1}, {"n": 1.0}]
    assert parse("[?(@.n == true)]").find(items) == [{"n": True}]
    assert parse("[?(@.n < 2)]").find(items) == [{"n": 1}, {"n": 1.0}]
    assert parse("[?(@.n > '0')]").find(items) == [{"n": "1"}]
    assert parse("[?(@.n != -1.5)]").find(items) == items[:-1], "a field that is absent is not different"


def test_a_nested_name_is_found_from_the_outside_in() -> None:
    data = {"a": {"a": 1, "b": {"a": 2}}, "c": [{"a": 3}]}

    assert parse("..a").find(data) == [{"a": 1, "b": {"a": 2}}, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "position", "reason"),
    [
        ("", 0, "expected a name"),
        ("$x", 1, "expected '.' or '['"),
        ("a.", 2, "expected a name"),
        ("a..", 3, "expected a name"),
        ("a..*", 3, "expected a name"),
        ("a[", 2, "expected an index"),
        ("a[]", 2, "expected an index"),
        ("a[x]", 2, "expected an index"),
        ("a[0", 3, "expected ']'"),
        ("a[0,1]", 3, "expected ']'"),
        ("a[0:9:2]", 5, "expected ']'"),
        ("a[-]", 3, "expected a number"),
        ("a[9999999999999999]", 18, "expected a number"),
        ("a['b]", 5, "expected '"),
        ("a b", 1, "expected '.' or '['"),
        ("a[?(@.x == y)]", 11, "expected a number, a quoted string"),
        ("a[?(@.x == 1e999)]", 11, "expected a number"),
        ("a[?(@.x == nan)]", 11, "expected a number"),
        ("a[?(@.x == )]", 11, "expected a literal"),
        ("a[?(@ > 3)]", 5, "expected a field"),
        ("a[?(@[0] > 3)]", 6, "expected a quoted name"),
        ("a[?(@.x == 1]", 12, "expected ')'"),
        ("a[?(@.x && @.y)]", 9, "expected a name"),
        ("a[?(@.x | @.y)]", 8, "expected ')'"),
        ("a[(@.length-1)]", 2, "expected an index"),
    ],
)
def test_a_path_outside_the_subset_is_rejected_with_its_position(
    path: str, position: int, reason: str
) -> None:
    with pytest.raises(BadPath) as refused:
        parse(path)

    assert refused.value.position == position
    assert reason in refused.value.reason


def test_a_path_has_a_greatest_length() -> None:
    parse("a" + ".a" * (MAX_SEGMENTS - 1))

    with pytest.raises(BadPath, match="segments"):
        parse("a" + ".a" * MAX_SEGMENTS)


def test_the_leading_names_of_a_path_are_known_without_data() -> None:
    assert parse("$.steps['a.b'].output.items[*].price").names == ("steps", "a.b", "output", "items")
    assert parse("steps[*].output").names == ("steps",)
    assert parse("$..x").names == ()


def test_data_that_is_too_deep_for_a_recursive_path_is_an_error() -> None:
    data: Any = 1
    for _ in range(MAX_DATA_DEPTH + 2):
        data = [data]

    with pytest.raises(ExpressionError, match="levels deep"):
        parse("..a").find(data)


def test_a_path_cannot_multiply_its_matches_without_end() -> None:
    data: Any = None
    for _ in range(100):
        data = {"a": data}

    with pytest.raises(ExpressionError, match="units of work"):
        parse("$" + "..a" * 20).find(data)


def test_what_a_path_visits_is_charged_to_the_meter() -> None:
    meter = Meter()

    parse("[?(@.x & @.y)]").find([{}] * 900, meter)

    assert meter.spent > 2 * 900  # an item, and each term


class Dotted(Mapping[str, Any]):
    """A lazy mapping whose keys contain dots."""

    def __init__(self, **values: Any) -> None:
        self.values_by_id = {key.replace("_", "."): value for key, value in values.items()}

    def __getitem__(self, key: str) -> Any:
        return self.values_by_id[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_id)

    def __len__(self) -> int:
        return len(self.values_by_id)

    def descend(self, parts: list[str]) -> tuple[Any, list[str]] | None:
        for length in range(len(parts), 0, -1):
            if ".".join(parts[:length]) in self.values_by_id:
                return self[".".join(parts[:length])], parts[length:]
        return None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("steps.a.b.output[*]", [1, 2]),
        ("steps['a.b'].output[0]", [1]),
        ("steps.a.output", [0]),
        ("steps.a.b", [{"output": [1, 2]}]),
        ("steps.z.output", []),
        ("steps[*].output", [0, [1, 2]]),
        ("..output", [0, [1, 2]]),
    ],
)
def test_a_lazy_mapping_takes_the_segments_it_needs(path: str, expected: list[Any]) -> None:
    data = {"steps": Dotted(a={"output": 0}, a_b={"output": [1, 2]})}

    assert parse(path).find(data) == expected


@given(
    st.text(alphabet="ab$.*[]'\"?@()&=!<>-:0 1\\", max_size=20),
    st.sampled_from([STORE, [1, [2]], "text", None]),
)
def test_any_text_is_a_path_or_a_bad_path(path: str, data: Any) -> None:
    try:
        found = parse(path).find(data)
    except BadPath:
        found = []

    assert isinstance(found, list)
