"""Every key of the language: what it accepts, its default, and its error messages."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import merge_documents, read_document
from orchestrator.application.spec.json_schema import build_schema
from orchestrator.application.spec.model import (
    ID_RULE,
    ChildSpec,
    CompensateSpec,
    ConcurrencySpec,
    Defaults,
    LoopSpec,
    MapSpec,
    RetrySpec,
    ScheduleSpec,
    StepSpec,
    SwitchSpec,
    WaitSpec,
    WebhookSpec,
    WorkflowSpec,
)
from orchestrator.application.spec.part_models import SpecModel
from orchestrator.application.spec.step_models import StepModel
from orchestrator.application.spec.validation import CODES, WARNINGS, check_spec, load_spec

READ = {"var": "steps.a.output.x"}


def document(*steps: dict[str, Any], **keys: Any) -> WorkflowSpec:
    return check_spec({"steps": [{"op": "a"}, *steps], **keys}).spec


def step(defaults: dict[str, Any] | None = None, /, **keys: Any) -> StepSpec:
    """The step "s", after a step "a"."""
    more = {"defaults": defaults} if defaults else {}
    return document({"id": "s", **keys}, **more).steps[1]


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(text, "flow.yaml")
    return refused.value.problems


# Steps ------------------------------------------------------------------------------------------------------


def test_a_step_without_the_rare_keys_has_their_defaults() -> None:
    assert step(op="f", **{"x-note": 1}) == StepSpec(
        id="s",
        fn="f",
        kind="task",
        join="all",
        guards=(),
        guard_keys=(),
        required=(),
        defer_ms=0,
        retry=None,
        output=None,
        skip_output_mapping=False,
        map=None,
        loop=None,
        wait=None,
        delay_ms=None,
        switch=None,
        child=None,
        priority=3,
        tags=(),
        kv_add={},
        compensate=None,
        concurrency=None,
        heartbeat_s=None,
        source=None,
        timeout_s=300.0,
    )


def test_null_counts_as_absent() -> None:
    optional = set(StepModel.key_names()) - {
        *("id", "op", "max_attempts", "attempts_on", "on_error", "queue", "timeout", "defer_ms", "priority"),
        "skip_output_mapping",
        "isolation",
    }

    assert step(op="f", **dict.fromkeys(optional)) == step(op="f")


RETRY = RetrySpec()
GROUP = {"operator": "or", "filters": [{"expression": {"var": "input.x"}, "value": None}, {"filters": []}]}

SETTLED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"op": "f", "join": "any"}, {"join": "any"}),
    ({"op": "f", "join": "done"}, {"join": "done"}),
    ({"op": "f", "join": 1, "depends_on": ["a"]}, {"join": 1}),
    ({"op": "f", "join": {"var": "ctx.status.a"}}, {"join": {"var": "ctx.status.a"}}),
    ({"op": "f", "when": READ}, {"guards": (READ,), "guard_keys": ("when",)}),
    ({"op": "f", "when": False}, {"guards": (False,), "guard_keys": ("when",)}),
    (
        {"op": "f", "filters": {"operator": "AND", "filters": [{"expression": READ}]}},
        {"guards": ({"and": [READ]},), "guard_keys": ("filters",)},
    ),
    (
        {"op": "f", "filters": GROUP, "when": READ},
        {
            "guards": (READ, {"or": [{"==": [{"var": "input.x"}, None]}, True]}),
            "guard_keys": ("when", "filters"),
        },
    ),
    ({"op": "f", "filters": {"filters": [], "operator": "OR"}}, {"guards": (False,)}),
    ({"op": "f", "filters": {"filters": []}}, {"guards": (True,)}),
    (
        {"op": "f", "filters": {"filters": [{"expression": READ, "value": [1]}]}},
        {"guards": ({"and": [{"==": [READ, [1]]}]},)},
    ),
    ({"op": "f", "required": ["input.url", "state.x"]}, {"required": ("input.url", "state.x")}),
    ({"op": "f", "defer_ms": 1500}, {"defer_ms": 1500}),
    ({"op": "f", "retry": 3}, {"retry": RetrySpec(max_retries=3)}),
    ({"op": "f", "retry": {}}, {"retry": RETRY}),
    ({"op": "f", "retry": 0}, {"retry": None}),
    ({"op": "f", "retry": {"max_retries": 0}}, {"retry": None}),
    (
        {
            "op": "f",
            "retry": {
                "max_retries": 5,
                "initial_delay_ms": 10,
                "backoff_multiplier": 3,
                "max_delay_ms": 1000,
                "jitter_fraction": 0.5,
            },
        },
        {"retry": RetrySpec(5, 10, 3.0, 1000, 0.5)},
    ),
    ({"op": "f", "output": {"x": {"var": "result.y"}}}, {"output": {"x": {"var": "result.y"}}}),
    ({"op": "f", "output": {}}, {"output": {}}),
    (
        {
            "op": "f",
            "output": [
                {"name": "all"},
                {"name": "json", "type": "json", "x-why": 1},
                {"name": "self", "type": "jmespath", "value": "@"},
                {"name": "one", "type": "jmespath", "value": "user.id"},
                {"name": "first", "type": "jmespath", "path": 'users[0]."first name"'},
                {"name": "many", "type": "jmespath", "value": "users[*].name"},
            ],
        },
        {
            "output": {
                "all": {"var": "result"},
                "json": {"var": "result"},
                "self": {"var": "result"},
                "one": {"var": "result.user.id"},
                "first": {"var": "result.users.0.first name"},
                "many": {"vars": "result.users[*].name"},
            }
        },
    ),
    ({"op": "f", "skip_output_mapping": True}, {"skip_output_mapping": True}),
    ({"op": "f", "isolation": "process"}, {"isolation": "process"}),
    ({"op": "f", "map": {"over": READ}}, {"map": MapSpec(READ, "item", None)}),
    (
        {"op": "f", "map": {"over": [1, READ], "as": "line", "max_parallel": 4}, "loop": {}},
        {"map": MapSpec([1, READ], "line", 4), "loop": LoopSpec()},
    ),
    ({"op": "f", "loop": {}}, {"loop": LoopSpec(10, "fail")}),
    (
        {"op": "f", "loop": {"max_iterations": 1, "on_max": "exit_with_last"}},
        {"loop": LoopSpec(1, "exit_with_last")},
    ),
    (
        {"wait": {"signal": "go"}},
        {"kind": "wait", "fn": "", "timeout_s": None, "wait": WaitSpec(("go",), None, "fail", False)},
    ),
    (
        {"wait": {"signal": "go", "timeout": "24h", "on_timeout": "continue"}},
        {"wait": WaitSpec(("go",), 86_400_000, "continue")},
    ),
    ({"wait": {"signal": "go", "timeout": "none"}}, {"wait": WaitSpec(("go",))}),
    ({"wait": {"signal": "go", "timeout": 0}}, {"wait": WaitSpec(("go",), 0)}),
    (
        {"wait": {"any": [{"signal": "yes"}, {"timeout": "1s"}, {"signal": "no"}]}},
        {"wait": WaitSpec(("yes", "no"), 1000, "continue", True)},
    ),
    ({"wait": {"any": [{"signal": "yes"}]}}, {"wait": WaitSpec(("yes",), None, "continue", True)}),
    ({"delay": "500ms"}, {"kind": "delay", "fn": "", "timeout_s": None, "delay_ms": 500}),
    ({"delay": 0}, {"delay_ms": 0}),
    (
        {"switch": {"on": READ, "cases": {"1": [], "b": []}}},
        {"kind": "switch", "timeout_s": None, "switch": SwitchSpec(READ, {"1": (), "b": ()}, None)},
    ),
    ({"switch": {"on": READ, "cases": {}, "default": []}}, {"switch": SwitchSpec(READ, {}, ())}),
    ({"workflow": "other"}, {"kind": "workflow", "timeout_s": None, "child": ChildSpec("other")}),
    ({"workflow": "other", "timeout": "1m"}, {"timeout_s": 60.0}),
    ({"op": "f", "priority": 1}, {"priority": 1}),
    ({"op": "f", "tags": ["gpu", "eu west"]}, {"tags": ("gpu", "eu west")}),
    ({"op": "f", "kv_add": {"flow_group:n": READ, "m": 1}}, {"kv_add": {"flow_group:n": READ, "m": 1}}),
    (
        {"op": "f", "compensate": {"fn": "undo"}, "queue": "slow"},
        {"compensate": CompensateSpec("undo", {}, 300.0, None, "slow")},
    ),
    (
        {
            "op": "f",
            "compensate": {
                "fn": "undo",
                "input": {"x": READ},
                "timeout": "none",
                "retry": 1,
                "queue": "fast",
            },
        },
        {"compensate": CompensateSpec("undo", {"x": READ}, None, RetrySpec(1), "fast")},
    ),
    ({"op": "f", "concurrency": {"key": READ, "limit": 2}}, {"concurrency": ConcurrencySpec(READ, 2)}),
    ({"op": "f", "concurrency": {"key": "bank", "limit": 1}}, {"concurrency": ConcurrencySpec("bank", 1)}),
    ({"op": "f", "heartbeat": "30s"}, {"heartbeat_s": 30.0}),
    (
        {"source": {"type": "http", "configuration": {"url": "u"}}},
        {"kind": "task", "fn": "http", "source": {"type": "http", "configuration": {"url": "u"}}},
    ),
    ({"source": {"type": "env"}}, {"fn": "env", "source": {"type": "env", "configuration": {}}}),
]


@pytest.mark.parametrize(("keys", "expected"), SETTLED)
def test_a_key_is_compiled_into_the_spec(keys: dict[str, Any], expected: dict[str, Any]) -> None:
    settled = step(**keys)

    assert {name: getattr(settled, name) for name in expected} == expected


def test_defaults_apply_to_every_step_without_the_key() -> None:
    defaults = {"timeout": "1m", "retry": 2, "priority": 5, "skip_output_mapping": True}
    undo = {"fn": "undo"}

    plain = step(defaults, op="f")
    rarer = step(defaults, op="f", tags=[], compensate=undo)
    own = step(defaults, op="f", retry=0, priority=1, skip_output_mapping=False, compensate=undo)
    waiting = step(defaults, delay=1)

    for settled in (plain, rarer):
        assert (settled.retry, settled.priority) == (RetrySpec(2), 5)
        assert (settled.timeout_s, settled.skip_output_mapping) == (60.0, True)
    assert (own.retry, own.priority, own.skip_output_mapping) == (None, 1, False)
    assert rarer.compensate == CompensateSpec("undo", {}, 60.0, RetrySpec(2))
    assert waiting.timeout_s is None
    assert document(defaults=defaults).defaults == Defaults(
        60.0, retry=RetrySpec(2), priority=5, skip_output_mapping=True
    )


def test_a_compensation_may_override_the_retry_of_the_defaults() -> None:
    settled = step({"retry": 2}, op="f", compensate={"fn": "undo", "retry": 0})

    assert settled.compensate == CompensateSpec("undo")


# Documents --------------------------------------------------------------------------------------------------

DOCUMENTS_SETTLED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {},
        {
            "max_workers": None,
            "kv_scopes": None,
            "sources": {},
            "timeout_s": None,
            "retention_s": None,
            "concurrency": None,
            "redact": (),
            "webhook": None,
            "schedule": None,
            "history": None,
        },
    ),
    ({"runner": {"max_workers": 8}}, {"max_workers": 8, "defaults": Defaults()}),
    ({"runner": {"on_error": "Skip"}}, {"max_workers": None, "defaults": Defaults(on_error="skip")}),
    (
        {"runner": {"on_error": "skip"}, "defaults": {"on_error": "skip", "queue": "q"}},
        {"defaults": Defaults(on_error="skip", queue="q")},
    ),
    ({"kv": {}}, {"kv_scopes": ("flow", "global", "flow_group")}),
    ({"kv": {"scopes": ["global", "global"]}}, {"kv_scopes": ("global",)}),
    ({"timeout": "1h"}, {"timeout_s": 3600.0}),
    ({"timeout": "none"}, {"timeout_s": None}),
    ({"retention": "7d"}, {"retention_s": 604_800.0}),
    ({"history": "full"}, {"history": "full"}),
    ({"history": "moves"}, {"history": "moves"}),
    (
        {"concurrency": {"key": {"var": "input.tenant"}, "limit": 3}},
        {"concurrency": ConcurrencySpec({"var": "input.tenant"}, 3)},
    ),
    ({"concurrency": {"key": 7, "limit": 3}}, {"concurrency": ConcurrencySpec(7, 3)}),
    ({"redact": ["password", "iban"]}, {"redact": ("password", "iban")}),
    ({"webhook": {"url": "https://example.org/hook"}}, {"webhook": WebhookSpec("https://example.org/hook")}),
    (
        {"webhook": {"url": "http://e", "headers": {"A": "b"}, "on": ["failed"]}},
        {"webhook": WebhookSpec("http://e", {"A": "b"}, ("failed",))},
    ),
    (
        {"schedule": {"cron": "0 7 * * 1-5"}},
        {"schedule": ScheduleSpec("0 7 * * 1-5", "UTC", "none", "allow")},
    ),
    (
        {"schedule": {"cron": "* * * * *", "timezone": "Europe/Rome", "catch_up": "one", "overlap": "skip"}},
        {"schedule": ScheduleSpec("* * * * *", "Europe/Rome", "one", "skip")},
    ),
    (
        {"sources": {"api": {"type": "http", "configuration": {"url": "u"}}, "env": {"type": "env"}}},
        {
            "sources": {
                "api": {"type": "http", "configuration": {"url": "u"}},
                "env": {"type": "env", "configuration": {}},
            }
        },
    ),
]


@pytest.mark.parametrize(("keys", "expected"), DOCUMENTS_SETTLED)
def test_a_key_of_the_document_is_compiled_into_the_spec(
    keys: dict[str, Any], expected: dict[str, Any]
) -> None:
    spec = document(**keys)

    assert {name: getattr(spec, name) for name in expected} == expected


def test_the_policy_of_the_runner_applies_to_the_steps_but_is_not_their_own() -> None:
    [only] = document(runner={"on_error": "continue"}).steps

    assert (only.on_error, only.has_own_on_error) == ("continue", False)


API = {"type": "http", "configuration": {"url": "u", "headers": {"a": 1, "b": 2}, "codes": [200, 201]}}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("api", API),
        ({"base": "api"}, API),
        ({"base": "api", "override": {}}, API),
        (
            {"base": "api", "override": {"url": "v", "headers": {"b": 3}, "codes": [404]}},
            {"type": "http", "configuration": {"url": "v", "headers": {"a": 1, "b": 3}, "codes": [404]}},
        ),
        (
            {"base": "api", "override": {"type": "fake", "configuration": {"url": "v"}}},
            {"type": "fake", "configuration": {**API["configuration"], "url": "v"}},  # type: ignore[dict-item]
        ),
        (
            {"base": "api", "override": {"type": "fake", "url": "v"}},
            {"type": "fake", "configuration": {**API["configuration"], "url": "v"}},  # type: ignore[dict-item]
        ),
    ],
)
def test_a_source_is_a_name_itself_or_a_changed_one(written: Any, expected: dict[str, Any]) -> None:
    before = json.dumps(API)

    [settled] = check_spec({"sources": {"api": API}, "steps": [{"id": "s", "source": written}]}).spec.steps

    assert (settled.fn, settled.source) == (expected["type"], expected)
    assert json.dumps(API) == before


# Children ---------------------------------------------------------------------------------------------------


def nested(levels: int, limits: dict[str, Any] | None = None) -> dict[str, Any]:
    inner: dict[str, Any] = {"steps": []}
    for _ in range(levels):
        inner = {"steps": [{"id": "c", "workflow": inner}]}
    return {**inner, "limits": limits} if limits else inner


def test_a_child_is_loaded_with_its_parent() -> None:
    inner = {"name": "inner", "steps": [{"op": "b"}], "x-note": 1}

    child = step(workflow=inner, input={"any": 1}).child

    assert child is not None
    assert (child.name, child.document) == (None, inner)
    assert child.loaded == check_spec(inner)


def test_a_child_gets_the_inputs_that_it_needs() -> None:
    inner = {"inputs": {"a": {"required": True}, "b": {}, "c": {"required": True, "default": 1}}, "steps": []}

    assert step(workflow=inner, input={"a": 1}).child is not None


def test_a_child_has_no_schedule_of_its_own() -> None:
    inner = {"schedule": {"cron": "@daily"}, "steps": []}

    with pytest.raises(InvalidSpec) as refused:
        step(workflow=inner)

    [problem] = refused.value.problems
    assert (problem.path, problem.code) == ("steps[1].workflow.schedule", "bad_schedule")


def test_children_nest_as_deep_as_the_limit_says() -> None:
    assert check_spec(nested(2, {"max_depth": 2})).spec.steps[0].child is not None
    with pytest.raises(InvalidSpec) as refused:
        check_spec(nested(4, {"max_depth": 2}))

    [problem] = refused.value.problems
    assert (problem.path, problem.code) == (
        "steps[0].workflow.steps[0].workflow.steps[0].workflow",
        "too_deep",
    )
    assert problem.message == "child workflows may nest at most 2 levels deep"


def test_a_child_may_lower_the_limit_for_its_own_children() -> None:
    inner = nested(2, {"max_depth": 1})

    with pytest.raises(InvalidSpec, match="child workflows may nest at most 1 levels deep"):
        check_spec({"steps": [{"id": "c", "workflow": inner}]})


def test_the_whole_depth_that_documents_allow_can_be_used() -> None:
    with pytest.raises(InvalidSpec) as refused:
        check_spec(nested(40))

    assert {problem.code for problem in refused.value.problems} == {"too_deep"}
    assert check_spec(nested(15))


def test_the_problems_of_a_child_have_the_full_path_and_position() -> None:
    text = """
