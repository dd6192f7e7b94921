"""Steps as StepSpec objects in one line each, and specs made of them without a document.

loaded_of(task("a", retry=RetrySpec()), delay("b", 500, after="a"), map_step("c", {"var": "input.xs"}))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from orchestrator.application.spec.graph_builder import build_graph
from orchestrator.application.spec.model import (
    BranchSpec,
    ChildSpec,
    CompensateSpec,
    ConcurrencySpec,
    LoadedSpec,
    MapSpec,
    StepSpec,
    SwitchSpec,
    WaitSpec,
    WorkflowSpec,
    workflow_id,
)
from worlds.documents import Json

BROKEN: Any = {"+": ["no number", 1]}  # an expression that always fails

_names = count(1)


def task(name: str, after: str | Sequence[str] = (), **keys: Any) -> StepSpec:
    """A step with an executor; an `on_error` that is given counts as written."""
    return _step(name, after, {"fn": name, **keys})


def switch(
    name: str,
    on: Any,
    cases: Mapping[str, str] | None = None,
    default: str | None = None,
    after: str | Sequence[str] = (),
    **keys: Any,
) -> StepSpec:
    """A switch; steps are listed as "x y". The listed ones must name it as their parent themselves."""
    listed = {key: tuple(ids.split()) for key, ids in (cases or {}).items()}
    spec = SwitchSpec(on, listed, None if default is None else tuple(default.split()))
    return _step(name, after, {"fn": "", "kind": "switch", "switch": spec, "timeout_s": None, **keys})


def delay(name: str, ms: int, after: str | Sequence[str] = (), **keys: Any) -> StepSpec:
    return _step(name, after, {"fn": "", "kind": "delay", "delay_ms": ms, "timeout_s": None, **keys})


def child(name: str, after: str | Sequence[str] = (), **keys: Any) -> StepSpec:
    """A step that is a workflow of its own, registered under the name of the step."""
    keys = {"fn": "", "kind": "workflow", "child": ChildSpec(name=name), "timeout_s": None, **keys}
    return _step(name, after, keys)


def map_step(
    step_id: str,
    over: Any,
    after: str = "",
    *,
    as_: str = "item",
    max_parallel: int | None = None,
    **keys: Any,
) -> StepSpec:
    """A map whose items are given to their executors as {"v": item}, unless `input` says otherwise."""
    keys.setdefault("input", {"v": {"var": as_}})
    return task(step_id, after, map=MapSpec(over, as_, max_parallel), **keys)


def wait_step(step_id: str, *signals: str, after: str = "", **keys: Any) -> StepSpec:
    of_wait = {name: keys.pop(name) for name in ("timeout_ms", "on_timeout", "is_any") if name in keys}
    return task(step_id, after, fn="", kind="wait", wait=WaitSpec(signals, **of_wait), timeout_s=None, **keys)


def key(given: Any, limit: int = 1) -> dict[str, Any]:
    """The concurrency key of a step or a workflow, as keyword arguments."""
    return {"concurrency": ConcurrencySpec(given, limit)}


def undo(fn: str = "undo", input: Json | None = None, **keys: Any) -> dict[str, Any]:
    """The compensation of a step, as keyword arguments."""
    return {"compensate": CompensateSpec(fn, input or {}, **keys)}


def branch(condition: Any, action: Any, **keys: Any) -> BranchSpec:
    """A branch; `{"set": targets}` as in a document."""
    if isinstance(action, dict):
        return BranchSpec(condition, "set", targets=action["set"], **keys)
    return BranchSpec(condition, action, has_result_expr="result_expr" in keys, **keys)


def resets(condition: Any, *targets: str) -> BranchSpec:
    return branch(condition, {"set": list(targets)})


def loaded_of(*steps: StepSpec, **workflow: Any) -> LoadedSpec:
    """A checked spec of these steps. Its document has a name of its own, and therefore a workflow_id."""
    document: Json = {"name": f"made-{next(_names)}", "steps": []}
    return replace(nameless(*steps, **workflow), document=document, workflow_id=workflow_id(document))


def nameless(*steps: StepSpec, **workflow: Any) -> LoadedSpec:
    """The same, always with the workflow_id `w1`."""
    graph, faults = build_graph(steps)
    assert not faults, faults
    return LoadedSpec(WorkflowSpec(steps=steps, **workflow), graph, {"steps": []}, "w1")


def _step(name: str, after: str | Sequence[str], keys: Json) -> StepSpec:
    parents = tuple(after.split()) if isinstance(after, str) else tuple(after)
    written = {"has_own_on_error": True} if "on_error" in keys else {}
    return StepSpec(id=name, depends_on=parents, **{**written, **keys})
