"""What an executor is called with follows from the names of its parameters, and from nothing else."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.values.trace_context import context_of_attempt
from orchestrator.backend import InProcessRunner
from orchestrator.backend.backend import Backend
from orchestrator.invocation.parameters import (
    OFFERED_PARAMETERS,
    Heartbeat,
    build_context,
    find_requested_parameters,
)
from orchestrator.local import InProcessWorker
from orchestrator.local.workflow import Workflow

Json = dict[str, Any]


def plain(inputs: Any) -> Any: ...
def first(context: Any) -> Any: ...
def some_of_them(inputs: Any, context: Any, *, heartbeat: Any, configuration: Any = None) -> Any: ...
def all_of_them(
    inputs: Any, context: Any, log: Any, cancelled: Any, evaluate: Any, *, heartbeat: Any, configuration: Any
) -> Any: ...
def only_by_position(inputs: Any, heartbeat: Any = None, /) -> Any: ...
def anything(*args: Any, **kwargs: Any) -> Any: ...
def behind_a_star(*args: Any, context: Any) -> Any: ...
def for_all_names(fn: str, inputs: Any, heartbeat: Any) -> Any: ...


class Method:
    def run(self, inputs: Any, heartbeat: Any) -> Any: ...


class Instance:
    def __call__(self, inputs: Any, context: Any) -> Any: ...


class Unhashable(Instance):
    def __eq__(self, other: object) -> bool:
        return self is other


def passing_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def keeping_back(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(inputs: Any) -> Any:
        return function(inputs, context=None, heartbeat=None)

    return wrapper


@pytest.mark.parametrize(
    ("executor", "named"),
    [
        (plain, set()),
        (first, set()),
        (all_of_them, OFFERED_PARAMETERS),
        (only_by_position, set()),
        (anything, set()),
        (behind_a_star, {"context"}),
        (Method().run, {"heartbeat"}),
        (Instance(), {"context"}),
        (Unhashable(), {"context"}),
        (functools.partial(for_all_names, "fetch"), {"heartbeat"}),
        (functools.partial(some_of_them, configuration={"url": "u"}), {"heartbeat", "context"}),
        (passing_on(all_of_them), OFFERED_PARAMETERS),
        (keeping_back(some_of_them), set()),
        (len, set()),
        (dict, set()),  # it tells nothing of itself
    ],
)
def test_an_executor_gets_what_it_names_besides_its_inputs(
    executor: Callable[..., Any], named: set[str]
) -> None:
    assert find_requested_parameters(executor, 1) == named
    assert find_requested_parameters(executor, 1) == named, "and again, when it is remembered"


def test_an_executor_for_all_names_has_two_arguments_by_position() -> None:
    assert find_requested_parameters(for_all_names, 2) == {"heartbeat"}
    assert find_requested_parameters(lambda context, heartbeat: None, 2) == set()


def test_a_heartbeat_notes_its_time_and_passes_its_text_on() -> None:
    times, told = iter([1.0, 2.0, 3.0, 4.0]), list[str]()
    heartbeat = Heartbeat(lambda: next(times), told.append)
    assert heartbeat.at == 1.0

    heartbeat()
    heartbeat(0.5)
    heartbeat(progress=0.75, note="page 3")

    assert heartbeat.at == 4.0
    assert told == ["0.5", "0.75: page 3"]


def test_a_heartbeat_needs_no_listener() -> None:
    heartbeat = Heartbeat(lambda: 7.0)

    heartbeat(note="still here")

    assert heartbeat.at == 7.0


def test_the_context_of_a_step_and_of_an_item() -> None:
    keys: Json = {"run_id": 3, "attempt": 2, "round": 1, "idempotency_key": "e1#a#1", "deadline": None}

    step = build_context("w#e1", "a", iteration=None, **keys)
    item = build_context("w#e1", "a#12", iteration=4, **keys)

    assert step == {"execution_id": "e1", "workflow_execution_id": "w#e1", "step": "a", "item": None} | {
        "iteration": None,
        "traceparent": str(context_of_attempt("w#e1", "a", 3, 2)),
        **keys,
    }
    assert (item["step"], item["item"], item["iteration"]) == ("a", 12, 4)


# ---- in one process


def seen_by(execute: Any, **keys: Any) -> Any:
    """What an executor in this process returns for a job."""
    runner = InProcessRunner()
    runner.dispatch("w#e1", [DispatchJob("w#e1", "a", "a", {"x": 1}, 0, token="t", **keys)])
    InProcessWorker(runner, execute, clock=lambda: 1_767_225_600_000).run()
    [result] = runner.results("w#e1")
    assert result.error is None, result.error
    return result.output


def test_in_one_process_an_executor_gets_what_it_names_too() -> None:
    def a(inputs: Json, context: Json, configuration: Json, heartbeat: Heartbeat) -> Json:
        heartbeat(0.5)
        return {"inputs": inputs, "configuration": configuration, "context": context, "at": heartbeat.at}

    found = seen_by({"a": a}, timeout_s=2.5, attempt=3)

    assert (found["inputs"], found["configuration"], found["at"]) == ({"x": 1}, {}, 1_767_225_600_000)
    assert found["context"] == build_context(
        "w#e1",
        "a",
        run_id=0,
        attempt=3,
        round=0,
        iteration=None,
        idempotency_key="e1#a#0",
        deadline="2026-01-01T00:00:02.500Z",
    )


def test_in_one_process_one_function_for_all_names_may_name_more() -> None:
    def execute(fn: str, inputs: Json, context: Json) -> Json:
        return {"fn": fn, **inputs, "deadline": context["deadline"]}

    assert seen_by(execute) == {"fn": "a", "x": 1, "deadline": None}


def test_every_item_and_every_round_of_a_loop_has_a_context_of_its_own() -> None:
    seen: list[Json] = []

    def count(inputs: Json, context: Json) -> Json:
        seen.append(context)
        return {"_loop": "done" if context["iteration"] else "again", "value": {}}

    document = {"steps": [{"op": "count", "map": {"over": [1, 2]}, "loop": {}}]}
    workflow = Workflow.from_dict(document, Backend({"count": count}))
    workflow.run()

    assert {(one["item"], one["iteration"]) for one in seen} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert len({one["idempotency_key"] for one in seen}) == 4


@pytest.mark.parametrize("execute", [lambda fn, inputs: {}, {"a": lambda inputs: {}}])
def test_in_one_process_an_executor_that_cannot_report_fails_too(execute: Any) -> None:
    document = {"steps": [{"op": "a", "heartbeat": "1500ms"}]}
    workflow = Workflow.from_dict(document, Backend(execute))

    workflow.run()

    assert workflow.error is not None
    assert (workflow.error["kind"], workflow.error["type"]) == ("exception", "HeartbeatMissing")
    assert "a heartbeat of 1.5 s" in workflow.error["message"]
