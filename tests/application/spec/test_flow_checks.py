"""Warnings that are proved from the document: what never runs, never ends or is never called, and gaps."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.spec.case_values import find_values
from orchestrator.application.spec.reachability import constant_truth
from orchestrator.application.spec.validation import check_spec, load_spec


def warnings_of(text: str) -> list[tuple[str, str, str]]:
    return [(one.path, one.code, one.message) for one in load_spec(text).warnings]


def codes_of(text: str) -> list[str]:
    return [one.code for one in load_spec(text).warnings]


# Steps that never run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "path", "message"),
    [
        (
            "{op: a, when: false}",
            "steps[0].when",
            "step 'a' can never run: its condition is always false",
        ),
        (
            "{op: a, filters: {operator: OR, filters: []}}",
            "steps[0].filters",
            "step 'a' can never run: its condition is always false",
        ),
        (
            "{op: a, when: {and: [{var: input.x}, 0]}}, {op: b, depends_on: [a]}, {op: c, depends_on: [b]}",
            "steps[0].when",
            "step 'a' can never run: its condition is always false; nor can 'b', 'c'",
        ),
        (
            "{op: a, branch: [{condition: true, action: halt}]}, {op: b, depends_on: [a]}",
            "steps[1].depends_on[0]",
            "step 'b' can never run: the branches of step 'a' always halt the workflow: a -> b",
        ),
        (
            "{op: a, branch: [{condition: 1, action: fail}]}, {op: c}, {op: b, depends_on: [c, a]}",
            "steps[2].depends_on[1]",
            "step 'b' can never run: the branches of step 'a' always fail it: a -> b",
        ),
        (
            "{op: a, branch: [{condition: {var: x}, action: retry}, {condition: true, action: skip}]},"
            " {op: b, input: {x: {var: steps.a.output.x}}}",
            "steps[1]",
            "step 'b' can never run: the branches of step 'a' always fail it or skip it: a -> b",
        ),
        (
            "{op: a, branch: [{condition: true, action: skip}]}, {op: b},"
            " {op: c, depends_on: [a, b], join: 2}",
            "steps[2].depends_on[0]",
            "step 'c' can never run: its join needs 2 steps to complete, and the branches of step 'a' always"
            " skip it: a -> c",
        ),
        (
            "{op: a, branch: [{condition: true, action: skip}]}, {op: c, depends_on: [a], join: any}",
            "steps[1].depends_on[0]",
            "step 'c' can never run: the branches of step 'a' always skip it: a -> c",
        ),
        (
            "{id: s, switch: {on: {'!': {var: input.x}}, cases: {'true': [a], 'yes': [b]}, default: []}},"
            " {op: a}, {op: b}",
            "steps[2]",
            "step 'b' can never run: switch 's' never selects it",
        ),
    ],
)
def test_a_step_that_can_never_run_is_found(steps: str, path: str, message: str) -> None:
    assert warnings_of(f"steps: [{steps}]") == [(path, "never_runs", message)]


@pytest.mark.parametrize(
    "steps",
    [
        "{op: a, when: {var: input.x}}, {op: b, depends_on: [a]}",
        "{op: a, when: true}",
        "{op: a, when: {or: [{var: input.x}, false]}}",
        "{op: a, branch: [{condition: {var: x}, action: halt}]}, {op: b, depends_on: [a]}",
        "{op: a, branch: [{condition: false, action: halt}]}, {op: b, depends_on: [a]}",
        "{op: a, branch: [{condition: {var: x}, action: complete}, {condition: true, action: fail}]},"
        " {op: b, depends_on: [a]}",
        "{op: a, on_error: continue, branch: [{condition: true, action: fail}]}, {op: b, depends_on: [a]}",
        "{op: a, branch: [{condition: true, action: fail}]}, {op: b, depends_on: [a], on_error: continue}",
        "{op: a, branch: [{condition: true, action: skip}]}, {op: b, depends_on: [a], join: done}",
        "{op: a, branch: [{condition: true, action: skip}]}, {op: c}, {op: b, depends_on: [a, c], join: any}",
        "{op: a, branch: [{condition: true, action: skip}]}, {op: c}, {op: b, depends_on: [a, c], join: 1}",
        "{op: a, branch: [{condition: true, action: skip}]},"
        " {op: b, depends_on: [a], join: {'==': [{var: ctx.status.a}, skipped]}}",
        "{op: a, when: {var: input.x}, branch: [{condition: true, action: skip}]}, {op: c},"
        " {op: b, depends_on: [a, c]}",
        "{id: s, switch: {on: {var: input.x}, cases: {a: [a], b: [b]}}}, {op: a}, {op: b}",
        "{id: s, on_error: continue, switch: {on: {'!': {var: input.x}}, cases: {'yes': [b]}, default: []}},"
        " {op: b}",
        "{id: s, switch: {on: {'!': {var: input.x}}, cases: {'true': []}, default: [b]}}, {op: b}",
        "{id: s, switch: {on: {'!': {var: input.x}}, cases: {'null': [b]}, default: []}}, {op: b}",
    ],
)
def test_a_step_that_may_run_is_not_found(steps: str) -> None:
    assert warnings_of(f"steps: [{steps}]") == []


def test_a_step_beside_one_that_never_runs_may_run() -> None:
    text = "steps: [{op: a, when: false}, {op: b}, {op: c, depends_on: [a, b]}]"

    assert [path for path, _, _ in warnings_of(text)] == ["steps[0].when"]


@pytest.mark.untraced
def test_many_steps_that_never_run_are_one_warning() -> None:
    steps: list[dict[str, Any]] = [{"op": "s0", "when": False}]
    steps += [{"op": f"s{n}", "depends_on": [f"s{n - 1}"]} for n in range(1, 10_000)]

    [warning] = check_spec({"steps": steps}).warnings

    assert warning.message.endswith("; nor can 's1', 's2', 's3', 's4', 's5', 's6' and 9993 more")


def test_steps_that_the_same_step_keeps_from_running_are_one_warning() -> None:
    [(path, _, message)] = warnings_of("""
