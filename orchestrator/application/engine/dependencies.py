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


class Edge(Enum):
    OK = "the parent allows the step to run"
    WAIT = "the parent is not final"
    SOFT = "the parent's path was not taken"
    SKIP = "the parent keeps the step from running"


class Join(Enum):
    GO = "the step may run"
    LEAVE = "it is too early to say"
    FILTER = "no path to the step was taken"
    SKIP = "the step can never run"


def edge(parent: StepRecord, parent_spec: StepSpec, child_spec: StepSpec) -> Edge:
    match parent.status:
        case StepStatus.COMPLETE:
            return Edge.OK
        case StepStatus.FILTERED:
            return Edge.SOFT
        case StepStatus.FAILED:
            return _after_failure(parent_spec, child_spec)
        case StepStatus.SKIPPED:
            return Edge.SKIP if parent.error is None else _after_failure(parent_spec, child_spec)
    return Edge.WAIT


def _after_failure(parent: StepSpec, child: StepSpec) -> Edge:
    policy = child.on_error if child.on_error_written and child.on_error != "fail" else parent.on_error
    return Edge.OK if policy == "continue" else Edge.SKIP


def join(draft: Draft, step_id: str) -> Join:
    """What all parents together say; an ExpressionError when the join is one and cannot be evaluated."""
    spec = draft.specs[step_id]
    seen = [edge(draft.step(one), draft.specs[one], spec) for one in draft.graph.parents[step_id]]
    if isinstance(spec.join, int):
        return _at_least(spec.join, seen)
    if isinstance(spec.join, dict):
        if evaluate(spec.join, draft.context(step_id)):
            return Join.GO
        return Join.LEAVE if Edge.WAIT in seen else Join.SKIP
    if spec.join == "all" and Edge.SKIP in seen:
        return Join.SKIP
    if Edge.WAIT in seen:
        return Join.LEAVE
    if spec.join == "done" or not seen:
        return Join.GO
    return _at_least(1, seen)


def _at_least(wanted: int, seen: Sequence[Edge]) -> Join:
    allowing = seen.count(Edge.OK)
    if allowing >= wanted:
        return Join.GO
    if allowing + seen.count(Edge.WAIT) >= wanted:
        return Join.LEAVE
    return Join.SKIP if Edge.SKIP in seen else Join.FILTER


def skip_dead_ends(draft: Draft) -> None:
    """Skip, transitively, what a skipped or failed parent keeps from running."""
    while draft.dead_ends:
        parent, child = draft.dead_ends.pop()
        spec = draft.specs[child]
        if draft.step(child).status is StepStatus.READY and spec.join == "all":
            found = edge(draft.step(parent), draft.specs[parent], spec)
            if found is Edge.SKIP:
                skip(draft, child, parent)


def skip(draft: Draft, step_id: str, parent: str) -> None:
    verb = "failed" if draft.step(parent).error is not None else "skipped"
    draft.move(step_id, StepStatus.SKIPPED, reason=f"parent {parent} {verb}", ended_at=draft.moment.iso)


def failure_stops(draft: Draft, step_id: str) -> bool:
    """Whether the failure of this step, for good, fails the whole workflow at once."""
    spec = draft.specs[step_id]
    if spec.on_error != "fail":
        return False
    asked = [child for child in draft.graph.children[step_id] if not draft.step(child).is_final]
    if spec.on_error_written or not asked:
        return True
    # A dependent that wrote skip or continue speaks for itself; any other leaves it to this step's fail.
    return any(not _has_own_answer(draft.specs[child]) for child in asked)


def _has_own_answer(spec: StepSpec) -> bool:
    return spec.on_error_written and spec.on_error != "fail"
