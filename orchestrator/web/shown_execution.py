"""An execution as its page shows it: the record with the statuses of its units, its secrets redacted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.application.explain.formatting import (
    format_countdown,
    format_duration,
    format_error,
    format_item_counts,
)
from orchestrator.application.explain.history_text import describe_entry
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import RecordView, make_record_view
from orchestrator.application.records.replay import list_attempts
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_log import filter_by_step
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import UnitId, step_of
from orchestrator.diagnosis.why import UnknownStep, why
from orchestrator.web.instance import Instance

PAGE_SIZE = 100
MAX_EXPLAINED_UNITS = 2_000
"""Of a larger execution, the reasons why it waits are on a page of their own."""
MAX_REASONS = 12
MAX_LOG_LINES = 200
MAX_CHILDREN = 20

_RESTARTABLE = frozenset({WorkflowStatus.FAILED, WorkflowStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class UnitRow:
    """A step, an item or a compensation in a table."""

    unit: str
    status: str
    attempt: int | None
    took: str
    worker: str | None
    child: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Awaited:
    """A signal that steps wait for, until a time if there is one."""

    name: str
    steps: tuple[str, ...]
    deadline_ms: int | None


@dataclass(frozen=True)
class ShownExecution:
    """`position` is the length of the history, which live updates go on from."""

    instance: Instance
    view: StatusView
    position: int
    now_ms: int

    @classmethod
    def load(cls, instance: Instance, execution_id: str) -> ShownExecution:
        """Load an execution; raises RecordNotFound if there is none. The position is read first, so that
        changes made meanwhile are sent to the page again."""
        full_id = instance.client.store.full_id(execution_id)
        position, now_ms = instance.queries.history_length(full_id), instance.queries.now_ms()
        return cls(instance, instance.client.status_view(full_id), position, now_ms)

    @property
    def record(self) -> WorkflowRecord:
        return self.view.record

    @cached_property
    def redact(self) -> RecordView:
        return make_record_view(self.record)

    # ---- the header

    @property
    def took_s(self) -> float:
        record = self.record
        until_ms = parse_iso_ms(record.ended_at) if record.ended_at is not None else self.now_ms
        return max(until_ms - parse_iso_ms(record.created_at), 0) / 1000

    @cached_property
    def counts(self) -> Counter[str]:
        return Counter(self.view.status_of(unit, step) for unit, step in self.record.steps.items())

    @property
    def actions(self) -> list[str]:
        """The actions that the status of the execution allows."""
        record = self.record
        if record.is_final:
            return [*(["retry"] if record.status in _RESTARTABLE else []), "again", "delete"]
        pausing = "unpause" if record.status is WorkflowStatus.PAUSED else "pause"
        return [*([pausing] if record.status is not WorkflowStatus.COMPENSATING else []), "cancel", "again"]

    @cached_property
    def children(self) -> list[tuple[str, str]]:
        """The first children, each with the step that started it."""
        found = [(unit, step.child) for unit, step in self.record.units() if step.child is not None]
        return found[: MAX_CHILDREN + 1]

    @property
    def error(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.redact(self.record.error)
        return found

    @property
    def is_large(self) -> bool:
        return len(self.record.steps) + len(self.record.items) > MAX_EXPLAINED_UNITS

    def explain(self, step: str = "") -> list[Any]:
        """Why the execution, or a step of it, makes no progress."""
        instance = self.instance
        found = why(instance.redis, instance.keys, self.record.workflow_execution_id, step)
        return list(found.reasons)

    @cached_property
    def awaited(self) -> list[Awaited]:
        """The signals that steps wait for, each once."""
        found: dict[str, list[tuple[str, int | None]]] = {}
        if self.record.is_final:
            return []
        for unit, step in self.record.units():
            if step.status is StepStatus.WAITING:
                wait = self.record.loaded.unit_spec(unit).wait
                for name in wait.signals if wait is not None else ():
                    found.setdefault(name, []).append((unit, step.deadline_ms))
        return [
            Awaited(name, tuple(unit for unit, _ in units), min((at for _, at in units if at), default=None))
            for name, units in found.items()
        ]

    # ---- units

    def steps(self) -> list[tuple[str, StepRecord]]:
        """The steps in the order of the spec, then compensations and the webhook."""
        others = [pair for pair in self.record.items.items() if not UnitId(pair[0]).is_item]
        return [*self.record.steps.items(), *others]

    def items_of(self, step_id: str) -> list[tuple[str, StepRecord]]:
        items = [
            (unit, item)
            for unit, item in self.record.items.items()
            if step_of(unit) == step_id and UnitId(unit).is_item
        ]
        return sorted(items, key=lambda pair: UnitId(pair[0]).item_index or 0)

    def rows(self, units: Sequence[tuple[str, StepRecord]]) -> list[UnitRow]:
        return [self._row(unit, step) for unit, step in units]

    def _row(self, unit: str, step: StepRecord) -> UnitRow:
        has_run = step.dispatches > 0 or step.run_id > 0
        return UnitRow(
            unit,
            self.view.status_of(unit, step),
            step.attempt if has_run else None,
            self.took(unit, step),
            step.worker,
            step.child,
            tuple(self._notes(unit, step)),
        )

    def took(self, unit: str, step: StepRecord) -> str:
        """How long a unit took since its start, or has taken so far."""
        started_at = self.view.started_at(unit, step)
        if started_at is None or not (step.ended_at or step.status is StepStatus.IN_PROGRESS):
            return ""
        until_ms = parse_iso_ms(step.ended_at) if step.ended_at else self.now_ms
        return format_duration(max(until_ms - parse_iso_ms(started_at), 0) / 1000)

    def _notes(self, unit: str, step: StepRecord) -> Iterator[str]:
        if step.items is not None:
            yield format_item_counts(step.items)
        if step.status is StepStatus.RETRY and step.not_before_ms is not None:
            yield f"retry {format_countdown(step.not_before_ms, self.now_ms)}"
        if step.status is StepStatus.DEFERRED and step.wake_at_ms is not None:
            yield f"resumes {format_countdown(step.wake_at_ms, self.now_ms)}"
        wait = self.record.loaded.unit_spec(unit).wait
        if step.status is StepStatus.WAITING and wait is not None:
            yield f"waits for {' or '.join(wait.signals)}"
        if step.slot is not None and not step.slot.is_held:
            yield f"waits for a slot of {step.slot.key}"
        if step.error is not None:
            yield format_error(self.redact(step.error))
        elif step.reason:
            yield self.redact.text(step.reason)

    # ---- one unit

    def find(self, unit: str) -> StepRecord:
        found = self.record.steps.get(unit) or self.record.items.get(unit)
        if found is None:
            raise UnknownStep(self.record, unit)
        return found

    def unit_details(self, unit: str) -> dict[str, Any]:
        """Everything that the drawer shows of a unit."""
        step, spec = self.find(unit), self.record.loaded.unit_spec(unit)
        attempts = self._attempts(unit)
        inputs, title = self._inputs(step, attempts)
        if inputs is None and spec.input:
            inputs, title = spec.input, "Input, as written"
        lines = filter_by_step(
            (line for _, line in self.instance.queries.log_lines(self.record.workflow_execution_id)), unit
        )
        return {
            "unit": unit,
            "step": step,
            "spec": spec,
            "status": self.view.status_of(unit, step),
            "started_at": self.view.started_at(unit, step),
            "took": self.took(unit, step),
            "parents": self.record.graph.parents.get(unit, ()),
            "children": self.record.graph.children.get(unit, ()),
            "inputs": self.redact(inputs),
            "inputs_title": title,
            "value": self.redact(step.value) if step.items is None else None,
            "output": self.redact(step.output),
            "error": self.redact(step.error),
            "reason": None if step.reason is None else self.redact.text(step.reason),
            "attempts": [self.redact(one) for one in attempts[:-1]],
            "lines": [(line.at, self.redact.text(line.text)) for line in lines[-MAX_LOG_LINES:]],
            "line_count": len(lines),
            "reasons": [] if step.is_final else self.explain(unit)[:MAX_REASONS],
            "may_hold": not step.is_final and step.status not in (StepStatus.IN_PROGRESS, StepStatus.ON_HOLD),
            "may_release": step.status is StepStatus.ON_HOLD,
            "may_rerun": self.record.is_final and unit in self.record.steps,
        }

    def _inputs(self, step: StepRecord, attempts: list[dict[str, Any]]) -> tuple[Any, str]:
        if attempts and attempts[-1]["inputs"] is not None:
            return attempts[-1]["inputs"], "Input"
        found = None if step.token is None else self.instance.queries.inputs_of(step.token)
        return found, "Input"

    def _attempts(self, unit: str) -> list[dict[str, Any]]:
        """The attempts that a history with values has."""
        if self.record.delta is None:
            return []
        return [one.as_dict() for one in list_attempts(self.entries(), unit) or ()]

    # ---- the history

    def entries(self, start: int = 0) -> list[dict[str, Any]]:
        texts = self.instance.queries.history(self.record.workflow_execution_id, start)
        return [json.loads(text) for text in texts]

    def events(self, first: int, count: int) -> list[dict[str, Any]]:
        """The entries from a position on, each with its words."""
        texts = self.instance.queries.history_range(self.record.workflow_execution_id, first, count)
        found = [self.redact(json.loads(text)) for text in texts]
        blank = dict.fromkeys(("step", "run_id", "attempt", "cause"))
        shown = (entry for entry in found if entry.get("what") != "delta")
        return [{**blank, **entry, "words": describe_entry(entry)} for entry in shown]
