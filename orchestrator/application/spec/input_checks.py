"""Checks the inputs of a workflow: those that it declares, and those of a start."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

from orchestrator.application.errors import Problem
from orchestrator.application.spec.document import check_data
from orchestrator.application.spec.model import InputSpec, InputType, WorkflowSpec
from orchestrator.application.spec.report import Report
from orchestrator.application.values.document_limits import DATA_LIMITS
from orchestrator.application.values.json_types import describe_value
from orchestrator.application.values.paths import render_path
from orchestrator.application.values.payload_refs import is_payload_reference


def check_inputs(spec: WorkflowSpec, inputs: Any, whole: Any = None) -> tuple[dict[str, Any], list[Problem]]:
    """Return the inputs of a start with defaults filled in, and their problems. Undeclared inputs pass.

    `whole` are the inputs before large values became references, if the caller has them: they are needed to
    check the type of such a value.
    """
    if inputs is None:
        inputs = {}
    if not isinstance(inputs, dict):
        return {}, [Problem("inputs", "bad_type", f"must be a mapping, not {describe_value(inputs)}")]
    problems = check_data(inputs, ("inputs",), DATA_LIMITS)
    filled = dict(inputs)
    for name, declared in spec.inputs.items():
        path = render_path(("inputs", name))
        if name in inputs:
            value = whole[name] if whole is not None and is_payload_reference(inputs[name]) else inputs[name]
            if not is_payload_reference(value) and not _has_type(value, declared.type):
                problems.append(Problem(path, "bad_type", _wrong_type_message(value, declared)))
        elif declared.has_default:
            filled[name] = declared.default
        elif declared.required:
            problems.append(Problem(path, "missing_input", f"the workflow needs the input {name!r}"))
    return filled, problems


def check_input_defaults(inputs: Mapping[str, InputSpec], report: Report) -> None:
    for name, declared in inputs.items():
        if declared.has_default and not _has_type(declared.default, declared.type):
            message = _wrong_type_message(declared.default, declared)
            report.add(("inputs", name, "default"), "bad_type", message)


def check_scheduled_inputs(inputs: Mapping[str, InputSpec], report: Report) -> None:
    """Check that a workflow with a schedule can start without inputs."""
    for name, declared in inputs.items():
        if declared.required and not declared.has_default:
            message = "is required, and a schedule starts the workflow without inputs: give it a default"
            report.add(("inputs", name), "bad_schedule", message)


def _has_type(value: Any, name: InputType | None) -> bool:
    if name is None:
        return True
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


_TYPES: dict[InputType, type | UnionType] = {
    "string": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}


def _wrong_type_message(value: Any, declared: InputSpec) -> str:
    return f"must be of type {declared.type}, not {describe_value(value)}"
