"""JMESPath over a result: each pair is evaluated, and gives what JMESPath gives."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.convert.jmespath import convert_path
from orchestrator.convert.notes import CannotConvert

RESULT: dict[str, Any] = {
    "id": 7,
    "none": None,
    "user": {"name": "Ada", "tags": ["x", "y"]},
    "people": [
        {"name": "Ada", "age": 36, "active": True, "tags": ["x", "y"]},
        {"name": "Bob", "age": 17, "active": False, "tags": []},
        {"name": "Cid", "age": 50, "tags": ["z"]},
    ],
    "by_name": {"a": {"n": 1}, "b": {"n": 2}},
    "dotted.key": {"x": 1},
    "with space": 5,
    "grid": [[1, 2], [3]],
}
PEOPLE = {"var": "result.people"}

PAIRS: list[tuple[str, Any, Any]] = [
    # paths
    ("@", {"var": "result"}, RESULT),
    ("id", {"var": "result.id"}, 7),
    (" user.name ", {"var": "result.user.name"}, "Ada"),
    ("@.user.name", {"var": "result.user.name"}, "Ada"),
    ("people[0].name", {"var": "result.people.0.name"}, "Ada"),
    ("people[-1].name", {"list.first": {"vars": "result.people[-1].name"}}, "Cid"),
    ("people[9].name", {"var": "result.people.9.name"}, None),
    ('"with space"', {"var": "result.with space"}, 5),
    ('"dotted.key".x', {"list.first": {"vars": "result['dotted.key'].x"}}, 1),
    ("missing.x", {"var": "result.missing.x"}, None),
    ("(user).name", {"var": "result.user.name"}, "Ada"),
    # projections
    ("people[*].name", {"vars": "result.people[*].name"}, ["Ada", "Bob", "Cid"]),
    ("people[*].active", {"vars": "result.people[*].active"}, [True, False]),
    ("people[*].tags[0]", {"vars": "result.people[*].tags[0]"}, ["x", "z"]),
    ("people[0:2].name", {"vars": "result.people[0:2].name"}, ["Ada", "Bob"]),
    ("people[1:].name", {"vars": "result.people[1:].name"}, ["Bob", "Cid"]),
    ("people[:1:1].name", {"vars": "result.people[:1].name"}, ["Ada"]),
    ("people[-2:].age", {"vars": "result.people[-2:].age"}, [17, 50]),
    ("by_name.*.n", {"vars": "result.by_name.*.n"}, [1, 2]),
    ("people[].name", {"vars": "result.people[*].name"}, ["Ada", "Bob", "Cid"]),
    ("people[*].tags[]", {"vars": "result.people[*].tags[*]"}, ["x", "y", "z"]),
    ("grid[]", {"vars": "result.grid[*]"}, [[1, 2], [3]]),  # a change that is told
    # filters
    ("people[?name=='Ada'].age", {"vars": "result.people[?(@.name == 'Ada')].age"}, [36]),
    ("people[?age > `18`].name", {"vars": "result.people[?(@.age > 18)].name"}, ["Ada", "Cid"]),
    ("people[?active == `true`].name", {"vars": "result.people[?(@.active == true)].name"}, ["Ada"]),
    (
        "people[?age >= `17` && name == 'Bob'].age",
        {"vars": "result.people[?(@.age >= 17 & @.name == 'Bob')].age"},
        [17],
    ),
    ("people[?\"name\" == 'A\\'s']", {"vars": "result.people[?(@.name == 'A\\'s')]"}, []),
    (
        "people[?name != 'Ada'].name",
        {"map": [{"filter": [PEOPLE, {"!=": [{"var": "name"}, "Ada"]}]}, {"var": "name"}]},
        ["Bob", "Cid"],
    ),
    (
        "people[?age < `18` || age > `40`].name",
        {
            "map": [
                {"filter": [PEOPLE, {"or": [{"<": [{"var": "age"}, 18]}, {">": [{"var": "age"}, 40]}]}]},
                {"var": "name"},
            ]
        },
        ["Bob", "Cid"],
    ),
    ("people[?active].name | [0]", None, "Ada"),
    ("people[?!active].name", None, ["Bob", "Cid"]),
    ("people[?contains(tags, 'z')].name", None, ["Cid"]),
    ("people[?age == `36`] | [0].name", None, "Ada"),
    # selections
    (
        "{name: user.name, id: id}",
        {"name": {"var": "result.user.name"}, "id": {"var": "result.id"}},
        {"name": "Ada", "id": 7},
    ),
    ("user.{n: name, t: tags}", None, {"n": "Ada", "t": ["x", "y"]}),
    ("{only: id}", {"only": {"var": "result.id"}}, {"only": 7}),
    ("[id, user.name]", [{"var": "result.id"}, {"var": "result.user.name"}], [7, "Ada"]),
    ("user.[name]", [{"var": "result.user.name"}], ["Ada"]),
    (
        "people[*].{n: name, a: age}",
        {"map": [{"vars": "result.people[*]"}, {"n": {"var": "name"}, "a": {"var": "age"}}]},
        [{"n": "Ada", "a": 36}, {"n": "Bob", "a": 17}, {"n": "Cid", "a": 50}],
    ),
    ("people[*].[name, age]", None, [["Ada", 36], ["Bob", 17], ["Cid", 50]]),
    ("people[?age > `18`].{n: name, a: age}", None, [{"n": "Ada", "a": 36}, {"n": "Cid", "a": 50}]),
    # pipes, functions, operators
    ("people[*].name | [0]", {"list.first": {"vars": "result.people[*].name"}}, "Ada"),
    ("people[*].name | [-1]", {"list.last": {"vars": "result.people[*].name"}}, "Cid"),
    ("grid | [0] | [1]", {"var": "result.grid.0.1"}, 2),
    ("user | name", {"var": "result.user.name"}, "Ada"),
    ("people[*].name | length(@)", {"list.length": {"vars": "result.people[*].name"}}, 3),
    ("length(people)", {"list.length": PEOPLE}, 3),
    ("keys(user)", {"obj.keys": {"var": "result.user"}}, ["name", "tags"]),
    ("sort(people[*].age)", {"list.sort": {"vars": "result.people[*].age"}}, [17, 36, 50]),
    ("join(', ', user.tags)", {"str.join": [{"var": "result.user.tags"}, ", "]}, "x, y"),
    ("contains(user.tags, 'x')", {"in": ["x", {"var": "result.user.tags"}]}, True),
    ("starts_with(user.name, 'A')", {"str.starts_with": [{"var": "result.user.name"}, "A"]}, True),
    ("not_null(none, id)", {"any.default": [{"var": "result.none"}, {"var": "result.id"}]}, 7),
    ("id == `7`", {"===": [{"var": "result.id"}, 7]}, True),
    ("id != null", {"!==": [{"var": "result.id"}, {"var": "result.null"}]}, True),
    ("none || user.name", {"or": [{"var": "result.none"}, {"var": "result.user.name"}]}, "Ada"),
    ("!none", {"!": {"var": "result.none"}}, True),
    ("!!id", {"!": {"!": {"var": "result.id"}}}, True),
    ("!!!id", {"!": {"var": "result.id"}}, False),
    ("id > `5` && id < `9`", None, True),
    ("'text'", "text", "text"),
    ('`{"a": 1}`', {"$literal": {"a": 1}}, {"a": 1}),
    ("`[1, 2]` | [0]", {"list.first": {"$literal": [1, 2]}}, 1),
    ('`"a\\`b"`', "a`b", "a`b"),
]


@pytest.mark.parametrize(("path", "expected", "value"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_a_path_becomes_an_expression_of_the_same_value(path: str, expected: Any, value: Any) -> None:
    rule, _ = convert_path(path)

    assert expected is None or rule == expected
    assert evaluate(rule, {"result": RESULT}) == value


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "expected a value, found the end"),
        ("a.", "after a dot is not supported"),
        ("a..b", "after a dot is not supported"),
        ("meta.headers.'Content-Type'", "after a dot is not supported"),
        ("a.length(@)", "a function or length"),
        ("a b", "expected the end, found b"),
        ("a[", "expected a value, found the end"),
        ("a[0", "expected ], found the end"),
        ("a[?b == 'x'", "expected ], found the end"),
        ("(a", "expected ), found the end"),
        ("{a: b", "expected ,, found the end"),
        ("{1: b}", "expected a key, found 1"),
        ("{a b}", "expected :, found b"),
        ("a[::2]", "a slice with a step"),
        ("people[*].tags[*]", "this way through lists"),
        ("a[*].{x: b, y: c}.x", "this way through lists"),
        ("a" + ".a" * 60 + "[*]", "this way through lists"),
        ("a.{x: b, y: c}.x", "a selection in the middle"),
        ("{max: a}", "would be taken for an expression"),
        ("people[*].{n: name}", "not accepted here"),
        ("people[*].name | [3]", "[3] of something computed"),
        ("sort_by(people, &age)", "cannot be read as a JMESPath"),
        ("max(people)", "the function max"),
        ("length(a, b)", "the function length"),
        ("`{a}`", "is not JSON"),
        ("#", "cannot be read as a JMESPath"),
        ("'open", "cannot be read as a JMESPath"),
        ("(" * 100 + "a" + ")" * 100, "nested more than"),
        ("a" + ".a" * 1_000, "cannot be read as a JMESPath"),
    ],
)
def test_what_has_no_equal_is_refused_with_its_reason(path: str, reason: str) -> None:
    with pytest.raises(CannotConvert) as refusal:
        convert_path(path)

    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("people[].name", "[] is [*] here"),
        ("people[?active]", "the number 0 counts as false here"),
        ("a || b", "the number 0 counts as false here"),
        ("people[?name != 'x'].age", "an item without the value gives null here"),
        ("text | fromjson", "here the text is read as JSON"),
    ],
)
def test_what_means_something_else_is_told(path: str, change: str) -> None:
    _, changes = convert_path(path)

    assert any(change in told for told in changes)


def test_a_text_is_read_as_json_where_jq_would_do_it() -> None:
    assert convert_path("json.text | fromjson")[0] == {"json.parse": {"var": "result.json.text"}}
    assert convert_path("fromjson")[0] == {"var": "result.fromjson"}


def test_a_path_of_one_meaning_has_nothing_to_tell() -> None:
    for path in ("a.b", "a[*].b", "a[?b=='x'].c", "{a: b, c: d}", "length(a)", "a == `1` && b == `2`"):
        assert convert_path(path)[1] == []
