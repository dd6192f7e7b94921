"""May a step run, and how: the gates it passes on its way from ready, in their order.

join -> when and filters -> required -> defer -> what kind of step it is
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.dependencies import EdgeState, JoinState, evaluate_edge, join, skip_step
from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.results import (
    apply_result,
    fail_permanently,
    make_error_result,
    shape_output,
)
from orchestrator.application.engine.signals import begin_wait
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import evaluate
from orchestrator.application.records.events import failure
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.model import SwitchSpec


def is_eligible(draft: Draft, step_id: str) -> bool:
    """The agenda is a hint: what stood on it may have moved on, or wait for a parent again."""
    return draft.step(step_id).awaits_dispatch and draft.may_join(step_id)


def evaluate_start_conditions(draft: Draft, step_id: str) -> bool:
    """Take a step as far as it can go without a dispatch; True when a dispatch is what it needs."""
    draft.evaluated[step_id] = is_eligible(draft, step_id) and _go_on(draft, step_id)
    return draft.evaluated[step_id]


def _go_on(draft: Draft, step_id: str) -> bool:
    try:
        if draft.step(step_id).status is StepStatus.READY and not _may_go_on(draft, step_id):
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
        fail_permanently(draft, step_id, failure("expression", f"step cannot be judged: {error}"))
    return False


def _may_go_on(draft: Draft, step_id: str) -> bool:
    spec = draft.specs[step_id]
    match join(draft, step_id):
        case JoinState.WAIT:
            return False
        case JoinState.FILTER:
            _filter(draft, step_id, _why_filtered(draft, step_id))
            return False
        case JoinState.SKIP:
            _skip(draft, step_id)
            return False
    unselecting = _unselecting(draft, step_id)
    if unselecting is not None:
        _filter(draft, step_id, f"not selected by switch {unselecting}")
        return False
    if spec.guards or spec.required:
        context = draft.context(step_id)
        if not all(evaluate(guard, context) for guard in spec.guards):
            _filter(draft, step_id, "its condition is false")
            return False
        for path in spec.required:
            if evaluate({"var": path}, context) is None:
                raise ExpressionError(f"required {path!r} is not there")
    if spec.defer_ms:
        _defer(draft, step_id, spec.defer_ms)
        return False
    return True


def _why_filtered(draft: Draft, step_id: str) -> str:
    parents = draft.graph.parents[step_id]
    if all(draft.step(parent).status is StepStatus.FILTERED for parent in parents):
        return "every parent was filtered"
    return "its join can no longer be met"


def _unselecting(draft: Draft, step_id: str) -> str | None:
    """The switch above this step that took another path, if there is one."""
    for above in draft.graph.switches.get(step_id, ()):
        switch, step = draft.specs[above].switch, draft.step(above)
        assert switch is not None
        selected = switch.cases.get(step.value, switch.default) or ()
        if step.status is StepStatus.COMPLETE and step.value is not None and step_id not in selected:
            return above
    return None


def _listed(switch: SwitchSpec) -> list[str]:
    return [one for case in (*switch.cases.values(), switch.default or ()) for one in case]


def _filter(draft: Draft, step_id: str, reason: str) -> None:
    draft.move(step_id, StepStatus.FILTERED, reason=reason, ended_at=draft.moment.iso)


def _skip(draft: Draft, step_id: str) -> None:
    """Below parents that say no: the first of them is the reason."""
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
    """A delay is a step that defers itself; it ends when it is woken (`wake`)."""
    delay_ms = draft.specs[step_id].delay_ms or 0
    step = draft.step(step_id)
    if step.status is StepStatus.READY:
        _defer(draft, step_id, delay_ms)
    else:
        # It was deferred by defer_ms, and begins only now.
        draft.amend(step_id, wake_at_ms=draft.moment.at_ms + delay_ms, iteration=1)


def wake(draft: Draft, step_id: str) -> None:
    """The time that a step was deferred for is over."""
    spec, step = draft.specs[step_id], draft.step(step_id)
    begins = spec.kind == "delay" and bool(spec.defer_ms) and not step.iteration
    draft.amend(step_id, wake_at_ms=None)
    if spec.kind == "delay" and not begins:
        apply_result(draft, step_id, *shape_output(draft, step_id, {}))


def _switch(draft: Draft, step_id: str) -> None:
    """Take the path of the key; all that stands on other paths is filtered."""
    spec = draft.specs[step_id].switch
    assert spec is not None
    key = _key(evaluate(spec.on, draft.context(step_id)))
    selected = spec.cases.get(key, spec.default)
    if selected is None:
        known = ", ".join(spec.cases) or "none"
        message = f"no case for {key!r}, and no default; there is: {known}"
        apply_result(draft, step_id, *make_error_result(failure("no_branch", message)))
        return
    draft.amend(step_id, value=key)
    for one in dict.fromkeys(_listed(spec)):
        if one not in selected and draft.step(one).status is StepStatus.READY:
            _filter(draft, one, f"not selected by switch {step_id}")
    apply_result(draft, step_id, *shape_output(draft, step_id, {"branch": key}))


def _key(value: Any) -> str:
    """A key of `cases` is text: what an expression gives is written as JSON writes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return str(value)
    raise ExpressionError(f"switch.on must give a text or a number, not {type(value).__name__}")
