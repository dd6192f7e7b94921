"""The client: what an application calls to start workflows and to learn what became of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.application.decisions import Final, ended
from orchestrator.application.errors import OrchestratorError, StartRefused
from orchestrator.application.events import SignalEvent
from orchestrator.application.record import WorkflowRecord
from orchestrator.application.states import WorkflowStatus
from orchestrator.application.validation import LoadedSpec, check_inputs, check_spec, load_spec
from orchestrator.redis_rq.codec import dumps, event_fields, loads
from orchestrator.redis_rq.connection import BLOCK_MS, connect, translated
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore

ANSWER_WITHIN_S = 10.0


class NoAnswer(OrchestratorError):
    """No coordinator answered in time; the start is in the stream and will be served by the next one."""

    def __init__(self, entry_id: str, waited_s: float) -> None:
        super().__init__(
            f"no coordinator answered within {waited_s:g} s: is one running (orchestrator coordinator)?"
            f" The start waits in the stream as {entry_id}"
        )
        self.entry_id = entry_id


class StillRunning(OrchestratorError):
    """The execution did not end in the time given."""


@dataclass(frozen=True, slots=True)
class Started:
    workflow_execution_id: str
    execution_id: str


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What else a start may say: the group of the execution, the priority of steps that have none of their
    own, and the root under which it is not to be started twice."""

    group: str | None = None
    priority: int | None = None
    idempotency_root: str | None = None
    idempotency_window_s: int | None = None