steps:
  - op: a
  - id: child
    workflow:
      sources: {api: {type: http}}
      limits: {max_run: 1}
      steps:
        - {op: b, depends_on: [a], timeout: 5x}
        - {op: c, input: {x: {var: steps.a.output}, y: {if: [{grater: [1]}]}}}
        - {id: grandchild, workflow: {steps: [{op: b, on_error: skipp}, {op: b}]}}
        - {id: d, source: apy}
"""
    lines = text.splitlines()
    found = [
        (problem.path, problem.code, lines[(problem.line or 0) - 1][(problem.column or 0) - 1 :])
        for problem in problems_of(text)
    ]

    assert [(path, code) for path, code, _ in found] == [
        ("steps[1].workflow.limits.max_run", "unknown_key"),
        ("steps[1].workflow.steps[0].depends_on[0]", "unknown_dependency"),
        ("steps[1].workflow.steps[0].timeout", "bad_duration"),
        ("steps[1].workflow.steps[1].input.x.var", "unknown_dependency"),
        ("steps[1].workflow.steps[1].input.y.if[0]", "unknown_operator"),
        ("steps[1].workflow.steps[2].workflow.steps[0].on_error", "bad_policy"),
        ("steps[1].workflow.steps[2].workflow.steps[1].op", "duplicate_id"),
        ("steps[1].workflow.steps[3].source", "unknown_source"),
    ]
    starts = ["max_run: 1", "a]", "5x", "steps.a", "{grater", "skipp", "b}", "apy"]
    assert all(rest.startswith(start) for (_, _, rest), start in zip(found, starts, strict=True))


# Errors ------------------------------------------------------------------------------------------------

NO_DURATION = 'must be whole seconds, or a string such as "500ms", "30s", "5m", "24h", "7d"'
EXAMPLE = 'such as {"var": "steps.a.output.x"}'
NEEDS = "needs either a signal or any: a list of events"
CONVERT_HINT = "use orchestrator convert, or write an expression"
CONDITION = 'write an expression, such as {"==": [{"var": "input.x"}, 1]}'
NOT_ONE = "must be all, any, done, a number of steps from 1, or an expression"

# A ^ stands where the problem must be found. The step is s, after a step a.
STEP_CASES: list[tuple[str, str, str, str, str | None]] = [
    (
        "many_kinds",
        "^op: f\n    wait: {signal: go}",
        "",
        "a step can have only one of op and wait",
        None,
    ),
    (
        "many_kinds",
        "^source: {type: env}\n    fn: f\n    delay: 1",
        "",
        "a step can have only one of fn, source and delay",
        None,
    ),
    ("no_token", "^label: x", "", "a step needs an op or fn: the name of its executor", None),
    (
        "unknown_key",
        "wait: {signal: go}\n    ^timeout: 5m",
        ".timeout",
        "'timeout' is not a key of a wait step, which runs no job",
        "write it inside wait",
    ),
    (
        "unknown_key",
        "delay: 5\n    ^map: {over: []}",
        ".map",
        "'map' is not a key of a delay step, which runs no job",
        None,
    ),
    (
        "unknown_key",
        "switch: {on: {var: input.a}, cases: {}}\n    ^heartbeat: 5",
        ".heartbeat",
        "'heartbeat' is not a key of a switch step, which runs no job",
        None,
    ),
    (
        "unknown_key",
        "workflow: w\n    ^loop: {}",
        ".loop",
        "'loop' is not a key of a workflow step, which runs no job",
        None,
    ),
    ("bad_policy", "op: f\n    join: ^al", ".join", NOT_ONE, "did you mean 'all'?"),
    ("bad_policy", "op: f\n    join: ^0", ".join", NOT_ONE, None),
    ("bad_policy", "op: f\n    join: ^true", ".join", NOT_ONE, None),
    ("bad_policy", "op: f\n    join: ^[a]", ".join", NOT_ONE, None),
    (
        "bad_policy",
        "op: f\n    depends_on: [a]\n    join: ^2",
        ".join",
        "waits for 2 steps, but the step depends on 1",
        None,
    ),
    (
        "bad_type",
        "op: f\n    join: ^{a: 1, b: 2}",
        ".join",
        "must be an expression: a mapping with one operator",
        EXAMPLE,
    ),
    (
        "bad_type",
        "op: f\n    when: ^len(x) > 0",
        ".when",
        "a condition cannot be a string: it would never change",
        CONDITION,
    ),
    (
        "unknown_operator",
        "op: f\n    when: ^{=: [1, 1]}",
        ".when",
        "'=' is not an operator",
        "did you mean '>='?",
    ),
    ("bad_type", "op: f\n    filters: ^[]", ".filters", "must be a mapping, not a list", None),
    (
        "bad_type",
        "op: f\n    filters: ^{}",
        ".filters",
        "a filter needs an expression, or an operator with filters",
        None,
    ),
    (
        "bad_type",
        "op: f\n    filters: {filters: [^{filters: [], value: 1}]}",
        ".filters.filters[0]",
        "has both filters and an expression; keep one",
        None,
    ),
    (
        "bad_type",
        "op: f\n    filters: ^{operator: AND, expression: true}",
        ".filters",
        "has an operator, but no filters to combine",
        None,
    ),
    (
        "bad_policy",
        "op: f\n    filters: {operator: ^XOR, filters: []}",
        ".filters.operator",
        "must be AND or OR",
        None,
    ),
    (
        "bad_type",
        "op: f\n    filters: {filters: [{filters: [{expression: ^x > 1}]}]}",
        ".filters.filters[0].filters[0].expression",
        "a condition cannot be a string: it would never change",
        CONDITION,
    ),
    (
        "unknown_key",
        "op: f\n    filters: {filters: [{^expresion: true, expression: true}]}",
        ".filters.filters[0].expresion",
        "'expresion' is not a key of a filter",
        "did you mean 'expression'?",
    ),
    (
        "bad_path",
        "op: f\n    filters: {expression: true, value: {vars: ^'[['}}",
        ".filters.value.vars",
        "",
        None,
    ),
    (
        "bad_type",
        "op: f\n    required: ^input.x",
        ".required",
        "must be a list, not a string",
        "write [input.x]",
    ),
    ("bad_type", "op: f\n    required: [^'']", ".required[0]", "must not be empty", None),
    (
        "unknown_dependency",
        "op: f\n    required: [^steps.aa.output]",
        ".required[0]",
        "there is no step 'aa'",
        "did you mean 'steps.a.output'?",
    ),
    ("bad_type", "op: f\n    defer_ms: ^1s", ".defer_ms", "must be a whole number, not a string", None),
    ("bad_type", "op: f\n    defer_ms: ^-1", ".defer_ms", "must be at least 0", None),
    ("bad_type", "op: f\n    retry: ^often", ".retry", "must be a number of retries, or a mapping", None),
    ("bad_type", "op: f\n    retry: ^-1", ".retry.max_retries", "must be at least 0", None),
    (
        "bad_type",
        "op: f\n    retry: {jitter_fraction: ^1.5}",
        ".retry.jitter_fraction",
        "must be at most 1.0",
        None,
    ),
    (
        "bad_type",
        "op: f\n    retry: {backoff_multiplier: ^x}",
        ".retry.backoff_multiplier",
        "must be a number, not a string",
        None,
    ),
    (
        "unknown_key",
        "op: f\n    retry: {^max_retry: 1}",
        ".retry.max_retry",
        "'max_retry' is not a key of retry",
        "did you mean 'max_retries'?",
    ),
    (
        "bad_type",
        "op: f\n    output: ^x",
        ".output",
        "must be a mapping of expressions or a list, not a string",
        None,
    ),
    (
        "bad_type",
        "op: f\n    output: [^x]",
        ".output[0]",
        "must be a mapping with a name, not a string",
        None,
    ),
    (
        "bad_type",
        "op: f\n    output: [^{type: raw}]",
        ".output[0].name",
        "an output needs a name, which is a string",
        None,
    ),
    (
        "duplicate_key",
        "op: f\n    output: [{name: x}, {name: ^x}]",
        ".output[1].name",
        "the output 'x' is written twice",
        None,
    ),
    (
        "bad_type",
        "op: f\n    output: [{name: x, type: ^jmespat}]",
        ".output[0].type",
        "must be raw, json or jmespath",
        "did you mean 'jmespath'?",
    ),
    (
        "unknown_key",
        "op: f\n    output: [{name: x, ^value: y}]",
        ".output[0].value",
        "'value' is not a key of an output of type raw",
        "write type: jmespath",
    ),
    (
        "unknown_key",
        "op: f\n    output: [{name: x, type: jmespath, value: y, ^vlaue: z}]",
        ".output[0].vlaue",
        "'vlaue' is not a key of an output of type jmespath",
        "did you mean 'value'?",
    ),
    (
        "bad_type",
        "op: f\n    output: [^{name: x, type: jmespath}]",
        ".output[0].path",
        "an output of type jmespath needs a value: its path",
        None,
    ),
    (
        "bad_path",
        "op: f\n    output: [{name: x, type: jmespath, value: ^length(y)}]",
        ".output[0].value",
        "the path 'length(y)' has more than names, [0] and one [*]",
        CONVERT_HINT,
    ),
    (
        "bad_path",
        "op: f\n    output: [{name: x, type: jmespath, value: ^'a[*].b[*].c'}]",
        ".output[0].value",
        "the path 'a[*].b[*].c' has more than names, [0] and one [*]",
        CONVERT_HINT,
    ),
    ("unknown_operator", "op: f\n    output: {x: {if: [^{grater: 1}]}}", ".output.x.if[0]", "", None),
    (
        "bad_type",
        "op: f\n    skip_output_mapping: ^1",
        ".skip_output_mapping",
        "must be true or false, not the number 1",
        None,
    ),
    ("bad_type", "op: f\n    map: ^{}", ".map.over", "map needs the key 'over'", None),
    (
        "bad_type",
        "op: f\n    map: {over: ^state.list}",
        ".map.over",
        "must be a list, or an expression that gives one, not a string",
        EXAMPLE,
    ),
    (
        "unknown_dependency",
        "op: f\n    map: {over: {var: ^steps.aa.output.x}}",
        ".map.over.var",
        "there is no step 'aa'",
        "did you mean 'steps.a.output.x'?",
    ),
    (
        "bad_id",
        "op: f\n    map: {over: [], as: ^index}",
        ".map.as",
        "must be letters, digits and '_', and not a root of expressions such as input or state",
        None,
    ),
    (
        "bad_id",
        "op: f\n    map: {over: [], as: ^a.b}",
        ".map.as",
        "must be letters, digits and '_', and not a root of expressions such as input or state",
        None,
    ),
    (
        "unknown_key",
        "op: f\n    map: {over: [], ^ass: x}",
        ".map.ass",
        "'ass' is not a key of map",
        "did you mean 'as'?",
    ),
    (
        "bad_type",
        "op: f\n    map: {over: [], max_parallel: ^0}",
        ".map.max_parallel",
        "must be at least 1",
        None,
    ),
    (
        "bad_type",
        "op: f\n    loop: {max_iterations: ^0}",
        ".loop.max_iterations",
        "must be at least 1",
        None,
    ),
    (
        "bad_type",
        "op: f\n    loop: {on_max: ^fial}",
        ".loop.on_max",
        "must be fail or exit_with_last",
        "did you mean 'fail'?",
    ),
    ("bad_type", "wait: ^go", ".wait", "must be a mapping, not a string", None),
    ("bad_type", "wait: ^{timeout: 5}", ".wait", NEEDS, None),
    ("bad_type", "wait: ^{signal: go, any: []}", ".wait", NEEDS, None),
    ("bad_id", "wait: {signal: ^a b}", ".wait.signal", ID_RULE, None),
    (
        "bad_duration",
        "wait: {signal: go, timeout: ^soon}",
        ".wait.timeout",
        f"{NO_DURATION}; or none",
        None,
    ),
    (
        "bad_type",
        "wait: {signal: go, on_timeout: ^skip}",
        ".wait.on_timeout",
        "must be fail or continue",
        None,
    ),
    (
        "bad_type",
        "wait: ^{any: [{signal: a}], timeout: 5}",
        ".wait",
        "with any, a timeout is one of its events: [{signal: a}, {timeout: 24h}]",
        None,
    ),
    ("bad_type", "wait: ^{any: [{timeout: 5}]}", ".wait", "any needs at least one signal", None),
    ("bad_type", "wait: ^{any: []}", ".wait", "any needs at least one signal", None),
    ("bad_type", "wait: ^{any: [{signal: a}, {signal: a}]}", ".wait", "any has a twice", None),
    (
        "bad_type",
        "wait: ^{any: [{signal: a}, {timeout: 1}, {timeout: 2}]}",
        ".wait",
        "any has timeout twice",
        None,
    ),
    (
        "bad_type",
        "wait: {any: [^{signal: a, timeout: 5}]}",
        ".wait.any[0]",
        "must be either {signal: ...} or {timeout: ...}",
        None,
    ),
    (
        "bad_type",
        "wait: {any: [^{signal: timeout}]}",
        ".wait.any[0]",
        "a signal cannot be named timeout here: the output would not tell it from a timeout",
        None,
    ),
    (
        "unknown_key",
        "wait: {any: [{signal: a, ^payload: 1}]}",
        ".wait.any[0].payload",
        "'payload' is not a key of an event to wait for",
        None,
    ),
    ("bad_duration", "delay: ^later", ".delay", NO_DURATION, None),
    ("bad_duration", "delay: ^4000d", ".delay", "must be between 0 and 3650d", None),
    ("bad_type", "switch: ^{on: {var: input.x}}", ".switch.cases", "switch needs the key 'cases'", None),
    ("bad_type", "switch: ^{cases: {}}", ".switch.on", "switch needs the key 'on'", None),
    (
        "bad_type",
        "switch: {on: ^input.kind, cases: {}}",
        ".switch.on",
        "must be an expression, not a string",
        EXAMPLE,
    ),
    (
        "bad_type",
        "switch: {on: {var: input.x}, cases: {k: ^a}}",
        ".switch.cases.k",
        "must be a list, not a string",
        "write [a]",
    ),
    (
        "unknown_target",
        "switch: {on: {var: input.x}, cases: {k: [a, ^aa]}}",
        ".switch.cases.k[1]",
        "there is no step 'aa'",
        "did you mean 'a'?",
    ),
    (
        "unknown_target",
        "switch: {on: {var: input.x}, cases: {}, default: [^aa]}",
        ".switch.default[0]",
        "there is no step 'aa'",
        "did you mean 'a'?",
    ),
    (
        "cycle",
        "depends_on: [a]\n    switch: {on: {var: input.x}, cases: {k: [^a]}}",
        ".switch.cases.k[0]",
        "these steps wait for each other: a -> s -> a",
        None,
    ),
    (
        "cycle",
        "switch: {on: {var: input.x}, cases: {}, default: [^s]}",
        ".switch.default[0]",
        "these steps wait for each other: s -> s",
        None,
    ),
    (
        "bad_type",
        "workflow: ^3",
        ".workflow",
        "must be a workflow or the name of one, not the number 3",
        None,
    ),
    ("bad_type", "workflow: ^''", ".workflow", "must not be empty", None),
    (
        "bad_type",
        "workflow: ^{name: x}",
        ".workflow.steps",
        "a workflow needs a list of steps; it may be empty",
        None,
    ),
    (
        "missing_input",
        "workflow: {inputs: {url: {required: true}}, steps: []}\n    input: ^{uri: 1}",
        ".input",
        "the child needs the input 'url'",
        None,
    ),
    ("bad_type", "op: f\n    priority: ^6", ".priority", "must be at most 5", None),
    ("bad_type", "op: f\n    priority: ^0", ".priority", "must be at least 1", None),
    ("bad_type", "op: f\n    tags: ^gpu", ".tags", "must be a list, not a string", "write [gpu]"),
    ("bad_type", "op: f\n    tags: [^'']", ".tags[0]", "must not be empty", None),
    ("bad_type", "op: f\n    kv_add: ^[1]", ".kv_add", "must be a mapping, not a list", None),
    ("unknown_operator", "op: f\n    kv_add: {x: {+: [^{grater: 1}]}}", ".kv_add.x.+[0]", "", None),
    ("bad_type", "op: f\n    compensate: ^{}", ".compensate.fn", "compensate needs the key 'fn'", None),
    (
        "bad_duration",
        "op: f\n    compensate: {fn: u, timeout: ^0}",
        ".compensate.timeout",
        "must be longer than 0; write none for no timeout",
        None,
    ),
    (
        "bad_type",
        "op: f\n    compensate: {fn: u, retry: {max_retries: ^x}}",
        ".compensate.retry.max_retries",
        "must be a whole number, not a string",
        None,
    ),
    (
        "bad_path",
        "op: f\n    compensate: {fn: u, input: {x: {vars: ^'[['}}}",
        ".compensate.input.x.vars",
        "",
        None,
    ),
    (
        "bad_type",
        "op: f\n    concurrency: ^{limit: 1}",
        ".concurrency.key",
        "concurrency needs the key 'key'",
        None,
    ),
    (
        "bad_type",
        "op: f\n    concurrency: ^{key: x}",
        ".concurrency.limit",
        "concurrency needs the key 'limit'",
        None,
    ),
    (
        "bad_type",
        "op: f\n    concurrency: {key: x, limit: ^0}",
        ".concurrency.limit",
        "must be at least 1",
        None,
    ),
    (
        "bad_type",
        "op: f\n    concurrency: {key: ^[x], limit: 1}",
        ".concurrency.key",
        "must be a string, a number or an expression",
        None,
    ),
    (
        "bad_type",
        "op: f\n    concurrency: {key: ^{a: 1, b: 2}, limit: 1}",
        ".concurrency.key",
        "must be an expression: a mapping with one operator",
        EXAMPLE,
    ),
    ("bad_duration", "op: f\n    heartbeat: ^0", ".heartbeat", "must be longer than 0", None),
    ("bad_duration", "op: f\n    heartbeat: ^none", ".heartbeat", NO_DURATION, None),
    (
        "unknown_source",
        "source: ^api",
        ".source",
        "there is no source 'api'",
        "define it under sources, or write {type: api}",
    ),
    (
        "unknown_source",
        "source: {base: ^api}",
        ".source.base",
        "there is no source 'api'",
        "define it under sources, or write {type: api}",
    ),
    ("bad_type", "source: ^3", ".source", "must be the name of a source, or a mapping", None),
    ("bad_type", "source: ^''", ".source", "must be the name of a source, or a mapping", None),
    ("bad_type", "source: ^{}", ".source", "needs either a type or a base", None),
    (
        "bad_type",
        "source: ^{base: x, configuration: {}}",
        ".source",
        "has a base: write the configuration under override",
        None,
    ),
    (
        "bad_type",
        "source: ^{type: x, override: {}}",
        ".source",
        "has an override, but no base to change",
        None,
    ),
    (
        "bad_type",
        "source: {base: x, override: ^{configuration: 1}}",
        ".source.override",
        "its configuration must be a mapping",
        None,
    ),
    (
        "bad_type",
        "source: {base: x, override: ^{type: 1}}",
        ".source.override",
        "its type must be a string",
        None,
    ),
    (
        "bad_type",
        "source: {base: x, override: ^{configuration: {}, type: t, url: u}}",
        ".source.override",
        "has keys besides type and configuration: put them into configuration",
        None,
    ),
    (
        "bad_type",
        "source: {base: x, override: ^[]}",
        ".source.override",
        "must be a mapping, not a list",
        None,
    ),
    (
        "unknown_key",
        "source: {type: x, ^config: {}}",
        ".source.config",
        "'config' is not a key of the source of a step",
        "did you mean 'configuration'?",
    ),
    (
        "bad_path",
        "source: {type: x, configuration: {a: {vars: ^'[['}}}",
        ".source.configuration.a.vars",
        "",
        None,
    ),
    ("unknown_key", "op: f\n    ^whn: true", ".whn", "'whn' is not a key of a step", "did you mean 'when'?"),
]

DOCUMENT_CASES: list[tuple[str, str, str, str, str | None]] = [
    ("bad_type", "runner: {max_workers: ^0}", "runner.max_workers", "must be at least 1", None),
    (
        "bad_policy",
        "runner: {on_error: ^skipp}",
        "runner.on_error",
        "must be fail, skip or continue",
        "did you mean 'skip'?",
    ),
    (
        "bad_policy",
        "defaults: {on_error: skip}\nrunner: {on_error: ^fail}",
        "runner.on_error",
        "is fail, but defaults.on_error is skip; keep one",
        None,
    ),
    (
        "bad_type",
        "defaults: {retry: ^x}",
        "defaults.retry",
        "must be a number of retries, or a mapping",
        None,
    ),
    ("bad_type", "defaults: {priority: ^9}", "defaults.priority", "must be at most 5", None),
    (
        "bad_type",
        "kv: {scopes: [^world]}",
        "kv.scopes[0]",
        "must be flow, global or flow_group",
        None,
    ),
    ("bad_type", "sources: ^[a]", "sources", "must be a mapping, not a list", None),
    ("bad_type", "sources: {x: ^{}}", "sources.x.type", "a source needs the key 'type'", None),
    ("bad_type", "sources: {x: ^http}", "sources.x", "must be a mapping, not a string", None),
    ("bad_id", "sources: {a b: ^{type: x}}", 'sources["a b"]', ID_RULE, None),
    (
        "unknown_key",
        "sources: {type: {type: x, ^config: 1}}",
        "sources.type.config",
        "'config' is not a key of a source",
        "did you mean 'configuration'?",
    ),
    (
        "bad_path",
        "sources: {x: {type: y, configuration: {a: {vars: ^'[['}}}}",
        "sources.x.configuration.a.vars",
        "",
        None,
    ),
    ("bad_duration", "timeout: ^0", "timeout", "must be longer than 0; write none for no timeout", None),
    ("bad_duration", "retention: ^0", "retention", "must be longer than 0", None),
    (
        "bad_type",
        "concurrency: {key: x, limit: ^x}",
        "concurrency.limit",
        "must be a whole number, not a string",
        None,
    ),
    (
        "unknown_operator",
        "concurrency: {key: ^{vra: input.x}, limit: 1}",
        "concurrency.key",
        "'vra' is not an operator",
        "did you mean 'var'?",
    ),
    ("bad_type", "redact: ^password", "redact", "must be a list, not a string", "write [password]"),
    ("bad_type", "webhook: ^{}", "webhook.url", "webhook needs the key 'url'", None),
    (
        "bad_type",
        "webhook: {url: ^example.org}",
        "webhook.url",
        "must be a URL that begins with http:// or https://",
        None,
    ),
    (
        "bad_type",
        "webhook: {url: 'http://e', on: [^compleet]}",
        "webhook.on[0]",
        "must be complete, halted, failed or cancelled",
        "did you mean 'complete'?",
    ),
    (
        "bad_type",
        "webhook: {url: 'http://e', headers: {a: ^1}}",
        "webhook.headers.a",
        "must be a string, not the number 1",
        "write it in quotes",
    ),
    (
        "bad_schedule",
        "schedule: {cron: ^hourly}",
        "schedule.cron",
        "must have five fields: minute, hour, day, month, weekday",
        None,
    ),
    (
        "bad_schedule",
        "schedule: {cron: ^0 0 31 2 *}",
        "schedule.cron",
        "never fires: none of its months has a day 31",
        None,
    ),
    (
        "bad_schedule",
        "schedule: {cron: '* * * * *', timezone: ^Europe/Brelin}",
        "schedule.timezone",
        "is not a known time zone, such as Europe/Berlin",
        "did you mean 'Europe/Berlin'?",
    ),
    (
        "bad_schedule",
        "inputs: {n: ^{required: true}, m: {required: true, default: 1}}\nschedule: {cron: '@daily'}",
        "inputs.n",
        "is required, and a schedule starts the workflow without inputs: give it a default",
        None,
    ),
    (
        "bad_type",
        "schedule: {cron: '* * * * *', overlap: ^skp}",
        "schedule.overlap",
        "must be allow, skip or queue",
        "did you mean 'skip'?",
    ),
    ("bad_type", "flow: ^[]", "flow", "is an alias of steps, which is present too; keep one", None),
]


def check_case(text: str, code: str, path: str, message: str, hint: str | None) -> None:
    before, mark, _ = text.partition("^")
    [problem] = problems_of(text.replace("^", "", 1))

    assert (problem.code, problem.path) == (code, path)
    if message:  # otherwise another module words the message
        assert (problem.message, problem.hint) == (message, hint)
    assert mark
    assert (problem.line, problem.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))


@pytest.mark.parametrize(("code", "text", "path", "message", "hint"), STEP_CASES)
def test_a_wrong_key_of_a_step_is_rejected(
    code: str, text: str, path: str, message: str, hint: str | None
) -> None:
    text = f"sources: {{x: {{type: y}}}}\nsteps:\n  - op: a\n  - {text}\n    id: s"

    check_case(text, code, f"steps[1]{path}", message, hint)


@pytest.mark.parametrize(("code", "text", "path", "message", "hint"), DOCUMENT_CASES)
def test_a_wrong_key_of_a_document_is_rejected(
    code: str, text: str, path: str, message: str, hint: str | None
) -> None:
    check_case(f"{text}\nsteps: []", code, path, message, hint)


def test_the_codes_of_these_keys_have_a_case() -> None:
    assert {"many_kinds", "unknown_source"} <= {code for code, *_ in STEP_CASES} <= CODES


def test_a_scope_must_be_declared_where_scopes_are() -> None:
    keys = {"op": "f", "kv_add": {"flow_group:n": 1, "global:n": 1, "other:n": 1, "flow:": 1, "n": 1}}

    with pytest.raises(InvalidSpec) as refused:
        document({"id": "s", **keys}, kv={"scopes": ["global"]})

    [problem] = refused.value.problems
    assert (problem.path, problem.code) == ("steps[1].kv_add.flow_group:n", "bad_type")
    assert problem.message == "the scope flow_group is not in kv.scopes"
    assert document({"id": "s", **keys}).steps[1].kv_add == keys["kv_add"]


def test_a_faulty_source_is_reported_once_and_not_as_unknown() -> None:
    [problem] = problems_of("sources: {api: {type: 3}}\nsteps: [{id: s, source: api}]")

    assert problem.path == "sources.api.type"


def test_a_faulty_part_of_a_rarer_key_causes_no_further_problems() -> None:
    text = """
