"""Layer 2: Backend composes any Store with any Runner."""

from importlib import import_module
from typing import Any

from orchestrator.application.records.delta import build_delta
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord
from orchestrator.backend.backend import Backend
from orchestrator.backend.ids import next_version, random_nonce
from orchestrator.backend.memory import InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Commit, Committed, Runner, Store, check_version
from orchestrator.backend.record_json import record_as_dict, record_from_dict
from orchestrator.backend.sqlite.runner import SqliteRunner
from orchestrator.backend.sqlite.store import SqliteStore
from orchestrator.backend.status_changes import StatusChange

__all__ = [
    "Backend",
    "Commit",
    "Committed",
    "InMemoryStore",
    "InProcessRunner",
    "Runner",
    "SqliteRunner",
    "SqliteStore",
    "StatusChange",
    "StepRecord",
    "Store",
    "WorkflowRecord",
    "build_delta",
    "check_version",
    "next_version",
    "random_nonce",
    "record_as_dict",
    "record_from_dict",
]

_RUNFOX_NAMES = {"InProcessWorker": "orchestrator.local.worker"}
"""Names that programs written for runfox import from here. This package must not import their modules."""


def __getattr__(name: str) -> Any:
    if name not in _RUNFOX_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_RUNFOX_NAMES[name]), name)
