"""What a transition decided, before anything of it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.decisions import DispatchJob
from orchestrator.application.readiness import ReadinessChanges
from orchestrator.application.timers import Timer
from orchestrator.application.units import StepRecord


@dataclass(slots=True)
class Changes:
    """What a transition decided: the steps, state keys and fields that differ, and the effects.

    `settled` are the dispatches that brought their result, `revoked` those that nobody waits for any
    more, both as the step was while they were out; `timers` are to be armed, `disarmed` are not needed any
    more; `items` are those of maps, None for one that is gone; `counted` belongs into the counters (stale,
    late, lost), and `more` says that ready steps were left for a further advance().
    """

    at_ms: int = 0
    steps: dict[str, StepRecord] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    merged: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[DispatchJob] = field(default_factory=list)
    settled: list[tuple[str, StepRecord]] = field(default_factory=list)
    revoked: list[tuple[str, StepRecord]] = field(default_factory=list)
    armings: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    disarmings: dict[tuple[str, str, str], Timer] = field(default_factory=dict)
    items: dict[str, StepRecord | None] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    more: bool = False
    readiness: ReadinessChanges | None = None

    @property
    def timers(self) -> list[Timer]:
        return list(self.armings.values())

    @property
    def disarmed(self) -> list[Timer]:
        return list(self.disarmings.values())

    @property
    def is_empty(self) -> bool:
        """Whether the record stays as it is: nothing to write but an acknowledgement."""
        return not (self.steps or self.items or self.state or self.fields or self.more)


def put_items(items: dict[str, StepRecord], changes: Changes) -> None:
    """Write the changed items of maps among the others, and take away those that are gone."""
    for unit, item in changes.items.items():
        if item is None:
            items.pop(unit, None)
        else:
            items[unit] = item
