"""Resolving the values of a document: the inputs, outputs and items of an execution.

Several values may share one large part, so that a few expressions give a value that is far larger than all
that it was made of. Each value is measured before anything writes it as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.application.engine.context import Context
from orchestrator.application.engine.draft import Draft
from orchestrator.application.errors import ExpressionError
from orchestrator.application.expressions.evaluation import resolve, resolve_all
from orchestrator.application.expressions.limits import measure
from orchestrator.application.values.payload_refs import MAX_JOB_BYTES, check_inputs_size, inputs_too_large

MAX_RESOLVED_BYTES = 10 * 1024 * 1024
MAX_RESOLVED_DEPTH = 400
"""A value that an event has brought may be 200 levels deep, and a document puts it a few levels deeper."""


def resolve_inputs(
    draft: Draft, unit: str, values: Mapping[str, Any], context: Context, max_bytes: int = MAX_JOB_BYTES
) -> dict[str, Any]:
    """Resolve the inputs of a unit; ExpressionError if one cannot be resolved, or if they are too large."""
    inputs = resolve_all(values, context, draft.turn)
    size = _measure(draft, inputs, max_bytes)
    if size > max_bytes:
        raise inputs_too_large(unit, f"more than {max_bytes:,}", max_bytes)
    if size * 6 > max_bytes:
        check_inputs_size(inputs, unit, max_bytes)
    return inputs


def resolve_outputs(draft: Draft, values: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Resolve the values of a mapping such as `output`; ExpressionError if that fails, or if they are too
    large."""
    outputs = resolve_all(values, context, draft.turn)
    _check_size(draft, outputs)
    return outputs


def resolve_value(draft: Draft, value: Any, context: Context) -> Any:
    """Resolve one value; ExpressionError if that fails, or if the result is too large."""
    resolved = resolve(value, context, draft.turn)
    _check_size(draft, resolved)
    return resolved


def _check_size(draft: Draft, value: Any) -> None:
    if _measure(draft, value, MAX_RESOLVED_BYTES) > MAX_RESOLVED_BYTES:
        raise ExpressionError(f"the result has more than {MAX_RESOLVED_BYTES:,} bytes")


def _measure(draft: Draft, value: Any, max_bytes: int) -> int:
    try:
        return measure(value, draft.turn, max_bytes, MAX_RESOLVED_DEPTH)
    except ValueError as error:
        raise ExpressionError(str(error)) from error
