"""Layer 2: Backend composes a Store and a Runner, whichever they are."""

from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord
from orchestrator.backend.backend import Backend
from orchestrator.backend.memory import InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Runner, Store
from orchestrator.backend.sqlite.runner import SqliteRunner
from orchestrator.backend.sqlite.store import SqliteStore
from orchestrator.backend.worker import InProcessWorker

__all__ = [
    "Backend",
    "InMemoryStore",
    "InProcessRunner",
    "InProcessWorker",
    "Runner",
    "SqliteRunner",
    "SqliteStore",
    "StepRecord",
    "Store",
    "WorkflowRecord",
]
