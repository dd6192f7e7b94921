"""Workflows written in Python: their documents, their errors, and their runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any, get_args

import pytest

from orchestrator import Backend, Workflow, WorkflowStatus, load_spec
from orchestrator import WorkflowBuilder as FromTheFrontDoor
from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.step_models import SpecModel, StepModel, WorkflowModel
from orchestrator.builder import (
    Step,
    WorkflowBuilder,
    complete,
    ctx,
    fail,
    halt,
    index,
    input_,
    item,
    literal,
    op,
    output,
    ref,
    reset,
    result,
    retry,
    skip,
    sources,
    state,
    when,
)


def steps_of(flow: WorkflowBuilder) -> list[Any]:
    steps: list[Any] = flow.to_dict()["steps"]
    return steps


ORDER = """\
name: process-order
timeout: 2d
inputs:
  sku: {type: string, required: true}
steps:
  - id: check
    fn: check_order
    input: {sku: {var: input.sku}}
    retry: 3
  - id: reserve
    fn: reserve_goods
    input: {sku: {var: input.sku}}
    timeout: 2m
    on_error: skip
  - id: prices
    fn: price_line
    map: {over: {var: steps.check.output.lines}, max_parallel: 4}
    input: {line: {var: item}, n: {var: index}}
  - id: approval
    wait: {signal: manager, timeout: 24h}
    depends_on: [prices]
    when: {">": [{var: steps.check.output.amount}, 500]}
  - op: store
    depends_on: [approval, reserve]
    input: {fields: {var: steps.check.output.fields}, by: {var: [steps.approval.output.by, auto]}}
    branch:
      - condition: {"==": [{var: code}, 7]}
        action: halt
        result: {why: full}
      - condition: true
        action: complete
outputs:
  amount: {var: steps.check.output.amount}
