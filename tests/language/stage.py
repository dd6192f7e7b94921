"""Executions on a stage, played step by step: the same words move them in memory and on Redis.

    stage.start(document(step("a"), step("b", after="a", retry=1)))
    stage.finish("a", {"n": 1})            # a worker brings a result; whatever follows has followed
    stage.fail("b")
    stage.pass_time("1s")                  # its timer rings
    stage.deliver(stage.result("b", {}))   # the same as finish; several at once are one batch

Nothing sleeps: time is the stage's own (`now_ms`) and passes only in `pass_time`. After everything that
follows has followed, whatever is kept beside the records must be what follows from them (`_check`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from language.execution import Execution, Json, Said
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ConflictPolicy, Control, iso
from orchestrator.application.records.record import WorkflowRecord

Place = tuple[str, str, str, bool]
"""A slot under a concurrency key: execution, step, token, and whether the place is held."""


class Stage(Execution, ABC):
    """It is itself the execution that is played: the last one started, unless `execution` is set to another.
    `all_jobs` are the jobs of all executions, children's too."""

    def __init__(self, now_ms: int) -> None:
        super().__init__(self, "")
        self.now_ms, self.all_jobs = now_ms, list[DispatchJob]()

    # ---- what happens from outside

    @abstractmethod
    def register(self, name: str, document: Json) -> None:
        """Make a document known under a name, in place of the one that had it."""

    @abstractmethod
    def start(
        self,
        document: Json | str,
        inputs: Json | None = None,
        *,
        execution_id: str | None = None,
        group: str | None = None,
        priority: int | None = None,
        idempotency_root: str | None = None,
        webhook: Json | str | None = None,
        conflict_policy: ConflictPolicy = "fail",
    ) -> str:
        """Start an execution of a document or a registered name; StartRejected with its problems."""

    def deliver(self, *said: Said) -> None:
        """Bring what workers say as one batch, and let follow what follows."""
        self.bring(*said)
        self.settle()

    @abstractmethod
    def bring(self, *said: Said) -> None:
        """Bring what workers say as one batch, and nothing more: what its commit says to other executions
        is not delivered yet."""

    @abstractmethod
    def settle(self) -> None:
        """Let follow what follows."""

    @abstractmethod
    def lose_job(self, job: DispatchJob, after: str) -> None: ...

    @abstractmethod
    def send_signal(self, execution: str, name: str, payload: Any) -> None: ...

    @abstractmethod
    def send_control(
        self, execution: str, action: Control, step: str | None, reason: str | None, by: str | None
    ) -> None: ...

    @abstractmethod
    def pass_time(self, duration: str) -> None:
        """Let time pass; then everything that has become due rings."""

    # ---- looking

    @abstractmethod
    def record_of(self, execution: str) -> WorkflowRecord:
        """By either id; RecordNotFound when there is none."""

    @abstractmethod
    def history_of(self, execution: str) -> list[Json]: ...

    @property
    @abstractmethod
    def executions(self) -> list[str]:
        """All that there are, children too."""

    @abstractmethod
    def answered(self) -> Json:
        """What the last start was answered: its id, and how that execution ended if it has."""

    @abstractmethod
    def counter(self, name: str) -> int:
        """How many events were stale, late or lost so far."""

    @abstractmethod
    def key_of(self, job: DispatchJob) -> str:
        """The idempotency key that comes with a job."""

    @abstractmethod
    def queue_of(self, job: DispatchJob) -> str:
        """The queue that a job was put on, with its priority unless that is the usual one."""

    @abstractmethod
    def shared(self, scope: str, owner: str) -> Json:
        """The values of a scope: `global` of an execution id, `flow_group` of a group."""

    @abstractmethod
    def places(self, key: str) -> list[Place]:
        """All slots under a concurrency key: holders first, then waiters in order."""

    def holders(self, key: str) -> list[str]:
        return [step or execution for execution, step, _, is_held in self.places(key) if is_held]

    def line(self, key: str) -> list[str]:
        return [step or execution for execution, step, _, is_held in self.places(key) if not is_held]

    @property
    def now(self) -> str:
        return iso(self.now_ms)

    # ---- within

    def _note_jobs(self, waiting: Sequence[DispatchJob]) -> None:
        known = {job.token for job in self.all_jobs}
        self.all_jobs += [job for job in waiting if job.token not in known]


def places_of(records: Iterable[WorkflowRecord]) -> dict[str, set[Place]]:
    """The slots by concurrency key, according to the records."""
    found: dict[str, set[Place]] = {}
    for record in records:
        slots = [(step_id, step.slot) for step_id, step in record.steps.items()]
        slots.append(("", record.slot))
        for step_id, slot in slots:
            if slot is not None:
                place = (record.workflow_execution_id, step_id, slot.token, slot.is_held)
                found.setdefault(slot.key, set()).add(place)
    return found
