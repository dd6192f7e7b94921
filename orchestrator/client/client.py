"""Client: starts executions, steers them, and follows them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from orchestrator.application.errors import Busy, OrchestratorError, RecordNotFound, StartRejected
from orchestrator.application.records.decisions import (
    Complete,
    Failed,
    FinalDecision,
    Halt,
    make_final_decision,
    replace_outcome,
)
from orchestrator.application.records.events import ConflictPolicy, Control, ControlEvent, SignalEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, StepStatus, WorkflowStatus
from orchestrator.application.records.step_log import LogLine, filter_by_step
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.client.controls import BulkResult, ControlResult, Controls
from orchestrator.client.payloads import ClientPayloads
from orchestrator.client.replies import REPLY_TIMEOUT_S, Replies
from orchestrator.client.starts import StartOptions, StartResult, StartWriter, WorkflowSource
from orchestrator.redis_rq.backlog import MAX_BACKLOG, Backlog
from orchestrator.redis_rq.connection import BLOCK_MS, connect, retry_until_available, translate_errors
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.event_codec import loads
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.listing import ExecutionFilter, Listing, Page, Summary
from orchestrator.redis_rq.scripts import batches
from orchestrator.redis_rq.store import RedisStore

logger = logging.getLogger(__name__)

START_BATCH_SIZE = 1_000


class StillRunning(OrchestratorError):
    """The execution did not end in the time given."""


class ExecutionFailed(OrchestratorError):
    """There is no result: the execution has failed or was cancelled. `end` says how."""

    def __init__(self, execution_id: str, end: FinalDecision) -> None:
        how = f"failed: {end.error.get('message')}" if isinstance(end, Failed) else "was cancelled"
        super().__init__(f"execution {execution_id!r} has no result: it {how}")
        self.end = end


class Client:
    """Starts, steers and follows executions. One per process is enough; it is safe to share between threads.

    An execution is named by its execution id or by its full id. What is told to one is answered by a
    coordinator: a method returns when it has taken effect, and raises ControlRejected when it cannot, and
    NoReply when there is no coordinator.
    """

    def __init__(
        self,
        redis: str | RedisClient,
        keys: Keys | None = None,
        payloads: PayloadStore | None = None,
        max_backlog: int = MAX_BACKLOG,
    ) -> None:
        """`payloads` keep large values; by default they are where the environment says, as for workers.
        While `max_backlog` starts wait for coordinators, no more are sent."""
        self._redis = connect(redis) if isinstance(redis, str) else redis
        self._keys = keys or Keys()
        self.store = RedisStore(self._redis, self._keys)
        self._large = ClientPayloads(self._redis, self._keys, self.store, payloads)
        self._backlog = Backlog(self._redis, self._keys, max_backlog)
        self._replies = Replies(self._redis, self._keys)
        self._controls = Controls(self._redis, self._keys, self._replies)
        self._listing = Listing(self._redis, self._keys)

    # ---- starting

    def register(self, name: str, spec: str | Mapping[str, Any]) -> str:
        """Keep a spec under a name, so that it can be started by it; returns its workflow_id."""
        loaded = load_spec(spec) if isinstance(spec, str) else check_spec(dict(spec))
        self.store.register(name, loaded)
        return loaded.workflow_id

    def start(
        self,
        workflow: WorkflowSource,
        inputs: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        answer_within_s: float = REPLY_TIMEOUT_S,
        *,
        conflict_policy: ConflictPolicy | None = None,
        labels: Mapping[str, str] | None = None,
        group: str | None = None,
        priority: int | None = None,
        idempotency_root: str | None = None,
        idempotency_window_s: int | None = None,
        webhook: str | Mapping[str, Any] | None = None,
    ) -> StartResult:
        """Start a registered name, a spec as a mapping or a loaded one, and wait until it is accepted.

        Raises StartRejected when the coordinator says no, NoReply when none is there, and Busy when too many
        starts wait already. Under a root of
        idempotency that was used within its window (a day), and under an execution id that is taken with the
        conflict policy `use_existing`, it gives the execution that is there.
        """
        options = StartOptions(
            conflict_policy, labels or {}, group, priority, idempotency_root, idempotency_window_s, webhook
        )
        answer = self.answer(self.send_start(workflow, inputs or {}, execution_id, options), answer_within_s)
        if not answer["ok"]:
            raise StartRejected(answer["reason"], answer.get("problems", ()))
        started = StartResult.of(answer)
        return replace(started, outcome=self._large.loaded(started.outcome, "outcome"))

    def send_start(
        self,
        workflow: WorkflowSource,
        inputs: Mapping[str, Any],
        execution_id: str | None = None,
        options: StartOptions | None = None,
    ) -> str:
        """Send a start without waiting; returns its entry id, by which answer() finds what became of it."""
        fields = StartWriter(self._large).fields(workflow, inputs, execution_id, options)
        self._backlog.check()
        with translate_errors():
            return str(self._redis.xadd(self._keys.starts, fields))

    def start_many(
        self,
        workflows: Iterable[WorkflowSource],
        inputs: Iterable[Mapping[str, Any]],
        execution_ids: Iterable[str | None] | None = None,
        options: StartOptions | None = None,
    ) -> list[str]:
        """Send many starts, a thousand in each round trip, without waiting; returns the entry id of each.

        Raises Busy when too many wait already; it says which were sent before."""
        workflows = list(workflows)
        ids = list(execution_ids) if execution_ids is not None else [None] * len(workflows)
        writer, sent = StartWriter(self._large), list[str]()
        starts = (writer.fields(*one, options) for one in zip(workflows, inputs, ids, strict=True))
        for some in batches(starts, START_BATCH_SIZE):
            try:
                self._backlog.check(is_check_forced=True)
            except Busy as error:
                raise Busy(error.waiting, error.most, sent) from None
            with translate_errors(), self._redis.pipeline(transaction=False) as pipe:
                for fields in some:
                    pipe.xadd(self._keys.starts, fields)
                sent += pipe.execute()
        return sent

    def answer(self, entry_id: str, within_s: float = REPLY_TIMEOUT_S) -> dict[str, Any]:
        """What the coordinator said to a start; waits for it."""
        return self._replies.wait(entry_id, within_s)

    # ---- steering

    def cancel(
        self,
        execution_id: str,
        reason: str | None = None,
        by: str | None = None,
        answer_within_s: float = REPLY_TIMEOUT_S,
    ) -> ControlResult:
        """End an execution and its children at once; what it has to undo is undone then."""
        return self._tell("cancel", execution_id, answer_within_s, reason=reason, by=by)

    def pause(self, execution_id: str, by: str | None = None) -> ControlResult:
        """Dispatch nothing any more; what runs goes on, and its results count."""
        return self._tell("pause", execution_id, by=by)

    def unpause(self, execution_id: str, by: str | None = None) -> ControlResult:
        return self._tell("unpause", execution_id, by=by)

    def hold(self, execution_id: str, step_id: str, by: str | None = None) -> ControlResult:
        """Keep a step that is not in progress where it is."""
        return self._tell("hold", execution_id, step_id=step_id, by=by)

    def release(self, execution_id: str, step_id: str, by: str | None = None) -> ControlResult:
        return self._tell("release", execution_id, step_id=step_id, by=by)

    def retry(
        self,
        execution_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        """Open an execution that failed or was cancelled: what did not complete runs again. `inputs` take the
        place of those that were wrong; the others stay."""
        return self._tell("retry", execution_id, reason=reason, by=by, inputs=inputs)

    def rerun(
        self,
        execution_id: str,
        step_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        """The same, also of one that completed, and beginning with this step and all that depend on it."""
        return self._tell("rerun", execution_id, step_id=step_id, reason=reason, by=by, inputs=inputs)

    def delete(self, execution_id: str) -> ControlResult:
        """Keep nothing of an execution that has ended."""
        return self._tell("delete", execution_id)

    def signal(
        self,
        execution_id: str,
        name: str,
        payload: Any = None,
        answer_within_s: float | None = REPLY_TIMEOUT_S,
    ) -> bool:
        """Say something to an execution: the step that waits for it goes on. It need not exist yet: a signal
        is kept for a day under the execution id.

        Returns whether a step had waited for it; if not, it is kept. With None for the time, nobody is waited
        for and the answer is False.
        """
        event = SignalEvent(execution_id, name, payload)
        if answer_within_s is None:
            self._controls.send(event)
            return False
        return not self._controls.send_and_wait(event, answer_within_s)["kept"]

    def cancel_all(
        self, wanted: ExecutionFilter, reason: str | None = None, by: str | None = None
    ) -> BulkResult:
        """Cancel every execution that a filter finds."""
        return self._tell_all("cancel", wanted, reason, by)

    def retry_all(
        self, wanted: ExecutionFilter, reason: str | None = None, by: str | None = None
    ) -> BulkResult:
        """Retry every execution that a filter finds."""
        return self._tell_all("retry", wanted, reason, by)

    def _tell(
        self,
        action: Control,
        execution_id: str,
        within_s: float = REPLY_TIMEOUT_S,
        step_id: str = "",
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        workflow_execution_id = self.store.full_id(execution_id)
        given = None if inputs is None else self._stowed(inputs)
        event = ControlEvent(workflow_execution_id, action, step_id, reason, by, inputs=given)
        answer = self._controls.send_and_wait(event, within_s)
        return ControlResult(answer["status"], answer["changed"])

    def _stowed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs that take the place of others, with references to what they have too much of."""
        stowed = self._large.offload(inputs)
        self._large.put(stowed)
        return loads(stowed.text) if stowed.payloads else dict(inputs)

    def _tell_all(
        self, action: Control, wanted: ExecutionFilter, reason: str | None, by: str | None
    ) -> BulkResult:
        found = (one.workflow_execution_id for one in self._listing.all(wanted))
        events = (ControlEvent(weid, action, reason=reason, by=by) for weid in found)
        return self._controls.send_all_and_wait(events, REPLY_TIMEOUT_S)

    # ---- following

    def record(self, execution_id: str) -> WorkflowRecord:
        """All that is known of an execution, by either of its ids; RecordNotFound if there is none."""
        return self.store.load(execution_id)

    def status(self, execution_id: str) -> WorkflowStatus:
        return self.record(execution_id).status

    def outputs(self, execution_id: str) -> dict[str, Any]:
        """What the steps that completed have put out, with all that is kept of it by reference."""
        steps = self.record(execution_id).steps.items()
        found = {step_id: step.output for step_id, step in steps if step.status is StepStatus.COMPLETE}
        outputs: dict[str, Any] = self._large.loaded(found, "outputs")
        return outputs

    def payload(self, payload_id: str) -> Any:
        """A value that is kept by reference; PayloadMissing when it is not there any more."""
        return self._large.payload(payload_id)

    def history(self, execution_id: str) -> list[dict[str, Any]]:
        return self.store.history(execution_id)

    def lines(self, execution_id: str, step: str | None = None) -> list[LogLine]:
        """What executors said, by `log` and in the notes of their heartbeats: all of them, or those of a step
        with its items. Those of a run that goes on are there within a second."""
        return filter_by_step(self.store.lines(execution_id), step)

    def list(self, wanted: ExecutionFilter | None = None, limit: int = 50, cursor: str | None = None) -> Page:
        """A page of executions, the newest first. Its cursor leads to the next one; a page may have
        fewer than `limit` and still a cursor, when it had to look through many that were not wanted."""
        return self._listing.page(wanted or ExecutionFilter(), limit, cursor)

    def list_all(self, wanted: ExecutionFilter | None = None) -> Iterator[Summary]:
        """Every execution that a filter finds, page by page."""
        return self._listing.all(wanted or ExecutionFilter())

    def wait(self, execution_id: str, timeout_s: float | None = None) -> FinalDecision:
        """Wait for the end without polling; raises StillRunning when it does not come in time, and
        RecordNotFound when there is no such execution, or none any more.

        A Redis that goes away meanwhile is waited for; Unavailable when it is not back in time. What is kept
        of the outcome by reference is loaded; PayloadMissing when it is not there any more."""
        full_id = self.store.full_id(execution_id)
        until = None if timeout_s is None else time.monotonic() + timeout_s
        return retry_until_available(
            lambda: self._wait(full_id, until, timeout_s or 0),
            timeout_s,
            on_wait=lambda error: logger.warning(
                "%s is waited for through an outage: %s", execution_id, error
            ),
        )

    def _wait(self, workflow_execution_id: str, until: float | None, timeout_s: float) -> FinalDecision:
        with translate_errors(), closing(self._channel()) as channel:
            channel.subscribe(self._keys.done(workflow_execution_id))
            while True:
                # Subscribed first, read second: an end between the two is seen by one of them.
                status = self._redis.hget(self._keys.workflow(workflow_execution_id), "status")
                if status is None:  # deleted, expired, or lost with the last writes of a Redis that died
                    raise RecordNotFound(workflow_execution_id)
                if status in _FINAL and (record := self.record(workflow_execution_id)).is_final:
                    return replace_outcome(_end_of(record), lambda one: self._large.loaded(one, "outcome"))
                if until is not None and time.monotonic() >= until:
                    execution_id = workflow_execution_id.partition("#")[2]
                    raise StillRunning(f"execution {execution_id!r} has not ended after {timeout_s:g} s")
                left = BLOCK_MS / 1000 if until is None else min(until - time.monotonic(), BLOCK_MS / 1000)
                channel.get_message(timeout=max(left, 0.01))

    def result(self, execution_id: str, timeout_s: float | None = None) -> Any:
        """Wait for the end, and give the outcome; raises ExecutionFailed when there is none."""
        end = self.wait(execution_id, timeout_s)
        match end:
            case Complete():
                return end.outcome
            case Halt():
                return end.result
        raise ExecutionFailed(execution_id, end)

    def _channel(self) -> Any:
        return self._redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]


_FINAL: Sequence[str] = [status.value for status in FINAL_WORKFLOW_STATUSES]


def _end_of(record: WorkflowRecord) -> FinalDecision:
    reason = (record.cancelled or {}).get("reason")
    return make_final_decision(record.status, record.outcome, record.error, reason)
