"""Explains which executor a declined step waits for, and which workers of its queue lack it or have it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from orchestrator.application.explain.reasons import Reason, describe_unit
from orchestrator.application.explain.text import join_names
from orchestrator.diagnosis.checks import Check, ok, problem, warning
from orchestrator.diagnosis.dispatches import worker_command
from orchestrator.diagnosis.snapshot import RedisReasonCode, RedisSnapshot

CHECK = "declined"


@dataclass(frozen=True, slots=True)
class _Workers:
    """The names of the live workers of a queue: which have an executor, which lack it, and which do not
    publish what they have, as stock workers do."""

    having: tuple[str, ...]
    lacking: tuple[str, ...]
    silent: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: RedisSnapshot, queue: str, executor: str) -> _Workers:
        alive = [one for one in snapshot.workers if one.is_alive and queue in one.queues]
        by_answer = [
            tuple(one.name for one in alive if one.has_executor(executor) is answer)
            for answer in (True, False, None)
        ]
        return cls(*by_answer)

    def __str__(self) -> str:
        parts = [
            ("these have it: ", self.having),
            ("these lack it: ", self.lacking),
            ("these do not publish which they have: ", self.silent),
        ]
        return (
            "; ".join(f"{text}{join_names(names)}" for text, names in parts if names) or "it has no workers"
        )


def explain_missing_executor(snapshot: RedisSnapshot, execution: str, unit: str) -> list[Reason]:
    """Explain which workers of its queue have the executor of a declined unit; empty if it was not declined
    lately."""
    declined = next(
        (one for one in snapshot.declined if (one.execution, one.step) == (execution, unit)), None
    )
    if declined is None:
        return []
    workers = _Workers.of(snapshot, declined.queue, declined.executor)
    subject = f"the executor {declined.executor!r} of {describe_unit(unit)}"
    if workers.having:
        words = f"workers of the queue {declined.queue} have {subject}, but others took it first; {workers}"
        return [Reason(RedisReasonCode.EXECUTOR_BUSY, words, unit, advice=_OWN_QUEUE)]
    words = f"no live worker of the queue {declined.queue} is known to have {subject}; {workers}"
    advice = _start_advice(snapshot, declined.queue)
    return [Reason(RedisReasonCode.NO_EXECUTOR, words, unit, advice=advice)]


def check_missing_executors(snapshot: RedisSnapshot) -> Check:
    """Check that a live worker has every executor for which steps wait."""
    waiting = Counter((one.queue, one.executor) for one in snapshot.declined)
    if not waiting:
        return ok(CHECK, "no step waits for a worker with its executor")
    workers = {name: _Workers.of(snapshot, *name) for name in waiting}
    missing = [name for name in waiting if not workers[name].having]
    if not missing:
        found = join_names(
            f"{executor!r} on {queue} ({workers[queue, executor]})" for queue, executor in waiting
        )
        return warning(CHECK, f"workers decline steps that others can run: {found}", _OWN_QUEUE)
    found = join_names(
        f"{executor!r} on {queue} ({waiting[queue, executor]} steps wait; {workers[queue, executor]})"
        for queue, executor in missing
    )
    return problem(
        CHECK, f"no live worker is known to have the executor {found}", _start_advice(snapshot, missing[0][0])
    )


_OWN_QUEUE = "give all workers of a queue the same executors, or the steps a queue of their own"


def _start_advice(snapshot: RedisSnapshot, queue: str) -> str:
    return f"start a worker that has it: {worker_command(snapshot, queue)} --executors MODULE"
