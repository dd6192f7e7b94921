"""Entries of `branch`: the action that follows the result of a step. The first true condition decides.

branch=[
    when(output.code == 7).halt({"why": "full"}),
    when(output.quality < 0.9).reset(),  # the step itself and every step that depends on it
    complete(),
]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from orchestrator.application.spec.model import Action
from orchestrator.builder.expressions import Condition, Expr, Step, Value

Target: TypeAlias = Step | str | Expr
ABSENT: Any = object()


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """One entry. A `set` without targets resets the step that has the entry."""

    condition: Condition
    action: Action
    outcome: Value = ABSENT
    targets: tuple[Target, ...] = ()


class When:
    """A condition without its action yet."""

    def __init__(self, condition: Condition) -> None:
        if not isinstance(condition, Expr | bool):
            raise TypeError(f"a condition must be an expression, True or False, not {condition!r}")
        self._condition = condition

    def halt(self, outcome: Value = ABSENT) -> Branch:
        """End the workflow on purpose with this outcome. Expressions in it are evaluated."""
        return Branch(self._condition, "halt", outcome)

    def complete(self) -> Branch:
        """Complete the step, even if it failed."""
        return Branch(self._condition, "complete")

    def reset(self, *targets: Target) -> Branch:
        """Run these steps, this step and all their dependents again; without targets, only this step."""
        return Branch(self._condition, "set", targets=targets)

    def retry(self) -> Branch:
        """Treat the result as a failure, and retry it if attempts are left."""
        return Branch(self._condition, "retry")

    def fail(self) -> Branch:
        """Fail the step without a retry."""
        return Branch(self._condition, "fail")

    def skip(self) -> Branch:
        """Skip the step and the steps that depend on it."""
        return Branch(self._condition, "skip")

    def __repr__(self) -> str:
        return f"when({self._condition!r})"


def when(condition: Condition) -> When:
    """Begin a branch: `when(condition).complete()`, or another action, is the branch."""
    return When(condition)


_always = When(True)
halt = _always.halt
complete = _always.complete
reset = _always.reset
retry = _always.retry
fail = _always.fail
skip = _always.skip
