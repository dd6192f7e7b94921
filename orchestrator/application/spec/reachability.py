"""Finds the steps that can never run: their condition is constant, or what they wait for never happens.

Every rule allows too much rather than too little: whatever is not constant in the document may happen. So a
step that is found here never runs in any execution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.application.spec.case_values import find_values
from orchestrator.application.spec.graph import sort_topologically
from orchestrator.application.spec.model import LoadedSpec, StepSpec, SwitchSpec
from orchestrator.application.values.paths import Path

# How a step may end, as the steps that wait for it see it.
_COMPLETE, _FAILED, _FILTERED, _SKIPPED = 1, 2, 4, 8

_VERBS = {
    "halt": "halt the workflow",
    "fail": "fail it",
    "retry": "fail it",
    "skip": "skip it",
    "set": "set it back",
}


@dataclass(frozen=True, slots=True)
class NeverRuns:
    """Why a step can never run. `where` is the path inside the step that shows it.

    `root` is another step that never runs for the same reason, which is reported in place of this one.
    """

    why: str
    where: Path = ()
    root: str = ""


class Reachability:
    """What can become of each step of a valid spec."""

    def __init__(self, loaded: LoadedSpec) -> None:
        self._loaded, self._parents = loaded, loaded.graph.parents
        self.never_runs: dict[str, NeverRuns] = {}
        self._ends: dict[str, int] = {}
        self._selectable: dict[str, frozenset[str] | None] = {}
        self._actions: dict[str, frozenset[str]] = {}
        self._first_blocked: dict[str, str] = {}  # by the parent that keeps it from running
        for step_id in sort_topologically(self._parents):
            step = loaded.steps[step_id]
            obstacle = self._find_obstacle(step)
            if obstacle is not None:
                self.never_runs[step_id] = obstacle
            self._ends[step_id] = self._find_ends(step)

    def can_complete(self, step_id: str) -> bool:
        return bool(self._ends[step_id] & _COMPLETE)

    def actions(self, step: StepSpec) -> frozenset[str]:
        """Return the actions that the branches of a step can take; "" stands for none of them."""
        if step.id not in self._actions:
            self._actions[step.id] = _possible_actions(step)
        return self._actions[step.id]

    def describe_branches(self, step: StepSpec) -> str:
        """Say what the branches of a step that never completes do."""
        verbs = dict.fromkeys(_VERBS[action] for action in sorted(self.actions(step)))
        return f"the branches of step {step.id!r} always {' or '.join(verbs)}"

    def _find_ends(self, step: StepSpec) -> int:
        """Return how a step may end. Any step that runs may fail: perhaps its inputs cannot be resolved."""
        ends = _SKIPPED if self._parents[step.id] else 0
        if step.guards or step.id in self._loaded.graph.switches:
            ends |= _FILTERED
        for parent in self._parents[step.id]:
            ends |= self._ends[parent] & _FILTERED
        if step.id in self.never_runs:
            return ends
        actions = self.actions(step)
        if "" in actions or "complete" in actions:
            ends |= _COMPLETE
        return ends | _FAILED | (_SKIPPED if "skip" in actions else 0)

    # ---- obstacles

    def _find_obstacle(self, step: StepSpec) -> NeverRuns | None:
        if self._parents[step.id]:
            obstacle = self._check_join(step) or self._check_switches(step)
            if obstacle is not None:
                return obstacle
        for key, guard in zip(step.guard_keys, step.guards, strict=True):
            if constant_truth(guard) is False:
                return NeverRuns("its condition is always false", (key,))
        return None

    def _check_join(self, step: StepSpec) -> NeverRuns | None:
        if isinstance(step.join, dict) or step.join == "done":
            return None
        obstructive = [parent for parent in self._parents[step.id] if not self._may_allow(parent, step)]
        allowing = len(self._parents[step.id]) - len(obstructive)
        if isinstance(step.join, int):
            why = f"its join needs {step.join} steps to complete, and "
            return self._blame(step, obstructive, why) if allowing < step.join else None
        if step.join == "all":
            blocking = [parent for parent in obstructive if not self._ends[parent] & _FILTERED]
            if blocking:
                return self._blame(step, blocking)
        return None if allowing else self._blame(step, obstructive)

    def _may_allow(self, parent: str, step: StepSpec) -> bool:
        """Whether a parent may end in a way that lets a step run."""
        ends = self._ends[parent]
        return bool(ends & _COMPLETE) or (
            bool(ends & _FAILED) and _may_follow_failure(step, self._loaded.steps[parent])
        )

    def _blame(self, step: StepSpec, parents: Sequence[str], why: str = "") -> NeverRuns:
        """Name a parent that keeps a step from running, if possible one that runs itself."""
        parent = next((one for one in parents if one not in self.never_runs), parents[0])
        where: Path = ("depends_on", step.depends_on.index(parent)) if parent in step.depends_on else ()
        obstacle = self.never_runs.get(parent)
        if obstacle is not None:
            return NeverRuns("", where, obstacle.root or parent)
        first = self._first_blocked.setdefault(parent, step.id)
        if first != step.id:
            return NeverRuns("", where, first)
        shown = self.describe_branches(self._loaded.steps[parent])
        return NeverRuns(f"{why}{shown}: {parent} -> {step.id}", where)

    def _check_switches(self, step: StepSpec) -> NeverRuns | None:
        """Check that the switches above a step can select it."""
        for above in self._loaded.graph.switches.get(step.id, ()):
            selectable = self._find_selectable(above)
            is_selected = selectable is None or step.id in selectable
            if not is_selected and not _may_follow_failure(step, self._loaded.steps[above]):
                return NeverRuns(f"switch {above!r} never selects it")
        return None

    def _find_selectable(self, switch_id: str) -> frozenset[str] | None:
        """Return the steps that a switch can select; None if its values are not known."""
        if switch_id not in self._selectable:
            switch = self._loaded.steps[switch_id].switch
            assert switch is not None, "only a switch lists steps"
            values = find_values(switch.on, self._loaded)
            self._selectable[switch_id] = None if values is None else _select(switch, values)
        return self._selectable[switch_id]


def _select(switch: SwitchSpec, values: frozenset[str]) -> frozenset[str]:
    """Return the steps that a switch selects for any of these values, or for null: what it reads may fail."""
    lists = [switch.cases.get(value) for value in {*values, "null"}]
    selected = {step_id for ids in lists if ids is not None for step_id in ids}
    return frozenset(selected.union(switch.default or ()) if None in lists else selected)


def _may_follow_failure(step: StepSpec, parent: StepSpec) -> bool:
    """Whether a step may run after its parent has failed."""
    policy = step.on_error if step.has_own_on_error and step.on_error != "fail" else parent.on_error
    return policy == "continue"


def _possible_actions(step: StepSpec) -> frozenset[str]:
    actions: set[str] = set()
    for branch in step.branch:
        truth = constant_truth(branch.condition)
        if truth is not False:
            actions.add(branch.action)
        if truth is True:
            return frozenset(actions)
    return frozenset({*actions, ""})


def constant_truth(rule: Any) -> bool | None:
    """Return whether a condition is always true or always false; None if it depends on data."""
    if rule is None or isinstance(rule, bool | int | float):
        return bool(rule)
    if not isinstance(rule, dict) or len(rule) != 1:
        return None
    [(operator, argument)] = rule.items()
    args: Sequence[Any] = argument if isinstance(argument, list) else [argument]
    if operator in ("and", "or"):
        decisive = bool(operator == "or")
        truths = [constant_truth(arg) for arg in args]
        if decisive in truths:
            return decisive
        return None if None in truths or not truths else not decisive
    if operator in ("!", "!!") and len(args) == 1:
        truth = constant_truth(args[0])
        return None if truth is None else truth is (operator == "!!")
    return None
