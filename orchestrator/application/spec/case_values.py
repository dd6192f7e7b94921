"""Finds the values that the `on` of a switch can have, where the document determines them.

That is so for a comparison, an `if` with constant results, an input of type boolean, the events of a wait,
and the case of another switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orchestrator.application.expressions.dotted_path import split_path
from orchestrator.application.expressions.evaluation import is_expression
from orchestrator.application.spec.graph import Graph
from orchestrator.application.spec.model import LoadedSpec, StepSpec

_BOOLEAN = frozenset({"true", "false"})
_BOOLEAN_OPERATORS = frozenset(
    {"==", "!=", "===", "!==", "<", "<=", ">", ">=", "!", "!!", "in", "all", "some", "none"}
    | {"str.contains", "str.starts_with", "str.ends_with", "str.matches"}
)

Values = frozenset[str] | None
"""Values as the keys of cases; None if they are not known."""


_MAX_VALUES = 100  # of a step that is read; more are not followed, because many switches may read it


def find_values(on: Any, loaded: LoadedSpec) -> Values:
    """Return the values that an expression can have."""
    if not isinstance(on, dict):
        return _literal(on)
    if not is_expression(on):
        return None
    [(operator, argument)] = on.items()
    args: Sequence[Any] = argument if isinstance(argument, list) else [argument]
    if operator in _BOOLEAN_OPERATORS:
        return _BOOLEAN
    if operator in ("if", "?:"):
        return _find_results(args, loaded)
    if operator == "var" and args and isinstance(args[0], str):
        found = _find_at(split_path(args[0]), loaded)
        if found is None or "null" not in found or len(args) == 1:
            return found
        default = find_values(args[1], loaded)
        return None if default is None else (found - {"null"}) | default
    return None


def _literal(value: Any) -> Values:
    if value is None or isinstance(value, bool):
        return frozenset({{True: "true", False: "false", None: "null"}[value]})
    return frozenset({str(value)}) if isinstance(value, str | int) else None


def _find_results(args: Sequence[Any], loaded: LoadedSpec) -> Values:
    """Return the results of an `if`: every second argument, and the last one, or null without it."""
    results = [*args[1::2], args[-1] if len(args) % 2 else None]
    found: set[str] = set()
    for result in results:
        values = find_values(result, loaded)
        if values is None:
            return None
        found |= values
    return frozenset(found)


def _find_at(names: tuple[str, ...], loaded: LoadedSpec) -> Values:
    match names:
        case ("input", name):
            declared = loaded.spec.inputs.get(name)
            if declared is None or declared.type != "boolean":
                return None
            return _BOOLEAN if declared.required or declared.has_default else _BOOLEAN | {"null"}
        case ("steps", *rest):
            return _find_in_output(loaded.graph, rest, ["output"], loaded)
        case ("flows", *rest):
            return _find_in_output(loaded.graph, rest, [], loaded)
    return None


def _find_in_output(graph: Graph, names: list[str], prefix: list[str], loaded: LoadedSpec) -> Values:
    found = graph.find_step(names)
    if found is None or [*found[1][:-1]] != prefix:
        return None
    return _find_output(loaded.steps[found[0]], found[1][-1])


def _find_output(step: StepSpec, key: str) -> Values:
    if step.output is not None or step.has_branch_output:
        return None
    count = len(step.wait.signals if step.wait else step.switch.cases if step.switch else ())
    if count > _MAX_VALUES:
        return None
    if step.wait is not None and step.wait.is_any and key == "event":
        return frozenset({*step.wait.signals, *(["timeout"] if step.wait.timeout_ms is not None else [])})
    if step.switch is not None and step.switch.default is None and key == "branch":
        return frozenset(step.switch.cases)
    return None
