"""One execution in memory, moved by the pure core alone: no store, no queue, no clock.

    world = World(document(step("a"), step("b", after="a")))
    world.advance()                      # claims a
    world.finish("a", {"n": 1})          # its result, and the advance that follows: claims b

Every call compares the record with what it was before the call (`Untouched`): a transition that writes to
the record it was given fails whichever test happens to use it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, fields, replace
from typing import Any

from orchestrator.application.engine.transitions import StepResult, advance, decide, on_step_result
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import Complete, Decision, Dispatch, DispatchJob, Failed, Halt
from orchestrator.application.records.events import (
    LostEvent,
    Moment,
    ResultEvent,
    StartedEvent,
    StepEvent,
    make_failure,
)
from orchestrator.application.records.readiness import Readiness
from orchestrator.application.records.record import WorkflowRecord, read_parts
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.validation import check_spec

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MOST_ROUNDS = 20_000

Json = dict[str, Any]
Execute = Callable[[str, Json, int], Any]
"""What executors do: of a step's fn, its inputs and how often it was called before; raising is failing."""


def step(name: str, after: str | Sequence[str] = (), **keys: Any) -> Json:
    """A step as written in a document; `after` names its parents."""
    parents = after.split() if isinstance(after, str) else list(after)
    return {"op": name, **({"depends_on": parents} if parents else {}), **keys}


def document(*steps: Json, **keys: Any) -> Json:
    return {"steps": list(steps), **keys}


def when(condition: Any, action: Any, **keys: Any) -> Json:
    """An entry of `branch`."""
    return {"condition": condition, "action": action, **keys}


def new_record(document: Json, inputs: Json | None = None) -> WorkflowRecord:
    moment = Moment(START_MS, "start")
    return WorkflowRecord(check_spec(document), "x1", dict(inputs or {}), created_at=moment.iso)


class World:
    """A record, the jobs that are out, and how often each step was dispatched."""

    def __init__(self, document: Json, inputs: Json | None = None, *, watched: bool = True) -> None:
        self.record = new_record(document, inputs)
        self.out: dict[str, DispatchJob] = {}
        self.jobs: list[DispatchJob] = []
        self.waves: list[list[DispatchJob]] = []
        self.counted: Counter[str] = Counter()
        self.history: list[Json] = []
        self.last = Changes()
        self._moments = 0
        self._watched = watched

    # ---- moving

    def advance(self, limit: int | None = None) -> Decision:
        with self._untouched():
            changes, decision = advance(self.record, self.moment(), limit)
        self._commit(changes)
        return decision

    def apply(self, event: StepEvent) -> StepResult:
        """on_step_result alone; what can run now waits for advance()."""
        with self._untouched():
            changes, result = on_step_result(self.record, event, self.moment())
        self._commit(changes)
        return result

    def decide(self, *events: StepEvent, limit: int | None = None) -> Decision:
        with self._untouched():
            decided = decide(self.record, events, self.moment(), limit)
        assert not decided.rejected, decided.rejected
        self._commit(decided.changes)
        return decided.decision

    def finish(self, step_id: str, output: Any = None) -> Decision:
        return self.decide(self.result(step_id, output))

    def fail(self, step_id: str, message: str = "boom", kind: str = "exception") -> Decision:
        return self.decide(self.error(step_id, message, kind))

    def lose(self, step_id: str) -> Decision:
        return self.decide(self.loss(step_id))

    def play(self, **outputs: Any) -> Decision:
        """Finish steps one after the other, each with its output; an exception is its failure."""
        decision: Decision = self.advance()
        for step_id, output in outputs.items():
            failed = isinstance(output, Exception)
            decision = self.fail(step_id, str(output)) if failed else self.finish(step_id, output)
        return decision

    # ---- events

    def result(self, step_id: str, output: Any = None, job: DispatchJob | None = None) -> ResultEvent:
        job = job or self.out[step_id]
        return ResultEvent(
            job.workflow_execution_id,
            step_id,
            output=output,
            run_id=job.run_id,
            attempt=job.attempt,
            token=job.token,
        )

    def error(
        self, step_id: str, message: str = "boom", kind: str = "exception", job: DispatchJob | None = None
    ) -> ResultEvent:
        return replace(self.result(step_id, job=job), error=make_failure(kind, message))

    def loss(self, step_id: str, job: DispatchJob | None = None) -> LostEvent:
        job = job or self.out[step_id]
        return LostEvent(
            job.workflow_execution_id, step_id, job.run_id, job.attempt, job.token, "worker died"
        )

    def started(self, step_id: str, job: DispatchJob | None = None) -> StartedEvent:
        job = job or self.out[step_id]
        return StartedEvent(
            job.workflow_execution_id,
            step_id,
            job.run_id,
            job.attempt,
            job.token,
            "host-1",
            "2026-01-01T00:00:09Z",
        )

    def moment(self) -> Moment:
        """The next moment, a second after the last one, with a nonce of its own."""
        self._moments += 1
        return Moment(START_MS + 1000 * self._moments, f"n{self._moments}", f"e{self._moments}")

    # ---- looking

    def __getitem__(self, step_id: str) -> StepRecord:
        return self.record.steps[step_id]

    @property
    def statuses(self) -> dict[str, str]:
        return {step_id: str(step.status) for step_id, step in self.record.steps.items()}

    @property
    def run_ids(self) -> dict[str, int]:
        return {step_id: step.run_id for step_id, step in self.record.steps.items()}

    @property
    def executed(self) -> dict[str, int]:
        """How often each step was dispatched."""
        counts = Counter(job.step_id for job in self.jobs)
        return {step_id: counts[step_id] for step_id in self.record.steps}

    def dispatched(self, decision: Decision) -> list[str]:
        assert isinstance(decision, Dispatch), decision
        return [job.step_id for job in decision.jobs]

    # ---- within

    @contextmanager
    def _untouched(self) -> Iterator[None]:
        before = photograph(self.record) if self._watched else None
        yield
        if before is not None:
            assert photograph(self.record) == before, "a transition wrote to the record it was given"

    def _commit(self, changes: Changes) -> None:
        self.record.apply(changes)
        self.last = changes
        self.counted.update(changes.counter_increments)
        self.history.extend(changes.history)
        for step_id, _ in [*changes.finished_dispatches, *changes.revoked]:
            self.out.pop(step_id, None)
        for job in changes.jobs:
            self.out[job.step_id] = job
        if changes.jobs:
            self.waves.append([replace(job, inputs=deepcopy(job.inputs)) for job in changes.jobs])
            self.jobs += self.waves[-1]


