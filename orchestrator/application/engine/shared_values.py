"""Values in three scopes: `flow` is the state of one execution, `global` is shared with its children, and
`flow_group` is shared by all executions of one group.

A document that declares `kv` may write to a scope by the prefix of an output key. `kv_add` adds to a number,
atomically in the shared scopes. A read returns the value of the last write, in the order of commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, cast

from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.changes import add_numbers
from orchestrator.application.values.json_types import describe_type

SharedScope = Literal["global", "flow_group"]


def scope_of(draft: Draft, key: str) -> tuple[str, str]:
    """The scope that an output key is written to, and its name in that scope."""
    scope, _, name = key.partition(":")
    scopes = draft.record.spec.kv_scopes or ()
    return (scope, name) if name and scope in scopes else ("flow", key)


def missing_group_problem(draft: Draft, output: Mapping[str, Any] | None) -> str | None:
    """The problem of an output that writes to the group, if the execution has no group; else None."""
    if not output or draft.record.spec.kv_scopes is None or draft.record.group is not None:
        return None
    key = next((key for key in output if scope_of(draft, key)[0] == "flow_group"), None)
    return None if key is None else f"{key!r} needs a group, and the execution was started without one"


def merge_output(draft: Draft, step_id: str, output: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge an output into the state, and write the keys with a scope to that scope. Returns what was merged
    into the state."""
    if draft.record.spec.kv_scopes is None:
        draft.merge_state(step_id, output)
        return output
    state: dict[str, Any] = {}
    for key, value in output.items():
        scope, name = scope_of(draft, key)
        if scope == "flow":
            state[name] = value
        else:
            draft.write_shared(cast(SharedScope, scope), name, value)
            draft.note(step=step_id, shared=key)
    if state:
        draft.merge_state(step_id, state)
    return state


def apply_kv_add(draft: Draft, step_id: str, output: Mapping[str, Any] | None) -> None:
    """Apply the `kv_add` of a step: all of it, or nothing and an ExpressionError."""
    context, rules = draft.context(step_id, output), draft.specs[step_id].kv_add
    sums = [(key, *_add(draft, key, evaluate(rule, context, draft.turn))) for key, rule in rules.items()]
    state = {}
    for key, amount, total in sums:
        scope, name = _target(key)
        if scope == "flow":
            state[name] = total
        else:
            draft.write_shared(cast(SharedScope, scope), name, total, amount)
            draft.note(step=step_id, shared=key)
    if state:
        draft.merge_state(step_id, state)


def _add(draft: Draft, key: str, amount: Any) -> tuple[Any, Any]:
    """The amount that is added to a key, and the sum as far as this decision can see."""
    scope, name = _target(key)
    if scope == "flow_group" and draft.record.group is None:
        raise ExpressionError(f"kv_add of {key!r} needs a group, and the execution was started without one")
    before = (draft.state if scope == "flow" else draft.shared(scope)).get(name, 0)
    for number, label in ((amount, "the amount"), (before, "the present value")):
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ExpressionError(f"kv_add of {key!r}: {label} must be a number, not {describe_type(number)}")
    total = add_numbers(before, amount)
    if total is None:
        raise ExpressionError(f"kv_add of {key!r}: the sum is out of range")
    return amount, total


def _target(key: str) -> tuple[str, str]:
    scope, _, name = key.partition(":")
    return (scope, name) if name and scope in ("flow", "global", "flow_group") else ("flow", key)
