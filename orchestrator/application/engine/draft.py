"""A record while a decision changes it: reads fall through to the record, writes stay in the draft.

The record itself is never modified, so a decision that cannot be committed leaves no trace. Every status is
written here, by `move_from`, `reset`, `revive` and `move_workflow`, and nowhere else. `_put` updates
everything that follows from a changed unit: counters, timers, slots, and the steps to evaluate.

Units are steps, items of maps, compensations and the webhook; see `values/unit_id.py` for their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from orchestrator.application.engine.context import Context
from orchestrator.application.engine.state_draft import StateDraft
from orchestrator.application.engine.turn import Turn
from orchestrator.application.records.changes import SlotChange
from orchestrator.application.records.events import ControlEvent, Moment, OutgoingEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import (
    FINAL_STEP_STATUSES,
    FINAL_WORKFLOW_STATUSES,
    STATUS_NAMES,
    StepStatus,
    WorkflowStatus,
    check_step_transition,
    check_workflow_transition,
)
from orchestrator.application.records.step_record import Slot, StepRecord
from orchestrator.application.records.timers import Timer, timers_for_step
from orchestrator.application.redaction.by_key import redact_by_key
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.values.unit_id import UnitId, split_unit

_timer_times = attrgetter("deadline_ms", "not_before_ms", "wake_at_ms")
_NO_TIMES = (None, None, None)
_CLOSED = FINAL_WORKFLOW_STATUSES | {WorkflowStatus.COMPENSATING}


class Draft(StateDraft):
    """`evaluated` holds the steps whose start conditions this decision has evaluated, and whether they may be
    dispatched. `dispatch_count` counts the dispatches of this decision, of jobs and of children. `turn` is
    what its expressions spend from; without one, the decision is not divided, and `has_turn` is false."""

    def __init__(self, record: WorkflowRecord, moment: Moment, turn: Turn | None = None) -> None:
        super().__init__(record, moment)
        self.turn, self.has_turn = turn if turn is not None else Turn(), turn is not None
        self._work_of: dict[str, int] = {}
        self._working_on, self._work_before = "", self.turn.spent
        self.specs, self._record_steps, self._steps = record.loaded.steps, record.steps, self.changes.steps
        self._set_status(record.status)
        self.evaluated: dict[str, bool] = {}
        self.token_count = self.dispatch_count = self.log_count = 0

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
    def signals(self) -> list[dict[str, Any]]:
        signals: list[dict[str, Any]] = self.changes.fields.get("signals", self.record.signals)
        return signals

    @property
    def deadline_ms(self) -> int | None:
        deadline_ms: int | None = self.changes.fields.get("deadline_ms", self.record.deadline_ms)
        return deadline_ms

    @property
    def ending(self) -> dict[str, Any]:
        """The final status and fields that apply after the compensation."""
        ending: dict[str, Any] = self.changes.fields.get("ending", self.record.ending) or {}
        return ending

    @property
    def slot(self) -> Slot | None:
        slot: Slot | None = self.changes.fields.get("slot", self.record.slot)
        return slot

    def step(self, step_id: str) -> StepRecord:
        return self._steps.get(step_id) or self._record_steps[step_id]

    def unit(self, unit: str) -> StepRecord | None:
        """The record of a unit; None if it does not exist."""
        items = self.changes.items
        return (
            self._steps.get(unit)
            or self._record_steps.get(unit)
            or (items[unit] if unit in items else self.record.items.get(unit))
        )

    def require_unit(self, unit: str) -> StepRecord:
        """The record of a unit that must exist."""
        # The lookups of unit() are repeated here: each change of a unit makes them, and a call costs as much.
        items = self.changes.items
        record = (
            self._steps.get(unit)
            or self._record_steps.get(unit)
            or (items[unit] if unit in items else self.record.items.get(unit))
        )
        assert record is not None, f"unit {unit} does not exist"
        return record

    def spec(self, unit: str) -> StepSpec:
        """The spec of a unit; that of a step is found at once."""
        spec = self.specs.get(unit)
        return self.record.loaded.unit_spec(unit) if spec is None else spec

    def context(
        self, unit: str | None = None, fresh: Mapping[str, Any] | None = None, **roots: Any
    ) -> Context:
        """The context of an expression. `fresh` is an output that a branch evaluates; `roots` are added.

        The expressions that are evaluated next belong to this unit: all that it evaluates in a decision has
        one limit."""
        turn, working_on = self.turn, unit or ""
        if working_on != self._working_on:
            self._work_of[self._working_on] = turn.spent - self._work_before
            self._working_on, self._work_before = working_on, turn.spent - self._work_of.get(working_on, 0)
        turn.begin(turn.spent - self._work_before)
        return Context(self, unit, fresh, **roots)

    @property
    def is_turn_over(self) -> bool:
        """Whether the work of this turn is spent. Then the decision stops before the next event or step."""
        return self.has_turn and self.turn.is_over(len(self.changes.history))

    @property
    def may_stop(self) -> bool:
        """Whether the decision can stop here: it has changed something, so the next one gets further."""
        return self.is_turn_over and not self.changes.is_empty

    # ---- changing units

    def move(self, unit: str, status: StepStatus, **changes: Any) -> None:
        """Move a unit to a status and change these fields with it."""
        self.move_from(unit, self.require_unit(unit), status, changes)

    def move_from(self, unit: str, before: StepRecord, status: StepStatus, changes: dict[str, Any]) -> None:
        """Move a unit whose record is at hand. `changes` belongs to the draft then."""
        check_step_transition(unit, before.status, status)
        if before.slot is not None and status is not StepStatus.IN_PROGRESS:
            changes["slot"] = None  # a unit that ends, or waits for its next attempt, releases its slot
        if status is StepStatus.COMPLETE and unit in self.specs and self.specs[unit].compensate is not None:
            changes["completion"] = self._next_completion()
        changes["status"] = status
        after = before.changed_by(changes)
        self._put(unit, before, after)
        self._note_transition(unit, before.status, after)

    def reset(self, step_id: str) -> None:
        """Make a step ready again for a new round, as `set` does, without output, error, items or times. A
        hold stays in place."""
        before = self.step(step_id)
        self.revoke(step_id)
        last_run = max(before.run_id, self.drop_items(step_id))
        after = StepRecord(
            run_id=last_run + 1,
            round=before.round + 1,
            dispatches=before.dispatches,
            retried_keys=before.retried_keys,
        )
        if before.held is not None:
            after = after.with_changes(status=StepStatus.ON_HOLD, held=StepStatus.READY.value)
        self.revive(step_id, after)

    def revive(self, unit: str, after: StepRecord) -> None:
        """Replace a unit by `after`, so that it is evaluated and run again."""
        before = self.require_unit(unit)
        check_step_transition(unit, before.status, StepStatus.READY)
        self._put(unit, before, after)
        self._note_transition(unit, before.status, after)
        self.dead_ends += ((parent, unit) for parent in self.graph.parents.get(unit, ()))

    def amend(self, unit: str, **changes: Any) -> None:
        """Change fields of a unit without changing its status."""
        before = self.require_unit(unit)
        self._put(unit, before, before.with_changes(**changes))

    def finish_dispatch(self, unit: str, **changes: Any) -> None:
        """Record that the result of a unit's dispatch has arrived. The caller must move the unit afterwards:
        until then it is not put on the agenda, although it has no token."""
        before = self.require_unit(unit)
        after = before.with_changes(token=None, **changes)
        if before.token is not None:
            self.changes.finished_dispatches.append((unit, before))
            self.changes.recorded_results.append((unit, after))
        self._write(unit, before, after)

    def complete(
        self, step_id: str, output: dict[str, Any] | None, worker: str | None, started_at: str | None
    ) -> None:
        """Record that the result of a step has arrived, and complete the step, in one change."""
        before = self.step(step_id)
        if before.token is not None:
            self.changes.finished_dispatches.append((step_id, before))
        changes = {
            "token": None,
            "output": output,
            "error": None,
            "reason": None,
            "deadline_ms": None,
            "worker": worker or before.worker,
            "started_at": started_at or before.started_at,
            "ended_at": self.moment.iso,
        }
        self.move_from(step_id, before, StepStatus.COMPLETE, changes)

    def revoke(self, unit: str) -> None:
        """Revoke the dispatch of a unit, if there is one: remove its job, cancel its child."""
        record = self.require_unit(unit)
        if record.token is None:
            return
        self.changes.revoked.append((unit, record))
        if self.changes.jobs:  # this decision may have dispatched it
            self.changes.jobs[:] = [job for job in self.changes.jobs if job.token != record.token]
        if record.child is not None:
            reason = f"step {unit} of {self.record.execution_id} no longer waits for it"
            self.send(ControlEvent(record.child, "cancel", reason=reason, parent_token=record.token))

    def add_item(self, unit: str, item: StepRecord) -> None:
        self.changes.items[unit] = item

    def drop_items(self, step_id: str) -> int:
        """Delete the items of a map, which belong to the round that ends. Returns their highest run_id."""
        counts, last_run = self.step(step_id).items, 0
        for n in range(counts.count if counts is not None else 0):
            unit = UnitId.for_item(step_id, n)
            item = self.require_unit(unit)
            self.revoke(unit)
            self._put(unit, item, StepRecord())
            self.changes.items[unit] = None
            last_run = max(last_run, item.run_id)
        return last_run

    # ---- changing the execution

    def move_workflow(self, status: WorkflowStatus, **fields: Any) -> None:
        check_workflow_transition(self.status, status)
        if self.status is WorkflowStatus.PAUSED:
            self.changes.fields["paused"] = None
        self._set_status(status)
        self.changes.fields.update(status=status, **fields)
        error = fields.get("error")
        self.note(workflow=status.value, **({"error": self._redact(error)} if error else {}))

    def _set_status(self, status: WorkflowStatus) -> None:
        """Set the status. `is_open` means that steps can still run: it is neither final nor compensating."""
        self.status = status
        self.is_final, self.is_open = status in FINAL_WORKFLOW_STATUSES, status not in _CLOSED

    def begin_workflow(self) -> None:
        """Move a pending workflow to in progress when its first step begins, and start its timeout."""
        if self.status is WorkflowStatus.PENDING:
            self.move_workflow(WorkflowStatus.IN_PROGRESS)
            self.start_timeout()

    def start_timeout(self) -> None:
        timeout_s = self.record.spec.timeout_s
        if timeout_s is not None:
            due_ms = self.moment.at_ms + round(timeout_s * 1000)
            self.changes.fields["deadline_ms"] = due_ms
            self.arm(Timer("timeout", "", "", due_ms))

    def set_workflow_slot(self, slot: Slot | None) -> None:
        """Request the slot of the workflow itself, or release it."""
        self._update_slots("", self.slot, slot)
        self.changes.fields["slot"] = slot

    def keep_signals(self, signals: list[dict[str, Any]]) -> None:
        self.changes.fields["signals"] = signals

    def send(self, event: OutgoingEvent) -> None:
        """Send an event to another execution, with the commit of this decision."""
        self.changes.outgoing_events.append(event)

    def arm(self, timer: Timer) -> None:
        self.changes.timers_by_name_to_disarm.pop(timer.name, None)
        self.changes.timers_by_name_to_arm[timer.name] = timer

    def disarm(self, timer: Timer) -> None:
        self.changes.timers_by_name_to_arm.pop(timer.name, None)
        self.changes.timers_by_name_to_disarm[timer.name] = timer

    def count(self, name: str) -> None:
        """Increment a counter of the system."""
        counts = self.changes.counter_increments
        counts[name] = counts.get(name, 0) + 1

    # ---- what follows from a change

    def _put(self, unit: str, before: StepRecord, after: StepRecord) -> None:
        """Write a unit; put it on the agenda if it is a step that can be dispatched."""
        self._write(unit, before, after)
        if after.awaits_dispatch and unit in self.specs and self.may_join(unit):
            self.add_to_agenda(unit)

    def _write(self, unit: str, before: StepRecord, after: StepRecord) -> None:
        """Write a unit, and update counters, slots and timers."""
        if unit in self.specs:
            self._steps[unit] = after
            if before.slot is not after.slot:
                self._update_slots(unit, before.slot, after.slot)
            if before.status is not after.status:
                self._update_counters(unit, before.status, after.status)
            if before.status is not after.status or before.slot is not after.slot:
                self._readiness.active += after.is_active - before.is_active
        else:
            self.changes.items[unit] = after
            if before.is_due is not after.is_due:
                self._update_due_items(unit, after.is_due)
        if before.token is not after.token:
            self._readiness.in_flight += (after.token is not None) - (before.token is not None)
        if _timer_times(before) != _NO_TIMES or _timer_times(after) != _NO_TIMES:
            self._readiness.timed[unit] = after.has_timer
            self._update_timers(unit, before, after)

    def _update_due_items(self, unit: str, is_due: bool) -> None:
        """Add an item to the due items of its map, or remove it, and update the count in the map."""
        step_id, part = split_unit(unit)
        counts = self.step(step_id).items if part.isdecimal() else None
        if counts is not None:
            items = self._due_items(step_id)
            (items.add if is_due else items.discard)(int(part))
            self.amend(step_id, items=replace(counts, due=counts.due + (1 if is_due else -1)))

    def _update_counters(self, step_id: str, before: StepStatus, after: StepStatus) -> None:
        """Update the counters after a change of status, and put the children that may run on the agenda."""
        readiness = self._readiness
        if StepStatus.WAITING in (before, after):
            readiness.waiting[step_id] = after is StepStatus.WAITING
        was_final, is_final = before in FINAL_STEP_STATUSES, after in FINAL_STEP_STATUSES
        if was_final == is_final:
            return
        change = -1 if is_final else 1
        readiness.open += change
        is_dead_end = after is StepStatus.SKIPPED or after is StepStatus.FAILED
        children = self.graph.children[step_id]
        self.turn.spent += len(children)
        for child in children:
            unmet = self.unmet(child) + change
            readiness.unmet[child] = unmet
            if is_dead_end:
                self.dead_ends.append((step_id, child))
            may_join = not unmet or self.graph.may_join(child, unmet)
            if may_join and self.step(child).status is StepStatus.READY:
                self.add_to_agenda(child)

    def _update_slots(self, step_id: str, before: Slot | None, after: Slot | None) -> None:
        """Request the slot that is newly wanted, and release the one that is gone."""
        if before is not None and (after is None or after.token != before.token):
            self.changes.slots.append(SlotChange(step_id, before, is_acquire=False))
        if after is not None and not after.is_held:
            self.changes.slots.append(SlotChange(step_id, after, is_acquire=True))

    def _next_completion(self) -> int:
        number: int = self.changes.fields.get("completions", self.record.completions) + 1
        self.changes.fields["completions"] = number
        return number

    def _update_timers(self, unit: str, before: StepRecord, after: StepRecord) -> None:
        """Disarm the timers that are gone, and arm the new ones."""
        old = {timer.name: timer for timer in timers_for_step(unit, before)}
        new = {timer.name: timer for timer in timers_for_step(unit, after)}
        for name, timer in old.items():
            if name not in new:
                self.disarm(timer)
        for name, timer in new.items():
            if old.get(name) != timer:
                self.arm(timer)

    def _note_transition(self, unit: str, before: StepStatus, after: StepRecord) -> None:
        entry: dict[str, Any] = {
            "at": self.moment.iso,
            "cause": self.moment.cause,
            "step": unit,
            "from": STATUS_NAMES[before],
            "to": STATUS_NAMES[after.status],
            "run_id": after.run_id,
            "attempt": after.attempt,
        }
        if after.reason is not None:
            entry["reason"] = after.reason
        if after.error is not None and after.status is not StepStatus.IN_PROGRESS:
            error = {key: value for key, value in after.error.items() if key != "traceback"}
            entry["error"] = self._redact(error)
        self.changes.history.append(entry)

    def _redact(self, error: dict[str, Any]) -> Any:
        return redact_by_key(error, self.record.spec.redact)
