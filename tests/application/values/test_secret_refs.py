"""References to secrets: where they may be written, and how they are filled in."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.spec.sources import merge_configuration
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.values.secret_refs import fill_secrets, is_secret_name, is_secret_reference

Json = dict[str, Any]

DB = {"secret": "db"}


def loaded(step: Json, **keys: Any) -> StepSpec:
    return check_spec({"steps": [{"id": "s", **step}], **keys}).spec.steps[0]


def problems_of(step: Json, **keys: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidSpec) as refused:
        loaded(step, **keys)
    return [(one.path, one.code) for one in refused.value.problems]


# ---- where they are written


def test_the_places_of_references_in_an_input_are_known() -> None:
    step = loaded(
        {
            "fn": "f",
            "input": {
                "password": DB,
                "list": [1, {"deep": DB}, DB],
                "secret": "an input that is called secret",
                "two": {"secret": "a", "more": 1},
                "quoted": {"$literal": DB},
                "data": {"var": "input.x"},
            },
            "compensate": {"fn": "undo", "input": {"key": DB}},
        }
    )

    assert step.secrets == (("password",), ("list", 2), ("list", 1, "deep"))
    assert step.compensation_step.secrets == (("key",),)


def test_a_document_that_refers_to_none_has_no_places() -> None:
    step = loaded({"fn": "f", "input": {"a": {"b": 1}}, "compensate": {"fn": "u"}})

    assert (step.secrets, step.compensation_step.secrets) == ((), ())


def test_the_configuration_of_a_source_may_have_them_inside_of_expressions() -> None:
    configuration = {"header": {"cat": ["Bearer ", {"secret": "api.token"}]}, "key": DB, "n": 1}

    step = loaded({"source": {"type": "http", "configuration": configuration}})

    assert step.source == {
        "type": "http",
        "configuration": configuration,
        "secrets": [["key"], ["header", "cat", 1]],
        "sources": {},
    }


def test_an_override_replaces_a_reference_and_does_not_mix_with_it() -> None:
    assert merge_configuration({"a": DB, "b": {"user": "x"}}, {"a": {"user": "y"}, "b": DB}) == {
        "a": {"user": "y"},
        "b": DB,
    }


def test_a_configuration_with_the_one_key_secret_is_no_reference() -> None:
    step = loaded(
        {"source": {"base": "api", "override": {"configuration": {"secret": "no name of one"}}}},
        sources={"api": {"type": "http"}},
    )

    assert step.source == {"type": "http", "configuration": {"secret": "no name of one"}}


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"input": {"a": {"cat": ["Bearer ", DB]}}}, "input.a.cat[1]"),
        ({"input": {"a": {"if": [True, {"x": 1, "y": DB}]}}}, "input.a.if[1].y"),
        ({"when": {"==": [DB, 1]}}, "when.==[0]"),
        ({"when": DB}, "when"),
        ({"output": {"a": DB}}, "output.a"),
        ({"kv_add": {"a": DB}}, "kv_add.a"),
        ({"map": {"over": [DB]}}, "map.over[0]"),
        ({"concurrency": {"key": DB, "limit": 1}}, "concurrency.key"),
        ({"filters": {"expression": DB, "value": 1}}, "filters.expression"),
        ({"branch": [{"condition": {"!": DB}, "action": "halt"}]}, "branch[0].condition.!"),
        (
            {"branch": [{"condition": True, "action": "halt", "result_expr": {"a": DB}}]},
            "branch[0].result_expr.a",
        ),
        ({"compensate": {"fn": "u", "input": {"a": {"!": DB}}}}, "compensate.input.a.!"),
    ],
)
def test_anywhere_else_in_a_step_they_are_refused_with_a_hint(keys: Json, path: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        loaded({"fn": "f", **keys})

    [problem] = refused.value.problems
    assert (problem.path, problem.code) == (f"steps[0].{path}", "bad_secret")
    assert problem.hint is not None
    assert "configuration of a source" in problem.hint


@pytest.mark.parametrize("kind", [{"workflow": "kid"}, {"wait": {"signal": "go"}}, {"delay": "1s"}])
def test_a_step_without_an_executor_takes_none(kind: Json) -> None:
    assert problems_of({**kind, "input": {"a": DB}}) == [("steps[0].input.a", "bad_secret")]


def test_neither_outputs_nor_webhooks_take_any() -> None:
    hook = {"url": "https://example.org", "headers": {"authorization": DB}}

    assert problems_of({"fn": "f"}, outputs={"a": DB}, webhook=hook) == [
        ("outputs.a", "bad_secret"),
        ("webhook.headers.authorization", "bad_secret"),
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "bad_id"),
        ("a b", "bad_id"),
        ("../etc/passwd", "bad_id"),
        ("..", "bad_id"),
        (".hidden", "bad_id"),
        ("-x", "bad_id"),
        ("ü", "bad_id"),
        ("x" * 129, "bad_id"),
        ("a\n", "bad_id"),
        (3, "bad_type"),
        (None, "bad_type"),
        ({"var": "input.name"}, "bad_type"),
        (["a"], "bad_type"),
    ],
)
def test_a_name_is_checked_where_it_is_written(name: Any, code: str) -> None:
    assert problems_of({"fn": "f", "input": {"a": [{"secret": name}]}}) == [
        ("steps[0].input.a[0].secret", code)
    ]
    assert not is_secret_name(name)


@pytest.mark.parametrize("name", ["a", "DB_PASSWORD", "api.token", "a-b", "9", "_x", "x" * 128])
def test_names_are_letters_digits_and_three_signs(name: str) -> None:
    assert loaded({"fn": "f", "input": {"a": {"secret": name}}}).secrets == (("a",),)


# ---- how they are filled in


def test_exactly_the_places_are_filled_and_the_job_stays_as_it_is() -> None:
    inputs: Json = {"a": [DB, {"b": DB}], "c": DB}

    assert fill_secrets(inputs, [["a", 1, "b"], ["c"]], {"db": "hunter2"}.__getitem__) == {
        "a": [DB, {"b": "hunter2"}],
        "c": "hunter2",
    }
    assert inputs == {"a": [DB, {"b": DB}], "c": DB}
    assert is_secret_reference(DB)
