"""What one step means for the next: the rules on dependencies, joins and failures.

Nothing here reads more than a step, its parents and their specs, so every process gives the same answer.
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
    WAIT = "it is too early to say"
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


def join(draft: Draft, step_id: str) -> JoinState:
    """What all parents together say; an ExpressionError when the join is one and cannot be evaluated."""
    spec = draft.specs[step_id]
    seen = [evaluate_edge(draft.step(one), draft.specs[one], spec) for one in draft.graph.parents[step_id]]
    if isinstance(spec.join, int):
        return _at_least(spec.join, seen)
    if isinstance(spec.join, dict):
        if evaluate(spec.join, draft.context(step_id)):
            return JoinState.RUN
        return JoinState.WAIT if EdgeState.WAIT in seen else JoinState.SKIP
    if spec.join == "all" and EdgeState.SKIP in seen:
        return JoinState.SKIP
    if EdgeState.WAIT in seen:
        return JoinState.WAIT
    if spec.join == "done" or not seen:
        return JoinState.RUN
    return _at_least(1, seen)


def _at_least(wanted: int, seen: Sequence[EdgeState]) -> JoinState:
    allowing = seen.count(EdgeState.OK)
    if allowing >= wanted:
        return JoinState.RUN
    if allowing + seen.count(EdgeState.WAIT) >= wanted:
        return JoinState.WAIT
    return JoinState.SKIP if EdgeState.SKIP in seen else JoinState.FILTER


def skip_dead_ends(draft: Draft) -> None:
    """Skip, transitively, what a skipped or failed parent keeps from running."""
    while draft.dead_ends:
        parent, child = draft.dead_ends.pop()
        spec = draft.specs[child]
        if draft.step(child).status is StepStatus.READY and spec.join == "all":
            found = evaluate_edge(draft.step(parent), draft.specs[parent], spec)
            if found is EdgeState.SKIP:
                skip_step(draft, child, parent)


def skip_step(draft: Draft, step_id: str, parent: str) -> None:
    verb = "failed" if draft.step(parent).error is not None else "skipped"
    draft.move(step_id, StepStatus.SKIPPED, reason=f"parent {parent} {verb}", ended_at=draft.moment.iso)


def failure_stops_workflow(draft: Draft, step_id: str) -> bool:
    """Whether the failure of this step, for good, fails the whole workflow at once."""
    spec = draft.specs[step_id]
    if spec.on_error != "fail":
        return False
    asked = [child for child in draft.graph.children[step_id] if not draft.step(child).is_final]
    if spec.has_own_on_error or not asked:
        return True
    # A dependent that wrote skip or continue speaks for itself; any other leaves it to this step's fail.
    return any(not _has_own_answer(draft.specs[child]) for child in asked)


def _has_own_answer(spec: StepSpec) -> bool:
    return spec.has_own_on_error and spec.on_error != "fail"
