"""Run workflows in one process, without Redis."""

from orchestrator.local.worker import InProcessWorker
from orchestrator.local.workflow import Workflow

__all__ = ["InProcessWorker", "Workflow"]