runner: {max_workers: x, on_error: skip}
steps:
  - {id: w, wait: {signal: 3}}
  - {id: x, workflow: 3, when: {var: input.a}}
  - {op: y, retry: x, filters: 3, map: 3, switch: {on: 3}}
"""

    assert [problem.path for problem in problems_of(text)] == [
        "runner.max_workers",
        "steps[0].wait.signal",
        "steps[1].workflow",
        "steps[2]",
        "steps[2].retry",
        "steps[2].filters",
        "steps[2].map",
        "steps[2].switch.cases",
        "steps[2].switch.on",
    ]


# Dependencies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"op": "f", "when": READ},
        {"op": "f", "when": {"==": [READ, 1]}},
        {"op": "f", "filters": {"filters": [{"expression": True, "value": READ}]}},
        {"op": "f", "required": ["steps.a.output.x"]},
        {"op": "f", "required": ["flows.a.x"]},
        {"op": "f", "map": {"over": READ}},
        {"op": "f", "map": {"over": [1, READ]}},
        {"op": "f", "join": {"==": [READ, 1]}},
        {"op": "f", "concurrency": {"key": READ, "limit": 1}},
        {"op": "f", "when": {"var": "flows.a.x"}},
        {"switch": {"on": READ, "cases": {}}},
        {"wait": {"signal": "go"}, "when": READ},
    ],
)
def test_a_reference_in_a_rarer_key_is_a_dependency(keys: dict[str, Any]) -> None:
    loaded = check_spec({"steps": [{"id": "s", **keys}, {"op": "a"}]})

    assert loaded.graph.parents["s"] == ("a",)


@pytest.mark.parametrize(
    "keys",
    [
        {"when": {"var": ["steps.a.output.x", 1]}},
        {"compensate": {"fn": "u", "input": {"x": READ}}},
        {"output": {"x": READ}},
        {"kv_add": {"x": READ}},
        {
            "map": {"over": [1], "as": "a"},
            "input": {"x": {"var": "a"}, "n": {"var": "index"}},
        },
    ],
)
def test_other_references_are_none(keys: dict[str, Any]) -> None:
    assert check_spec({"steps": [{"id": "s", "op": "f", **keys}, {"op": "a"}]}).graph.parents["s"] == ()


def test_what_a_switch_lists_depends_on_it() -> None:
    switch = {"on": {"var": "input.x"}, "cases": {"1": ["b", "c"], "2": ["b"]}, "default": ["d"]}
    loaded = check_spec(
        {"steps": [{"op": "b", "depends_on": ["s"]}, {"op": "c"}, {"op": "d"}, {"id": "s", "switch": switch}]}
    )

    assert loaded.graph.parents == {"b": ("s",), "c": ("s",), "d": ("s",), "s": ()}


def test_a_switch_may_read_the_last_round_of_what_it_lists() -> None:
    switch = {"on": {"var": "steps.b.output.next"}, "cases": {"1": ["b"]}}

    loaded = check_spec({"steps": [{"id": "s", "switch": switch}, {"op": "b"}]})

    assert loaded.graph.parents == {"s": (), "b": ("s",)}


def test_a_condition_may_read_the_last_round_of_what_is_below() -> None:
    steps = [{"op": "s", "when": {"var": "steps.b.output.x"}}, {"op": "b", "depends_on": ["s"]}]

    assert check_spec({"steps": steps}).graph.parents == {"s": (), "b": ("s",)}


def test_a_cycle_of_conditions_alone_is_a_cycle() -> None:
    text = """
