"""One execution on a stage, as a test moves it and looks at it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.application.engine.dispatch import child_execution_id
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import Control, ResultEvent, StartedEvent, make_failure
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord

if TYPE_CHECKING:
    from language.stage import Stage

Json = dict[str, Any]
Said = ResultEvent | StartedEvent
"""What a worker says of its job."""


class Execution:
    """`execution` is its id. Results may be brought for any of its jobs, in any order and more than once."""

    def __init__(self, stage: Stage, execution: str) -> None:
        self._stage, self.execution = stage, execution

    # ---- what happens from outside

    def finish(self, unit: str, output: Any = None, job: DispatchJob | None = None) -> ResultEvent:
        """A worker brings a result, and whatever follows has followed."""
        said = self.result(unit, output, job)
        self._stage.deliver(said)
        return said

    def fail(
        self, unit: str, message: str = "boom", kind: str = "exception", job: DispatchJob | None = None
    ) -> ResultEvent:
        said = self.error_of(unit, message, kind, job)
        self._stage.deliver(said)
        return said

    def report_started(self, unit: str, job: DispatchJob | None = None) -> StartedEvent:
        job = job or self.out[unit]
        said = StartedEvent(job.workflow_execution_id, unit, job.run_id, job.attempt, job.token, "tester")
        self._stage.deliver(said)
        return said

    def lose(self, unit: str, after: str = "0s") -> None:
        """The worker of this unit dies; so much later it is noticed, with all that is due by then."""
        self._stage.lose_job(self.out[unit], after)

    def signal(self, name: str, payload: Any = None, execution: str | None = None) -> None:
        self._stage.send_signal(execution or self.execution, name, payload)

    def control(
        self, action: Control, step: str | None = None, reason: str | None = None, by: str | None = None
    ) -> None:
        """An operator's word; InvalidEvent with the reason when it is refused."""
        self._stage.send_control(self.execution, action, step, reason, by)

    # ---- what a worker would say

    def result(self, unit: str, output: Any = None, job: DispatchJob | None = None) -> ResultEvent:
        """The result of a job: of the one that is out, unless it is given."""
        job = job or self.out[unit]
        return ResultEvent(
            job.workflow_execution_id, unit, output, None, job.run_id, job.attempt, job.token, "tester"
        )

    def error_of(
        self, unit: str, message: str = "boom", kind: str = "exception", job: DispatchJob | None = None
    ) -> ResultEvent:
        return replace(self.result(unit, None, job), error=make_failure(kind, message))

    # ---- looking

    @property
    def record(self) -> WorkflowRecord:
        return self._stage.record_of(self.execution)

    @property
    def history(self) -> list[Json]:
        return self._stage.history_of(self.execution)

    def child(self, step_id: str, run_id: int | None = None) -> Execution:
        """The child that a step has, or that a run of it had; RecordNotFound when it has not begun."""
        found = self[step_id].child if run_id is None else None
        wanted = found or child_execution_id(self.record.execution_id, step_id, run_id or 0)
        return Execution(self._stage, self._stage.record_of(wanted).workflow_execution_id)

    @property
    def jobs(self) -> list[DispatchJob]:
        """All jobs that it ever had."""
        return [job for job in self._stage.all_jobs if job.workflow_execution_id == self.execution]

    @property
    def out(self) -> dict[str, DispatchJob]:
        """By unit, the jobs whose result is awaited; a step that waits for its child has none."""
        by_token = {job.token: job for job in self.jobs}
        waiting = {unit: one.token for unit, one in self.record.units() if one.child is None}
        return {unit: by_token[token] for unit, token in waiting.items() if token is not None}

    def __getitem__(self, unit: str) -> StepRecord:
        record = self.record
        return record.items[unit] if "#" in unit else record.steps[unit]

    @property
    def statuses(self) -> dict[str, str]:
        return {step_id: str(step.status) for step_id, step in self.record.steps.items()}

    @property
    def run_ids(self) -> dict[str, int]:
        return {step_id: step.run_id for step_id, step in self.record.steps.items()}

    @property
    def status(self) -> str:
        return str(self.record.status)

    @property
    def outcome(self) -> Any:
        return self.record.outcome

    @property
    def error(self) -> Json:
        """The error of the workflow, which must have one."""
        error = self.record.error
        assert error is not None, f"the workflow is {self.status}, without an error"
        return error

    @property
    def state(self) -> Json:
        return self.record.state

    def moves(self, unit: str) -> list[str]:
        """The states that a unit has moved to, in order."""
        return [entry["to"] for entry in self.history if entry.get("step") == unit and "to" in entry]

    def executions_of(self, unit: str) -> int:
        """How often a unit was dispatched."""
        return sum(1 for job in self.jobs if job.step_id == unit)

    def error_kind(self, unit: str) -> str | None:
        error = self[unit].error
        return None if error is None else str(error["kind"])

    def deadline_in(self, unit: str) -> float | None:
        """How many seconds are left until the deadline of a unit, if it has one."""
        deadline_ms = self[unit].deadline_ms
        return None if deadline_ms is None else (deadline_ms - self._stage.now_ms) / 1000
