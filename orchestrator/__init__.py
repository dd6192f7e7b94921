"""Durable workflows, written as data, for teams that already run Redis and RQ."""

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
from orchestrator.application.record import StepStatus, WorkflowStatus
from orchestrator.application.validation import load_spec
from orchestrator.backend.backend import Backend
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
    "WorkflowStatus",
    "__version__",
    "load_spec",
]
