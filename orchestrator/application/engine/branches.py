"""Branches: the conditions of a step on its own fresh result, and the action they select."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.application.engine.context import Context
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.resolution import resolve_value
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate, is_expression
from orchestrator.application.records.events import make_failure
from orchestrator.application.spec.model import BranchSpec


@dataclass(frozen=True, slots=True)
class BranchResult:
    """The action of the first branch whose condition is true, or the error of one that cannot be evaluated.

    The action `abort` is not part of the language: a halt whose `result_expr` fails ends the whole workflow.
    """

    action: str | None = None
    result: Any = None
    targets: tuple[str, ...] = ()
    error: dict[str, Any] | None = None


NO_BRANCH = BranchResult()


def evaluate_branches(draft: Draft, step_id: str, output: Mapping[str, Any] | None) -> BranchResult:
    """Evaluate the conditions in order, on the record as it is before this output is recorded."""
    branches = draft.specs[step_id].branch
    if not branches:
        return NO_BRANCH
    context = draft.context(step_id, output)
    try:
        for branch in branches:
            if evaluate(branch.condition, context, draft.turn):
                return _select(draft, step_id, branch, context)
    except ExpressionError as error:
        return BranchResult(error=make_failure("expression", f"branch cannot be evaluated: {error}"))
    return NO_BRANCH


def _select(draft: Draft, step_id: str, branch: BranchSpec, context: Context) -> BranchResult:
    if branch.action == "set":
        return _select_targets(draft, step_id, branch)
    if not branch.has_result_expr:
        return BranchResult(action=branch.action, result=branch.result)
    try:
        return BranchResult(action=branch.action, result=resolve_value(draft, branch.result_expr, context))
    except ExpressionError as error:
        message = f"result_expr cannot be resolved: {error}"
        return BranchResult(action="abort", error=make_failure("expression", message))


def _select_targets(draft: Draft, step_id: str, branch: BranchSpec) -> BranchResult:
    """The steps that a `set` resets: a list of ids or of `steps.<id>.status`, evaluated without the fresh
    output."""
    targets = branch.targets
    if is_expression(targets):
        targets = evaluate(targets, draft.context(step_id), draft.turn)
    found = []
    for one in targets if isinstance(targets, list) else [targets]:
        target = draft.graph.find_target(one) if isinstance(one, str) else None
        if target is None:
            message = f"set names no step of this workflow: {one!r}"
            return BranchResult(error=make_failure("branch_target", message))
        found.append(target)
    return BranchResult(action="set", targets=tuple(found))
