"""What one step means for the next: the rules on dependencies and failures.

Nothing here reads more than two steps and their specs, so every process gives the same answer.
"""

from __future__ import annotations

from enum import Enum

from orchestrator.application.draft import Draft
from orchestrator.application.record import StepRecord, StepStatus
from orchestrator.application.spec import StepSpec


class Edge(Enum):
    OK = "the parent allows the step to run"
    WAIT = "the parent is not final"
    SOFT = "the parent's path was not taken"
    SKIP = "the parent keeps the step from running"


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


def skip_dead_ends(draft: Draft) -> None:
    """Skip, transitively, what a skipped or failed parent keeps from running."""
    while draft.dead_ends:
        parent, child = draft.dead_ends.pop()
        if draft.step(child).status is StepStatus.READY:
            found = edge(draft.step(parent), draft.spec(parent), draft.spec(child))
            if found is Edge.SKIP:
                verb = "failed" if draft.step(parent).error is not None else "skipped"
                reason = f"parent {parent} {verb}"
                draft.move(child, StepStatus.SKIPPED, reason=reason, ended_at=draft.moment.iso)


def failure_stops(draft: Draft, step_id: str) -> bool:
    """Whether the failure of this step, for good, fails the whole workflow at once."""
    spec = draft.spec(step_id)
    if spec.on_error != "fail":
        return False
    asked = [child for child in draft.graph.children[step_id] if not draft.step(child).is_final]
    if spec.on_error_written or not asked:
        return True
    # A dependent that wrote skip or continue speaks for itself; any other leaves it to this step's fail.
    return any(not _has_own_answer(draft.spec(child)) for child in asked)


def _has_own_answer(spec: StepSpec) -> bool:
    return spec.on_error_written and spec.on_error != "fail"
