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
    ("grid[]", {"vars": "result.grid[*]"}, [[1, 2], [3]]),  # a change that gets a note
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
    ("people[?age > `18`].tags[?@ == 'z']", None, []),  # the second filter is for the list of lists
    ("people[?age > `40`].{n: name, a: age}[?n == 'Cid'].a", None, [50]),
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
    ("(people[*].name)[0]", {"list.first": {"vars": "result.people[*].name"}}, "Ada"),
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
        ("", "the path is empty"),
        ("a.", "not valid JMESPath: the path ends too early"),
        ("a..b", "not valid JMESPath: unexpected '.' at character 3"),
        ("meta.headers.'Content-Type'", "unexpected 'Content-Type' at character 14"),
        ("a.length(@)", "the function length after a dot is not supported"),
        ("a[*].length(@)", "the function length after a dot is not supported"),
        ("a b", "unexpected 'b' at character 3"),
        ("a[", "the path ends too early"),
        ("a[0", "the path ends too early"),
        ("a[?b == 'x'", "the path ends too early"),
        ("(a", "the path ends too early"),
        ("{a: b", "the path ends too early"),
        ("{1: b}", "unexpected '1' at character 2"),
        ("{a b}", "unexpected 'b' at character 4"),
        ("a[::2]", "a slice with a step"),
        ("people[*].tags[*]", "this combination of projections"),
        ("a[*].{x: b, y: c}.x", "this combination of projections"),
        ("a" + ".a" * 60 + "[*]", "this combination of projections"),
        ("a.{x: b, y: c}.x", "a selection in the middle"),
        ("{max: a}", "would be read as an expression"),
        ("people[*].{n: name}", "is not valid"),
        ("people[*].name | [3]", "[3] of a computed value"),
        ("sort_by(people, &age) | [1]", "sort_by has no equivalent, except with [0] or [-1]"),
        ("sort_by(people, &age)[1]", "sort_by has no equivalent, except with [0] or [-1]"),
        ("max_by(people, age)", "take a list and a key such as &age"),
        ("max_by(people, &max_by(tags, &x).y)", "inside of a key have no equivalent"),
        ("sort_by(people, &age)", "sort_by has no equivalent, except with [0] or [-1]: return a sorted list"),
        ("&age", "a reference with & has no equivalent"),
        ("max(people)", "the function max"),
        ("length(a, b)", "the function length"),
        ("`{a}`", "is not JSON"),
        ("#", "not valid JMESPath: unknown token # at character 1"),
        ("'open", "not valid JMESPath: unclosed ' delimiter at character 1"),
        ("(" * 100 + "a" + ")" * 100, "nested more than"),
        ("!" * 30 + "a", "nested more than"),
        ("a" + ".a" * 1_000, "more than 300 tokens"),
        ("a" * 20_000, "more than 10000 characters"),
        ("`" + "[" * 4_500 + "]" * 4_500 + "`", "nested"),  # whether json can read that depends on Python
        ("a[9999999999999999]", "a number is too long"),
        ("a[" + "9" * 5_000 + "]", "a number is too long"),
        ("(people[*].tags).x", "this combination of projections"),
        ("a[*].b[?c].d[?e]", "this combination of projections"),
    ],
)
def test_what_has_no_equivalent_is_rejected_with_its_reason(path: str, reason: str) -> None:
    with pytest.raises(CannotConvert) as error:
        convert_path(path)

    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("people[].name", "[] becomes [*]"),
        ("people[?active]", "the number 0 counts as false here"),
        ("a || b", "the number 0 counts as false here"),
        ("people[?name != 'x'].age", "an item without this value gives null here"),
        ("text | fromjson", "here the string is parsed as JSON"),
    ],
)
def test_what_means_something_else_gets_a_note(path: str, change: str) -> None:
    _, changes = convert_path(path)

    assert any(change in message for message in changes)


def test_a_text_is_parsed_as_json_where_jq_would_do_it() -> None:
    assert convert_path("json.text | fromjson")[0] == {"json.parse": {"var": "result.json.text"}}
    assert convert_path("fromjson")[0] == {"var": "result.fromjson"}


def test_a_path_of_one_meaning_has_no_changes() -> None:
    for path in ("a.b", "a[*].b", "a[?b=='x'].c", "{a: b, c: d}", "length(a)", "a == `1` && b == `2`"):
        assert convert_path(path)[1] == []
