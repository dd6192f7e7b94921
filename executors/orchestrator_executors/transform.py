"""Evaluates expressions on the worker: the executor `transform`.

    input:
      data: {var: steps.orders.output}
      output: {$literal: {total: {reduce: [...]}}}

The input of a step is evaluated before the step is sent out; `$literal` keeps an expression as it is, so that
it is evaluated here, where `data` is all there is to read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from .settings import Refused, merge_settings

__all__ = ["transform"]

LITERAL_HINT = "write {$literal: ...} around it, so that it comes here as it is"


class TransformInputs(TypedDict, total=False):
    """`data`: what expressions read; `expression`: one, or `output`: one for each key."""

    data: Any
    expression: Any
    output: dict[str, Any]


def transform(
    inputs: TransformInputs, configuration: dict[str, Any], evaluate: Callable[[Any, Any], Any]
) -> dict[str, Any]:
    """The value of `expression` as `result`, or those of `output` under its keys."""
    settings = merge_settings(configuration, inputs, TransformInputs.__annotations__)
    if ("expression" in settings) == ("output" in settings):
        raise Refused(f"give either an 'expression' or an 'output' of several: {LITERAL_HINT}")
    data = settings.get("data")
    if "expression" in settings:
        return {"result": _value("expression", settings["expression"], data, evaluate)}
    wanted = settings["output"]
    if not isinstance(wanted, dict):
        raise Refused(f"'output' must be a mapping of names to expressions: {LITERAL_HINT}")
    return {key: _value(f"output.{key}", one, data, evaluate) for key, one in wanted.items()}


def _value(name: str, expression: Any, data: Any, evaluate: Callable[[Any, Any], Any]) -> Any:
    """It reads nothing but its data, so a failure would only be repeated."""
    try:
        return evaluate(expression, data)
    except Exception as error:
        raise Refused(f"{name!r} fails: {error}") from error
