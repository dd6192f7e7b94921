"""What happens next, by the result of a step: entries of `branch`, of which the first that fits decides.

branch=[
    when(output.code == 7).halt({"why": "full"}),
    when(output.quality < 0.9).reset(),  # the step itself, and all that depends on it
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
    """One entry. Without targets, a `set` is meant for the step that has this entry."""

    condition: Condition
    action: Action
    outcome: Value = ABSENT
    targets: tuple[Target, ...] = ()


class When:
    """A condition that waits for its action."""

    def __init__(self, condition: Condition) -> None:
        if not isinstance(condition, Expr | bool):
            raise TypeError(f"a condition is an expression, True or False, not {condition!r}")
        self._condition = condition

    def halt(self, outcome: Value = ABSENT) -> Branch:
        """Ends the workflow on purpose, with this outcome, which is evaluated if it has expressions in it."""
        return Branch(self._condition, "halt", outcome)

    def complete(self) -> Branch:
        """The step is complete, also if it failed."""
        return Branch(self._condition, "complete")

    def reset(self, *targets: Target) -> Branch:
        """These steps, this one and all that depends on them run again; this one alone, if none is given."""
        return Branch(self._condition, "set", targets=targets)

    def retry(self) -> Branch:
        """The result counts as a failure, and is tried again if attempts are left."""
        return Branch(self._condition, "retry")

    def fail(self) -> Branch:
        """The step has failed, and is not tried again."""
        return Branch(self._condition, "fail")

    def skip(self) -> Branch:
        """The step is skipped, and what depends on it."""
        return Branch(self._condition, "skip")

    def __repr__(self) -> str:
        return f"when({self._condition!r})"


def when(condition: Condition) -> When:
    return When(condition)


_always = When(True)
halt = _always.halt
complete = _always.complete
reset = _always.reset
retry = _always.retry
fail = _always.fail
skip = _always.skip
