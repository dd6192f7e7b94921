"""Kill points: where a test may kill a process of the system.

Each is a point between two arrows on the way of one step:

    coordinator: decide -> commit -> worker: take the job -> call the executor -> publish its result
                        |         |                       |                    |
       coordinator.commit   coordinator.dispatch     worker.start        worker.result
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from orchestrator.testing.errors import WorkflowTestError, unknown_name_error
from orchestrator.testing.mocks import matching_names

KillPoint = Literal["worker.start", "worker.result", "coordinator.commit", "coordinator.dispatch"]

KILL_POINTS: dict[KillPoint, str] = {
    "worker.start": (
        "a worker has taken the step's job and dies before it calls the executor:"
        " the step is lost, and dispatched again"
    ),
    "worker.result": (
        "the executor has returned and its worker dies before the result is published:"
        " what it did is unknown, the step is lost, and dispatched again"
    ),
    "coordinator.commit": (
        "a coordinator has decided upon the step's result and dies before it commits:"
        " nothing is written, and another one decides upon the same result"
    ),
    "coordinator.dispatch": (
        "a coordinator has committed that the step is to run and dies:"
        " the job was part of the commit, and nothing is lost"
    ),
}
assert set(KILL_POINTS) == set(get_args(KillPoint))


@dataclass(slots=True)
class Kill:
    """A process is to be killed at a point `times` times, and was killed there `happened` times so far."""

    point: KillPoint
    step: str | None = None
    times: int = 1
    happened: int = 0

    @property
    def is_due(self) -> bool:
        return self.happened < self.times

    def __str__(self) -> str:
        where = "" if self.step is None else f" of {self.step}"
        return f"{self.point}{where}, {self.happened} of {self.times}"


class CoordinatorKilled(BaseException):
    """A coordinator is killed here; `is_committed`: its decision is written."""

    def __init__(self, is_committed: bool) -> None:
        super().__init__("a coordinator was killed")
        self.is_committed = is_committed


class KillPlan(list[Kill]):
    """All planned kills of a test."""

    def add(self, point: KillPoint, step: str | None, times: int) -> Kill:
        if point not in KILL_POINTS:
            raise unknown_name_error("there is no kill point", point, KILL_POINTS)
        if times < 1:
            raise WorkflowTestError(f"times must be 1 or more, not {times}")
        kill = Kill(point, step, times)
        self.append(kill)
        return kill

    def trigger(self, point: KillPoint, units: Iterable[str]) -> bool:
        """Whether a process is killed here while it handles one of these units. Counts the kill."""
        names = {name for unit in units for name in matching_names(unit, unit)}
        for kill in self:
            if kill.point == point and kill.is_due and names and kill.step in {None, *names}:
                kill.happened += 1
                return True
        return False
