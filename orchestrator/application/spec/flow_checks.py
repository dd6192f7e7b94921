"""Warnings about the order in which the steps of a valid spec run.

    never_runs           a step that no execution runs
    uncovered_case       a switch without a default fails for a value that the document declares
    endless_wait         a wait that no timeout ends
    endless_loop         a step that sets itself back in every round
    never_compensates    a compensation that no execution calls

Each is proved from the constants in the document, and each names what shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.application.expressions.dotted_path import split_path
from orchestrator.application.expressions.evaluation import is_constant
from orchestrator.application.expressions.json_logic import DATA_OPERATORS, SCOPED_OPERATORS
from orchestrator.application.spec.case_values import find_values
from orchestrator.application.spec.model import LoadedSpec, StepSpec
from orchestrator.application.spec.reachability import NeverRuns, Reachability, constant_truth
from orchestrator.application.spec.report import Report

_MAX_NAMES_IN_MESSAGE = 6


def check_flow(loaded: LoadedSpec, key: str, report: Report, has_deadline: bool) -> None:
    """Report the warnings. `key` is steps or flow; `has_deadline`: a timeout ends the whole workflow."""
    _FlowChecks(loaded, key, report).check(has_deadline)


class _FlowChecks:
    def __init__(self, loaded: LoadedSpec, key: str, report: Report) -> None:
        self._loaded, self._key, self._report = loaded, key, report
        self._reachability = Reachability(loaded)

    def check(self, has_deadline: bool) -> None:
        self._warn_of_steps_that_never_run()
        last_step = _find_last_step(self._loaded)
        for n, step in enumerate(self._loaded.spec.steps):
            if step.switch is not None:
                self._check_cases(n, step)
            if step.wait is not None and not has_deadline:
                self._check_wait(n, step)
            if step.branch:
                self._check_loop(n, step)
            if step.compensate is not None and step.id not in self._reachability.never_runs:
                self._check_compensation(n, step, last_step)

    def _warn(self, n: int, where: Sequence[str | int], code: str, message: str, hint: str = "") -> None:
        self._report.warn((self._key, n, *where), code, message, hint or None)

    def _warn_of_steps_that_never_run(self) -> None:
        """Warn of each reason once: of the first step, together with the others that never run."""
        followers: dict[str, list[str]] = {}
        for step_id, obstacle in self._reachability.never_runs.items():
            followers.setdefault(obstacle.root or step_id, [])
            if obstacle.root:
                followers[obstacle.root].append(step_id)
        for step_id, following in followers.items():
            self._warn_of_never_run(step_id, self._reachability.never_runs[step_id], following)

    def _warn_of_never_run(self, step_id: str, obstacle: NeverRuns, following: list[str]) -> None:
        message = f"step {step_id!r} can never run: {obstacle.why}"
        if following:
            message += f"; nor can {_format_names(following)}"
        self._warn(self._loaded.graph.index[step_id], obstacle.where, "never_runs", message)

    def _check_cases(self, n: int, step: StepSpec) -> None:
        assert step.switch is not None
        values = find_values(step.switch.on, self._loaded) if step.switch.default is None else None
        uncovered = sorted((values or frozenset()) - step.switch.cases.keys())
        if uncovered:
            message = f"no case for {_format_names(uncovered)}, and no default: the step fails then"
            self._warn(n, ("switch", "cases"), "uncovered_case", message, "add the cases or a default")

    def _check_wait(self, n: int, step: StepSpec) -> None:
        wait, raw = step.wait, self._loaded.document[self._key][n]["wait"]
        if wait is None or wait.timeout_ms is not None or raw.get("timeout") is not None:
            return
        message = f"no timeout ends the wait for {_format_names(wait.signals)}"
        hint = "add {timeout: ...} to any" if wait.is_any else "write wait.timeout, or timeout: none"
        self._warn(n, ("wait",), "endless_wait", message, f"{hint}; or give the workflow a timeout")

    def _check_loop(self, n: int, step: StepSpec) -> None:
        if self._reachability.actions(step) == {"set"}:
            message = f"step {step.id!r} is set back in every round: no other branch can be taken"
            self._warn(n, ("branch",), "endless_loop", message)
            return
        for position, branch in enumerate(step.branch):
            if not _reads_inputs_only(branch.condition):
                return
            if branch.action == "set" and constant_truth(branch.condition) is not False:
                message = (
                    f"once step {step.id!r} is set back, it is set back in every round: this condition and"
                    " those before it read inputs only, which never change"
                )
                self._warn(n, ("branch", position, "condition"), "endless_loop", message)
                return

    def _check_compensation(self, n: int, step: StepSpec, last_step: str | None) -> None:
        if not self._reachability.can_complete(step.id):
            why = self._reachability.describe_branches(step)
        elif step.id == last_step:
            why = f"the workflow is complete when step {step.id!r} is, because it waits for all others"
        else:
            return
        message = f"the compensation of step {step.id!r} can never be called: {why}"
        self._warn(n, ("compensate",), "never_compensates", message)


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_MAX_NAMES_IN_MESSAGE]))
    left_out = len(names) - _MAX_NAMES_IN_MESSAGE
    return f"{shown} and {left_out} more" if left_out > 0 else shown


def _reads_inputs_only(rule: Any) -> bool:
    """Whether a condition has the same value in every round of a loop."""
    todo = [rule]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo.extend(value)
        elif isinstance(value, dict):
            if any(key in SCOPED_OPERATORS or (key in DATA_OPERATORS and key != "var") for key in value):
                return False
            path = value.get("var", "input")
            path = path[0] if isinstance(path, list) and path else path
            if not isinstance(path, str) or split_path(path)[:1] != ("input",):
                return False
            todo.extend(value.values())
    return True


def _find_last_step(loaded: LoadedSpec) -> str | None:
    """Return the step whose completion always completes the workflow; None if there is no such step.

    It waits for all other steps, and nothing can still fail the workflow: no failure is tolerated before, and
    no output must be evaluated. A join or a switch may end a step before what it waits for has ended, so a
    workflow with one of them has no such step.
    """
    spec, graph = loaded.spec, loaded.graph
    sinks = [step_id for step_id in graph.order if not graph.children[step_id]]
    is_simple = all(step.join == "all" and step.on_error == "fail" for step in spec.steps)
    if len(sinks) != 1 or not is_simple or graph.switches:
        return None
    return sinks[0] if all(map(is_constant, spec.outputs.values())) else None