steps:
  - {op: a, filters: {filters: [{expression: {var: steps.b.output.x}}]}}
  - {op: b, when: {var: steps.a.output.x}}
"""

    [problem] = problems_of(text)

    assert (problem.path, problem.code) == ("steps[0].filters", "cycle")


def test_the_number_of_a_join_is_not_counted_while_the_dependencies_are_wrong() -> None:
    [problem] = problems_of("steps:\n  - {op: a, join: 1, depends_on: [b]}")

    assert problem.code == "unknown_dependency"


# flow: ------------------------------------------------------------------------------------------------------

FLOW = """
runner: {max_workers: 4, on_error: skip}
sources:
  api: {type: rest, configuration: {url: "https://example.org", method: GET}}
flow:
  - name: fetch
    source: api
    output:
      - {name: users, type: jmespath, value: data.users}
      - {name: raw}
  - name: report
    source: {base: api, override: {url: "https://example.org/report"}}
    input: {users: {var: flows.fetch.users}}
    on_error: continue
"""


def test_a_flow_is_a_list_of_steps_with_names() -> None:
    loaded = load_spec(FLOW)

    assert [(step.id, step.fn, step.on_error) for step in loaded.spec.steps] == [
        ("fetch", "rest", "skip"),
        ("report", "rest", "continue"),
    ]
    assert loaded.spec.steps[0].output == {"users": {"var": "result.data.users"}, "raw": {"var": "result"}}
    assert loaded.graph.parents["report"] == ("fetch",)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("flow:\n  - {name: a, fn: f, input: ^'{{ flows.b.x }}'}", "flow[0].input"),
        ("flow:\n  - {name: a, fn: f, input: {x: [^'{% if x %}']}}", "flow[0].input.x[0]"),
        ("flow:\n  - {name: a, fn: f, input: ^{template: '{{ input.x }}'}}", "flow[0].input"),
        ("flow:\n  - {name: a, fn: f, input: ^{template: plain}}", "flow[0].input"),
        (
            "sources: {x: {type: y, configuration: {url: ^'http://{{ a }}'}}}\nflow: []",
            "sources.x.configuration.url",
        ),
        ("description: ^'{{ x }}'\nflow: []\nx-free: '{{ y }}'", "description"),
        ("flow:\n  - ^'{{ x }}'", "flow[0]"),
    ],
)
def test_a_template_in_a_flow_is_refused(text: str, path: str) -> None:
    check_case(text, "bad_type", path, "a template is not evaluated here", CONVERT_HINT)


def test_outside_a_flow_template_is_a_name_like_any_other() -> None:
    assert step(op="f", input={"template": "{{ input.x }}"}).input == {"template": {"var": "input.x"}}


def test_a_child_may_be_a_flow() -> None:
    assert step(workflow={"flow": [{"name": "x", "fn": "f"}]}).child is not None
    with pytest.raises(InvalidSpec, match=r"steps\[1\]\.workflow\.flow\[0\]\.input\.x: a template"):
        step(workflow={"flow": [{"name": "x", "fn": "f", "input": {"x": "{{ y | z }}"}}]})


def test_duplicates_and_limits_name_the_key_of_the_document() -> None:
    problems = problems_of("limits: {max_steps: 1}\nflow: [{name: a, fn: f}, {name: a, fn: f}]")

    assert [(problem.path, problem.code) for problem in problems] == [
        ("flow", "too_big"),
        ("flow[1].name", "duplicate_id"),
    ]
    assert "already taken by flow[0]" in problems[1].message


# Warnings ---------------------------------------------------------------------------------------------------


def find_warnings(text: str) -> list[tuple[str, str, str, int | None]]:
    return [(found.path, found.code, found.message, found.line) for found in load_spec(text).warnings]


def test_reading_what_a_parallel_step_writes_is_a_race() -> None:
    text = """
