"""A document with short references and the same document in JSON Logic: nothing tells them apart.

Random documents are built twice from the same draws. They have references at random places, alone, in texts
and inside operators. Some of their paths lead nowhere, so that some of the documents have problems.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import count
from orchestrator.application.errors import ExpressionError, InvalidSpec, Problem
from orchestrator.application.expressions.evaluation import evaluate, find_references
from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import load_spec
from orchestrator.application.spec.yaml_writer import render_yaml
from orchestrator.application.values.paths import Path, parse_path

DATA = {
    "input": {"name": "Ada", "n": 5, "flag": False, "list": [1, {"x": 2}], "none": None},
    "steps": {"a": {"output": {"x": 1.5, "text": "t", "deep": {"y": [0]}}}, "b-c": {"output": {"x": "b"}}},
    "state": {"x": {"y": 7}},
}
PATHS = st.sampled_from(
    [
        *(
            "input.name",
            "input.n",
            "input.flag",
            "input.list",
            "input.list.1.x",
            "input.none",
            "input.missing",
        ),
        *("steps.a.output", "steps.a.output.x", "steps.a.output.deep.y.0", "steps.b-c.output.x", "state.x.y"),
        *("flows.a.text", "ctx.now", "kv.total", "item", "result.x", "output.x"),  # not everywhere
        *("inputs.name", "steps.aa.output.x", "steps.a.outptu", "ctx.wrong", "input.nmae"),  # nowhere
    ]
)
DEFAULTS = (
    st.none() | st.booleans() | st.integers(-99, 99) | st.sampled_from(["", "you", "it's", '"}}', "\n"])
)
TEXTS = st.sampled_from(["", "a", "Hi ", "}}", " {x} ", "ü: #", "\n"])


@dataclass(frozen=True)
class Written:
    """A value in both forms."""

    short: Any
    long: Any


def quote(default: Any) -> str:
    if not isinstance(default, str):
        return json.dumps(default)
    escaped = default.replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"


def write_reference(path: str, default: list[Any]) -> Written:
    # 0 == False: a dictionary cannot tell them apart
    text = [
        f" or {quote(one) if not isinstance(one, int) or isinstance(one, bool) else one}" for one in default
    ]
    return Written(f"{{{{ {path}{''.join(text)} }}}}", {"var": [path, *default] if default else path})


REFERENCES = st.builds(write_reference, PATHS, st.just([]) | DEFAULTS.map(lambda one: [one]))


def join_parts(parts: list[Written | str]) -> Written:
    """A text of several parts. Plain texts side by side are one part."""
    merged: list[Any] = []
    for part in parts:
        if isinstance(part, Written):
            merged.append(part.long)
        elif merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part:
            merged.append(part)
    short = "".join(part.short if isinstance(part, Written) else part for part in parts)
    return Written(short, merged[0] if len(merged) == 1 else {"cat": merged})


MIXED = st.tuples(TEXTS, REFERENCES, st.lists(TEXTS | REFERENCES, max_size=3)).map(
    lambda drawn: join_parts([drawn[0], drawn[1], *drawn[2]])
)
PLAIN = (st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["a", "}}"])).map(
    lambda value: Written(value, value)
)


def write_list(items: list[Written]) -> Written:
    return Written([item.short for item in items], [item.long for item in items])


def write_mapping(items: dict[str, Written]) -> Written:
    return Written(
        {key: item.short for key, item in items.items()}, {key: item.long for key, item in items.items()}
    )


def write_operation(operator: str, items: list[Written]) -> Written:
    return Written({operator: [one.short for one in items]}, {operator: [one.long for one in items]})


def nest(inner: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    pairs = st.lists(inner, min_size=2, max_size=2)
    return st.one_of(
        st.lists(inner, max_size=3).map(write_list),
        st.dictionaries(st.sampled_from(["p", "q", "max"]), inner, min_size=2, max_size=2).map(write_mapping),
        st.builds(
            write_operation, st.sampled_from(["==", "and", "cat", "merge", "if", "any.default"]), pairs
        ),
        st.builds(write_operation, st.sampled_from(["map", "filter", "some"]), pairs),
    )


VALUES = st.recursive(REFERENCES | MIXED | PLAIN, nest, max_leaves=6)
RULES = REFERENCES | st.builds(write_operation, st.just("=="), st.lists(VALUES, min_size=2, max_size=2))

Build = Callable[[Written], Written]


def at(*keys: str) -> Build:
    """Put a value at a place inside a step."""

    def build(value: Written) -> Written:
        for key in reversed(keys):
            value = write_mapping({key: value})
        return value

    return build


def beside(key: str, **more: Any) -> Build:
    """Put a value beside others."""
    return lambda value: Written({key: value.short, **more}, {key: value.long, **more})


def inside(key: str, inner: Build) -> Build:
    return lambda value: at(key)(inner(value))


def inside_list(key: str, inner: Build) -> Build:
    return lambda value: at(key)(write_list([inner(value)]))


PLACES: dict[str, tuple[Build, st.SearchStrategy[Written]]] = {
    "input": (at("input", "x"), VALUES),
    "output": (at("output", "x"), VALUES),
    "kv_add": (at("kv_add", "x"), VALUES),
    "when": (at("when"), RULES),
    "join": (at("join"), RULES),
    "map": (at("map", "over"), RULES | st.lists(VALUES, max_size=2).map(write_list)),
    "concurrency": (inside("concurrency", beside("key", limit=1)), RULES | MIXED),
    "compensate": (inside("compensate", lambda value: beside("input", fn="g")(at("y")(value))), VALUES),
    "filters": (inside("filters", inside_list("filters", at("expression"))), RULES),
    "branch": (inside_list("branch", beside("condition", action="complete")), RULES),
    "result_expr": (inside_list("branch", beside("result_expr", condition=True, action="halt")), VALUES),
}


@st.composite
def documents(draw: st.DrawFn) -> Written:
    step = Written({"id": "s", "fn": "f"}, {"id": "s", "fn": "f"})
    for build, values in draw(st.lists(st.sampled_from([*PLACES.values()]), max_size=4)):
        value = build(draw(values))
        step = Written({**step.short, **value.short}, {**step.long, **value.long})
    outputs = write_mapping({"x": draw(VALUES)})
    first = [{"id": "a", "fn": "f"}, {"id": "b-c", "fn": "f", "output": {"x": 1}}]
    head = {"inputs": {"name": {}, "n": {}, "list": {}}, "steps": first}
    return Written(
        {**head, "steps": [*first, step.short], "outputs": outputs.short},
        {**head, "steps": [*first, step.long], "outputs": outputs.long},
    )


def load(document: dict[str, Any]) -> tuple[LoadedSpec | None, tuple[Problem, ...]]:
    try:
        loaded = load_spec(render_yaml(document))
    except InvalidSpec as invalid:
        return None, invalid.problems
    return loaded, loaded.warnings


def place_of(problem: Problem, short: dict[str, Any]) -> Path:
    """The path of a problem, as far as it leads in the document with short references."""
    path = parse_path(problem.path, short)
    value: Any = short
    for depth, segment in enumerate(path):
        if isinstance(value, str):
            return path[:depth]
        value = value[segment]
    return path


@pytest.mark.untraced
@settings(max_examples=count(200, 5_000))
@given(documents())
def test_both_forms_have_the_same_spec_and_the_same_problems(document: Written) -> None:
    short, short_problems = load(document.short)
    long, long_problems = load(document.long)

    assert [one.code for one in short_problems] == [one.code for one in long_problems]
    for found, expected in zip(short_problems, long_problems, strict=True):
        place = place_of(expected, document.short)
        assert place_of(found, document.short) == place
        source_map = read_document(render_yaml(document.short)).source_map
        assert (found.line, found.column) == source_map.find(place)
    if short is not None and long is not None:
        assert (short.spec, short.graph) == (long.spec, long.graph)


@pytest.mark.untraced
@settings(max_examples=count(200, 5_000))
@given(VALUES)
def test_both_forms_have_the_same_value_and_read_the_same_steps(value: Written) -> None:
    document = {"steps": [{"id": "s", "fn": "f", "input": {"x": value.short}}]}
    try:
        expanded = load_spec(render_yaml({**document, "x-free": 1})).spec.steps[0].input["x"]
    except InvalidSpec:
        return  # the other property compares the problems

    assert outcome_of(expanded) == outcome_of(value.long)
    assert list(find_references(expanded)) == list(find_references(value.long))


def outcome_of(rule: Any) -> Any:
    try:
        return evaluate(rule, DATA)
    except ExpressionError as error:
        return str(error)
