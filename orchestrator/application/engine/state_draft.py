"""The state and the shared values of an execution while a decision changes them, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from orchestrator.application.engine.context import StateView
from orchestrator.application.engine.readiness_draft import ReadinessDraft
from orchestrator.application.records.changes import Changes, SharedChange
from orchestrator.application.records.events import Moment
from orchestrator.application.records.record import WorkflowRecord

_ABSENT = object()


class StateDraft(ReadinessDraft):
    """The part of a draft that reads and writes the state. `has_retried_keys` is whether a step has, or had
    before this decision, `retried_keys`."""

    def __init__(self, record: WorkflowRecord, moment: Moment) -> None:
        super().__init__(record)
        self.moment = moment
        self.changes = Changes(at_ms=moment.at_ms, readiness=self._readiness)
        self._shared: dict[str, dict[str, Any]] = {}
        self.has_retried_keys = bool(record.readiness.retried)

    @property
    def state(self) -> Mapping[str, Any]:
        return StateView(self.record.state, self.changes.state, self.changes.dropped_state)

    def shared(self, scope: str) -> Mapping[str, Any]:
        """The values of a shared scope, with the writes of this decision on top."""
        return StateView(self.record.shared.get(scope, {}), self._shared.get(scope, {}))

    def merge_state(self, step_id: str, output: Mapping[str, Any]) -> None:
        """Merge values into the state. They have another writer now, so no `retried_keys` names them."""
        state, merged, dropped = self.record.state, self.changes.state, self.changes.dropped_state
        changed = [
            key
            for key, value in output.items()
            if key in dropped or merged.get(key, state.get(key, _ABSENT)) != value
        ]
        merged.update(output)
        if dropped:
            dropped.difference_update(output)
        self.changes.merged.append((step_id, dict(output), ()))
        if changed:
            self.note(step=step_id, state_changed=changed)
        if self.has_retried_keys:
            for one in self.retried:
                self.set_retried_keys(one, [key for key in self.retried_keys(one) if key not in output])

    def drop_state(self, step_id: str, keys: Sequence[str]) -> None:
        """Remove keys from the state, because of this step."""
        for key in keys:
            self.changes.state.pop(key, None)
        self.changes.dropped_state.update(keys)
        self.changes.merged.append((step_id, {}, keys))
        self.note(step=step_id, state_removed=list(keys))

    def retried_keys(self, step_id: str) -> list[str]:
        return (self.changes.steps.get(step_id) or self.record.steps[step_id]).retried_keys or []

    def set_retried_keys(self, step_id: str, keys: list[str]) -> None:
        if keys != self.retried_keys(step_id):
            before = self.changes.steps.get(step_id) or self.record.steps[step_id]
            self.changes.steps[step_id] = before.with_changes(retried_keys=keys or None)
            self._readiness.retried[step_id], self.has_retried_keys = bool(keys), True

    def write_shared(
        self, scope: Literal["global", "flow_group"], key: str, value: Any, added: Any = None
    ) -> None:
        """Write a value to a shared scope; `added` is the increment, if the value is the result of one."""
        self._shared.setdefault(scope, {})[key] = value
        is_increment = added is not None
        self.changes.shared.append(SharedChange(scope, key, added if is_increment else value, is_increment))

    def note(self, **entry: Any) -> None:
        """Add an entry to the history."""
        self.changes.history.append({"at": self.moment.iso, "cause": self.moment.cause, **entry})
