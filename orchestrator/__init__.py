"""Durable workflows, written as data, for teams that already run Redis and RQ.

Each public name is imported on first use: the work-horse of every step imports this package, and must not
load what it does not use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.deprecation import renamed_names

if TYPE_CHECKING:
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
        StartRejected,
        StoreError,
    )
    from orchestrator.application.records.decisions import (
        Cancelled,
        Complete,
        Dispatch,
        DispatchJob,
        Failed,
        Halt,
        Pending,
        StateChangeEvent,
    )
    from orchestrator.application.records.status import StepStatus, WorkflowStatus
    from orchestrator.application.spec.validation import load_spec
    from orchestrator.backend.backend import Backend
    from orchestrator.builder.workflow import WorkflowBuilder
    from orchestrator.functions import op
    from orchestrator.functions.again import Again
    from orchestrator.functions.forms import (
        child,
        loop,
        map_each,
        sleep,
        step_of,
        switch,
        wait_for,
        wait_for_any,
    )
    from orchestrator.functions.steps import executor, step
    from orchestrator.functions.workflows import workflow
    from orchestrator.local.workflow import Workflow

__version__ = "0.1.1"  # the version of the distribution too: pyproject.toml reads it here

__all__ = [
    "Again",
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
    "StartRejected",
    "StateChangeEvent",
    "StepStatus",
    "StoreError",
    "Workflow",
    "WorkflowBuilder",
    "WorkflowStatus",
    "__version__",
    "child",
    "executor",
    "load_spec",
    "loop",
    "map_each",
    "op",
    "sleep",
    "step",
    "step_of",
    "switch",
    "wait_for",
    "wait_for_any",
    "workflow",
]

_HOMES = {
    "Again": "orchestrator.functions.again",
    "Backend": "orchestrator.backend.backend",
    "Cancelled": "orchestrator.application.records.decisions",
    "Complete": "orchestrator.application.records.decisions",
    "Dispatch": "orchestrator.application.records.decisions",
    "DispatchJob": "orchestrator.application.records.decisions",
    "ExecutorNotFound": "orchestrator.application.errors",
    "ExpressionError": "orchestrator.application.errors",
    "Failed": "orchestrator.application.records.decisions",
    "Halt": "orchestrator.application.records.decisions",
    "IllegalTransition": "orchestrator.application.errors",
    "InvalidEvent": "orchestrator.application.errors",
    "InvalidSpec": "orchestrator.application.errors",
    "OrchestratorError": "orchestrator.application.errors",
    "Pending": "orchestrator.application.records.decisions",
    "Problem": "orchestrator.application.errors",
    "RecordConflict": "orchestrator.application.errors",
    "RecordExists": "orchestrator.application.errors",
    "RecordNotFound": "orchestrator.application.errors",
    "StartRejected": "orchestrator.application.errors",
    "StateChangeEvent": "orchestrator.application.records.decisions",
    "StepStatus": "orchestrator.application.records.status",
    "StoreError": "orchestrator.application.errors",
    "Workflow": "orchestrator.local.workflow",
    "WorkflowBuilder": "orchestrator.builder.workflow",
    "WorkflowStatus": "orchestrator.application.records.status",
    "child": "orchestrator.functions.forms",
    "executor": "orchestrator.functions.steps",
    "load_spec": "orchestrator.application.spec.validation",
    "loop": "orchestrator.functions.forms",
    "map_each": "orchestrator.functions.forms",
    "op": "orchestrator.functions",
    "sleep": "orchestrator.functions.forms",
    "step": "orchestrator.functions.steps",
    "step_of": "orchestrator.functions.forms",
    "switch": "orchestrator.functions.forms",
    "wait_for": "orchestrator.functions.forms",
    "wait_for_any": "orchestrator.functions.forms",
    "workflow": "orchestrator.functions.workflows",
}

_RENAMED = renamed_names(__name__, {"StartRefused": "StartRejected"})


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        return _RENAMED(name)
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
