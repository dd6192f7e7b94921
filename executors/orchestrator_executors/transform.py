"""The executor `transform`: evaluates expressions on the worker.

    input:
      data: {var: steps.orders.output}
      output: {$literal: {total: {reduce: [...]}}}

The coordinator evaluates the input of a step before it dispatches the step. `$literal` protects an expression
from that, so that it is evaluated here, where it can read only `data`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from .settings import Refused, merge_settings

__all__ = ["transform"]

LITERAL_HINT = "write {$literal: ...} around it, so that it is evaluated on the worker"


class TransformInputs(TypedDict, total=False):
    """`data`: the value that expressions read; `expression`: one expression, or `output`: one for each
    key."""

    data: Any
    expression: Any
    output: dict[str, Any]


def transform(
    inputs: TransformInputs, configuration: dict[str, Any], evaluate: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    """Evaluate `expression` into `result`, or each expression of `output` into its key."""
    settings = merge_settings(configuration, inputs, TransformInputs.__annotations__)
    if ("expression" in settings) == ("output" in settings):
        raise Refused(f"give either 'expression' or 'output': {LITERAL_HINT}")
    data = settings.get("data")
    if "expression" in settings:
        return {"result": _evaluate("expression", settings["expression"], data, evaluate)}
    output = settings["output"]
    if not isinstance(output, dict):
        raise Refused(f"'output' must be a mapping of names to expressions: {LITERAL_HINT}")
    return {key: _evaluate(f"output.{key}", one, data, evaluate) for key, one in output.items()}


def _evaluate(name: str, expression: Any, data: Any, evaluate: Callable[[Any, Any], Any]) -> Any:
    """Evaluate one expression. It reads only its data, so a failure is final: a retry would fail too."""
    try:
        return evaluate(expression, data)
    except Exception as error:
        raise Refused(f"{name!r} fails: {error}") from error
