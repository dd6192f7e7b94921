"""Workflow: a handle on one execution. It holds only an id and a backend.

    run()             the loop for one process: decide, dispatch, run jobs, gather results, repeat
    advance()         claims every step that can run now; the caller dispatches them
    on_step_result()  records the result of a step

Two handles with the same id are interchangeable. Every decision is made upon the stored record: when another
process commits first, the record is loaded again and the decision is repeated.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, cast

from orchestrator.application.engine.transitions import (
    StepResult,
    advance,
    decide,
    on_step_result,
    signal_rejection_reason,
)
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.explain.run_status import RunStatus, make_run_status
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import (
    Decision,
    Dispatch,
    FinalDecision,
    Pending,
    replace_outcome,
)
from orchestrator.application.records.events import ControlEvent, ResultEvent, SignalEvent, StepEvent, iso
from orchestrator.application.records.record import WorkflowRecord, find_last_outputs
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_log import LogLine
from orchestrator.backend.backend import Backend
from orchestrator.backend.copies import isolate_decision, to_plain_json
from orchestrator.backend.ports import StepLogStore, Worker
from orchestrator.backend.results import as_results, make_result
from orchestrator.local.driver import DecideFunction, ExecutionDriver, due_timer_events
from orchestrator.local.job_call import CallEnvironment
from orchestrator.local.run_loop import RunLoop
from orchestrator.local.run_progress import FINAL

FIRST_PAUSE_S = 0.001

_R = TypeVar("_R")


class Workflow:
    """A handle on one execution, which runs in this process. It has only an id and a backend."""

    def __init__(self, workflow_execution_id: str, backend: Backend) -> None:
        self.id, self.backend = workflow_execution_id, backend

    @classmethod
    def from_yaml(cls, text: str, backend: Backend, inputs: dict[str, Any] | None = None) -> Workflow:
        """Create an execution of a spec in YAML or JSON; InvalidSpec lists all its problems."""
        return cls(backend.create(text, inputs), backend)

    @classmethod
    def from_dict(
        cls, spec: dict[str, Any], backend: Backend, inputs: dict[str, Any] | None = None
    ) -> Workflow:
        return cls(backend.create(spec, inputs), backend)

    @classmethod
    def resume(cls, workflow_execution_id: str, backend: Backend) -> Workflow:
        """A handle on an existing execution, by its id or execution id; KeyError when there is none."""
        return cls(backend.find(workflow_execution_id), backend)

    # ---- running

    def run(self, worker: Worker | None = None) -> FinalDecision:
        """Run the execution and its children to their end: with the backend's executor in threads of this
        process, with a worker, or with workers elsewhere if there is neither.

        Steps that an earlier process left in progress are dispatched again. A cancelled child is waited for,
        because it may have to compensate. A due webhook is attempted once, by this process; the next run()
        makes its next attempt.
        """
        environment = None if worker is not None else self._call_environment()
        driver = ExecutionDriver(self.backend, self.id)
        if environment is None:
            decision = self._run_serially(driver, worker)
        else:
            decision = RunLoop(self.backend, self.id, environment, driver, self._decider).run()
        ended = isolate_decision(decision)
        return replace_outcome(cast(FinalDecision, ended), self.backend.load_payloads)

    def _run_serially(self, driver: ExecutionDriver, worker: Worker | None) -> Decision:
        """Run with a worker that runs all pending jobs when it is called, or with workers elsewhere."""
        driver.take_over()
        decision = self._decide(driver.find_lost_and_due, driver)
        pause_s = FIRST_PAUSE_S
        while not isinstance(decision, FINAL) or driver.children:
            results: list[ResultEvent] = []
            if isinstance(decision, Dispatch):
                results += as_results(self.id, self.backend.dispatch(self.id, decision.jobs))
            if worker is not None:
                for one in (self.id, *driver.children):
                    worker.run(one)
            found = self.backend.results(self.id)
            results += found
            if driver.run_once() or results:
                pause_s = FIRST_PAUSE_S
            else:
                pause_s = min(pause_s * 2, self.backend.poll_interval)
                time.sleep(pause_s)
            is_sweep = driver.is_sweep_due()
            if is_sweep:
                driver.take_over()
            decision = self._decide(partial(self._with_due, results, is_sweep), driver)
            self.backend.acknowledge(found)
        driver.deliver_events()  # to the parent, or to the next waiter for a slot
        self._attempt_webhooks(driver, worker)
        return decision

    def _call_environment(self) -> CallEnvironment | None:
        """What the calls of the backend's executor share, built once for all executions."""
        backend = self.backend
        if backend.call_environment is None and backend.executor is not None:
            backend.call_environment = CallEnvironment(
                backend.runner,
                backend.executor,
                clock=backend.clock,
                step_log_store=backend.store if isinstance(backend.store, StepLogStore) else None,
                payloads=backend.payloads,
                settings=backend.settings,
            )
        found: CallEnvironment | None = backend.call_environment
        return found

    def _attempt_webhooks(self, driver: ExecutionDriver, worker: Worker | None) -> None:
        if driver.pending_webhooks and worker is not None:
            driver.run_once()
            for one in list(driver.pending_webhooks):
                worker.run(one)
            driver.run_once()

    def signal(self, name: str, payload: Any = None) -> None:
        """Send a signal to the execution: to the step that waits for it now, or to the next one that does.
        InvalidEvent when the execution has ended."""
        event = SignalEvent(self.id, name, to_plain_json(payload))

        def check_is_open(record: WorkflowRecord) -> list[StepEvent]:
            if record.is_final:
                raise InvalidEvent(signal_rejection_reason(record, record.status))
            return [event]

        ExecutionDriver(self.backend).decide(self.id, check_is_open)

    def cancel(self, reason: str | None = None, by: str | None = None) -> None:
        """Cancel the execution and its children; InvalidEvent when it has ended in another way."""
        self._control(ControlEvent(self.id, "cancel", reason=reason, by=by))

    def pause(self, reason: str | None = None, by: str | None = None) -> None:
        """Dispatch nothing until unpause(). Running steps continue."""
        self._control(ControlEvent(self.id, "pause", reason=reason, by=by))

    def unpause(self) -> None:
        self._control(ControlEvent(self.id, "unpause"))

    def hold(self, step_id: str) -> None:
        """Keep a step that is not in progress from starting, until release()."""
        self._control(ControlEvent(self.id, "hold", step_id))

    def release(self, step_id: str) -> None:
        self._control(ControlEvent(self.id, "release", step_id))

    def retry(
        self, reason: str | None = None, by: str | None = None, inputs: dict[str, Any] | None = None
    ) -> None:
        """Reopen an execution that failed or was cancelled: run() then runs the steps that did not complete.
        `inputs` replaces the inputs of the execution."""
        self._control(ControlEvent(self.id, "retry", reason=reason, by=by, inputs=to_plain_json(inputs)))

    def rerun(
        self,
        step_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: dict[str, Any] | None = None,
    ) -> None:
        """Reopen an execution, also a complete one, and run this step and all that depend on it again."""
        self._control(
            ControlEvent(self.id, "rerun", step_id, reason=reason, by=by, inputs=to_plain_json(inputs))
        )

    def delete(self) -> None:
        """Permanently delete an execution that has ended."""
        self._control(ControlEvent(self.id, "delete"))

    def _control(self, event: ControlEvent) -> None:
        driver, moment = ExecutionDriver(self.backend), self.backend.moment("control")

        def check_is_accepted(record: WorkflowRecord) -> list[StepEvent]:
            on_step_result(record, event, moment)  # raises InvalidEvent
            return [event]

        driver.decide(self.id, check_is_accepted)
        while driver.deliver_events():
            pass  # to its children, and to their children

    def _with_due(
        self, results: list[ResultEvent], is_sweep: bool, record: WorkflowRecord
    ) -> list[StepEvent]:
        lost = self.backend.find_lost_dispatches(record) if is_sweep else []
        return [*results, *self._due(record), *lost]

    def _due(self, record: WorkflowRecord) -> list[StepEvent]:
        return due_timer_events(record, self.backend.clock)

    def advance(self) -> Decision:
        """Claim every step that can run, or end the workflow. The caller dispatches the jobs.

        Only run() and coordinators start children.
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
        """Record the result of a step; advance() decides what runs next.

        Returns Halt or Failed if the result ended the workflow, Pending if the step is retried, else None.
        A result is dropped when the step is not in progress, or has another run_id, attempt or token.
        """
        result = make_result(self.id, step_id, output, error=error)
        event = ResultEvent(self.id, step_id, result.output, result.error, run_id, attempt, token)
        moment = self.backend.moment("on_step_result")
        return isolate_decision(self._commit(lambda record: on_step_result(record, event, moment)))

    def _decide(
        self, events_for: Callable[[WorkflowRecord], list[Any]], driver: ExecutionDriver | None = None
    ) -> Decision:
        """Apply a batch of results and advance, in one commit."""
        return self._commit(self._decider(events_for), driver)

    def _decider(
        self, events_for: Callable[[WorkflowRecord], Sequence[StepEvent]]
    ) -> DecideFunction[Decision]:
        moment = self.backend.moment("run")

        def both(record: WorkflowRecord) -> tuple[Changes, Decision]:
            decided = decide(record, events_for(record), moment)
            for position, reason in decided.rejected:
                warnings.warn(f"result {position} was rejected: {reason}", RuntimeWarning, stacklevel=4)
            return decided.changes, decided.decision

        return both

    def _commit(
        self,
        decide_upon: Callable[[WorkflowRecord], tuple[Changes, _R]],
        driver: ExecutionDriver | None = None,
    ) -> _R:
        decision = (driver or ExecutionDriver(self.backend)).commit(self.id, decide_upon)
        return cast(_R, decision)

    # ---- reading

    @property
    def status(self) -> WorkflowStatus:
        return self.backend.load(self.id).status

    @property
    def run_status(self) -> RunStatus:
        """The execution and its steps at this moment: states, times, errors and names of outputs."""
        return make_run_status(self.backend.status_view(self.id), self.backend.clock())

    @property
    def outcome(self) -> Any:
        """The resolved outputs, or the result of a halt; None before the end. Large values are loaded."""
        return self.backend.load_payloads(self.backend.load(self.id).outcome)

    @property
    def last_outputs(self) -> dict[str, Any]:
        """The output of each completed step on which no other step depends. Large values are loaded."""
        outputs: dict[str, Any] = self.backend.load_payloads(
            find_last_outputs(self.backend.load(self.id)), "outputs"
        )
        return outputs

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
        """The number of steps in each status, and in `total`; the statuses of runfox are always included."""
        counts: dict[str, int] = dict.fromkeys(_ALWAYS_COUNTED, 0)
        steps = self.backend.load(self.id).steps
        for step in steps.values():
            counts[step.status] = counts.get(step.status, 0) + 1
        return {**counts, "total": len(steps)}

    @property
    def step_durations(self) -> dict[str, float]:
        """The seconds from start to end, or to now, of each step that has started."""
        now = datetime.fromisoformat(iso(self.backend.clock()))
        return {
            step_id: _seconds_between(step.start_time, step.end_time, now)
            for step_id, step in self.backend.load(self.id).steps.items()
            if step.start_time is not None
        }

    @property
    def elapsed(self) -> float:
        """Seconds from the first start of a step to the last end, or to now while a step runs; else 0.0."""
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

    def log_lines(self, step: str | None = None) -> list[LogLine]:
        """The step log: texts of `log` and notes of heartbeats, of all steps or of one."""
        return self.backend.log_lines(self.id, step)

    lines = log_lines
    """The former name of log_lines()."""

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
