"""An execution in a workflow test, the root or a child: read its state and control it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import UnitId
from orchestrator.local.workflow import Workflow
from orchestrator.testing.driver import SimulatedSystem
from orchestrator.testing.errors import WorkflowTestError, unknown_name_error
from orchestrator.testing.waits import Wait, find_waits


@dataclass(frozen=True, slots=True)
class Step:
    """The state of a step, an item of a map or a compensation; `record` has all its data."""

    id: str
    record: StepRecord
    items: tuple[Step, ...] = ()

    @property
    def status(self) -> StepStatus:
        return self.record.status

    @property
    def output(self) -> Any:
        return self.record.output

    @property
    def error(self) -> dict[str, Any] | None:
        return self.record.error

    @property
    def reason(self) -> str | None:
        """Why it was skipped, filtered or cancelled."""
        return self.record.reason

    @property
    def attempt(self) -> int:
        return self.record.attempt

    @property
    def run_id(self) -> int:
        return self.record.run_id

    @property
    def lost(self) -> int:
        """How many workers died during this attempt."""
        return self.record.lost

    def item(self, n: int) -> Step:
        if not 0 <= n < len(self.items):
            raise WorkflowTestError(f"step {self.id} has no item {n}: it has {len(self.items)}")
        return self.items[n]


class Execution:
    """One execution of a workflow in a test: read it, control it and send it signals."""

    def __init__(self, system: SimulatedSystem, workflow_execution_id: str) -> None:
        self._system = system
        self._workflow = Workflow(workflow_execution_id, system.backend)

    # ---- reading

    @property
    def record(self) -> WorkflowRecord:
        """A copy of its record."""
        return self._system.backend.load(self._workflow.id)

    @property
    def id(self) -> str:
        """The execution id."""
        return self.record.execution_id

    @property
    def status(self) -> WorkflowStatus:
        return self._workflow.status

    @property
    def outcome(self) -> Any:
        """The resolved outputs, or the result of a halt; None before the end."""
        return self._workflow.outcome

    @property
    def error(self) -> dict[str, Any] | None:
        return self._workflow.error

    @property
    def state(self) -> dict[str, Any]:
        return self._workflow.state

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per transition, the oldest first."""
        return self._workflow.history

    @property
    def statuses(self) -> dict[str, StepStatus]:
        """The status of every step."""
        return self._workflow.step_statuses

    def step(self, step_id: str) -> Step:
        """A step by its id; an item or a compensation by its name in the history, as `lines#1`."""
        record = self.record
        known = dict(record.units())
        if step_id not in known:
            raise unknown_name_error("there is no step", step_id, record.steps)
        counts = known[step_id].items
        units = [UnitId.for_item(step_id, n) for n in range(0 if counts is None else counts.count)]
        return Step(
            step_id, known[step_id], tuple(Step(unit, known[unit]) for unit in units if unit in known)
        )

    def child(self, step_id: str) -> Execution:
        """The last child that a step has started."""
        step = self.step(step_id).record
        child = self._child_of(step)
        if child is None:
            raise WorkflowTestError(f"step {step_id} has no child: it is {step.status}")
        return child

    @property
    def waits(self) -> list[Wait]:
        """What the execution and its children wait for."""
        return list(self._waits())

    @property
    def waits_for(self) -> list[str]:
        """The same as text: "approval: signal manager until 2026-01-02T00:00:00Z"."""
        return [str(wait) for wait in self.waits]

    def _waits(self) -> Iterator[Wait]:
        record = self.record
        yield from find_waits(record, self._system.result_due_ms)
        for step_id, step in record.steps.items():
            child = self._child_of(step) if step.token is not None else None
            for wait in child.waits if child is not None else ():
                yield replace(wait, step=f"{step_id}/{wait.step}" if wait.step else step_id)

    def _child_of(self, step: StepRecord) -> Execution | None:
        if step.child is None:
            return None
        try:
            return Execution(self._system, self._system.backend.find(step.child))
        except RecordNotFound:
            return None  # its start event is not handled yet

    # ---- controls

    def signal(self, name: str, payload: Any = None) -> Self:
        """Send a signal: to the step that waits for it now, or to the next one that does."""
        waits = [step.wait for step in self.record.spec.steps if step.wait is not None]
        known = [signal for wait in waits for signal in wait.signals]
        if name not in known:
            raise unknown_name_error("no step waits for a signal", name, known)
        self._system.run_despite_kills(lambda: self._workflow.signal(name, payload))
        return self

    def cancel(self, reason: str | None = None, by: str | None = None) -> Self:
        """Cancel the execution and its children; InvalidEvent when it has ended in another way."""
        self._system.run_despite_kills(lambda: self._workflow.cancel(reason, by))
        return self

    def pause(self, reason: str | None = None, by: str | None = None) -> Self:
        """Dispatch nothing until unpause(). Running steps continue."""
        self._system.run_despite_kills(lambda: self._workflow.pause(reason, by))
        return self

    def unpause(self) -> Self:
        self._system.run_despite_kills(self._workflow.unpause)
        return self

    def hold(self, step_id: str) -> Self:
        """Keep a step that is not in progress from starting, until release()."""
        self._system.run_despite_kills(lambda: self._workflow.hold(step_id))
        return self

    def release(self, step_id: str) -> Self:
        self._system.run_despite_kills(lambda: self._workflow.release(step_id))
        return self
