"""Which call of an executor it was, and by which names a test may ask for it."""

from __future__ import annotations

from typing import Any

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.spec.model import UNDO
from orchestrator.backend.copies import copied
from orchestrator.testing.clock import moment


class Call(dict[str, Any]):
    """The inputs of one call, which equal any dictionary with the same content, and beside them which call
    it was: `step` as the history names it (`lines#1` is an item, `charge#undo` a compensation), `fn`,
    `execution_id`, `attempt`, `run_id`, `idempotency_key`, and `at`."""

    def __init__(self, job: DispatchJob, at_ms: int) -> None:
        super().__init__(copied(job.inputs))
        self.step, self.fn = job.step_id, job.fn
        self.execution_id = job.workflow_execution_id.partition("#")[2]
        self.attempt, self.run_id = job.attempt, job.run_id
        self.idempotency_key = job.idempotency_key
        self.at = moment(at_ms)

    def is_of(self, name: str) -> bool:
        return name in names_of(self.step, self.fn)


def names_of(unit: str, fn: str) -> list[str]:
    """By what a test may mean a dispatch, the nearest first: the unit, its step, its executor. A compensation
    is not its step."""
    step_id, _, part = unit.partition("#")
    return list(dict.fromkeys([unit, fn] if part == UNDO else [unit, step_id, fn]))
