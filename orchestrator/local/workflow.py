"""Workflow: a handle on one execution. It holds an id and a backend, and nothing else.

    run()             the loop for one process: decide, dispatch, work, gather, and again
    advance()         what can run now, claimed and written down: the caller dispatches it
    on_step_result()  what a step brought back

Two handles with the same id are interchangeable. Whatever is decided is decided upon the record as it is
kept: when somebody else commits first, it is loaded and decided upon again.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from orchestrator.application.engine.transitions import (
    StepResult,
    advance,
    decide,
    on_step_result,
    signal_rejection_reason,
)
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import (
    Cancelled,
    Complete,
    Decision,
    Dispatch,
    Failed,
    FinalDecision,
    Halt,
    Pending,
    replace_outcome,
)
from orchestrator.application.records.events import ControlEvent, ResultEvent, SignalEvent, StepEvent, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_log import LogLine
from orchestrator.backend.backend import Backend
from orchestrator.backend.copies import isolate_decision, to_plain_json
from orchestrator.backend.results import as_results, make_result
from orchestrator.local.driver import ExecutionDriver, due_timer_events

FIRST_PAUSE_S = 0.001

_FINAL = (Complete, Halt, Failed, Cancelled)
_R = TypeVar("_R")


class Worker(Protocol):
    """Whatever runs the jobs of a runner."""

    def run(self, workflow_execution_id: str) -> None: ...


class Workflow:
    def __init__(self, workflow_execution_id: str, backend: Backend) -> None:
        self.id, self.backend = workflow_execution_id, backend

    @classmethod
    def from_yaml(cls, text: str, backend: Backend, inputs: dict[str, Any] | None = None) -> Workflow:
        """Create an execution of a spec in YAML or JSON; InvalidSpec with all that is wrong with it."""
        return cls(backend.create(text, inputs), backend)

    @classmethod
    def from_dict(
        cls, spec: dict[str, Any], backend: Backend, inputs: dict[str, Any] | None = None
    ) -> Workflow:
        return cls(backend.create(spec, inputs), backend)

    @classmethod
    def resume(cls, workflow_execution_id: str, backend: Backend) -> Workflow:
        """A handle on an execution that exists, by its id or execution id; KeyError when there is none."""
        return cls(backend.find(workflow_execution_id), backend)

    # ---- moving

    def run(self, worker: Worker | None = None) -> FinalDecision:
        """Drive the execution and its children to their end, with a worker of this process or with workers
        elsewhere. Steps that a process before this one left in progress are dispatched again. A child that is
        cancelled may have to undo what it did: it is waited for. A webhook is attempted if it is due, by a
        worker of this process; its next attempt is not waited for, but made by whoever runs this again then.
        """
        worker = worker if worker is not None else self.backend.worker
        driver = ExecutionDriver(self.backend, self.id)
        driver.take_over()
        decision = self._decide(self.backend.find_lost_dispatches, driver)
        pause_s = FIRST_PAUSE_S
        while not isinstance(decision, _FINAL) or driver.children:
            results: list[ResultEvent] = []
            if isinstance(decision, Dispatch):
                results += as_results(self.id, self.backend.dispatch(self.id, decision.jobs))
            if worker is not None:
                for one in (self.id, *driver.children):
                    worker.run(one)
            results += self.backend.results(self.id)
            if driver.run_once() or results:
                pause_s = FIRST_PAUSE_S
            else:
                pause_s = min(pause_s * 2, self.backend.poll_interval)
                time.sleep(pause_s)
            decision = self._decide(partial(self._with_due, results), driver)
        driver.deliver_events()  # whoever waits for this end hears of it: a parent, or the next in line
        self._attempt_webhooks(driver, worker)
        ended = isolate_decision(decision)
        return replace_outcome(ended, self.backend.loaded)

    def _attempt_webhooks(self, driver: ExecutionDriver, worker: Worker | None) -> None:
        if driver.pending_webhooks and worker is not None:
            driver.run_once()
            for one in list(driver.pending_webhooks):
                worker.run(one)
            driver.run_once()

    def signal(self, name: str, payload: Any = None) -> None:
        """Say something to the execution: the step that waits for it has it, or one that will. InvalidEvent
        when it has ended."""
        event = SignalEvent(self.id, name, to_plain_json(payload))

        def unless_ended(record: WorkflowRecord) -> list[StepEvent]:
            if record.is_final:
                raise InvalidEvent(signal_rejection_reason(record, record.status))
            return [event]

        ExecutionDriver(self.backend).decide(self.id, unless_ended)

    def cancel(self, reason: str | None = None, by: str | None = None) -> None:
        """End the execution, and its children; InvalidEvent when it has ended otherwise."""
        self._control(ControlEvent(self.id, "cancel", reason=reason, by=by))

    def pause(self) -> None:
        """Dispatch nothing any more until unpause(); what runs goes on."""
        self._control(ControlEvent(self.id, "pause"))

    def unpause(self) -> None:
        self._control(ControlEvent(self.id, "unpause"))

    def hold(self, step_id: str) -> None:
        """Keep a step that is not in progress where it is, until release()."""
        self._control(ControlEvent(self.id, "hold", step_id))

    def release(self, step_id: str) -> None:
        self._control(ControlEvent(self.id, "release", step_id))

    def retry(
        self, reason: str | None = None, by: str | None = None, inputs: dict[str, Any] | None = None
    ) -> None:
        """Open an execution that failed or was cancelled again: run() runs what did not complete. `inputs`
        take the place of those that were wrong."""
        self._control(ControlEvent(self.id, "retry", reason=reason, by=by, inputs=to_plain_json(inputs)))

    def rerun(
        self,
        step_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: dict[str, Any] | None = None,
    ) -> None:
        """The same, also of one that completed, and beginning with this step and all that depend on it."""
        self._control(
            ControlEvent(self.id, "rerun", step_id, reason=reason, by=by, inputs=to_plain_json(inputs))
        )

    def delete(self) -> None:
        """Keep nothing of an execution that has ended."""
        self._control(ControlEvent(self.id, "delete"))

    def _control(self, event: ControlEvent) -> None:
        driver, moment = ExecutionDriver(self.backend), self.backend.moment("control")

        def unless_refused(record: WorkflowRecord) -> list[StepEvent]:
            on_step_result(record, event, moment)  # raises InvalidEvent
            return [event]

        driver.decide(self.id, unless_refused)
        while driver.deliver_events():
            pass  # its children hear of it, and theirs

    def _with_due(self, results: list[ResultEvent], record: WorkflowRecord) -> list[StepEvent]:
        return [*results, *self._due(record)]

    def _due(self, record: WorkflowRecord) -> list[StepEvent]:
        return due_timer_events(record, self.backend.clock())

    def advance(self) -> Decision:
        """Claim every step that can run, or end the workflow. Nothing is dispatched: the caller does that.

        Children are begun by run() alone, or by a coordinator.
        """
        driver = ExecutionDriver(self.backend)
        while True:
            moment = self.backend.moment("advance")
            decision = self._commit(lambda record, moment=moment: advance(record, moment))  # type: ignore[misc]
            if not isinstance(decision, Pending) or not driver.deliver_events():
                return isolate_decision(decision)

    def on_step_result(
        self,
        step_id: str,
        output: Any,
        *,
        error: dict[str, Any] | None = None,
        run_id: int | None = None,
        attempt: int | None = None,
        token: str | None = None,
    ) -> StepResult:
        """Write down what a step brought back; advance() finds what follows.

        Halt or Failed when that ended the workflow, Pending when the step will be tried again, else None.
        A result is dropped when the step is not in progress, or not under this run_id, attempt or token.
        """
        result = make_result(self.id, step_id, output, error=error)
        event = ResultEvent(self.id, step_id, result.output, result.error, run_id, attempt, token)
        moment = self.backend.moment("on_step_result")
        return isolate_decision(self._commit(lambda record: on_step_result(record, event, moment)))

    def _decide(
        self, events_for: Callable[[WorkflowRecord], list[Any]], driver: ExecutionDriver | None = None
    ) -> Decision:
        """Apply a batch of results and advance, in one commit."""
        moment = self.backend.moment("run")

        def both(record: WorkflowRecord) -> tuple[Changes, Decision]:
            events: list[StepEvent] = events_for(record)
            decided = decide(record, events, moment)
            for position, reason in decided.rejected:
                warnings.warn(f"result {position} was refused: {reason}", RuntimeWarning, stacklevel=4)
            return decided.changes, decided.decision

        return self._commit(both, driver)

    def _commit(
        self,
        decide_upon: Callable[[WorkflowRecord], tuple[Changes, _R]],
        driver: ExecutionDriver | None = None,
    ) -> _R:
        decision = (driver or ExecutionDriver(self.backend)).commit(self.id, decide_upon)
        return cast(_R, decision)

    # ---- looking

    @property
    def status(self) -> WorkflowStatus:
        return self.backend.load(self.id).status

    @property
    def outcome(self) -> Any:
        """The resolved outputs, or the result of a halt; None before the end. What is kept of it by reference
        is loaded."""
        return self.backend.loaded(self.backend.load(self.id).outcome)

    @property
    def error(self) -> dict[str, Any] | None:
        return self.backend.load(self.id).error

    @property
    def state(self) -> dict[str, Any]:
        return self.backend.load(self.id).state

    @property
    def step_statuses(self) -> dict[str, StepStatus]:
        return {step_id: step.status for step_id, step in self.backend.load(self.id).steps.items()}

    @property
    def progress(self) -> dict[str, int]:
        """How many steps are in each status, and in `total`; the statuses of runfox are always there."""
        counts: dict[str, int] = dict.fromkeys(_ALWAYS_COUNTED, 0)
        steps = self.backend.load(self.id).steps
        for step in steps.values():
            counts[step.status] = counts.get(step.status, 0) + 1
        return {**counts, "total": len(steps)}

    @property
    def step_durations(self) -> dict[str, float]:
        """Seconds from start to end, or to now, of each step that has started."""
        now = datetime.fromisoformat(iso(self.backend.clock()))
        return {
            step_id: _seconds_between(step.start_time, step.end_time, now)
            for step_id, step in self.backend.load(self.id).steps.items()
            if step.start_time is not None
        }

    @property
    def elapsed(self) -> float:
        """Seconds from the first start of a step to the last end, or to now while one has none; else 0.0."""
        started = [s for s in self.backend.load(self.id).steps.values() if s.start_time is not None]
        if not started:
            return 0.0
        ends = [step.end_time for step in started if step.end_time is not None]
        last = max(ends) if len(ends) == len(started) else iso(self.backend.clock())
        first = min(step.start_time for step in started if step.start_time is not None)
        return _seconds_between(first, last, datetime.fromisoformat(last))

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per transition, the oldest first."""
        return self.backend.history(self.id)

    def lines(self, step: str | None = None) -> list[LogLine]:
        """What executors said, by `log` and in the notes of their heartbeats: all of them, or of one step."""
        return self.backend.lines(self.id, step)

    def __repr__(self) -> str:
        try:
            return f"Workflow(id={self.id!r}, status={self.status.value!r})"
        except KeyError:
            return f"Workflow(id={self.id!r}, status=None)"


_ALWAYS_COUNTED = (
    StepStatus.READY,
    StepStatus.IN_PROGRESS,
    StepStatus.COMPLETE,
    StepStatus.HALTED,
    StepStatus.RETRY,
)


def _seconds_between(start: str | None, end: str | None, now: datetime) -> float:
    assert start is not None
    return ((datetime.fromisoformat(end) if end else now) - datetime.fromisoformat(start)).total_seconds()
