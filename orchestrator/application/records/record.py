"""The record of one execution.

A record changes in one way only: a transition returns `Changes`, a store commits them, and then
`WorkflowRecord.apply` applies them. Transitions never modify a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from orchestrator.application.records.changes import Changes, apply_item_changes, drop_state_keys
from orchestrator.application.records.events import Parent
from orchestrator.application.records.readiness import Readiness
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.application.records.timers import Timer, timers_for_step
from orchestrator.application.records.visible_fields import VisibleFields
from orchestrator.application.spec.graph import Graph
from orchestrator.application.spec.model import LoadedSpec, WorkflowSpec

RECORD_SCHEMA_VERSION = 1
SHORT_REFERENCES = "short_references"
"""The stored field of a record that was created with the short references of its document expanded. Without
it, a release that did not know them has created the record, and their braces are text."""


@dataclass(slots=True)
class WorkflowRecord:
    """Everything that is known about one execution.

    version    set by the store; it changes with every commit
    delta      which deltas the history has, if it has some; set by the store, see delta.py
    items      the items of maps (`<step>#<n>`), compensations (`<step>#undo`) and the webhook (`#webhook`)
    webhook    the webhook that the start asked for, instead of the one in the spec
    signals    received signals that no step has waited for yet
    parent     the dispatch that started this execution as a child
    schedule   the name of the schedule that started this execution
    slot       the slot under the workflow's own concurrency key
    cancelled  when it was cancelled, with the reason and the requester if they were given
    paused     the same of the pause, while the execution is paused
    ending     the final status and fields that apply once everything is compensated
    traceparent  the span that caused the start, as in W3C Trace Context
    shared     the values of the shared scopes when the record was checked out; not part of the record
    size       how many bytes were loaded or written for it; not part of the record. A value that was
               written twice counts twice until the record is loaded again
    visible    how its fields are shown, as of its last delta; not part of the record
    """

    loaded: LoadedSpec
    execution_id: str
    inputs: dict[str, Any]
    created_at: str
    status: WorkflowStatus = WorkflowStatus.PENDING
    state: dict[str, Any] = field(default_factory=dict)
    steps: dict[str, StepRecord] = field(default_factory=dict)
    items: dict[str, StepRecord] = field(default_factory=dict)
    signals: list[dict[str, Any]] = field(default_factory=list)
    outcome: Any = None
    error: dict[str, Any] | None = None
    ended_at: str | None = None
    deadline_ms: int | None = None
    start_event: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    group: str | None = None
    priority: int | None = None
    idempotency_root: str | None = None
    schedule: str | None = None
    parent: Parent | None = None
    slot: Slot | None = None
    cancelled: dict[str, Any] | None = None
    paused: dict[str, Any] | None = None
    ending: dict[str, Any] | None = None
    compensated: bool | None = None
    completions: int = 0
    webhook: dict[str, Any] | None = None
    traceparent: str | None = None
    version: str = ""
    delta: str | None = None
    workflow_execution_id: str = field(init=False, repr=False, compare=False)
    spec: WorkflowSpec = field(init=False, repr=False, compare=False)
    graph: Graph = field(init=False, repr=False, compare=False)
    readiness: Readiness = field(init=False)
    shared: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)
    size: int = field(init=False, default=0, repr=False, compare=False)
    visible: VisibleFields | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.spec, self.graph = self.loaded.spec, self.loaded.graph
        self.workflow_execution_id = f"{self.loaded.workflow_id}#{self.execution_id}"
        if not self.steps and not self.items:  # a new execution; a step record is never modified
            self.steps |= dict.fromkeys(self.graph.order, StepRecord())
            self.readiness = Readiness.of_new(self.graph)
            return
        for step_id in self.graph.order:
            if step_id not in self.steps:
                self.steps[step_id] = StepRecord()
        self.readiness = Readiness.of(self.graph, self.steps, self.items)

    @property
    def workflow_id(self) -> str:
        return self.loaded.workflow_id

    @property
    def root(self) -> str:
        """The execution id of the topmost parent, or of this execution if it has no parent."""
        return self.execution_id if self.parent is None else self.parent.root

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_WORKFLOW_STATUSES

    @property
    def pause_details(self) -> dict[str, Any] | None:
        """`paused` of an execution that is paused. An earlier release may have left it when it unpaused."""
        return self.paused if self.status is WorkflowStatus.PAUSED else None

    def units(self) -> Iterator[tuple[str, StepRecord]]:
        """Every step, item of a map, compensation, and the webhook."""
        yield from self.steps.items()
        yield from self.items.items()

    def apply(self, changes: Changes) -> None:
        """Apply the changes of a decision, after they were committed."""
        self.steps.update(changes.steps)
        if changes.items:
            apply_item_changes(self.items, changes)
        self.state.update(changes.state)
        if changes.dropped_state:
            drop_state_keys(self.state, changes)
        for name, value in changes.fields.items():
            setattr(self, name, value)
        if changes.readiness is not None:
            self.readiness.apply(changes.readiness)


RECORD_PARTS: Mapping[str, type[Parent] | type[Slot]] = {"parent": Parent, "slot": Slot}
"""The fields of a record that are dataclasses. Stores keep them as JSON objects, by `asdict`."""


def read_parts(stored: dict[str, Any]) -> dict[str, Any]:
    """The stored fields of a record with `parent` and `slot` as dataclasses. Keys that a newer release has
    added to them are dropped."""
    for name, part in RECORD_PARTS.items():
        value = stored.get(name)
        if value is not None:
            stored[name] = part(**{one.name: value[one.name] for one in fields(part) if one.name in value})
    return stored


def find_last_outputs(record: WorkflowRecord) -> dict[str, Any]:
    """The output of each completed step on which no other step depends."""
    return {
        step_id: step.output
        for step_id, step in record.steps.items()
        if step.status is StepStatus.COMPLETE and not record.graph.children[step_id]
    }


def find_due_timers(record: WorkflowRecord, at_ms: int) -> list[Timer]:
    """Find all timers of an execution that are due, for backends without a sorted set of timers."""
    timed = ((unit, record.steps.get(unit) or record.items[unit]) for unit in sorted(record.readiness.timed))
    timers = [timer for unit, step in timed for timer in timers_for_step(unit, step)]
    if record.deadline_ms is not None and not record.is_final:
        timers.append(Timer("timeout", "", "", record.deadline_ms))
    return [timer for timer in timers if timer.due_ms <= at_ms]
