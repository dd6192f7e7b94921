"""Dependencies: the rules on edges, joins and failures between a step and its parents.

These functions read only a step, its parents and their specs, so every process reaches the same decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from orchestrator.application.engine.draft import Draft
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.model import StepSpec


class EdgeState(Enum):
    OK = "the parent allows the step to run"
    WAIT = "the parent is not final"
    SOFT = "the parent's path was not taken"
    SKIP = "the parent keeps the step from running"


class JoinState(Enum):
    RUN = "the step may run"
    WAIT = "it is too early to decide"
    FILTER = "no path to the step was taken"
    SKIP = "the step can never run"


def evaluate_edge(parent: StepRecord, parent_spec: StepSpec, child_spec: StepSpec) -> EdgeState:
    match parent.status:
        case StepStatus.COMPLETE:
            return EdgeState.OK
        case StepStatus.FILTERED:
            return EdgeState.SOFT
        case StepStatus.FAILED:
            return _after_failure(parent_spec, child_spec)
        case StepStatus.SKIPPED:
            return EdgeState.SKIP if parent.error is None else _after_failure(parent_spec, child_spec)
    return EdgeState.WAIT


def _after_failure(parent: StepSpec, child: StepSpec) -> EdgeState:
    policy = child.on_error if child.has_own_on_error and child.on_error != "fail" else parent.on_error
    return EdgeState.OK if policy == "continue" else EdgeState.SKIP


def evaluate_join(draft: Draft, step_id: str) -> JoinState:
    """Evaluate the edges from all parents together; ExpressionError when the join is an expression that
    cannot be evaluated."""
    spec, parents = draft.specs[step_id], draft.graph.parents[step_id]
    draft.turn.spent += len(parents) // 4
    edges = [evaluate_edge(draft.step(one), draft.specs[one], spec) for one in parents]
    if isinstance(spec.join, int):
        return _at_least(spec.join, edges)
    if isinstance(spec.join, dict):
        if evaluate(spec.join, draft.context(step_id), draft.turn):
            return JoinState.RUN
        return JoinState.WAIT if EdgeState.WAIT in edges else JoinState.SKIP
    if spec.join == "all" and EdgeState.SKIP in edges:
        return JoinState.SKIP
    if EdgeState.WAIT in edges:
        return JoinState.WAIT
    if spec.join == "done" or not edges:
        return JoinState.RUN
    return _at_least(1, edges)


def _at_least(required: int, edges: Sequence[EdgeState]) -> JoinState:
    ok = edges.count(EdgeState.OK)
    if ok >= required:
        return JoinState.RUN
    if ok + edges.count(EdgeState.WAIT) >= required:
        return JoinState.WAIT
    return JoinState.SKIP if EdgeState.SKIP in edges else JoinState.FILTER


def skip_dead_ends(draft: Draft) -> None:
    """Skip the steps that a skipped or failed parent keeps from running, transitively."""
    while draft.dead_ends:
        parent, child = draft.dead_ends.pop()
        spec = draft.specs[child]
        if draft.step(child).status is StepStatus.READY and spec.join == "all":
            edge = evaluate_edge(draft.step(parent), draft.specs[parent], spec)
            if edge is EdgeState.SKIP:
                skip_step(draft, child, parent)


def skip_step(draft: Draft, step_id: str, parent: str) -> None:
    verb = "failed" if draft.step(parent).error is not None else "skipped"
    draft.move(step_id, StepStatus.SKIPPED, reason=f"parent {parent} {verb}", ended_at=draft.moment.iso)


def failure_stops_workflow(draft: Draft, step_id: str) -> bool:
    """Whether the permanent failure of this step fails the whole workflow at once."""
    spec = draft.specs[step_id]
    if spec.on_error != "fail":
        return False
    open_children = [child for child in draft.graph.children[step_id] if not draft.step(child).is_final]
    if spec.has_own_on_error or not open_children:
        return True
    # A dependent with its own `skip` or `continue` tolerates the failure; any other leaves it to this step.
    return any(not _tolerates_failure(draft.specs[child]) for child in open_children)


def _tolerates_failure(spec: StepSpec) -> bool:
    return spec.has_own_on_error and spec.on_error != "fail"