"""


def order() -> WorkflowBuilder:
    flow = WorkflowBuilder("process-order", timeout="2d")
    sku = flow.input("sku", type="string", required=True)
    check = flow.step("check", fn="check_order", input={"sku": sku}, retry=3)
    reserve = flow.step("reserve", fn="reserve_goods", input={"sku": sku}, timeout="2m", on_error="skip")
    prices = flow.map(
        "prices", fn="price_line", over=check.output.lines, max_parallel=4, input={"line": item, "n": index}
    )
    approval = flow.wait(
        "approval", signal="manager", timeout="24h", after=[prices], when=check.output.amount > 500
    )
    flow.step(
        "store",
        after=[approval, reserve],
        input={"fields": check.output.fields, "by": approval.output.by.default("auto")},
        branch=[when(ref("code") == 7).halt({"why": "full"}), complete()],
    )
    flow.outputs(amount=check.output.amount)
    return flow


def test_a_workflow_in_python_is_the_same_as_in_yaml() -> None:
    flow, loaded = order(), load_spec(ORDER)

    assert flow.to_yaml() == ORDER
    assert flow.to_dict() == loaded.document
    assert flow.load().workflow_id == loaded.workflow_id
    assert flow.load().spec == loaded.spec
    assert repr(flow) == "<WorkflowBuilder 'process-order' with 5 steps>"


def test_the_package_exports_the_builder() -> None:
    assert FromTheFrontDoor is WorkflowBuilder


# ---- every key


def everything() -> WorkflowBuilder:
    """Each key of the language at least once, by a call that a type checker accepts."""
    flow = WorkflowBuilder(
        "everything",
        description="text",
        defaults={
            "timeout": timedelta(minutes=90),
            "retry": 2,
            "on_error": "skip",
            "attempts_on": "error",
            "queue": "slow",
            "priority": 2,
            "skip_output_mapping": True,
            "isolation": "thread",
        },
        runner={"max_workers": 8, "on_error": "skip"},
        limits={"max_runs": 9, "max_lost": 1, "max_steps": 99, "max_depth": 3, "max_output_bytes": 9_999},
        kv={"scopes": ["flow", "global"]},
        webhook={"url": "https://example.org/", "headers": {"X-Key": "1"}, "on": ("failed",)},
        timeout=timedelta(days=2),
        retention="7d",
        history="full",
        concurrency={"key": input_.customer, "limit": 1},
        schedule={"cron": "0 6 * * *", "timezone": "UTC", "catch_up": "one", "overlap": "queue"},
        redact=["token"],
        x={"owner": ["accounting"]},
    )
    flow.input("customer", type="string", required=False, default="nobody")
    flow.source("env", "env", {"vars": ["TOKEN", "HOST"]})
    api = flow.source("api", type="http", configuration={"token": sources.env.TOKEN})
    first = flow.step("first", x={"note": 1})
    flow.step(
        "second",
        fn="work",
        name="Second",
        label="The second one",
        description="text",
        after=first,
        join="done",
        when=first.status == "complete",
        filters={
            "operator": "OR",
            "filters": [{"expression": state.x, "value": 1}, {"filters": [{"expression": True}]}],
        },
        required=["input.customer", first.output.x],
        defer_ms=timedelta(seconds=1.5),
        max_attempts=2,
        attempts_on="any",
        retry={
            "max_retries": 4,
            "initial_delay_ms": 500,
            "backoff_multiplier": 3.0,
            "max_delay_ms": timedelta(minutes=1),
            "jitter_fraction": 0.1,
            "non_retryable": [KeyError, "shop.Rejected", "timeout"],
        },
        on_error="continue",
        branch=[when(output.ok == False).halt({"why": output.error}), when(True).halt({"var": "x"})],  # noqa: E712
        output={"x": result.y},
        skip_output_mapping=False,
        kv_add={"global:total": result.n},
        compensate={
            "fn": "undo",
            "input": {"x": ref("output.x")},
            "timeout": "1m",
            "retry": {"max_retries": 1},
            "queue": "q",
        },
        input={"a": [first.output, literal({"var": "x"})]},
        timeout=30,
        queue="fast",
        priority=1,
        tags=["gpu"],
        concurrency={"key": "second", "limit": 2},
        heartbeat="30s",
        isolation="process",
    )
    flow.step("get", source=api)
    flow.step("put", source=api.override({"method": "PUT"}))
    flow.step("own", source={"type": "http", "configuration": {"url": op.cat("https://", sources.env.HOST)}})
    flow.map("each", over=[1, first.output.x], as_="one", max_parallel=2, loop={"max_iterations": 3})
    flow.loop("climb", max_iterations=3, on_max="exit_with_last", input={"h": ctx.loop.value.h})
    flow.wait("approval", signal="yes", timeout="none", on_timeout="continue")
    flow.wait_any("answer", signals=["yes", "no"], timeout=timedelta(milliseconds=1500))
    flow.delay("pause", timedelta(0))
    flow.switch("way", on=input_.customer, cases={"a": "left", "1": []}, default=["right"])
    left = flow.step("left")
    flow.step("right", join=1, after=[first, left])
    child = WorkflowBuilder()
    child.step("inner")
    flow.child("nested", child, input={"x": 1})
    flow.outputs({"a b": first.output.x}, c=op.now())
    return flow


ANOTHER_WORD = {(WorkflowModel, "flow"), (StepModel, "type")}
"""Other names of `steps` and `fn` in foreign documents."""


def models_in(annotation: Any) -> Iterator[type[SpecModel]]:
    if isinstance(annotation, type) and issubclass(annotation, SpecModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def keys_in(model: type[SpecModel], raw: Any) -> Iterator[tuple[type[SpecModel], str]]:
    """Each key that is written, with the model it belongs to."""
    if isinstance(raw, list):
        for one in raw:
            yield from keys_in(model, one)
    if not isinstance(raw, dict):
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in raw.items():
        if key not in fields:
            assert key.startswith("x-")
            continue
        yield model, key
        for below in models_in(fields[key].annotation):
            named = key in ("inputs", "sources")
            yield from keys_in(below, list(value.values()) if named else value)


def keys_of_the_language(
    model: type[SpecModel], seen: set[type[SpecModel]]
) -> Iterator[tuple[type[SpecModel], str]]:
    if model not in seen:
        seen.add(model)
        for name, field in model.model_fields.items():
            yield model, field.alias or name
            for below in models_in(field.annotation):
                yield from keys_of_the_language(below, seen)


def test_no_key_of_the_language_is_missing() -> None:
    wanted = set(keys_of_the_language(WorkflowModel, set())) - ANOTHER_WORD

    written = set(keys_in(WorkflowModel, everything().to_dict()))

    assert len(wanted) > 100
    assert {(model.__name__, key) for model, key in wanted - written} == set()


def test_everything_is_valid_and_the_same_as_yaml() -> None:
    flow = everything()

    loaded = load_spec(flow.to_yaml())

    assert loaded.document == flow.to_dict()
    assert loaded.workflow_id == flow.load().workflow_id


def test_everything_is_written_as_the_language_says() -> None:
    document = everything().to_dict()
    steps = {step.get("id") or step["op"]: step for step in document["steps"]}

    assert list(document)[:2] == ["name", "description"]
    assert list(document)[-5:] == ["x-owner", "inputs", "sources", "steps", "outputs"]
    assert document["timeout"] == "2d"
    assert document["defaults"]["timeout"] == "90m"
    assert document["webhook"]["on"] == ["failed"]
    assert steps["first"] == {"op": "first", "x-note": 1}
    assert steps["second"]["depends_on"] == ["first"]
    assert steps["second"]["defer_ms"] == 1_500
    assert steps["second"]["required"] == ["input.customer", "steps.first.output.x"]
    assert steps["second"]["retry"]["max_delay_ms"] == 60_000
    assert steps["second"]["branch"] == [
        {
            "condition": {"==": [{"var": "output.ok"}, False]},
            "action": "halt",
            "result_expr": {"why": {"var": "output.error"}},
        },
        {"condition": True, "action": "halt", "result": {"var": "x"}},
    ]
    assert steps["get"] == {"id": "get", "source": "api"}
    assert steps["put"]["source"] == {"base": "api", "override": {"method": "PUT"}}
    assert steps["each"]["map"] == {
        "over": [1, {"var": "steps.first.output.x"}],
        "as": "one",
        "max_parallel": 2,
    }
    assert steps["climb"]["loop"] == {"max_iterations": 3, "on_max": "exit_with_last"}
    assert steps["answer"]["wait"] == {"any": [{"signal": "yes"}, {"signal": "no"}, {"timeout": "1500ms"}]}
    assert steps["pause"]["delay"] == "0s"
    assert steps["way"]["switch"]["cases"] == {"a": ["left"], "1": []}
    assert steps["nested"]["workflow"] == {"steps": [{"op": "inner"}]}


def test_only_what_was_given_is_written() -> None:
    flow = WorkflowBuilder()
    flow.step("a")
    flow.loop("b")
    flow.wait("c", signal="go")
    flow.child("d", "registered")
    flow.child("e", {"steps": []})
    flow.wait_any("f", signals=["go"])

    assert flow.to_dict() == {
        "steps": [
            {"op": "a"},
            {"op": "b", "loop": {}},
            {"id": "c", "wait": {"signal": "go"}},
            {"id": "d", "workflow": "registered"},
            {"id": "e", "workflow": {"steps": []}},
            {"id": "f", "wait": {"any": [{"signal": "go"}]}},
        ]
    }


@pytest.mark.parametrize(
    ("duration", "written"),
    [
        (timedelta(days=14), "14d"),
        (timedelta(hours=36), "36h"),
        (timedelta(seconds=61), "61s"),
        (timedelta(milliseconds=61_001), "61001ms"),
        (timedelta(0), "0s"),
        ("5m", "5m"),
        (60, 60),
    ],
)
def test_a_duration_is_exact(duration: str | int | timedelta, written: str | int) -> None:
    flow = WorkflowBuilder()
    flow.delay("a", duration)

    assert steps_of(flow) == [{"id": "a", "delay": written}]


# ---- branches


def test_each_action_can_be_written_with_and_without_a_condition() -> None:
    flow = WorkflowBuilder()
    first = flow.step("first")
    ok = output.ok
    flow.step(
        "a",
        branch=[
            when(ok).complete(),
            when(ok).retry(),
            when(ok).fail(),
            when(ok).skip(),
            when(ok).halt(),
            when(ok).halt(None),
            when(ok).reset(),
            when(ok).reset(first),
            when(ok).reset("first", "a"),
            when(ok).reset(state.target),
            complete(),
            retry(),
            fail(),
            skip(),
            halt([ok, 1]),
            reset("first"),
        ],
    )

    entries = steps_of(flow)[1]["branch"]
    said = [{key: value for key, value in entry.items() if key != "condition"} for entry in entries]

    assert [entry["condition"] for entry in entries] == [{"var": "output.ok"}] * 10 + [True] * 6
    assert said == [
        {"action": "complete"},
        {"action": "retry"},
        {"action": "fail"},
        {"action": "skip"},
        {"action": "halt"},
        {"action": "halt", "result": None},
        {"action": {"set": "a", "value": "ready"}},
        {"action": {"set": "first", "value": "ready"}},
        {"action": {"set": ["first", "a"], "value": "ready"}},
        {"action": {"set": {"var": "state.target"}, "value": "ready"}},
        {"action": "complete"},
        {"action": "retry"},
        {"action": "fail"},
        {"action": "skip"},
        {"action": "halt", "result_expr": [{"var": "output.ok"}, 1]},
        {"action": {"set": "first", "value": "ready"}},
    ]
    assert flow.load()
    assert repr(when(ok)) == 'when(<{"var": "output.ok"}>)'


# ---- mistakes


Mistake = Callable[[WorkflowBuilder, Step], Any]


def _other() -> Any:
    return WorkflowBuilder("other").step("foreign")


def _anything(value: object) -> Any:
    """Past the type checker, as a caller without one would."""
    return value


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            lambda flow, a: flow.step("b", after="aa"),
            "steps[1]: step 'b': no step 'aa' is declared before it; did you mean 'a'? [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("b", after=[a, "later"]),
            "steps[1]: step 'b': no step 'later' is declared before it [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("a", fn="again"),
            "steps[1]: step 'a': the name is already taken by steps[0] [duplicate_id]",
        ),
        (
            lambda flow, a: flow.step("b", after=_other()),
            "steps[1]: step 'b': the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("b", input={"x": [_other().output.x + 1]}),
            "steps[1]: step 'b': the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("b", when=_other().status == "complete"),
            "steps[1]: step 'b': the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("b", required=[_other().output]),
            "steps[1]: step 'b': the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("b", branch=[reset(_other())]),
            "steps[1]: step 'b': the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.map("b", over=_other().output.items),
            "steps[1]: step 'b': the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.switch("b", on=a.output.x, cases={"x": [_other()]}),
            "steps[1]: step 'b': the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("b", input={"x": WorkflowBuilder().input("y")}),
            "steps[1]: step 'b': the input 'y' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.step("b", source=WorkflowBuilder().source("api", "http")),
            "steps[1]: step 'b': the source 'api' does not belong to this workflow [unknown_source]",
        ),
        (
            lambda flow, a: flow.outputs(x=_other().output),
            "outputs.x: the step 'foreign' does not belong to this workflow [unknown_dependency]",
        ),
        (
            lambda flow, a: flow.source("api", "http", {"url": {"cat": ["a"]}}),
            "sources.api: {'cat': ['a']} would be read as an expression; "
            "write literal(...) around data, raw(...) around JSON Logic [bad_type]",
        ),
        (
            lambda flow, a: flow.step("b c"),
            "steps[1]: step 'b c': the name of a step must be letters, digits, '_', '-' and '.', "
            "at most 128 of them [bad_id]",
        ),
        (
            lambda flow, a: flow.step("b", timeout="soon"),
            "steps[1].timeout: step 'b': must be whole seconds, or a string such as "
            '"500ms", "30s", "5m", "24h", "7d"; or none [bad_duration]',
        ),
        (
            lambda flow, a: flow.delay("b", timedelta(microseconds=1)),
            "steps[1]: step 'b': datetime.timedelta(microseconds=1) is finer than a millisecond "
            "[bad_duration]",
        ),
        (
            lambda flow, a: flow.step("b", on_error=_anything("ignore"), retry=_anything({"max_retry": 1})),
            "steps[1].on_error: step 'b': must be fail, skip or continue [bad_policy]\n"
            "steps[1].retry.max_retry: step 'b': 'max_retry' is not a key of retry; "
            "did you mean 'max_retries'? [unknown_key]",
        ),
        (
            lambda flow, a: flow.step("b", input={"x": float("nan")}),
            "steps[1].input.x: step 'b': nan is not JSON [not_json]",
        ),
        (
            lambda flow, a: flow.step("b", fn="f", source="api"),
            "steps[1]: step 'b': a step can have only one of fn and source [many_kinds]",
        ),
        (
            lambda flow, a: flow.input("x", type=_anything("text")),
            "inputs.x.type: must be string, number, integer, boolean, object or array [bad_type]",
        ),
        (lambda flow, a: flow.input("n"), "inputs.n: 'n' is already declared [duplicate_key]"),
        (lambda flow, a: flow.outputs({"n": 1}, m=2), "outputs.n: 'n' is already declared [duplicate_key]"),
        (lambda flow, a: flow.source("api", type=""), "sources.api.type: must not be empty [bad_type]"),
        (
            lambda flow, a: WorkflowBuilder("x", retention="0s"),
            "retention: must be longer than 0 [bad_duration]",
        ),
    ],
)
def test_the_call_with_the_mistake_raises_the_error(mistake: Mistake, message: str) -> None:
    flow = WorkflowBuilder()
    flow.input("n")
    flow.outputs(n=1)
    a = flow.step("a")
    before = flow.to_dict()

    with pytest.raises(InvalidSpec) as refused:
        mistake(flow, a)

    assert str(refused.value) == message
    assert flow.to_dict() == before


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            lambda flow, a: flow.step("b", **_anything({"depends_on": ["a"]})),
            "step() has no argument 'depends_on'; did you mean 'after'?",
        ),
        (
            lambda flow, a: flow.wait("b", signal="go", **_anything({"on_eror": "fail"})),
            "wait() has no argument 'on_eror'; did you mean 'on_error'?",
        ),
        (lambda flow, a: flow.delay("b", 1, **_anything({"fn": "f"})), "delay() has no argument 'fn'"),
        (
            lambda flow, a: WorkflowBuilder(**_anything({"zone": 1})),
            "WorkflowBuilder() has no argument 'zone'",
        ),
        (lambda flow, a: flow.input("x", **_anything({"kind": 1})), "input() has no argument 'kind'"),
        (lambda flow, a: flow.step(_anything(1)), "the name of a step must be a string, not 1"),
        (lambda flow, a: flow.step("b", after=_anything([1])), "expected a step or its name, not 1"),
        (
            lambda flow, a: flow.step("b", when=_anything("len(x) > 0")),
            "a condition must be an expression, True or False, not 'len(x) > 0'",
        ),
        (lambda flow, a: when(_anything("x")), "a condition must be an expression, True or False, not 'x'"),
        (
            lambda flow, a: flow.step("b", branch=_anything([when(True)])),
            "expected a branch entry such as when(...).halt(), not when(True)",
        ),
        (
            lambda flow, a: flow.step("b", input=_anything([1])),
            "expected a mapping of names to values, not [1]",
        ),
        (
            lambda flow, a: flow.step("b", input={"x": _anything(a)}),
            "<step 'a'> is not a value: write its .output",
        ),
        (
            lambda flow, a: flow.input("x", default=_anything(a.output)),
            'an expression is not allowed here: <{"var": "steps.a.output"}>',
        ),
    ],
)
def test_an_argument_of_the_wrong_kind_is_a_type_error(mistake: Mistake, message: str) -> None:
    flow = WorkflowBuilder()
    a = flow.step("a")
    before = flow.to_dict()

    with pytest.raises(TypeError) as refused:
        mistake(flow, a)

    assert str(refused.value) == message
    assert flow.to_dict() == before


def test_a_problem_of_the_whole_document_names_its_step() -> None:
    child = WorkflowBuilder()
    child.step("inner", branch=[reset()])
    flow = WorkflowBuilder(concurrency={"key": op.vars("["), "limit": 1})
    flow.switch("way", on=input_.x, cases={"a": ["lefft"]})
    flow.step("left", input={"x": op.matches(input_.x, "(")})
    flow.child("outer", child)

    with pytest.raises(InvalidSpec) as refused:
        flow.load()

    assert [str(problem) for problem in refused.value.problems] == [
        "concurrency.key.vars: "
        "expected an index, a quoted name, '*' or '?' at position 1 of the path '[' [bad_path]",
        "steps[0].switch.cases.a[0]: step 'way': there is no step 'lefft'; "
        "did you mean 'left'? [unknown_target]",
        "steps[1].input.x.str.matches: step 'left': expected ) at position 1 of the pattern '(' [bad_type]",
        "steps[2].workflow.steps[0].branch: step 'inner' of 'outer': "
        "a step with a set branch needs a complete or halt branch too [loop_without_exit]",
    ]


def test_a_message_that_names_its_step_already_is_left_as_it_is() -> None:
    flow = WorkflowBuilder.from_document({"steps": [{"op": "a", "depends_on": ["b"]}]})

    with pytest.raises(InvalidSpec) as refused:
        flow.load()

    assert str(refused.value).startswith("steps[0].depends_on[0]: step 'a' depends on unknown step 'b'")


# ---- and back


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"steps": []},
        {"flow": [{"name": "a", "source": "api"}], "sources": {}},
        {"steps": [{"op": "a", "type": "b", "future": {"key": [1]}}, {"nothing": 1}, 5], "x-y": None},
        {"steps": "wrong", "inputs": 3},
        everything().to_dict(),
    ],
)
def test_a_document_that_goes_in_comes_out(document: dict[str, Any]) -> None:
    flow = WorkflowBuilder.from_document(document)

    assert flow.to_dict() == document
    assert flow.to_dict() is not document
    assert WorkflowBuilder.from_yaml(flow.to_yaml()).to_dict() == document


def test_a_document_can_be_added_to() -> None:
    flow = WorkflowBuilder.from_yaml(ORDER)

    flow.step("bill", after=["store"], input={"amount": flow["check"].output.amount})
    flow.input("note")
    flow.outputs(bill=flow["bill"].output)

    document = flow.to_dict()
    assert list(document) == ["name", "timeout", "inputs", "steps", "outputs"]
    assert document["steps"][-1] == {
        "op": "bill",
        "depends_on": ["store"],
        "input": {"amount": {"var": "steps.check.output.amount"}},
    }
    assert document["inputs"] == {"sku": {"type": "string", "required": True}, "note": {}}
    assert list(document["outputs"]) == ["amount", "bill"]


def test_steps_go_where_the_document_has_them() -> None:
    flow = WorkflowBuilder.from_document({"flow": [{"name": "a", "type": "f"}], "name": "n"})

    flow.step("b", after="a")

    assert flow.to_dict() == {
        "flow": [{"name": "a", "type": "f"}, {"op": "b", "depends_on": ["a"]}],
        "name": "n",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "flow.yaml: a workflow must be a mapping with steps, not a list [bad_type]"),
        ("a: 1\na: 2", "flow.yaml:2:1: a: the key 'a' is written twice [duplicate_key]"),
    ],
)
def test_a_text_that_is_not_a_document_is_rejected(text: str, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        WorkflowBuilder.from_yaml(text, "flow.yaml")

    assert str(refused.value) == message


def test_data_that_is_not_a_document_is_rejected() -> None:
    with pytest.raises(InvalidSpec, match="a value of type timedelta is not JSON"):
        WorkflowBuilder.from_document({"timeout": timedelta(1)})


def test_nothing_can_be_added_to_what_is_not_a_collection() -> None:
    flow = WorkflowBuilder.from_document({"steps": "wrong", "inputs": 3})

    with pytest.raises(InvalidSpec, match="steps: is a string, so nothing can be added to it"):
        flow.step("a")
    with pytest.raises(InvalidSpec, match="inputs: is the number 3, so nothing can be added to it"):
        flow.input("a")


def test_a_step_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="there is no step 'chek'; did you mean 'check'"):
        order()["chek"]


def test_arguments_and_results_are_copies() -> None:
    given = {"x": [1]}
    flow = WorkflowBuilder()
    flow.step("a", input=given)

    given["x"].append(2)
    flow.to_dict()["steps"].append(3)

    assert flow.to_dict() == {"steps": [{"op": "a", "input": {"x": [1]}}]}


# ---- and they run


def executors() -> dict[str, Callable[[dict[str, Any]], Any]]:
    def broken(inputs: dict[str, Any]) -> Any:
        raise ValueError("as asked")

    def climb(inputs: dict[str, Any]) -> Any:
        height = (inputs["height"] or 0) + 40
        return {"_loop": "done" if height >= 100 else "again", "value": {"height": height}}

    def double(inputs: dict[str, Any]) -> Any:
        return {"n": 2 * inputs["n"]}

    return {"echo": lambda inputs: inputs, "double": double, "broken": broken, "climb": climb}


def run(flow: WorkflowBuilder, inputs: dict[str, Any] | None = None, **signals: Any) -> Workflow:
    minutes = count(
        1_800_000_000_000, 60_000
    )  # each reading of the clock is a minute later, so no test waits
    backend = Backend(executors(), poll_interval=0.001, clock=lambda: next(minutes))
    workflow = Workflow.from_dict(flow.to_dict(), backend, inputs)
    for name, payload in signals.items():
        workflow.signal(name, payload)
    workflow.run()
    return workflow


def test_paths_inputs_and_defaults_read_what_they_say() -> None:
    flow = WorkflowBuilder("reads")
    n = flow.input("n", type="integer", default=4)
    first = flow.step("first.of", fn="double", input={"n": n})
    second = flow.step(
        "second", fn="echo", input={"deep": {"list": [first.output.n, n]}, "none": state.y.default(1)}
    )
    flow.outputs(last=op.last(second.output.deep.list), first=second.output.deep.list[0], none=state.none)

    assert run(flow).outcome == {"last": 4, "first": 8, "none": 1}


def test_a_map_and_operators_over_its_items_run() -> None:
    flow = WorkflowBuilder()
    doubled = flow.map(
        "doubled",
        fn="double",
        over=[1, 2, "three", 4],
        as_="one",
        input={"n": ref("one") * 1},
        on_error="skip",
    )
    flow.outputs(
        all=op.vars(doubled.output.items, "[*].n"),
        large=op.map(op.filter(doubled.output.items, lambda one: one.n > 3), lambda one: one.n),
        errors=doubled.output.errors,
    )

    assert run(flow).outcome == {"all": [2, 4, 8], "large": [4, 8], "errors": 1}


def test_branches_that_reset_and_halt_run() -> None:
    flow = WorkflowBuilder()
    grow = flow.step(
        "grow",
        fn="double",
        input={"n": state.n.default(3)},
        branch=[when(output.n < 20).reset(), complete()],
    )
    flow.step(
        "check",
        fn="echo",
        input={"size": grow.output.n},
        branch=[when(ref("size") > 20).halt({"reason": op.cat("too large: ", ref("size"))})],
    )

    workflow = run(flow)

    assert workflow.status is WorkflowStatus.HALTED
    assert workflow.outcome == {"reason": "too large: 24"}


def test_switches_waits_delays_and_joins_run() -> None:
    flow = WorkflowBuilder()
    plan = flow.input("plan", type="string")
    flow.switch("plan", on=plan, cases={"gold": "call"}, default="mail")
    call = flow.step("call", fn="echo")
    mail = flow.step("mail", fn="echo")
    calm = flow.delay("calm", "30s", after=[call, mail])
    answer = flow.wait_any("answer", signals=["accept", "decline"], timeout="2h", after=calm)
    paid = flow.wait("paid", signal="paid", timeout="1h", on_timeout="continue", after=answer)
    broken = flow.step("broken", on_error="continue", after=paid)
    flow.step("finally", fn="echo", after=[broken, mail], join="done", input={"kind": broken.error.kind})
    flow.outputs(answer=answer.output, kind=state.kind, mail=mail.status)

    workflow = run(flow, {"plan": "gold"}, accept={"by": "ada"})

    assert workflow.outcome == {
        "answer": {"by": "ada", "event": "accept"},
        "kind": "exception",
        "mail": "filtered",
    }


def test_a_loop_runs() -> None:
    flow = WorkflowBuilder()
    climb = flow.loop("climb", max_iterations=5, input={"height": ctx.loop.value.height})
    flow.outputs(height=climb.output.height)

    assert run(flow).outcome == {"height": 120}


def test_a_text_with_braces_means_the_same_as_in_yaml() -> None:
    flow = WorkflowBuilder()
    echo = flow.step(
        "echo", input={"text": "Hi {{ input.name }}", "n": "{{ input.n }}", "as": literal("{{ x }}")}
    )
    flow.map(
        "each",
        fn="echo",
        over="{{ steps.echo.output.list or null }}",
        input={"item": op.cat("{{ item }}", "!")},
    )
    flow.step("stop", fn="echo", after=echo, branch=[when(state.n == 5).halt({"why": ["{{ state.text }}"]})])
    document = flow.to_dict()

    assert document["steps"][0]["input"] == {
        "text": "Hi {{ input.name }}",
        "n": "{{ input.n }}",
        "as": {"$literal": "{{ x }}"},
    }
    assert document["steps"][2]["branch"][0]["result_expr"] == {"why": ["{{ state.text }}"]}
    assert load_spec(flow.to_yaml()).document == document
    halted = run(flow, {"name": "Ada", "n": 5})
    assert (halted.status, halted.outcome) == (WorkflowStatus.HALTED, {"why": ["Hi Ada"]})


def test_braces_that_hold_no_path_are_rejected() -> None:
    flow = WorkflowBuilder()
    flow.step("echo", input={"text": "{{ input.name | upper }}"})

    with pytest.raises(InvalidSpec, match="a filter is an operator here"):
        flow.load()
    with pytest.raises(TypeError, match="a condition must be an expression"):
        flow.step("other", when="{{ input.name }}")  # type: ignore[arg-type]
