"""Rehearsals: a workflow in one process, under a clock that is told the time, with whoever is to be mocked.

    play = rehearse("order.yaml", {"sku": "a1"}, executors="orders")
    play.mock("charge", {"receipt": 7})
    play.run()
    play.skip("24h")
    assert play.status == "complete"

What decides is what decides in production; only the clock, the workers and the crashes are made up. The names
are loaded when they are first asked for: pytest loads the plugin beside this in every run, also in those that
rehearse nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.testing.environment import Rehearsal
    from orchestrator.testing.environment import Rehearsal as rehearse
    from orchestrator.testing.errors import MockMissing, NoEnd, RehearsalError
    from orchestrator.testing.execution import Execution, Step
    from orchestrator.testing.kill_points import POINTS, Kill
    from orchestrator.testing.mocks import Call, Mock
    from orchestrator.testing.waits import Wait

__all__ = [
    "POINTS",
    "Call",
    "Execution",
    "Kill",
    "Mock",
    "MockMissing",
    "NoEnd",
    "Rehearsal",
    "RehearsalError",
    "Step",
    "Wait",
    "rehearse",
]

_HOMES = {
    "POINTS": "kill_points",
    "Call": "mocks",
    "Execution": "execution",
    "Kill": "kill_points",
    "Mock": "mocks",
    "MockMissing": "errors",
    "NoEnd": "errors",
    "Rehearsal": "environment",
    "RehearsalError": "errors",
    "Step": "execution",
    "Wait": "waits",
}


def __getattr__(name: str) -> Any:
    if name == "rehearse":
        value = __getattr__("Rehearsal")
    elif name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
