"""What the branches of a step say about a fresh result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.application.engine.context import Context
from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate, is_expression, resolve
from orchestrator.application.records.events import failure
from orchestrator.application.spec.model import BranchSpec


@dataclass(frozen=True, slots=True)
class BranchResult:
    """The action of the first branch whose condition holds; an error when one could not be judged.

    The action `abort` is not in the language: a halt whose `result_expr` fails ends the whole workflow.
    """

    action: str | None = None
    result: Any = None
    targets: tuple[str, ...] = ()
    error: dict[str, Any] | None = None


NO_BRANCH = BranchResult()


def evaluate_branches(draft: Draft, step_id: str, output: Mapping[str, Any] | None) -> BranchResult:
    """Evaluate conditions in order against the record as it is before this output is written."""
    branches = draft.specs[step_id].branch
    if not branches:
        return NO_BRANCH
    context = draft.context(step_id, output)
    try:
        for branch in branches:
            if evaluate(branch.condition, context):
                return _verdict(draft, step_id, branch, context)
    except ExpressionError as error:
        return BranchResult(error=failure("expression", f"branch cannot be judged: {error}"))
    return NO_BRANCH


def _verdict(draft: Draft, step_id: str, branch: BranchSpec, context: Context) -> BranchResult:
    if branch.action == "set":
        return _set(draft, step_id, branch)
    if not branch.has_result_expr:
        return BranchResult(action=branch.action, result=branch.result)
    try:
        return BranchResult(action=branch.action, result=resolve(branch.result_expr, context))
    except ExpressionError as error:
        return BranchResult(
            action="abort", error=failure("expression", f"result_expr cannot be resolved: {error}")
        )


def _set(draft: Draft, step_id: str, branch: BranchSpec) -> BranchResult:
    """Targets are evaluated without the fresh output, as a list of ids or of `steps.<id>.status`."""
    raw = branch.targets
    if is_expression(raw):
        raw = evaluate(raw, draft.context(step_id))
    targets = []
    for one in raw if isinstance(raw, list) else [raw]:
        target = draft.graph.find_target(one) if isinstance(one, str) else None
        if target is None:
            return BranchResult(
                error=failure("branch_target", f"set names no step of this workflow: {one!r}")
            )
        targets.append(target)
    return BranchResult(action="set", targets=tuple(targets))
