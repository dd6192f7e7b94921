"""Start conditions: whether a ready step may run. They are evaluated in this order:

join -> switch -> when and filters -> required -> defer -> the kind of the step
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.dependencies import (
    EdgeState,
    JoinState,
    evaluate_edge,
    evaluate_join,
    skip_step,
)
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.outputs import make_error_result, shape_output
from orchestrator.application.engine.results import apply_step_result, fail_permanently
from orchestrator.application.engine.signals import begin_wait
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.events import make_failure
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import SwitchSpec
from orchestrator.application.values.json_types import describe_type


def is_eligible(draft: Draft, step_id: str) -> bool:
    """Whether a step can still run. The agenda is a hint: the step may have moved on since, or wait for a
    parent again."""
    return draft.step(step_id).awaits_dispatch and draft.may_join(step_id)


def evaluate_start_conditions(draft: Draft, step_id: str) -> bool:
    """Take a step as far as possible without a dispatch; True when it must be dispatched next."""
    passed = draft.evaluated[step_id] = is_eligible(draft, step_id) and _begin(draft, step_id)
    return passed


def _begin(draft: Draft, step_id: str) -> bool:
    """Begin a step, or filter, skip or defer it; True when it must be dispatched."""
    try:
        if draft.step(step_id).status is StepStatus.READY and not _may_begin(draft, step_id):
            return False
        match draft.specs[step_id].kind:
            case "switch":
                _switch(draft, step_id)
            case "wait":
                begin_wait(draft, step_id)
            case "delay":
                _delay(draft, step_id)
            case _:
                return True
    except ExpressionError as error:
        fail_permanently(draft, step_id, make_failure("expression", f"step cannot be evaluated: {error}"))
    return False


def _may_begin(draft: Draft, step_id: str) -> bool:
    spec = draft.specs[step_id]
    match evaluate_join(draft, step_id):
        case JoinState.WAIT:
            return False
        case JoinState.FILTER:
            _filter(draft, step_id, _filter_reason(draft, step_id))
            return False
        case JoinState.SKIP:
            _skip(draft, step_id)
            return False
    if step_id in draft.graph.switches and (switch := _unselecting_switch(draft, step_id)) is not None:
        _filter(draft, step_id, f"not selected by switch {switch}")
        return False
    if spec.guards or spec.required:
        context = draft.context(step_id)
        if not all(evaluate(guard, context, draft.turn) for guard in spec.guards):
            _filter(draft, step_id, "its condition is false")
            return False
        for path in spec.required:
            if evaluate({"var": path}, context, draft.turn) is None:
                raise ExpressionError(f"required {path!r} is missing")
    if spec.defer_ms:
        _defer(draft, step_id, spec.defer_ms)
        return False
    return True


def _filter_reason(draft: Draft, step_id: str) -> str:
    parents = draft.graph.parents[step_id]
    if all(draft.step(parent).status is StepStatus.FILTERED for parent in parents):
        return "every parent was filtered"
    return "its join can no longer be met"


def _unselecting_switch(draft: Draft, step_id: str) -> str | None:
    """The switch above this step that selected another case, if there is one."""
    for above in draft.graph.switches[step_id]:
        switch, step = draft.specs[above].switch, draft.step(above)
        assert switch is not None
        selected = switch.cases.get(step.value, switch.default) or ()
        if step.status is StepStatus.COMPLETE and step.value is not None and step_id not in selected:
            return above
    return None


def _steps_of_cases(switch: SwitchSpec) -> list[str]:
    return [step_id for case in (*switch.cases.values(), switch.default or ()) for step_id in case]


def _filter(draft: Draft, step_id: str, reason: str) -> None:
    draft.move(step_id, StepStatus.FILTERED, reason=reason, ended_at=draft.moment.iso)


def _skip(draft: Draft, step_id: str) -> None:
    """Skip a step; the reason is the first parent that keeps it from running."""
    spec = draft.specs[step_id]
    for parent in draft.graph.parents[step_id]:
        if evaluate_edge(draft.step(parent), draft.specs[parent], spec) is EdgeState.SKIP:
            skip_step(draft, step_id, parent)
            return
    reason = "its join can no longer be met"
    draft.move(step_id, StepStatus.SKIPPED, reason=reason, ended_at=draft.moment.iso)


def _defer(draft: Draft, step_id: str, delay_ms: int) -> None:
    draft.move(step_id, StepStatus.DEFERRED, wake_at_ms=draft.moment.at_ms + delay_ms)
    draft.begin_workflow()


def _delay(draft: Draft, step_id: str) -> None:
    """Begin a delay: a step that defers itself, and ends when it wakes (`wake`)."""
    delay_ms = draft.specs[step_id].delay_ms or 0
    step = draft.step(step_id)
    if step.status is StepStatus.READY:
        _defer(draft, step_id, delay_ms)
    else:
        # The step was deferred by defer_ms; its delay begins only now.
        draft.amend(step_id, wake_at_ms=draft.moment.at_ms + delay_ms, iteration=1)


def wake(draft: Draft, step_id: str) -> None:
    """End the deferral of a step; a delay that has begun completes."""
    spec, step = draft.specs[step_id], draft.step(step_id)
    is_before_delay = spec.kind == "delay" and bool(spec.defer_ms) and not step.iteration
    draft.amend(step_id, wake_at_ms=None)
    if spec.kind == "delay" and not is_before_delay:
        apply_step_result(draft, step_id, *shape_output(draft, step_id, {}))


def _switch(draft: Draft, step_id: str) -> None:
    """Select the case of a switch, and filter the steps of the other cases."""
    spec = draft.specs[step_id].switch
    assert spec is not None
    key = _case_key(evaluate(spec.on, draft.context(step_id), draft.turn))
    selected = spec.cases.get(key, spec.default)
    if selected is None:
        cases = ", ".join(spec.cases) or "none"
        message = f"no case for {key!r}, and no default; the cases are: {cases}"
        apply_step_result(draft, step_id, *make_error_result(make_failure("no_branch", message)))
        return
    draft.amend(step_id, value=key)
    for one in dict.fromkeys(_steps_of_cases(spec)):
        if one not in selected and draft.step(one).status is StepStatus.READY:
            _filter(draft, one, f"not selected by switch {step_id}")
    apply_step_result(draft, step_id, *shape_output(draft, step_id, {"branch": key}))


def _case_key(value: Any) -> str:
    """The key of a case, which is a string; other values are written as in JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return str(value)
    raise ExpressionError(f"switch.on must give a string or a number, not {describe_type(value)}")
