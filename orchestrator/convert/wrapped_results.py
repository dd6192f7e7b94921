"""Branches for executors that wrap their results, as the providers of flowtoy and the modules of flow8 do.

    flowtoy    {"status": {"success": false, "notes": [...]}, "data": ...}
    flow8      {"State": "FAIL", "Output": ...}

A result that reports a failure is rejected: it is retried, and then on_error decides. Any other is unwrapped.
A result that is not wrapped is used as it is, and the failure of an executor that raises stays what it is.
"""

from __future__ import annotations

import json
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.values.secret_refs import SECRET
from orchestrator.convert.json_logic import Rule

Branch = dict[str, Any]

OUTPUT: Rule = {"var": "output"}
"""What an executor returned, as branches read it."""

DATA: Rule = {"var": "output.data"}
"""The data in the result of a provider of flowtoy."""

_NOTES = {"str.join": [{"map": [{"var": "output.status.notes"}, {"cat": {"var": ""}}]}, "; "]}
_CODE = {"cat": ["provider reported failure (code=", {"var": "output.status.code"}, ")"]}
_REJECTED: Branch = {
    "condition": {"!": {"var": ["output.status.success", True]}},
    "action": "retry",
    "result_expr": {"or": [_NOTES, _CODE]},
}


def flowtoy_branches(of_data: dict[str, Rule], of_result: dict[str, Rule]) -> list[Branch]:
    """The branches of a step that calls a provider of flowtoy, with its outputs read from the data of a
    wrapped result, and from a result that is not wrapped. A step without outputs is only checked."""
    if not of_data:
        return [_REJECTED]
    return [
        _REJECTED,
        {
            "condition": {"var": "output.status.success"},
            "action": "complete",
            "result_expr": _as_object(of_data),
        },
        {
            "condition": {"!==": [{"var": "output.ok"}, False]},
            "action": "complete",
            "result_expr": _as_object(of_result),
        },
    ]


def _as_object(values: dict[str, Rule]) -> Rule:
    """Return an expression of an object, also if its only key is the name of an operator."""
    if not is_expression(values) and list(values) not in ([LITERAL], [SECRET]):
        return values
    [(name, rule)] = values.items()
    return {"json.parse": {"cat": [f"{{{json.dumps(name)}: ", {"json.dumps": [rule]}, "}"]}}


def flow8_branches() -> list[Branch]:
    """The branches of a step that calls a module of flow8."""
    response: Rule = {"var": "output.Output"}
    return [
        {"condition": {"==": [{"var": "output.State"}, state]}, "action": action, "result_expr": response}
        for state, action in (("FAIL", "retry"), ("DONE", "complete"))
    ]
