"""A record being changed: reads fall through to the record, writes stay in the draft.

The record underneath is never touched, so a decision that cannot be committed leaves no trace.
Every status is written here, by `move` and `end_workflow`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import Any

from orchestrator.application.context import Context, StateView
from orchestrator.application.decisions import DispatchJob
from orchestrator.application.events import Moment
from orchestrator.application.record import (
    ACTIVE_STEPS,
    FINAL_STEPS,
    FINAL_WORKFLOWS,
    Changes,
    ReadinessChanges,
    StepRecord,
    StepStatus,
    Timer,
    WorkflowRecord,
    WorkflowStatus,
    check_step_move,
    check_workflow_move,
)
from orchestrator.application.spec import StepSpec


class Draft:
    """`dead_ends` are parent and child of edges that may keep the child from ever running."""

    def __init__(self, record: WorkflowRecord, moment: Moment) -> None:
        self.record, self.moment, self.graph = record, moment, record.graph
        self.changes = Changes(at_ms=moment.at_ms)
        self._steps, self._readiness = self.changes.steps, ReadinessChanges()
        self.changes.readiness = self._readiness
        self.dead_ends: list[tuple[str, str]] = []
        self._agenda_at = 0
        self._heap: list[int] = []

    # ---- reading

    @property
    def status(self) -> WorkflowStatus:
        status: WorkflowStatus = self.changes.fields.get("status", self.record.status)
        return status

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_WORKFLOWS

    @property
    def outcome(self) -> Any:
        return self.changes.fields.get("outcome", self.record.outcome)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.changes.fields.get("error", self.record.error) or {}
        return error

    @property
    def state(self) -> Mapping[str, Any]:
        return StateView(self.record.state, self.changes.state)

    @property
    def open(self) -> int:
        return self.record.readiness.open + self._readiness.open

    @property
    def in_flight(self) -> int:
        return self.record.readiness.in_flight + self._readiness.in_flight

    def step(self, step_id: str) -> StepRecord:
        changed = self._steps.get(step_id)
        return changed if changed is not None else self.record.steps[step_id]

    def spec(self, step_id: str) -> StepSpec:
        return self.record.spec.steps[self.graph.index[step_id]]

    def unmet(self, step_id: str) -> int:
        unmet = self._readiness.unmet.get(step_id)
        return unmet if unmet is not None else self.record.readiness.unmet[step_id]

    def context(self, step_id: str | None = None, fresh: Mapping[str, Any] | None = None) -> Context:
        return Context(self, step_id, fresh)

    # ---- writing

    def move(self, step_id: str, status: StepStatus, **changes: Any) -> None:
        """Move a step to a status, with what else changes about it, and tell those it concerns."""
        before = self.step(step_id)
        check_step_move(step_id, before.status, status)
        after = replace(before, status=status, **changes)
        self._steps[step_id] = after
        self._recount(step_id, before.status, status)
        self._note_move(step_id, before.status, after)

    def reset(self, step_id: str) -> None:
        """Back to ready, as a `set` does: no output, error or times, a new run of a new round."""
        before = self.step(step_id)
        check_step_move(step_id, before.status, StepStatus.READY)
        self.revoke(step_id)
        after = StepRecord(run_id=before.run_id + 1, round=before.round + 1, dispatches=before.dispatches)
        self._steps[step_id] = after
        self._recount(step_id, before.status, StepStatus.READY)
        self._note_move(step_id, before.status, after)
        self.dead_ends += ((parent, step_id) for parent in self.graph.parents[step_id])

    def amend(self, step_id: str, **changes: Any) -> None:
        """Change what is known of a step without moving it."""
        self._steps[step_id] = replace(self.step(step_id), **changes)

    def claim(self, step_id: str, inputs: dict[str, Any]) -> None:
        """Mark a step in progress and make its job: one dispatch, under a token of its own."""
        spec, step = self.spec(step_id), self.step(step_id)
        token = f"{self.moment.nonce}-{len(self.changes.jobs)}"
        self.move(
            step_id,
            StepStatus.IN_PROGRESS,
            token=token,
            dispatches=step.dispatches + 1,
            dispatched_at=self.moment.iso,
            worker=None,
        )
        self.changes.jobs.append(
            DispatchJob(
                workflow_execution_id=self.record.workflow_execution_id,
                step_id=step_id,
                fn=spec.fn,
                inputs=inputs,
                run_id=step.run_id,
                attempt=step.attempt,
                round=step.round,
                token=token,
                dispatched_at=self.moment.iso,
                queue=spec.queue,
                timeout_s=spec.timeout_s,
                max_output_bytes=self.record.spec.limits.max_output_bytes,
            )
        )
        if self.status is WorkflowStatus.PENDING:
            self.move_workflow(WorkflowStatus.IN_PROGRESS)

    def revoke(self, step_id: str) -> None:
        """Nobody waits for this step's dispatch any more."""
        step = self.step(step_id)
        if step.token is not None:
            self.changes.revoked.append((step_id, step))

    def settle(self, step_id: str) -> None:
        """This step's dispatch has brought its result."""
        self.changes.settled.append((step_id, self.step(step_id)))

    def arm(self, kind: str, step_id: str, due_ms: int) -> None:
        """Have this step looked at again at a time."""
        token = self.step(step_id).token
        assert token is not None, "only what is in progress has a clock"
        self.changes.timers.append(Timer(kind, step_id, token, due_ms))

    def merge_state(self, step_id: str, output: Mapping[str, Any]) -> None:
        state = self.state
        changed = [key for key, value in output.items() if key not in state or state[key] != value]
        self.changes.state.update(output)
        self.changes.merged.append((step_id, dict(output)))
        if changed:
            self.note(step=step_id, state_changed=changed)

    def move_workflow(self, status: WorkflowStatus, **fields: Any) -> None:
        check_workflow_move(self.status, status)
        self.changes.fields.update(status=status, **fields)
        self.note(workflow=status.value, **({"error": fields["error"]} if fields.get("error") else {}))

    def end_workflow(self, status: WorkflowStatus, reason: str, **fields: Any) -> None:
        """Make the workflow final: what is active is cancelled; what is ready stays so only after a halt."""
        for step_id in self.graph.order if self.open else ():
            before = self.step(step_id).status
            if before in ACTIVE_STEPS:
                self.revoke(step_id)
                self.move(
                    step_id,
                    StepStatus.CANCELLED,
                    reason=reason,
                    token=None,
                    deadline_ms=None,
                    ended_at=self.moment.iso,
                )
            elif before is StepStatus.READY and status is not WorkflowStatus.HALTED:
                self.move(step_id, StepStatus.SKIPPED, reason=reason, ended_at=self.moment.iso)
        self.move_workflow(status, ended_at=self.moment.iso, **fields)

    def note(self, **entry: Any) -> None:
        """One line of the history."""
        self.changes.history.append({"at": self.moment.iso, "cause": self.moment.cause, **entry})

    def count(self, name: str) -> None:
        self.changes.counted[name] = self.changes.counted.get(name, 0) + 1

    # ---- the agenda: which steps advance() must look at

    def look_at(self, step_id: str) -> None:
        position = self.graph.index[step_id]
        if position not in self._readiness.added:
            self._readiness.added.add(position)
            heappush(self._heap, position)

    def take_next(self) -> str | None:
        """The next step to look at, in spec order; None when the agenda is empty."""
        agenda = self.record.readiness.agenda
        at = self._agenda_at
        if self._heap and (at >= len(agenda) or self._heap[0] <= agenda[at]):
            position = heappop(self._heap)
            self._readiness.added.discard(position)
            if at < len(agenda) and agenda[at] == position:
                self._agenda_at = at + 1  # it stands on both: it is taken once
        elif at < len(agenda):
            position = agenda[at]
            self._agenda_at = at + 1
        else:
            return None
        self._readiness.taken.add(position)
        return self.graph.order[position]

    def _recount(self, step_id: str, before: StepStatus, after: StepStatus) -> None:
        """Keep the counters in step, and put on the agenda whom this move concerns."""
        readiness = self._readiness
        readiness.in_flight += (after is StepStatus.IN_PROGRESS) - (before is StepStatus.IN_PROGRESS)
        was_final, is_final = before in FINAL_STEPS, after in FINAL_STEPS
        if was_final != is_final:
            change = -1 if is_final else 1
            readiness.open += change
            dead_end = after is StepStatus.SKIPPED or after is StepStatus.FAILED
            for child in self.graph.children[step_id]:
                unmet = self.unmet(child) + change
                readiness.unmet[child] = unmet
                if dead_end:
                    self.dead_ends.append((step_id, child))
                if not unmet and self.step(child).status is StepStatus.READY:
                    self.look_at(child)
        if after is StepStatus.RETRY or (after is StepStatus.READY and not self.unmet(step_id)):
            self.look_at(step_id)

    def _note_move(self, step_id: str, before: StepStatus, after: StepRecord) -> None:
        entry: dict[str, Any] = {
            "step": step_id,
            "from": before.value,
            "to": after.status.value,
            "run_id": after.run_id,
            "attempt": after.attempt,
        }
        if after.reason is not None:
            entry["reason"] = after.reason
        if after.error is not None and after.status is not StepStatus.IN_PROGRESS:
            entry["error"] = {key: value for key, value in after.error.items() if key != "traceback"}
        self.note(**entry)
