"""The output and the error of a result, before they are applied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.resolution import resolve_outputs
from orchestrator.application.engine.shared_values import missing_group_problem
from orchestrator.application.errors import ExpressionError
from orchestrator.application.records.events import make_failure
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.values.json_types import describe_type

Output = dict[str, Any] | None
Error = dict[str, Any] | None


def shape_output(draft: Draft, unit: str, raw: Any, **roots: Any) -> tuple[Output, Error]:
    """The output of a successful attempt after the step's `output` mapping, or an error."""
    spec = draft.spec(unit)
    if raw is not None and not isinstance(raw, dict):
        message = f"an executor must return an object or nothing, not {describe_type(raw)}"
        return make_error_result(make_failure("bad_output", message))
    output = raw
    if spec.output is not None:
        context = draft.context(unit, result=raw, **roots)
        try:
            output = resolve_outputs(draft, spec.output, context)
        except ExpressionError as error:
            return make_error_result(make_failure("expression", f"output cannot be resolved: {error}"))
    return check_output(draft, unit, output)


def check_output(draft: Draft, unit: str, value: Any) -> tuple[Output, Error]:
    """The value as an output, or an error if it cannot be one."""
    spec = draft.spec(unit)
    problem = None
    if value is not None and not isinstance(value, dict):
        problem = f"an output must be an object or nothing, not {describe_type(value)}"
    elif draft.record.spec.kv_scopes is not None and is_merged(spec) and spec.map is None:
        problem = missing_group_problem(draft, value)
    return (value, None) if problem is None else make_error_result(make_failure("bad_output", problem))


def make_error_result(error: Mapping[str, Any]) -> tuple[Output, Error]:
    """The output and the error of a failed attempt. A branch sees the error as an output."""
    whole = {"kind": "exception", "message": "", **error}
    return {"ok": False, "error": str(whole["message"])}, whole


def is_merged(spec: StepSpec) -> bool:
    """Whether the outputs of a step are merged into the state. Those of a switch, a delay or a map are merged
    only if `output` names their keys."""
    if spec.skip_output_mapping:
        return False
    return spec.output is not None or not (spec.map is not None or spec.kind in ("switch", "delay"))
