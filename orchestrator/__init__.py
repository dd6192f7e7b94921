"""Durable workflows, written as data, for teams that already run Redis and RQ.

The names below are loaded when they are first asked for: a work-horse that runs one short step imports this
package every time, and must not pay for what it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.application.decisions import (
        Cancelled,
        Complete,
        Dispatch,
        DispatchJob,
        Failed,
        Halt,
        Pending,
        StateChangeEvent,
    )
    from orchestrator.application.errors import (
        ExecutorNotFound,
        ExpressionError,
        IllegalTransition,
        InvalidEvent,
        InvalidSpec,
        OrchestratorError,
        Problem,
        RecordConflict,
        RecordExists,
        RecordNotFound,
        StartRefused,
        StoreError,
    )
    from orchestrator.application.states import StepStatus, WorkflowStatus
    from orchestrator.application.validation import load_spec
    from orchestrator.backend.backend import Backend
    from orchestrator.builder.workflow import WorkflowBuilder
    from orchestrator.workflow import Workflow

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "Cancelled",
    "Complete",
    "Dispatch",
    "DispatchJob",
    "ExecutorNotFound",
    "ExpressionError",
    "Failed",
    "Halt",
    "IllegalTransition",
    "InvalidEvent",
    "InvalidSpec",
    "OrchestratorError",
    "Pending",
    "Problem",
    "RecordConflict",
    "RecordExists",
    "RecordNotFound",
    "StartRefused",
    "StateChangeEvent",
    "StepStatus",
    "StoreError",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowStatus",
    "__version__",
    "load_spec",
]

_HOMES = {
    "Backend": "orchestrator.backend.backend",
    "Cancelled": "orchestrator.application.decisions",
    "Complete": "orchestrator.application.decisions",
    "Dispatch": "orchestrator.application.decisions",
    "DispatchJob": "orchestrator.application.decisions",
    "ExecutorNotFound": "orchestrator.application.errors",
    "ExpressionError": "orchestrator.application.errors",
    "Failed": "orchestrator.application.decisions",
    "Halt": "orchestrator.application.decisions",
    "IllegalTransition": "orchestrator.application.errors",
    "InvalidEvent": "orchestrator.application.errors",
    "InvalidSpec": "orchestrator.application.errors",
    "OrchestratorError": "orchestrator.application.errors",
    "Pending": "orchestrator.application.decisions",
    "Problem": "orchestrator.application.errors",
    "RecordConflict": "orchestrator.application.errors",
    "RecordExists": "orchestrator.application.errors",
    "RecordNotFound": "orchestrator.application.errors",
    "StartRefused": "orchestrator.application.errors",
    "StateChangeEvent": "orchestrator.application.decisions",
    "StepStatus": "orchestrator.application.states",
    "StoreError": "orchestrator.application.errors",
    "Workflow": "orchestrator.workflow",
    "WorkflowBuilder": "orchestrator.builder.workflow",
    "WorkflowStatus": "orchestrator.application.states",
    "load_spec": "orchestrator.application.validation",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
