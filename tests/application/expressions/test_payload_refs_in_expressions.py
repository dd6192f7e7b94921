"""What an expression can do with a value that is kept by reference: pass it on, and test if it is present."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate

ROWS = {"$payload": "a1" * 32, "bytes": 5_242_880}
DATA: dict[str, Any] = {
    "steps": {"a": {"output": {"rows": ROWS, "count": 3, "bytes": 7}}},
    "list": [ROWS, {"id": 1, "inner": ROWS}],
}
PATH = "steps.a.output.rows"


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"var": PATH}, ROWS),
        ({"var": [PATH, "default"]}, ROWS),
        ({"vars": PATH}, [ROWS]),
        ({"vars": "list[*]"}, DATA["list"]),
        ({"vars": "list[1].inner"}, [ROWS]),
        ({"var": "steps.a.output"}, DATA["steps"]["a"]["output"]),
        ({"var": "steps.a.output.count"}, 3),
        ({"var": "steps.a.output.bytes"}, 7),
        ([{"whole": {"var": PATH}}], [{"whole": ROWS}]),
        ({"if": [{"var": PATH}, {"var": PATH}, 0]}, ROWS),
        ({"and": [True, {"var": PATH}]}, ROWS),
        ({"or": [{"var": PATH}, 0]}, ROWS),
        ({"any.default": [None, {"var": PATH}]}, ROWS),
        ({"!": {"var": PATH}}, False),
        ({"!!": {"var": PATH}}, True),
        ({"==": [{"var": PATH}, None]}, False),
        ({"!=": [{"var": PATH}, None]}, True),
        ({"===": [None, {"var": PATH}]}, False),
        ({"!==": [{"var": PATH}, 5_242_880]}, True),
        ({"==": [{"var": PATH}, False]}, False),
        ({"log": {"var": PATH}}, ROWS),
        ({"missing": [PATH, "steps.a.output.other"]}, ["steps.a.output.other"]),
        ({"map": [{"var": "list"}, {"var": ""}]}, DATA["list"]),
    ],
)
def test_a_whole_value_is_passed_on(rule: Any, value: Any) -> None:
    assert evaluate(rule, DATA) == value


@pytest.mark.parametrize("rest", ["0", "0.id", "name", "bytes", "$payload", "bytes.x"])
def test_a_path_into_it_is_an_error_that_names_it(rest: str) -> None:
    for rule in (
        {"var": f"{PATH}.{rest}"},
        {"var": [f"{PATH}.{rest}", "default"]},
        [{"var": f"{PATH}.{rest}"}],
    ):
        with pytest.raises(ExpressionError) as raised:
            evaluate(rule, DATA)

        assert str(raised.value) == (
            "'steps.a.output.rows' is kept by reference (5,242,880 bytes), and an expression cannot read"
            " inside it: pass the whole value to an executor, such as transform, or to a step of your own"
        )


@pytest.mark.parametrize(
    "path",
    [
        f"{PATH}[0]",
        f"{PATH}.*",
        f"{PATH}[*].id",
        f"{PATH}[1:]",
        f"{PATH}.bytes",
        f"{PATH}..id",
        f"{PATH}[?(@.id == 1)]",
        "$..id",
        "list[?(@.inner.id)]",
        "list[?id=1]",
    ],
)
def test_a_path_of_vars_into_it_is_an_error(path: str) -> None:
    with pytest.raises(
        ExpressionError, match=r"a value on the path of vars is kept by reference \(5,242,880"
    ):
        evaluate({"vars": path}, DATA)


@pytest.mark.parametrize("operator", ["map", "filter", "all", "some", "none", "reduce"])
def test_no_operator_iterates_over_its_items(operator: str) -> None:
    with pytest.raises(ExpressionError, match=r"the list is kept by reference \(5,242,880 bytes\)"):
        evaluate({operator: [{"var": PATH}, {"var": "id"}]}, DATA)


@pytest.mark.parametrize(
    "rule",
    [
        {"count": {"var": PATH}},
        {"list.length": {"var": PATH}},
        {"list.first": {"var": PATH}},
        {"in": ["x", {"var": PATH}]},
        {"merge": [[1], {"var": PATH}]},
        {"cat": ["rows: ", {"var": PATH}]},
        {"obj.get": [{"var": PATH}, "bytes"]},
        {"obj.keys": {"var": PATH}},
        {"json.dumps": {"var": PATH}},
        {"==": [{"var": PATH}, {"var": PATH}]},
        {"==": [{"var": PATH}, "text"]},
        {"<": [{"var": PATH}, 1]},
        {"+": [{"var": PATH}, 1]},
    ],
)
def test_no_operator_reads_inside(rule: Any) -> None:
    with pytest.raises(
        ExpressionError, match=r"an argument is kept by reference .* an expression cannot read"
    ):
        evaluate(rule, DATA)


def test_other_objects_are_read_as_usual() -> None:
    data = {"a": {"$payload": "no id", "bytes": 1}, "b": {"bytes": 2}}

    assert evaluate({"var": "a.bytes"}, data) == 1
    assert evaluate({"var": ["a.other", 7]}, data) == 7
    assert evaluate({"var": "b.bytes"}, data) == 2