steps:
  - {op: a, branch: [{condition: true, action: halt}]}
  - {op: b, depends_on: [a]}
  - {op: c, depends_on: [a]}
  - {op: d, depends_on: [c]}
""")

    assert path == "steps[1].depends_on[0]"
    assert message.endswith(": a -> b; nor can 'c', 'd'")


@pytest.mark.parametrize(
    ("rule", "truth"),
    [
        (True, True),
        (0, False),
        (None, False),
        ({"!": [False]}, True),
        ({"!": 1}, False),
        ({"!!": 1}, True),
        ({"!": {"var": "x"}}, None),
        ({"!": [1, 2]}, None),
        ({"and": [1, {"var": "x"}]}, None),
        ({"and": [0, {"var": "x"}]}, False),
        ({"and": [1, True]}, True),
        ({"or": [0, {"!!": 3}]}, True),
        ({"or": [0, False]}, False),
        ({"or": []}, None),
        ({"==": [1, 1]}, None),
        ({"a": 1, "b": 2}, None),
        ("text", None),
    ],
)
def test_a_condition_that_is_constant_is_known(rule: Any, truth: bool | None) -> None:
    assert constant_truth(rule) is truth


# Switches --------------------------------------------------------------------------------------------------

VALUES = """
inputs:
  sure: {type: boolean, required: true}
  usual: {type: boolean, default: true}
  maybe: {type: boolean}
  text: {type: string}
steps:
  - id: w
    wait: {any: [{signal: accept}, {signal: decline}, {timeout: 1h}]}
  - {id: v, wait: {any: [{signal: go}]}}
  - {id: plain, wait: {signal: go, timeout: 1h}}
  - {id: mapped, wait: {any: [{signal: go}, {timeout: 1h}]}, output: {event: {var: result.event}}}
  - {id: s, switch: {on: {var: input.text}, cases: {a: [], b: []}}}
  - {id: open, switch: {on: {var: input.text}, cases: {a: []}, default: []}}
  - {id: t, fn: f}
