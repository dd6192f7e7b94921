"""A record being changed: reads fall through to the record, writes stay in the draft.

The record underneath is never touched, so a decision that cannot be committed leaves no trace.
Every status is written here, by `move`, `reset` and `move_workflow`, and nowhere else; whatever follows from
a change of a step (counters, timers, slots, who must be looked at) follows here, in `_put`.

A unit is a step, an item of a map (`<step>#<n>`), the compensation of a step (`<step>#undo`), or the webhook
of the execution (`#webhook`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from orchestrator.application.engine.context import Context, StateView
from orchestrator.application.records.changes import Changes, SharedChange, SlotChange
from orchestrator.application.records.events import ControlEvent, Moment, OutgoingEvent
from orchestrator.application.records.readiness import PositionQueue, ReadinessChanges
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import (
    FINAL_STEP_STATUSES,
    FINAL_WORKFLOW_STATUSES,
    StepStatus,
    WorkflowStatus,
    check_step_transition,
    check_workflow_transition,
)
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.application.records.timers import Timer, timers_for_step
from orchestrator.application.redaction.by_key import redact_by_key
from orchestrator.application.spec.model import COMPENSATION_PART, WEBHOOK_STEP, WEBHOOK_UNIT, StepSpec

_CLOSED = FINAL_WORKFLOW_STATUSES | {WorkflowStatus.COMPENSATING}
_ABSENT = object()


class Draft:
    """`dead_ends` are parent and child of edges that may keep the child from ever running; `judged` are the
    steps that this decision has taken to their gates, and whether they passed; `claims` how many dispatches
    it has made, of jobs and of children."""

    def __init__(self, record: WorkflowRecord, moment: Moment) -> None:
        self.record, self.moment, self.graph = record, moment, record.graph
        self._agenda, self._candidates = (
            PositionQueue(record.readiness.agenda),
            PositionQueue(record.readiness.candidates),
        )
        self._readiness = ReadinessChanges(agenda=self._agenda, candidates=self._candidates)
        self.changes = Changes(at_ms=moment.at_ms, readiness=self._readiness)
        self.specs, self._kept, self._steps = record.loaded.steps, record.steps, self.changes.steps
        self._enter(record.status)
        self.dead_ends: list[tuple[str, str]] = []
        self._shared: dict[str, dict[str, Any]] = {}
        self.evaluated: dict[str, bool] = {}
        self.token_count = self.dispatch_count = self.log_count = 0
        self._due: dict[str, PositionQueue] = {}

    # ---- reading

    @property
    def outcome(self) -> Any:
        return self.changes.fields.get("outcome", self.record.outcome)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.changes.fields.get("error", self.record.error) or {}
        return error

    @property
    def inputs(self) -> dict[str, Any]:
        inputs: dict[str, Any] = self.changes.fields.get("inputs", self.record.inputs)
        return inputs

    @property
    def state(self) -> Mapping[str, Any]:
        return StateView(self.record.state, self.changes.state)

    @property
    def signals(self) -> list[dict[str, Any]]:
        signals: list[dict[str, Any]] = self.changes.fields.get("signals", self.record.signals)
        return signals

    @property
    def deadline_ms(self) -> int | None:
        deadline_ms: int | None = self.changes.fields.get("deadline_ms", self.record.deadline_ms)
        return deadline_ms

    @property
    def ending(self) -> dict[str, Any]:
        """What the workflow will end with, while it compensates."""
        ending: dict[str, Any] = self.changes.fields.get("ending", self.record.ending) or {}
        return ending

    @property
    def slot(self) -> dict[str, Any] | None:
        slot: dict[str, Any] | None = self.changes.fields.get("slot", self.record.slot)
        return slot

    @property
    def open(self) -> int:
        return self.record.readiness.open + self._readiness.open

    @property
    def active(self) -> int:
        return self.record.readiness.active + self._readiness.active

    @property
    def in_flight(self) -> int:
        return self.record.readiness.in_flight + self._readiness.in_flight

    @property
    def waiting(self) -> list[str]:
        """The steps that wait for a signal, in spec order."""
        changed = self._readiness.waiting
        waiting = {*self.record.readiness.waiting, *changed}
        return sorted((s for s in waiting if changed.get(s, True)), key=self.graph.index.__getitem__)

    def step(self, step_id: str) -> StepRecord:
        return self._steps.get(step_id) or self._kept[step_id]

    def unit(self, unit: str) -> StepRecord | None:
        """A step, or an item of a map if there is one of that name."""
        step = self._steps.get(unit) or self._kept.get(unit)
        if step is not None:
            return step
        if unit in self.changes.items:
            return self.changes.items[unit]
        return self.record.items.get(unit)

    def spec(self, unit: str) -> StepSpec:
        """The spec of a step, of a map for its items, of the compensation of a step, and of the webhook."""
        found = self.specs.get(unit)
        if found is not None:
            return found
        if unit == WEBHOOK_UNIT:
            return WEBHOOK_STEP
        step_id, _, part = unit.partition("#")
        spec = self.specs[step_id]
        return spec.compensation_step if part == COMPENSATION_PART else spec

    def shared(self, scope: str) -> Mapping[str, Any]:
        """The values that executions share, with what this decision has written so far on top."""
        return StateView(self.record.shared.get(scope, {}), self._shared.get(scope, {}))

    def unmet(self, step_id: str) -> int:
        unmet = self._readiness.unmet.get(step_id)
        return unmet if unmet is not None else self.record.readiness.unmet[step_id]

    def may_join(self, step_id: str) -> bool:
        """Whether the parents have anything to say: all of them are final, or one, for an eager step."""
        unmet = self.unmet(step_id)
        return not unmet or self.graph.may_join(step_id, unmet)

    def context(
        self, unit: str | None = None, fresh: Mapping[str, Any] | None = None, **roots: Any
    ) -> Context:
        """What expressions see; `fresh` is an output that a branch judges, others are roots."""
        return Context(self, unit, fresh, **roots)

    # ---- writing

    def move(self, unit: str, status: StepStatus, **changes: Any) -> None:
        """Move a unit to a status, with what else changes about it, and tell those it concerns."""
        before = self.require_unit(unit)
        check_step_transition(unit, before.status, status)
        if before.slot is not None and status is not StepStatus.IN_PROGRESS:
            changes["slot"] = None  # whoever ends, or waits for another attempt, makes room
        if status is StepStatus.COMPLETE and unit in self.specs and self.specs[unit].compensate is not None:
            changes["completion"] = self._next_completion()
        after = before.changed(status=status, **changes)
        self._put(unit, before, after)
        self._note_move(unit, before.status, after)

    def reset(self, step_id: str) -> None:
        """Back to ready, as a `set` does: no output, error, items or times, a new run of a new round. A hold
        survives it."""
        before = self.step(step_id)
        self.revoke(step_id)
        last_run = max(before.run_id, self.drop_items(step_id))
        after = StepRecord(run_id=last_run + 1, round=before.round + 1, dispatches=before.dispatches)
        if before.held is not None:
            after = after.changed(status=StepStatus.ON_HOLD, held=StepStatus.READY.value)
        self.revive(step_id, after)

    def revive(self, unit: str, after: StepRecord) -> None:
        """A unit is to be judged and run again, as `after` says."""
        before = self.require_unit(unit)
        check_step_transition(unit, before.status, StepStatus.READY)
        self._put(unit, before, after)
        self._note_move(unit, before.status, after)
        self.dead_ends += ((parent, unit) for parent in self.graph.parents.get(unit, ()))

    def amend(self, unit: str, **changes: Any) -> None:
        """Change what is known of a unit without moving it."""
        before = self.require_unit(unit)
        self._put(unit, before, before.changed(**changes))

    def add_item(self, unit: str, item: StepRecord) -> None:
        self.changes.items[unit] = item

    def drop_items(self, step_id: str) -> int:
        """The items of a map go with the round they belong to; returns the last run that one of them had."""
        counts, last_run = self.step(step_id).items, 0
        for n in range(counts.count if counts is not None else 0):
            unit = f"{step_id}#{n}"
            item = self.require_unit(unit)
            self.revoke(unit)
            self._put(unit, item, StepRecord())
            self.changes.items[unit] = None
            last_run = max(last_run, item.run_id)
        return last_run

    def revoke(self, unit: str) -> None:
        """Nobody waits for this unit's dispatch any more: its job is taken away, its child cancelled."""
        record = self.require_unit(unit)
        if record.token is None:
            return
        self.changes.revoked.append((unit, record))
        if self.changes.jobs:  # it may have been claimed by this very decision
            self.changes.jobs[:] = [job for job in self.changes.jobs if job.token != record.token]
        if record.child is not None:
            reason = f"step {unit} of {self.record.execution_id} does not wait for it any more"
            self.send(ControlEvent(record.child, "cancel", reason=reason, parent_token=record.token))

    def finish_dispatch(self, unit: str, **changes: Any) -> None:
        """This unit's dispatch, if it had one, has brought its result. Whoever settles a unit moves it too:
        until then nobody need look at it, though it has no token any more."""
        before = self.require_unit(unit)
        if before.token is not None:
            self.changes.finished_dispatches.append((unit, before))
        self._write(unit, before, before.changed(token=None, **changes))

    def merge_state(self, step_id: str, output: Mapping[str, Any]) -> None:
        kept, merged = self.record.state, self.changes.state
        changed = [key for key, value in output.items() if merged.get(key, kept.get(key, _ABSENT)) != value]
        merged.update(output)
        self.changes.merged.append((step_id, dict(output)))
        if changed:
            self.note(step=step_id, state_changed=changed)

    def write_shared(
        self, scope: Literal["global", "flow_group"], key: str, value: Any, added: Any = None
    ) -> None:
        """Write a value that other executions see; `added` is what was added to it."""
        self._shared.setdefault(scope, {})[key] = value
        is_increment = added is not None
        self.changes.shared.append(SharedChange(scope, key, added if is_increment else value, is_increment))

    def send(self, event: OutgoingEvent) -> None:
        """Say something to another execution, in the commit of this decision."""
        self.changes.posts.append(event)

    def arm(self, timer: Timer) -> None:
        self.changes.timers_by_name_to_disarm.pop(timer.name, None)
        self.changes.timers_by_name_to_arm[timer.name] = timer

    def disarm(self, timer: Timer) -> None:
        self.changes.timers_by_name_to_arm.pop(timer.name, None)
        self.changes.timers_by_name_to_disarm[timer.name] = timer

    def keep_signals(self, signals: list[dict[str, Any]]) -> None:
        self.changes.fields["signals"] = signals

    def begin_workflow(self) -> None:
        """The first step is under way: from now on the clock of the workflow runs."""
        if self.status is WorkflowStatus.PENDING:
            self.move_workflow(WorkflowStatus.IN_PROGRESS)
            self.start_clock()

    def start_clock(self) -> None:
        timeout_s = self.record.spec.timeout_s
        if timeout_s is not None:
            due_ms = self.moment.at_ms + round(timeout_s * 1000)
            self.changes.fields["deadline_ms"] = due_ms
            self.arm(Timer("timeout", "", "", due_ms))

    def move_workflow(self, status: WorkflowStatus, **fields: Any) -> None:
        check_workflow_transition(self.status, status)
        self._enter(status)
        self.changes.fields.update(status=status, **fields)
        error = fields.get("error")
        self.note(workflow=status.value, **({"error": self._shown(error)} if error else {}))

    def _enter(self, status: WorkflowStatus) -> None:
        """`is_open`: steps can still be run, it has not come to its end, nor to undoing what was done."""
        self.status = status
        self.is_final, self.is_open = status in FINAL_WORKFLOW_STATUSES, status not in _CLOSED

    def note(self, **entry: Any) -> None:
        """One line of the history."""
        self.changes.history.append({"at": self.moment.iso, "cause": self.moment.cause, **entry})

    def count(self, name: str) -> None:
        self.changes.counted[name] = self.changes.counted.get(name, 0) + 1

    # ---- who must be judged, and who can be dispatched

    def look_at(self, step_id: str) -> None:
        self._agenda.add(self.graph.index[step_id])

    def next_to_evaluate(self) -> str | None:
        """The next step on the agenda, in spec order."""
        position = self._agenda.take()
        return None if position is None else self.graph.order[position]

    @property
    def has_agenda(self) -> bool:
        return not self._agenda.is_empty

    def add_candidate(self, step_id: str) -> None:
        """This step may be dispatched as soon as there is room for it."""
        self._candidates.add(self.graph.index[step_id])

    @property
    def has_candidates(self) -> bool:
        return not self._candidates.is_empty

    def next_candidate(self) -> str | None:
        position = self._candidates.take()
        return None if position is None else self.graph.order[position]

    def next_due_item(self, step_id: str) -> int:
        """The first item of a map that is to be dispatched again; there must be one."""
        n = self._due_items(step_id).take()
        assert n is not None, f"{step_id} has no item that is due"
        return n

    def _due_items(self, step_id: str) -> PositionQueue:
        if step_id not in self._due:
            self._due[step_id] = PositionQueue(self.record.readiness.due.get(step_id, []))
            self._readiness.due[step_id] = self._due[step_id]
        return self._due[step_id]

    # ---- what follows from a change

    def require_unit(self, unit: str) -> StepRecord:
        found = self.unit(unit)
        assert found is not None, f"{unit} is not there"
        return found

    def _put(self, unit: str, before: StepRecord, after: StepRecord) -> None:
        self._write(unit, before, after)
        if after.awaits_dispatch and unit in self.specs and self.may_join(unit):
            self.look_at(unit)

    def _write(self, unit: str, before: StepRecord, after: StepRecord) -> None:
        if "#" in unit:
            self.changes.items[unit] = after
            if before.is_due is not after.is_due:
                self._count_due(unit, after.is_due)
        else:
            self._steps[unit] = after
            if before.slot is not after.slot:
                self._change_slot(unit, before.slot, after.slot)
            if before.status is not after.status:
                self._recount(unit, before.status, after.status)
            if before.status is not after.status or before.slot is not after.slot:
                self._readiness.active += after.is_active - before.is_active
        if before.token is not after.token:
            self._readiness.in_flight += (after.token is not None) - (before.token is not None)
        if before.has_timer or after.has_timer:
            self._readiness.timed[unit] = after.has_timer
            self._rearm(unit, before, after)

    def _count_due(self, unit: str, is_due: bool) -> None:
        """Items that are to be dispatched again follow from the record; their map counts them."""
        step_id, _, n = unit.partition("#")
        counts = self.step(step_id).items if n.isdecimal() else None
        if counts is not None:
            items = self._due_items(step_id)
            (items.add if is_due else items.discard)(int(n))
            self.amend(step_id, items=replace(counts, due=counts.due + (1 if is_due else -1)))

    def _recount(self, step_id: str, before: StepStatus, after: StepStatus) -> None:
        """Keep the counters in step, and put on the agenda whom this move concerns."""
        readiness = self._readiness
        if StepStatus.WAITING in (before, after):
            readiness.waiting[step_id] = after is StepStatus.WAITING
        was_final, is_final = before in FINAL_STEP_STATUSES, after in FINAL_STEP_STATUSES
        if was_final == is_final:
            return
        change = -1 if is_final else 1
        readiness.open += change
        dead_end = after is StepStatus.SKIPPED or after is StepStatus.FAILED
        for child in self.graph.children[step_id]:
            unmet = self.unmet(child) + change
            readiness.unmet[child] = unmet
            if dead_end:
                self.dead_ends.append((step_id, child))
            if self.graph.may_join(child, unmet) and self.step(child).status is StepStatus.READY:
                self.look_at(child)

    def _change_slot(self, step_id: str, before: Slot | None, after: Slot | None) -> None:
        """Places under concurrency keys follow from the record too: one is asked for when it is wanted, and
        given back when it is not there any more."""
        if before is not None and (after is None or after.token != before.token):
            self.changes.slots.append(SlotChange(step_id, before, is_acquire=False))
        if after is not None and not after.is_held:
            self.changes.slots.append(SlotChange(step_id, after, is_acquire=True))

    def set_workflow_slot(self, slot: Slot | None) -> None:
        """The same for the place of the workflow itself."""
        before = None if self.slot is None else Slot(**self.slot)
        self.changes.fields["slot"] = None if slot is None else asdict(slot)
        self._change_slot("", before, slot)

    def _next_completion(self) -> int:
        number: int = self.changes.fields.get("completions", self.record.completions) + 1
        self.changes.fields["completions"] = number
        return number

    def _rearm(self, unit: str, before: StepRecord, after: StepRecord) -> None:
        """Timers follow from the record: what is there no more is disarmed, what is new is armed."""
        had = {timer.name: timer for timer in timers_for_step(unit, before)}
        has = {timer.name: timer for timer in timers_for_step(unit, after)}
        for name, timer in had.items():
            if name not in has:
                self.disarm(timer)
        for name, timer in has.items():
            if had.get(name) != timer:
                self.arm(timer)

    def _note_move(self, unit: str, before: StepStatus, after: StepRecord) -> None:
        entry: dict[str, Any] = {
            "at": self.moment.iso,
            "cause": self.moment.cause,
            "step": unit,
            "from": str(before),
            "to": str(after.status),
            "run_id": after.run_id,
            "attempt": after.attempt,
        }
        if after.reason is not None:
            entry["reason"] = after.reason
        if after.error is not None and after.status is not StepStatus.IN_PROGRESS:
            shown = {key: value for key, value in after.error.items() if key != "traceback"}
            entry["error"] = self._shown(shown)
        self.changes.history.append(entry)

    def _shown(self, error: dict[str, Any]) -> Any:
        return redact_by_key(error, self.record.spec.redact)
