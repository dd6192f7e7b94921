"""The YAML of every built workflow is read as the same document, and a builder of it writes the same YAML."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.spec.model import workflow_id
from orchestrator.application.spec.validation import load_spec
from orchestrator.builder import (
    Expr,
    Reference,
    Step,
    Value,
    WorkflowBuilder,
    complete,
    ctx,
    input_,
    literal,
    op,
    output,
    state,
    when,
)

# fmt: off
STRANGE = st.sampled_from([
    "on", "null", "~", "1", "1e3", "0x1F", "12:30", "yes", "<<", "=", "{{ input.x }}", "a: b", "a #b", "- a",
    "? ", "%x", "---", "!x", "&a", "*a", "|", ">", "'", '"', "\\", "\t", "a\nb\n", "a\n b", "\n a", "a \nb",
    " ", "", "\u2028", "\ufeff", "\x85", "\x00", "Straße", "日本", "😀", "2026-01-01", "var", "steps",
])
# fmt: on
TEXTS = STRANGE | st.text(max_size=12)
NUMBERS = st.one_of(
    st.sampled_from(
        [0, -0.0, 1.0, 1e16, 1e-7, 5e-324, 1.7976931348623157e308, 2**53 + 1, 2**1024 - 1, -(2**63)]
    ),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
ANY_DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DURATIONS: st.SearchStrategy[Any] = st.sampled_from(
    ["500ms", "30s", 60, timedelta(hours=36), timedelta(milliseconds=1)]
)
KEYS: st.SearchStrategy[Any] = st.sampled_from(["x", "y z", "default", 0, 7, "on"])


def is_plain(value: Any) -> bool:
    """Whether data can be part of an expression without being read as one."""
    if isinstance(value, dict):
        return len(value) != 1 and all(map(is_plain, value.values()))
    return all(map(is_plain, value)) if isinstance(value, list) else True


DATA = ANY_DATA.filter(is_plain)


@st.composite
def expressions(draw: st.DrawFn, roots: list[Reference], depth: int = 2) -> Expr:
    found = draw(st.sampled_from(roots))
    for _ in range(draw(st.integers(0, 2))):
        found = found[draw(KEYS)]
    if depth == 0:
        return found
    inner = expressions(roots, depth - 1)
    match draw(st.integers(0, 9)):
        case 0:
            return draw(inner) == draw(DATA)
        case 1:
            return draw(inner) + draw(NUMBERS)
        case 2:
            return (draw(inner) < draw(inner)) & ~draw(inner) & draw(st.booleans())
        case 3:
            return op.if_(draw(inner), draw(DATA), draw(inner))
        case 4:
            return op.filter(draw(inner), lambda item: item.x > item)
        case 5:
            return op.cat(draw(TEXTS), draw(inner))
        case 6:
            return literal(draw(ANY_DATA))
        case 7:
            return found.default(draw(DATA))
        case 8:
            return op.vars(found, "[*].x")
    return found


def values(roots: list[Reference]) -> st.SearchStrategy[Value]:
    return st.one_of(
        DATA,
        expressions(roots),
        st.lists(expressions(roots), max_size=2),
        st.dictionaries(TEXTS, expressions(roots), max_size=2).filter(
            lambda value: not _is_taken_for_one(value)
        ),
    )


def _is_taken_for_one(value: dict[str, Any]) -> bool:
    return is_expression(value) or list(value) == [LITERAL]


@st.composite
def builders(draw: st.DrawFn, depth: int = 1) -> WorkflowBuilder:
    flow = WorkflowBuilder(draw(st.none() | TEXTS), **draw(headers()))
    roots = [input_, state, ctx.workflow.name]
    for name in draw(st.lists(TEXTS.filter(lambda name: name and "." not in name), max_size=2, unique=True)):
        roots.append(flow.input(name, **draw(inputs())))
    steps: list[Step] = []
    for n in range(draw(st.integers(0, 4))):
        steps.append(draw(added(flow, f"s{n}", steps, roots, depth)))
        roots.append(steps[-1].output)
    for name in draw(st.lists(TEXTS, max_size=2, unique=True)):
        flow.outputs({name: draw(values(roots))})
    return flow


def headers() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {},
        optional={
            "description": TEXTS,
            "timeout": DURATIONS,
            "redact": st.lists(TEXTS.filter(bool), max_size=2),
            "defaults": st.fixed_dictionaries({}, optional={"timeout": DURATIONS, "retry": st.just(3)}),
            "webhook": st.just({"url": "https://example.org/#a", "on": ["failed"]}),
            "x": st.dictionaries(TEXTS, ANY_DATA, max_size=2),
        },
    )


def inputs() -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={"required": st.booleans(), "default": ANY_DATA})


@st.composite
def added(
    draw: st.DrawFn, flow: WorkflowBuilder, name: str, steps: list[Step], roots: list[Reference], depth: int
) -> Step:
    """A step of any kind, added to the flow."""
    value = values(roots)
    branches = st.just([complete()]) | expressions([*roots, output]).map(
        lambda rule: [when(rule).halt({"a": rule, "b": 1}), when(rule).reset(), complete()]
    )
    optional: dict[str, Any] = {
        "label": TEXTS,
        "description": TEXTS,
        "when": expressions(roots),
        "output": st.dictionaries(TEXTS, value, max_size=2),
        "on_error": st.sampled_from(["fail", "skip", "continue"]),
        "branch": branches | ANY_DATA.map(lambda data: [when(True).halt(data)]),
        "defer_ms": st.just(timedelta(seconds=2)) | st.integers(0, 10**9),
        "x": st.dictionaries(TEXTS, ANY_DATA, max_size=1),
    }
    if steps:
        optional["after"] = st.lists(
            st.sampled_from(steps), min_size=1, max_size=2, unique_by=lambda step: step.id
        )
    work = optional | {"input": st.dictionaries(TEXTS, value, max_size=3), "tags": st.just(["gpu"])}
    job = work | {"timeout": DURATIONS, "heartbeat": DURATIONS, "queue": st.just("q")}

    def keys(known: dict[str, Any]) -> Any:
        return draw(st.fixed_dictionaries({}, optional=known))

    match draw(st.sampled_from(["step", "fn", "map", "loop", "wait", "any", "delay", "switch", "child"])):
        case "fn":
            return flow.step(name, fn=draw(TEXTS.filter(bool)), **keys(job))
        case "map":
            return flow.map(name, over=draw(expressions(roots)), as_="one", **keys(job))
        case "loop":
            return flow.loop(name, max_iterations=3, **keys(job))
        case "wait":
            return flow.wait(name, signal="on", timeout=draw(DURATIONS), **keys(optional))
        case "any":
            return flow.wait_any(name, signals=["1", "null"], timeout=draw(DURATIONS), **keys(optional))
        case "delay":
            return flow.delay(name, draw(DURATIONS), **keys(optional))
        case "switch":
            chosen = dict.fromkeys(draw(st.lists(TEXTS, max_size=2, unique=True)), f"{name}.case")
            flow.switch(name, on=draw(expressions(roots)), cases=chosen, **keys(optional))
            return flow.step(f"{name}.case")
        case "child" if depth:
            child = draw(builders(depth - 1))
            given_inputs = dict.fromkeys(child.to_dict().get("inputs", {}), 1)
            return flow.child(name, child, input=given_inputs, **keys(optional))
    return flow.step(name, **keys(job))


def same(left: Any, right: Any) -> bool:
    """With the same kinds of numbers and the same order of keys."""
    return json.dumps(left) == json.dumps(right)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(builders())
def test_yaml_and_back_is_the_identity(flow: WorkflowBuilder) -> None:
    document, text = flow.to_dict(), flow.to_yaml()

    loaded = load_spec(text)

    assert same(loaded.document, document)
    assert loaded.workflow_id == flow.load().workflow_id == workflow_id(document)
    assert loaded.spec == flow.load().spec
    assert same(WorkflowBuilder.from_document(document).to_dict(), document)
    assert same(WorkflowBuilder.from_yaml(text).to_dict(), document)
    assert WorkflowBuilder.from_yaml(text).to_yaml() == text
