"""Values in three scopes: `flow` is the state of one execution, `global` belongs to it and its children, and
`flow_group` to all executions of one group.

A document that declares `kv` may write to them by the prefix of an output key; `kv_add` adds to a number, and
is atomic beyond the execution. Whoever wrote last, in the order of commits, is who is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.changes import add_numbers

SharedScope = Literal["global", "flow_group"]


def scope_of(draft: Draft, key: str) -> tuple[str, str]:
    """The scope that a key is written to, and its name there."""
    scope, _, name = key.partition(":")
    scopes = draft.record.spec.kv_scopes or ()
    return (scope, name) if name and scope in scopes else ("flow", key)


def missing_group_problem(draft: Draft, output: Mapping[str, Any] | None) -> str | None:
    """What is wrong with an output that is for a group, of an execution that has none."""
    if not output or draft.record.spec.kv_scopes is None or draft.record.group is not None:
        return None
    wrong = next((key for key in output if scope_of(draft, key)[0] == "flow_group"), None)
    return None if wrong is None else f"{wrong!r} needs a group, and the execution was started without one"


def merge_output(draft: Draft, step_id: str, output: Mapping[str, Any]) -> None:
    """Write an output into the state, and where its keys say so beyond it."""
    if draft.record.spec.kv_scopes is None:
        draft.merge_state(step_id, output)
        return
    own: dict[str, Any] = {}
    for key, value in output.items():
        scope, name = scope_of(draft, key)
        if scope == "flow":
            own[name] = value
        else:
            draft.write_shared(cast(SharedScope, scope), name, value)
            draft.note(step=step_id, shared=key)
    if own:
        draft.merge_state(step_id, own)


def apply_kv_add(draft: Draft, step_id: str, output: Mapping[str, Any] | None) -> None:
    """Carry out `kv_add`: all of it, or an ExpressionError and nothing."""
    spec = draft.specs[step_id]
    if not spec.kv_add:
        return
    context = draft.context(step_id, output)
    sums = [(key, *_sum(draft, key, evaluate(rule, context))) for key, rule in spec.kv_add.items()]
    own = {}
    for key, amount, total in sums:
        scope, _, name = _target(key)
        if scope == "flow":
            own[name] = total
        else:
            draft.write_shared(cast(SharedScope, scope), name, total, amount)
            draft.note(step=step_id, shared=key)
    if own:
        draft.merge_state(step_id, own)


def _sum(draft: Draft, key: str, amount: Any) -> tuple[Any, Any]:
    """What is added to a key, and what that comes to as far as this decision can see."""
    scope, _, name = _target(key)
    if scope == "flow_group" and draft.record.group is None:
        raise ExpressionError(f"kv_add of {key!r} needs a group, and the execution was started without one")
    before = (draft.state if scope == "flow" else draft.shared(scope)).get(name, 0)
    for number, what in ((amount, "what is added"), (before, "the value there")):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ExpressionError(f"kv_add of {key!r}: {what} must be a number, not {type(number).__name__}")
    total = add_numbers(before, amount)
    if total is None:
        raise ExpressionError(f"kv_add of {key!r}: the sum is beyond all numbers")
    return amount, total


def _target(key: str) -> tuple[str, str, str]:
    scope, colon, name = key.partition(":")
    return (scope, colon, name) if name and scope in ("flow", "global", "flow_group") else ("flow", "", key)