class Client:
    """Starts and follows executions. One per process is enough; it is safe to share between threads."""

    def __init__(self, redis: str | RedisClient, keys: Keys | None = None) -> None:
        self._redis = connect(redis) if isinstance(redis, str) else redis
        self._keys = keys or Keys()
        self.store = RedisStore(self._redis, self._keys)

    # ---- starting

    def start(
        self,
        workflow: str | Mapping[str, Any] | LoadedSpec,
        inputs: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        answer_within_s: float = ANSWER_WITHIN_S,
        *,
        group: str | None = None,
        priority: int | None = None,
        idempotency_root: str | None = None,
        idempotency_window_s: int | None = None,
    ) -> Started:
        """Start a registered name, a spec as a mapping or a loaded one, and wait until it is accepted.

        Raises StartRefused when the coordinator says no, and NoAnswer when none is there. Under a root of
        idempotency that was used within its window (a day), it gives the execution that was started then.
        """
        options = StartOptions(group, priority, idempotency_root, idempotency_window_s)
        entry_id = self.send_start(workflow, inputs or {}, execution_id, options)
        answer = self.answer(entry_id, answer_within_s)
        if not answer["ok"]:
            raise StartRefused(answer["reason"], answer.get("problems", ()))
        return Started(answer["workflow_execution_id"], answer["execution_id"])

    def send_start(
        self,
        workflow: str | Mapping[str, Any] | LoadedSpec,
        inputs: Mapping[str, Any],
        execution_id: str | None = None,
        options: StartOptions | None = None,
    ) -> str:
        """Send a start without waiting; returns its entry id, by which answer() finds what became of it."""
        fields = start_fields(workflow, inputs, execution_id)
        given = asdict(options or StartOptions())
        fields.update({name: value for name, value in given.items() if value is not None})
        with translated():
            return str(self._redis.xadd(self._keys.starts, fields))

    def start_many(
        self,
        workflows: Iterable[str | Mapping[str, Any] | LoadedSpec],
        inputs: Iterable[Mapping[str, Any]],
        execution_ids: Iterable[str | None] | None = None,
    ) -> list[str]:
        """Send many starts in one round trip, without waiting; returns the entry id of each."""
        workflows = list(workflows)
        ids = list(execution_ids) if execution_ids is not None else [None] * len(workflows)
        with translated(), self._redis.pipeline(transaction=False) as pipe:
            for workflow, given, execution_id in zip(workflows, inputs, ids, strict=True):
                pipe.xadd(self._keys.starts, start_fields(workflow, given, execution_id))
            sent: list[str] = pipe.execute()
        return sent

    def answer(self, entry_id: str, within_s: float = ANSWER_WITHIN_S) -> dict[str, Any]:
        """What the coordinator said to a start; waits for it."""
        key, until = self._keys.answer(entry_id), time.monotonic() + within_s
        while True:
            wait_s = min(until - time.monotonic(), BLOCK_MS / 1000)
            with translated():
                # BLMOVE onto itself waits like a pop and leaves the answer for others to read.
                found = self._redis.blmove(key, key, max(wait_s, 0.01), "LEFT", "LEFT")  # type: ignore[arg-type]
            if found is not None:
                answer: dict[str, Any] = loads(str(found))
                return answer
            if time.monotonic() >= until:
                raise NoAnswer(entry_id, within_s)
            time.sleep(0.01)  # fakeredis answers at once instead of waiting

    def register(self, name: str, spec: str | Mapping[str, Any]) -> str:
        """Keep a spec under a name, so that it can be started by it; returns its workflow_id."""
        loaded = load_spec(spec) if isinstance(spec, str) else check_spec(dict(spec))
        self.store.register(name, loaded)
        return loaded.workflow_id

    def signal(self, execution_id: str, name: str, payload: Any = None) -> None:
        """Say something to an execution: the step that waits for it goes on. It need not exist yet: a signal
        is kept for a day under the execution id."""
        event = SignalEvent(execution_id, name, payload)
        fields: dict[Any, Any] = dict(event_fields(event))
        with translated():
            self._redis.xadd(self._keys.events_of(execution_id), fields)

    # ---- following

    def record(self, execution_id: str) -> WorkflowRecord:
        """All that is known of an execution, by either of its ids; RecordNotFound if there is none."""
        return self.store.load(execution_id)

    def status(self, execution_id: str) -> WorkflowStatus:
        return self.record(execution_id).status

    def history(self, execution_id: str) -> list[dict[str, Any]]:
        return self.store.history(execution_id)

    def wait(self, execution_id: str, timeout_s: float | None = None) -> Final:
        """Wait for the end without polling; raises StillRunning when it does not come in time."""
        workflow_execution_id = self.store.full_id(execution_id)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with translated(), closing(self._channel()) as channel:
            channel.subscribe(self._keys.done(workflow_execution_id))
            while True:
                # Subscribed first, read second: an end between the two is seen by one of them.
                status = self._redis.hget(self._keys.workflow(workflow_execution_id), "status")
                if status in _FINAL:
                    return self._end_of(workflow_execution_id)
                if until is not None and time.monotonic() >= until:
                    raise StillRunning(f"execution {execution_id!r} has not ended after {timeout_s:g} s")
                left = BLOCK_MS / 1000 if until is None else min(until - time.monotonic(), BLOCK_MS / 1000)
                channel.get_message(timeout=max(left, 0.01))

    def _end_of(self, workflow_execution_id: str) -> Final:
        record = self.record(workflow_execution_id)
        return ended(record.status, record.outcome, record.error)

    def _channel(self) -> Any:
        return self._redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]


_FINAL: Sequence[str] = ("complete", "halted", "failed", "cancelled")


def start_fields(
    workflow: str | Mapping[str, Any] | LoadedSpec, inputs: Mapping[str, Any], execution_id: str | None
) -> dict[Any, Any]:
    """The fields of a start event. A spec is checked here already, so that its problems come at once."""
    fields: dict[Any, Any] = {"inputs": dumps(dict(inputs))}
    if isinstance(workflow, str):
        fields["workflow"] = workflow
    else:
        loaded = workflow if isinstance(workflow, LoadedSpec) else check_spec(dict(workflow))
        _, problems = check_inputs(loaded.spec, dict(inputs))
        if problems:
            raise StartRefused("\n".join(map(str, problems)), [problem.as_dict() for problem in problems])
        fields["spec"] = dumps(loaded.document)
    if execution_id is not None:
        fields["execution_id"] = execution_id
    return fields
