"""Test a workflow in one process, with a simulated clock and mocks for executors.

    test = WorkflowTest("order.yaml", {"sku": "a1"}, executors="orders")
    test.mock("charge", {"receipt": 7})
    test.run()
    test.skip("24h")
    assert test.status == "complete"

Decisions are made by the same functions as in production. Only the clock, the workers and the crashes are
simulated. Each name is loaded when it is first used: pytest imports the plugin of this package in every run,
also in those that test no workflow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.deprecation import renamed_names

if TYPE_CHECKING:
    from orchestrator.testing.environment import WorkflowTest
    from orchestrator.testing.errors import CallLimitReached, MockMissing, WorkflowTestError
    from orchestrator.testing.execution import Execution, Step
    from orchestrator.testing.kill_points import KILL_POINTS, Kill
    from orchestrator.testing.mocks import Call, Mock
    from orchestrator.testing.waits import Wait

__all__ = [
    "KILL_POINTS",
    "Call",
    "CallLimitReached",
    "Execution",
    "Kill",
    "Mock",
    "MockMissing",
    "Step",
    "Wait",
    "WorkflowTest",
    "WorkflowTestError",
]

_HOMES = {
    "KILL_POINTS": "kill_points",
    "Call": "mocks",
    "Execution": "execution",
    "Kill": "kill_points",
    "Mock": "mocks",
    "MockMissing": "errors",
    "CallLimitReached": "errors",
    "WorkflowTest": "environment",
    "WorkflowTestError": "errors",
    "Step": "execution",
    "Wait": "waits",
}

_RENAMED = renamed_names(
    __name__,
    {
        "NoEnd": "CallLimitReached",
        "POINTS": "KILL_POINTS",
        "Rehearsal": "WorkflowTest",
        "RehearsalError": "WorkflowTestError",
        "rehearse": "WorkflowTest",
    },
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return _RENAMED(name)
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