steps:
  - {op: writer, output: {total: {var: result.n}, own: 1}}
  - {op: below, depends_on: [writer], input: {x: {var: state.total}}}
  - {op: reader, input: {x: {+: [1, {var: [state.total, 0]}]}, y: {vars: "$.state['own'][*]"}}}
  - {op: above, input: {x: {var: state.late}}}
  - {op: late, depends_on: [above], output: {late: 1}}
  - {op: other, input: {x: {var: state.unwritten}, y: {$literal: {var: state.total}}, z: {var: ""}}}
"""

    words = "step 'reader' reads state.{}, which step 'writer' writes, and neither waits for the other"
    assert find_warnings(text) == [
        ("steps[2].input.x", "state_read_race", words.format("total"), 5),
        ("steps[2].input.y", "state_read_race", words.format("own"), 5),
    ]


@pytest.mark.parametrize(
    "writer",
    [
        "output: {x: 1}, skip_output_mapping: true",
        "output: {'global:x': 1}",
        "input: {x: {var: state.x}}, output: {x: 1}, id: w",
    ],
)
def test_reading_ones_own_or_an_unwritten_key_is_not_a_race(writer: str) -> None:
    reader = "" if "id: w" in writer else ", {op: r, input: {x: {var: state.x}}}"

    assert find_warnings(f"steps: [{{op: f, {writer}}}{reader}]") == []


def test_races_of_very_many_steps_are_found_in_reasonable_time() -> None:
    writers = [{"op": f"w{n}", "output": {"x": 1}} for n in range(1_000)]
    readers = [{"op": f"r{n}", "input": {"x": {"var": "state.x"}}} for n in range(1_000)]

    assert len(check_spec({"steps": [*writers, *readers]}).warnings) == 100  # 100,000 pairs, and no more


def test_an_unused_source_is_a_warning() -> None:
    text = """