def photograph(record: WorkflowRecord) -> str:
    """Everything in a record that could change, as text: quicker to make than a deep copy."""
    return repr([getattr(record, field.name) for field in fields(record) if field.name != "loaded"])


def reloaded(record: WorkflowRecord) -> WorkflowRecord:
    """The record as another process would have it: its stored fields, and readiness made anew."""
    stored = {
        field.name: json.loads(json.dumps(getattr(record, field.name), default=asdict))
        for field in fields(record)
        if field.init and field.name not in ("loaded", "status", "steps", "items")
    }
    units = [
        {unit: StepRecord.from_dict(json.loads(json.dumps(one.as_dict()))) for unit, one in kept.items()}
        for kept in (record.steps, record.items)
    ]
    again = replace(record, steps=units[0], items=units[1], **read_parts(stored))
    again.shared = deepcopy(record.shared)
    return again


def fresh_readiness(record: WorkflowRecord) -> Readiness:
    return Readiness.of(record.graph, record.steps, record.items)


def result_of(world: World, job: DispatchJob, execute: Execute, calls: int) -> ResultEvent:
    """Execute a job here and now."""
    try:
        return world.result(job.step_id, execute(job.fn, deepcopy(job.inputs), calls), job)
    except Exception as error:
        return world.error(job.step_id, str(error), job=job)


def run(world: World, execute: Execute) -> Complete | Halt | Failed:
    """runfox's loop: advance, execute all jobs, apply all results in the order of dispatch, repeat."""
    calls: Counter[str] = Counter()
    decision = world.advance()
    for _ in range(MOST_ROUNDS):
        if isinstance(decision, Complete | Halt | Failed):
            return decision
        assert isinstance(decision, Dispatch), f"{decision} although nothing is out: {world.statuses}"
        results = []
        for job in decision.jobs:
            results.append(result_of(world, job, execute, calls[job.step_id]))
            calls[job.step_id] += 1
        decision = world.decide(*results)
    raise AssertionError(f"no end after {MOST_ROUNDS} rounds")


def essence(record: WorkflowRecord, *, without: Iterable[str] = ()) -> Json:
    """A record without times, tokens and workers: what must not depend on the order of events."""
    hidden = {"token", "worker", "dispatched_at", "started_at", "ended_at", *without}
    return {
        "status": str(record.status),
        "state": record.state,
        "outcome": record.outcome,
        "error": record.error,
        "steps": {
            step_id: {key: value for key, value in step.as_dict().items() if key not in hidden}
            for step_id, step in record.steps.items()
        },
    }


def settled_legally(record: WorkflowRecord) -> bool:
    """Final, with nothing active left and, except after a halt, nothing ready either."""
    left = {step.status for step in record.steps.values() if not step.is_final}
    return record.is_final and left <= (
        {StepStatus.READY} if record.status is WorkflowStatus.HALTED else set()
    )


def same_numbers(value: Any) -> Any:
    """The same value, with every whole float as an integer and the others rounded a little."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 9)
    if isinstance(value, Mapping):
        return {key: same_numbers(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [same_numbers(one) for one in value]
    return value