"""


@pytest.mark.parametrize(
    ("on", "values"),
    [
        ({"var": "input.sure"}, {"true", "false"}),
        ({"var": "input.usual"}, {"true", "false"}),
        ({"var": "input.maybe"}, {"true", "false", "null"}),
        ({"var": ["input.maybe", False]}, {"true", "false"}),
        ({"var": ["input.maybe", "none"]}, {"true", "false", "none"}),
        ({"var": ["input.maybe", {"var": "input.text"}]}, None),
        ({"var": "input.text"}, None),
        ({"var": "input.other"}, None),
        ({"var": "state.x"}, None),
        ({"var": []}, None),
        ({"<": [{"var": "input.text"}, 3]}, {"true", "false"}),
        ({"if": [{"var": "input.sure"}, "a", {"var": "input.usual"}, 2, "c"]}, {"a", "2", "c"}),
        ({"if": [{"var": "input.sure"}, "a"]}, {"a", "null"}),
        ({"?:": [{"var": "input.sure"}, {"var": "input.text"}, "c"]}, None),
        ({"if": [{"var": "input.sure"}, 1.5, "c"]}, None),
        ({"if": [{"var": "input.sure"}, ["a"], "c"]}, None),
        ({"if": [{"var": "input.sure"}, {"a": 1}, "c"]}, None),
        ({"cat": ["a"]}, None),
        ({"var": "steps.w.output.event"}, {"accept", "decline", "timeout"}),
        ({"var": "flows.w.event"}, {"accept", "decline", "timeout"}),
        ({"var": "steps.v.output.event"}, {"go"}),
        ({"var": "steps.w.output.by"}, None),
        ({"var": "steps.w.output"}, None),
        ({"var": "steps.nowhere.output.x"}, None),
        ({"var": "steps.plain.output.event"}, None),
        ({"var": "steps.mapped.output.event"}, None),
        ({"var": "steps.s.output.branch"}, {"a", "b"}),
        ({"var": "steps.open.output.branch"}, None),
        ({"var": "steps.t.output.x"}, None),
    ],
)
def test_the_values_that_a_switch_can_have(on: Any, values: set[str] | None) -> None:
    assert find_values(on, load_spec(VALUES)) == values


def test_many_values_are_not_followed() -> None:
    cases: dict[str, list[str]] = {f"k{n}": [] for n in range(101)}
    first = {"id": "s", "switch": {"on": {"var": "input.x"}, "cases": cases}}

    assert find_values({"var": "steps.s.output.branch"}, check_spec({"steps": [first]})) is None


def test_values_that_a_branch_replaces_are_not_followed() -> None:
    branch = {"condition": True, "action": "complete", "result_expr": {"branch": "other"}}
    first = {"id": "s", "switch": {"on": {"var": "input.x"}, "cases": {"a": []}}, "branch": [branch]}

    assert find_values({"var": "steps.s.output.branch"}, check_spec({"steps": [first]})) is None


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "switch: {on: {var: input.maybe}, cases: {'true': []}}",
            "no case for 'false', 'null', and no default: the step fails then",
        ),
        (
            "switch: {on: {var: steps.w.output.event}, cases: {accept: [], timeout: []}}",
            "no case for 'decline', and no default: the step fails then",
        ),
    ],
)
def test_a_switch_that_does_not_cover_what_is_declared_is_found(step: str, message: str) -> None:
    text = f"timeout: 1d{VALUES}  - {{id: x, {step}}}"

    assert warnings_of(text) == [("steps[7].switch.cases", "uncovered_case", message)]


@pytest.mark.parametrize(
    "step",
    [
        "switch: {on: {var: input.maybe}, cases: {'true': []}, default: []}",
        "switch: {on: {var: input.sure}, cases: {'true': [], 'false': []}}",
        "switch: {on: {var: input.text}, cases: {a: []}}",
    ],
)
def test_a_switch_that_covers_what_is_declared_is_not_found(step: str) -> None:
    assert warnings_of(f"timeout: 1d{VALUES}  - {{id: x, {step}}}") == []


# Waits -----------------------------------------------------------------------------------------------------


def test_a_wait_that_no_timeout_ends_is_found() -> None:
    text = "steps: [{id: a, wait: {signal: go}}, {id: b, wait: {any: [{signal: x}, {signal: y}]}}]"

    assert warnings_of(text) == [
        ("steps[0].wait", "endless_wait", "no timeout ends the wait for 'go'"),
        ("steps[1].wait", "endless_wait", "no timeout ends the wait for 'x', 'y'"),
    ]
    assert [one.hint for one in load_spec(text).warnings] == [
        "write wait.timeout, or timeout: none; or give the workflow a timeout",
        "add {timeout: ...} to any; or give the workflow a timeout",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "steps: [{id: a, wait: {signal: go, timeout: 1h}}]",
        "steps: [{id: a, wait: {signal: go, timeout: none}}]",
        "steps: [{id: a, wait: {any: [{signal: go}, {timeout: 1h}]}}]",
        "timeout: 1h\nsteps: [{id: a, wait: {signal: go}}]",
        "timeout: none\nsteps: [{id: a, wait: {signal: go}}]",
        "timeout: 1h\nsteps: [{id: c, workflow: {steps: [{id: a, wait: {signal: go}}]}}]",
        "steps: [{id: c, timeout: 1h, workflow: {steps: [{id: a, wait: {signal: go}}]}}]",
        "steps: [{id: c, workflow: {timeout: 1h, steps: [{id: a, wait: {signal: go}}]}}]",
    ],
)
def test_a_wait_that_a_timeout_ends_or_that_is_meant_to_last_is_not_found(text: str) -> None:
    assert warnings_of(text) == []


def test_a_wait_of_a_child_is_found_where_it_is() -> None:
    text = "flow: [{id: c, workflow: {steps: [{id: a, wait: {signal: go}}]}}]"

    assert [path for path, _, _ in warnings_of(text)] == ["flow[0].workflow.steps[0].wait"]


# Loops -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("branches", "path", "message"),
    [
        (
            "{condition: true, action: {set: a}}, {condition: true, action: complete}",
            "steps[0].branch",
            "step 'a' is set back in every round: no other branch can be taken",
        ),
        (
            "{condition: {var: x}, action: {set: a}}, {condition: false, action: halt},"
            " {condition: 1, action: {set: a}}",
            "steps[0].branch",
            "step 'a' is set back in every round: no other branch can be taken",
        ),
        (
            "{condition: {'<': [{var: input.n}, 3]}, action: {set: a}}, {condition: true, action: complete}",
            "steps[0].branch[0].condition",
            "once step 'a' is set back, it is set back in every round: this condition and those before it"
            " read inputs only, which never change",
        ),
        (
            "{condition: {var: [input.x, 1]}, action: halt}, {condition: {var: input.n}, action: {set: a}}",
            "steps[0].branch[1].condition",
            "once step 'a' is set back, it is set back in every round: this condition and those before it"
            " read inputs only, which never change",
        ),
    ],
)
def test_a_loop_without_a_reachable_exit_is_found(branches: str, path: str, message: str) -> None:
    assert warnings_of(f"steps: [{{op: a, branch: [{branches}]}}]") == [(path, "endless_loop", message)]


@pytest.mark.parametrize(
    "branches",
    [
        "{condition: {var: x}, action: {set: a}}, {condition: true, action: complete}",
        "{condition: {var: x}, action: halt}, {condition: true, action: {set: a}}",
        "{condition: {var: x}, action: halt}, {condition: {var: input.n}, action: {set: a}}",
        "{condition: {var: x}, action: {set: a}}, {condition: false, action: halt}",
        "{condition: false, action: {set: a}}, {condition: true, action: complete}",
        "{condition: {in: [{var: state.n}, {var: input.n}]}, action: {set: a}}, {condition: 1, action: halt}",
        "{condition: {in: [{time.now: []}, {var: input.n}]}, action: {set: a}}, {condition: 1, action: halt}",
        "{condition: {some: [{var: input.n}, {var: x}]}, action: {set: a}}, {condition: 1, action: halt}",
        "{condition: {var: {var: input.n}}, action: {set: a}}, {condition: 1, action: halt}",
        "{condition: {'==': [[{var: n}], 1]}, action: {set: a}}, {condition: 1, action: halt}",
        "{condition: {var: input.n}, action: halt}",
    ],
)
def test_a_loop_with_an_exit_is_not_found(branches: str) -> None:
    assert warnings_of(f"steps: [{{op: a, branch: [{branches}]}}]") == []


# Compensations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "path", "why"),
    [
        (
            "{op: a, compensate: {fn: u}, branch: [{condition: true, action: halt}]}, {op: b}",
            "steps[0].compensate",
            "the branches of step 'a' always halt the workflow",
        ),
        (
            "{op: a, compensate: {fn: u}}",
            "steps[0].compensate",
            "the workflow is complete when step 'a' is, because it waits for all others",
        ),
        (
            "{op: a}, {op: b}, {op: c, depends_on: [a, b], compensate: {fn: u}}",
            "steps[2].compensate",
            "the workflow is complete when step 'c' is, because it waits for all others",
        ),
    ],
)
def test_a_compensation_that_can_never_be_called_is_found(steps: str, path: str, why: str) -> None:
    [(where, code, message)] = warnings_of(f"steps: [{steps}]\noutputs: {{done: true}}")

    assert (where, code) == (path, "never_compensates")
    assert message.partition(": ")[2] == why


@pytest.mark.parametrize(
    "text",
    [
        "steps: [{op: a, compensate: {fn: u}}, {op: b}]",
        "steps: [{op: a, compensate: {fn: u}}, {op: b, depends_on: [a]}]",
        "steps: [{op: a, compensate: {fn: u}}]\noutputs: {x: {'+': [{var: state.x}, 1]}}",
        "steps: [{op: a, on_error: continue}, {op: b, depends_on: [a], compensate: {fn: u}}]",
        "steps: [{op: a}, {op: b, depends_on: [a], join: any, compensate: {fn: u}}]",
        "steps: [{id: s, switch: {on: {var: input.x}, cases: {a: [a]}}}, {op: a, compensate: {fn: u}}]",
    ],
)
def test_a_compensation_that_may_be_called_is_not_found(text: str) -> None:
    assert warnings_of(text) == []


def test_the_compensation_of_a_step_that_never_runs_is_not_told_twice() -> None:
    assert codes_of("steps: [{op: a, when: false, compensate: {fn: u}}, {op: b}]") == ["never_runs"]