sources:
  used: {type: http, configuration: {token: {var: sources.secrets.TOKEN}}}
  secrets: {type: env, configuration: {vars: [TOKEN]}}
  base: {type: http}
  inline: {type: env, configuration: {vars: [TOKEN]}}
  unused: {type: http}
steps:
  - {id: a, source: used}
  - {id: b, source: {base: base}}
  - {id: c, source: {type: http, configuration: {token: {var: sources.inline.TOKEN}}}}
  - {op: d}
"""

    assert find_warnings(text) == [
        ("sources.unused", "unused_source", "no step and no other source uses 'unused'", 7)
    ]


def test_the_warnings_of_a_child_have_the_full_path() -> None:
    text = """
steps:
  - id: c
    workflow:
      sources: {x: {type: y}}
      flow: [{op: a, max_attempts: 2, attempts_on: any}]
"""

    found = [(path, code, line) for path, code, _, line in find_warnings(text)]

    assert found == [
        ("steps[0].workflow.sources.x", "unused_source", 5),
        ("steps[0].workflow.flow[0].max_attempts", "repeats_on_success", 6),
    ]


# Several files ----------------------------------------------------------------------------------------------


def test_documents_are_merged_left_to_right() -> None:
    base = {"name": "a", "sources": {"api": {"type": "rest", "configuration": {"url": "u"}}}, "steps": [1, 2]}
    change = {
        "sources": {"api": {"configuration": {"headers": {"x": 1}}}, "env": {"type": "env"}},
        "steps": [3],
    }
    before = json.dumps([base, change])

    assert merge_documents([base, change, {"name": {"odd": 1}}, {"name": "b"}]) == {
        "name": "b",
        "sources": {
            "api": {"type": "rest", "configuration": {"url": "u", "headers": {"x": 1}}},
            "env": {"type": "env"},
        },
        "steps": [3],
    }
    assert json.dumps([base, change]) == before
    assert merge_documents([]) == {}


def test_merging_does_not_change_the_documents() -> None:
    shared = {"x": {"y": 1}}

    assert merge_documents([{"a": shared, "b": shared}, {"a": {"x": {"y": 2}}}]) == {
        "a": {"x": {"y": 2}},
        "b": {"x": {"y": 1}},
    }


# The schema -------------------------------------------------------------------------------------------------

BEYOND_SHAPE = {
    "bad_path",
    "cycle",
    "duplicate_key",
    "unknown_dependency",
    "unknown_source",
    "unknown_target",
}
BEYOND_SHAPE_TOO = {  # keys that exclude each other, and values that are counted or looked up
    "a signal cannot be named timeout here: the output would not tell it from a timeout",
    "an output of type jmespath needs a value: its path",
    "any has a twice",
    "any has timeout twice",
    "has keys besides type and configuration: put them into configuration",
    "is not a known time zone, such as Europe/Berlin",
    "is required, and a schedule starts the workflow without inputs: give it a default",
    "must be between 0 and 3650d",
    "never fires: none of its months has a day 31",
    "is fail, but defaults.on_error is skip; keep one",
    "the child needs the input 'url'",
    "waits for 2 steps, but the step depends on 1",
    "'value' is not a key of an output of type raw",
}


def validator() -> Any:
    return jsonschema.Draft202012Validator(build_schema())


def test_a_document_that_is_accepted_here_is_accepted_by_the_schema() -> None:
    accepts = validator()
    documents = [{"steps": [{"op": "a"}, {"id": "s", **keys}]} for keys, _ in SETTLED]
    documents += [{"steps": [], **keys} for keys, _ in DOCUMENTS_SETTLED]
    documents += [nested(3), read_document(FLOW).data]

    for accepted in documents:
        assert list(accepts.iter_errors(accepted)) == []


def test_a_document_of_the_wrong_shape_is_rejected_by_the_schema() -> None:
    refuses = validator()
    texts = [(case, f"steps:\n  - op: a\n  - {case[1]}\n    id: s") for case in STEP_CASES]
    texts += [(case, f"{case[1]}\nsteps: []") for case in DOCUMENT_CASES]

    for (code, _, _, message, _), text in texts:
        if code not in BEYOND_SHAPE and message not in BEYOND_SHAPE_TOO:
            assert not refuses.is_valid(read_document(text.replace("^", "", 1)).data), text


# Any data ---------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "a",
        "b",
        "steps.a.output.x",
        "AND",
        "all",
        "raw",
        "jmespath",
        "a[*].b",
        "go",
        "5m",
        "none",
        "",
        "x y",
        "{{",
        "{{ input.x }}",
        "for {{ steps.a.output.x or 'all' }}",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers(-1, 12) | st.floats(0, 2) | WORDS
ANY_KEY = st.sampled_from(
    sorted(
        {key for model in SpecModel.__subclasses__() for key in model.key_names()}
        | {*StepModel.key_names(), "var", "=="}
    )
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_KEY, inner, max_size=4),
    max_leaves=12,
)
IDS = st.sampled_from("abc")
RULES = IDS.map(lambda name: {"var": f"steps.{name}.output.x"}) | st.just({"var": "input.x"})
DURATIONS = st.sampled_from(["5m", 3, "500ms"])
INPUTS = st.dictionaries(IDS, RULES | LEAVES, max_size=2)
RETRIES = st.integers(0, 3) | st.fixed_dictionaries(
    {}, optional={"max_retries": st.integers(0, 3), "jitter_fraction": st.floats(0, 1)}
)
SLOTS = st.fixed_dictionaries({"key": RULES | WORDS, "limit": st.integers(1, 3)})
FILTERS = st.recursive(
    st.fixed_dictionaries({"expression": RULES}, optional={"value": LEAVES}),
    lambda inner: st.fixed_dictionaries(
        {"filters": st.lists(inner, max_size=2)}, optional={"operator": st.sampled_from(["AND", "or"])}
    ),
    max_leaves=4,
)
RARER: dict[str, st.SearchStrategy[Any]] = {
    "depends_on": st.lists(IDS, max_size=2),
    "input": INPUTS,
    "join": st.sampled_from(["all", "any", "done", 1]) | RULES,
    "when": RULES | st.booleans(),
    "filters": FILTERS,
    "required": st.lists(WORDS, max_size=2),
    "defer_ms": st.integers(0, 9),
    "retry": RETRIES,
    "output": INPUTS
    | st.lists(st.fixed_dictionaries({"name": IDS}, optional={"type": WORDS, "value": WORDS}), max_size=2),
    "skip_output_mapping": st.booleans(),
    "priority": st.integers(1, 5),
    "tags": st.lists(IDS, max_size=2),
    "kv_add": INPUTS,
    "compensate": st.fixed_dictionaries({"fn": IDS}, optional={"input": INPUTS, "retry": RETRIES}),
}
OF_TASKS: dict[str, st.SearchStrategy[Any]] = {
    "map": st.fixed_dictionaries({"over": RULES}, optional={"max_parallel": st.integers(1, 3)}),
    "loop": st.fixed_dictionaries({}, optional={"max_iterations": st.integers(1, 3)}),
    "concurrency": SLOTS,
    "heartbeat": DURATIONS,
    "timeout": DURATIONS,
}
LISTS = st.lists(IDS, max_size=2)
EVENTS = st.lists(
    st.fixed_dictionaries({"signal": IDS}) | st.fixed_dictionaries({"timeout": DURATIONS}), max_size=3
)
OF_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "op": IDS,
    "source": IDS | st.fixed_dictionaries({"base": IDS}, optional={"override": INPUTS}),
    "wait": st.fixed_dictionaries({"signal": IDS}) | st.fixed_dictionaries({"any": EVENTS}),
    "delay": DURATIONS,
    "switch": st.fixed_dictionaries(
        {"on": RULES, "cases": st.dictionaries(IDS, LISTS, max_size=2)}, optional={"default": LISTS}
    ),
}


OF_DOCUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "name": WORDS,
    "runner": st.fixed_dictionaries({}, optional={"max_workers": st.integers(1, 3)}),
    "kv": st.fixed_dictionaries({}, optional={"scopes": st.just(["global"])}),
    "sources": st.dictionaries(IDS, st.fixed_dictionaries({"type": IDS}), max_size=3),
    "concurrency": SLOTS,
    "timeout": DURATIONS,
    "defaults": st.fixed_dictionaries({}, optional={"retry": RETRIES}),
}


def drawn(draw: st.DrawFn, keys: dict[str, st.SearchStrategy[Any]]) -> dict[str, Any]:
    return {key: draw(keys[key]) for key in sorted(draw(st.sets(st.sampled_from(sorted(keys)), max_size=4)))}


@st.composite
def documents(draw: st.DrawFn, levels: int = 1) -> dict[str, Any]:
    steps = []
    for step_id in sorted(draw(st.sets(IDS))):
        kind = draw(st.sampled_from([*OF_KINDS, "workflow"]))
        if kind == "workflow":
            value = draw(documents(levels - 1) if levels else IDS)
        else:
            value = draw(OF_KINDS[kind])
        more = drawn(draw, RARER | (OF_TASKS if kind in ("op", "source") else {}))
        steps.append({**more, "id": step_id, kind: value})
    return {"steps": steps, **drawn(draw, OF_DOCUMENTS)}


@st.composite
def spoilt(draw: st.DrawFn) -> dict[str, Any]:
    document = draw(documents())
    for part in (document, *document["steps"]):
        for key in draw(st.sets(ANY_KEY, max_size=1)):
            part[key] = draw(VALUES)
    if draw(st.booleans()):
        document["flow"] = document.pop("steps")
    return document


@given(spoilt() | documents())
@example({"steps": [{"id": "a", "source": "b"}], "sources": {"b": {"type": 3}}})
def test_any_document_is_loaded_or_rejected(data: dict[str, Any]) -> None:
    try:
        loaded = check_spec(data)
    except InvalidSpec as refused:
        assert {problem.code for problem in refused.problems} <= CODES  # noqa: PT017
        assert all(problem.path for problem in refused.problems)  # noqa: PT017
    else:
        assert [step.id for step in loaded.spec.steps] == list(loaded.graph.order)
        assert {warning.code for warning in loaded.warnings} <= WARNINGS


@given(documents())
def test_a_document_that_is_loaded_matches_the_schema_and_survives_as_text(data: dict[str, Any]) -> None:
    try:
        loaded = check_spec(data)
    except InvalidSpec as refused:
        with pytest.raises(InvalidSpec) as again:
            load_spec(json.dumps(data))
        told = [(problem.path, problem.code) for problem in refused.problems]
        assert sorted((problem.path, problem.code) for problem in again.value.problems) == sorted(told)
    else:
        assert load_spec(json.dumps(data)).spec == loaded.spec
        assert list(validator().iter_errors(data)) == []
