"""Branches: the conditions of a step on its own fresh result, and the action they select."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.application.engine.context import Context
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.outputs import Output, check_output
from orchestrator.application.engine.resolution import resolve_value
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate, is_expression
from orchestrator.application.records.events import make_failure
from orchestrator.application.spec.model import BranchSpec


@dataclass(frozen=True, slots=True)
class BranchResult:
    """The action of the first branch whose condition is true, or the error of one that cannot be evaluated.

    With `has_output`, the `output` replaces that of the step. The action `abort` is not part of the language:
    a halt whose `result_expr` fails ends the whole workflow.
    """

    action: str | None = None
    result: Any = None
    targets: tuple[str, ...] = ()
    error: dict[str, Any] | None = None
    output: Output = None
    has_output: bool = False


NO_BRANCH = BranchResult()
MAX_MESSAGE_CHARS = 10_000


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
        result = resolve_value(draft, branch.result_expr, context)
    except ExpressionError as error:
        failure = make_failure("expression", f"result_expr cannot be resolved: {error}")
        return BranchResult(action="abort" if branch.action == "halt" else None, error=failure)
    match branch.action:
        case "complete":
            output, problem = check_output(draft, step_id, result)
            action = "complete" if problem is None else None
            return BranchResult(action, error=problem, output=output, has_output=True)
        case "fail" | "retry" if message := _as_message(result):
            failed = {"ok": False, "error": message}
            return BranchResult(branch.action, message, output=failed, has_output=True)
    return BranchResult(action=branch.action, result=result)


def _as_message(result: Any) -> str:
    """The message of a failure: a text, or a value as JSON; "" if there is none."""
    if not result:
        return ""
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    return text[:MAX_MESSAGE_CHARS]


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
