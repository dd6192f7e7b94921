"""The client: starts, controls and follows executions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.application.errors import (
    Busy,
    InvalidSpec,
    OrchestratorError,
    PayloadMissing,
    RecordNotFound,
    StartRejected,
)
from orchestrator.application.explain.run_status import RunStatus, make_run_status
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.decisions import (
    FinalDecision,
)
from orchestrator.application.records.events import ConflictPolicy, Control, ControlEvent, SignalEvent
from orchestrator.application.records.record import WorkflowRecord, find_last_outputs
from orchestrator.application.records.replay import Attempt, add_values, fields_at, list_attempts
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_log import LogLine, filter_by_step
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.client.bulk import BulkAction, BulkControls
from orchestrator.client.controls import BulkResult, ControlResult, Controls
from orchestrator.client.ends import Ends, read_outcome
from orchestrator.client.payloads import ClientPayloads
from orchestrator.client.replies import REPLY_TIMEOUT_S, NoReply, Replies
from orchestrator.client.starts import (
    StartOptions,
    StartRequest,
    StartResult,
    StartWriter,
    WorkflowSource,
)
from orchestrator.deprecation import renamed_arguments, renamed_attribute
from orchestrator.redis_rq.backlog import Backlog
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.connection import (
    clock_ms,
    connect,
    translate_errors,
)
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.execution_details import DetailReader, ExecutionDetails
from orchestrator.redis_rq.queries.failures import FailureReport, Failures
from orchestrator.redis_rq.queries.listing import ExecutionFilter, Listing, Page, Summary
from orchestrator.redis_rq.queued_units import read_status_view
from orchestrator.redis_rq.scripts import batches
from orchestrator.redis_rq.store import RedisStore
from orchestrator.settings import MAX_BACKLOG, Settings

logger = logging.getLogger(__name__)

START_BATCH_SIZE = 1_000


class Client:
    """Starts, controls and follows executions. One client per process is enough; threads can share it.

    Methods take an execution id or a full id. A control waits for the reply of a coordinator: the method
    returns when the control has taken effect. It raises ControlRejected if the execution cannot follow it,
    and NoReply if no coordinator replies in time.
    """

    def __init__(
        self,
        redis: str | RedisClient,
        keys: Keys | None = None,
        payloads: PayloadStore | None = None,
        max_backlog: int = MAX_BACKLOG,
        settings: Settings | None = None,
    ) -> None:
        """`payloads` stores large values; by default, the store of the settings, as for workers. `settings`
        are read from the environment by default. While `max_backlog` starts wait for coordinators, starts
        raise Busy."""
        self._redis = connect(redis) if isinstance(redis, str) else redis
        self._keys = keys or Keys()
        self.store = RedisStore(self._redis, self._keys)
        self._payloads = ClientPayloads(
            self._redis,
            self._keys,
            self.store,
            payloads,
            settings if settings is not None else Settings.from_environment(),
        )
        self._backlog = Backlog(self._redis, self._keys, max_backlog)
        self._replies = Replies(self._redis, self._keys)
        self._controls = Controls(self._redis, self._keys, self._replies)
        self._listing = Listing(self._redis, self._keys)
        self._failures = Failures(self._redis, self._keys, self.store)
        self._ends = Ends(self._redis, self._keys, self.store, self._payloads)
        self._bulk = BulkControls(self._controls, self._listing, self._failures)

    # ---- starting

    def register(self, name: str, spec: str | Mapping[str, Any]) -> str:
        """Register a spec under a name, so that it can be started by that name; returns its workflow_id."""
        loaded = load_spec(spec) if isinstance(spec, str) else check_spec(dict(spec))
        self.store.register(name, loaded)
        return loaded.workflow_id

    @renamed_arguments(answer_within_s="reply_timeout_s")
    def start(
        self,
        workflow: WorkflowSource,
        inputs: Mapping[str, Any] | None = None,
        execution_id: str | None = None,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        *,
        conflict_policy: ConflictPolicy | None = None,
        labels: Mapping[str, str] | None = None,
        group: str | None = None,
        priority: int | None = None,
        idempotency_root: str | None = None,
        idempotency_window_s: int | None = None,
        webhook: str | Mapping[str, Any] | None = None,
        traceparent: str | None = None,
    ) -> StartResult:
        """Start a workflow (a registered name, a mapping or a loaded spec), and wait until it is accepted.

        Raises StartRejected if the coordinator rejects it, NoReply if no coordinator replies in time, and
        Busy if too many starts are waiting. It returns the existing execution if the idempotency root was
        used within its window (a day by default), or if the execution id is taken and the conflict policy is
        `use_existing`.
        """
        options = StartOptions(
            conflict_policy,
            labels or {},
            group,
            priority,
            idempotency_root,
            idempotency_window_s,
            webhook,
            traceparent,
        )
        entry_id = self.send_start(workflow, inputs or {}, execution_id, options)
        return self._read_start(self.wait_for_reply(entry_id, reply_timeout_s))

    def _read_start(self, reply: Mapping[str, Any]) -> StartResult:
        """Return the execution that a start led to, with its outcome if it has ended; StartRejected if the
        reply rejects the start."""
        if not reply["ok"]:
            raise StartRejected(reply["reason"], reply.get("problems", ()))
        started = StartResult.of(reply)
        if reply.get("left_out"):  # the outcome or the error is too large for a reply
            record = self.record(started.workflow_execution_id)
            started = replace(started, outcome=record.outcome, error=record.error)
        return replace(started, outcome=self._payloads.load_references(started.outcome, "outcome"))

    def send_start(
        self,
        workflow: WorkflowSource,
        inputs: Mapping[str, Any],
        execution_id: str | None = None,
        options: StartOptions | None = None,
    ) -> str:
        """Send a start without waiting; returns its entry id. wait_for_reply() returns the reply to it."""
        fields = StartWriter(self._payloads).fields(workflow, inputs, execution_id, options)
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
        """Send many starts without waiting, a thousand per round trip; returns the entry id of each.

        Raises Busy if too many starts are waiting; the error lists those that were sent before."""
        workflows = list(workflows)
        ids = list(execution_ids) if execution_ids is not None else [None] * len(workflows)
        writer, sent = StartWriter(self._payloads), list[str]()
        starts = (writer.fields(*one, options) for one in zip(workflows, inputs, ids, strict=True))
        for batch in batches(starts, START_BATCH_SIZE):
            try:
                self._backlog.check(is_check_forced=True)
            except Busy as error:
                raise Busy(error.waiting, error.max_waiting, sent) from None
            with translate_errors(), self._redis.pipeline(transaction=False) as pipe:
                for fields in batch:
                    pipe.xadd(self._keys.starts, fields)
                sent += pipe.execute()
        return sent

    def send_starts(self, requests: Sequence[StartRequest]) -> list[str | OrchestratorError]:
        """Send starts that differ in their options, without waiting; returns the entry id of each, or its
        error. An invalid start does not prevent the others."""
        writer, sent = StartWriter(self._payloads), list[str | OrchestratorError]()
        for batch in batches(requests, START_BATCH_SIZE):
            sent += self._send_batch([self._write_start(writer, one) for one in batch])
        return sent

    def _write_start(self, writer: StartWriter, one: StartRequest) -> dict[Any, Any] | OrchestratorError:
        try:
            return writer.fields(one.workflow, one.inputs, one.execution_id, one.options)
        except (InvalidSpec, StartRejected) as error:
            return error

    def _send_batch(
        self, starts: Sequence[dict[Any, Any] | OrchestratorError]
    ) -> list[str | OrchestratorError]:
        """Send those starts that have fields; the others stay as they are."""
        self._backlog.check(is_check_forced=len(starts) > 1)
        with translate_errors(), self._redis.pipeline(transaction=False) as pipe:
            for one in starts:
                if isinstance(one, dict):
                    pipe.xadd(self._keys.starts, one)
            entry_ids: Iterator[str] = iter(pipe.execute())
        return [next(entry_ids) if isinstance(one, dict) else one for one in starts]

    def wait_for_starts(
        self, entry_ids: Sequence[str], timeout_s: float = REPLY_TIMEOUT_S
    ) -> list[StartResult | OrchestratorError]:
        """Wait for the replies to starts, together no longer than `timeout_s`; returns for each the execution
        that it led to, or its error: StartRejected, NoReply or RequestLost."""
        replies = self._replies.wait_many(entry_ids, timeout_s)
        return [one if isinstance(one, NoReply) else self._try_start(one) for one in replies]

    def _try_start(self, reply: Mapping[str, Any]) -> StartResult | OrchestratorError:
        try:
            return self._read_start(reply)
        except (StartRejected, PayloadMissing, RecordNotFound) as error:
            return error

    @renamed_arguments(within_s="timeout_s")
    def wait_for_reply(self, entry_id: str, timeout_s: float = REPLY_TIMEOUT_S) -> dict[str, Any]:
        """Wait for the coordinator's reply to a start, and return it."""
        return self._replies.wait(entry_id, timeout_s)

    answer = renamed_attribute("answer", "wait_for_reply")

    # ---- controlling

    @renamed_arguments(answer_within_s="reply_timeout_s")
    def cancel(
        self,
        execution_id: str,
        reason: str | None = None,
        by: str | None = None,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> ControlResult:
        """Cancel an execution and its children at once; then its completed steps are compensated."""
        return self._control("cancel", execution_id, reply_timeout_s, reason=reason, by=by)

    def pause(self, execution_id: str, by: str | None = None, *, reason: str | None = None) -> ControlResult:
        """Dispatch no more steps; running steps continue, and their results count."""
        return self._control("pause", execution_id, reason=reason, by=by)

    def unpause(self, execution_id: str, by: str | None = None) -> ControlResult:
        """Resume a paused execution."""
        return self._control("unpause", execution_id, by=by)

    def hold(self, execution_id: str, step_id: str, by: str | None = None) -> ControlResult:
        """Hold a step that is not in progress until release()."""
        return self._control("hold", execution_id, step_id=step_id, by=by)

    def release(self, execution_id: str, step_id: str, by: str | None = None) -> ControlResult:
        """Release a step that is on hold."""
        return self._control("release", execution_id, step_id=step_id, by=by)

    def retry(
        self,
        execution_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        """Run the steps again that did not complete in a failed or cancelled execution. `inputs` replaces
        inputs of the same names; the others stay."""
        return self._control("retry", execution_id, reason=reason, by=by, inputs=inputs)

    def rerun(
        self,
        execution_id: str,
        step_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        """Run a step of an ended execution again, with all that depend on it; it may have completed."""
        return self._control("rerun", execution_id, step_id=step_id, reason=reason, by=by, inputs=inputs)

    def delete(self, execution_id: str) -> ControlResult:
        """Permanently delete a finished execution and its history."""
        return self._control("delete", execution_id)

    @renamed_arguments(answer_within_s="reply_timeout_s")
    def signal(
        self,
        execution_id: str,
        name: str,
        payload: Any = None,
        reply_timeout_s: float | None = REPLY_TIMEOUT_S,
    ) -> bool:
        """Send a signal to an execution: the step that waits for it continues.

        Returns whether a step was waiting for it. If not, the signal is kept; for an execution that does not
        exist yet, it is kept for a day under the execution id. With `reply_timeout_s=None`, the method does
        not wait for the reply and returns False.
        """
        event = SignalEvent(execution_id, name, payload)
        if reply_timeout_s is None:
            self._controls.send(event)
            return False
        return not self._controls.send_and_wait(event, reply_timeout_s)["kept"]

    def cancel_all(
        self,
        wanted: ExecutionFilter,
        reason: str | None = None,
        by: str | None = None,
        failure: str | None = None,
    ) -> BulkResult:
        """Cancel every execution that matches a filter, and that has a failure of failures(), if its id is
        given: those of which a step waits for its next attempt."""
        return self._bulk.send("cancel", wanted, REPLY_TIMEOUT_S, reason, by, failure)

    def retry_all(
        self,
        wanted: ExecutionFilter,
        reason: str | None = None,
        by: str | None = None,
        failure: str | None = None,
    ) -> BulkResult:
        """Retry every execution that matches a filter, and that failed with a failure of failures(), if its
        id is given."""
        return self._bulk.send("retry", wanted, REPLY_TIMEOUT_S, reason, by, failure)

    def delete_all(self, wanted: ExecutionFilter, failure: str | None = None) -> BulkResult:
        """Permanently delete every ended execution that matches a filter, and that failed with a failure of
        failures(), if its id is given."""
        return self._bulk.send("delete", wanted, REPLY_TIMEOUT_S, failure=failure)

    def control_each(
        self, action: BulkAction, executions: Iterable[str], reason: str | None = None, by: str | None = None
    ) -> BulkResult:
        """Cancel, retry or delete each of these executions. One that cannot follow does not stop the others;
        raises RecordNotFound, before anything is sent, if one does not exist."""
        full_ids = [self.store.full_id(one) for one in executions]
        return self._bulk.send_to(action, full_ids, REPLY_TIMEOUT_S, reason, by)

    def select(
        self, action: BulkAction, wanted: ExecutionFilter, failure: str | None = None
    ) -> Iterator[str]:
        """Yield the full ids of the executions that cancel_all(), retry_all() or delete_all() would send to,
        page by page: at most MAX_BULK_EXECUTIONS, the newest."""
        return self._bulk.select(action, wanted, failure)

    def _control(
        self,
        action: Control,
        execution_id: str,
        timeout_s: float = REPLY_TIMEOUT_S,
        step_id: str = "",
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        event = self._make_control(action, execution_id, step_id, reason, by, inputs)
        return ControlResult.of(self._controls.send_and_wait(event, timeout_s))

    def _make_control(
        self,
        action: Control,
        execution_id: str,
        step_id: str = "",
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlEvent:
        """Make the event of a control, and store the large values of its inputs."""
        new_inputs = None if inputs is None else self._offload(inputs)
        return ControlEvent(self.store.full_id(execution_id), action, step_id, reason, by, inputs=new_inputs)

    def _offload(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Store the large values of inputs, and return the inputs with references in their place."""
        offloaded = self._payloads.offload(inputs)
        self._payloads.put(offloaded)
        return loads(offloaded.text) if offloaded.payloads else dict(inputs)

    # ---- following

    def record(self, execution_id: str) -> WorkflowRecord:
        """Return the record of an execution; raises RecordNotFound if there is none."""
        return self.store.load(execution_id)

    def status_view(self, execution_id: str) -> StatusView:
        """Return the record of an execution together with the statuses of its units as commands show them: a
        unit whose job no worker has taken is `queued`."""
        return read_status_view(self._redis, self._keys, self.record(execution_id))

    def run_status(self, execution_id: str) -> RunStatus:
        """Return an execution and its steps at this moment: states, times, errors and names of outputs."""
        view = self.status_view(execution_id)
        return make_run_status(view, clock_ms(self._redis))

    def status(self, execution_id: str) -> WorkflowStatus:
        """Return the status of an execution; raises RecordNotFound if there is none."""
        return self.record(execution_id).status

    def outputs(self, execution_id: str) -> dict[str, Any]:
        """Return the output of each completed step, with large values loaded."""
        steps = self.record(execution_id).steps.items()
        stored = {step_id: step.output for step_id, step in steps if step.status is StepStatus.COMPLETE}
        return self._load_outputs(stored)

    def last_outputs(self, execution_id: str) -> dict[str, Any]:
        """Return the output of each completed step on which no other step depends, with large values
        loaded."""
        return self._load_outputs(find_last_outputs(self.record(execution_id)))

    def _load_outputs(self, stored: dict[str, Any]) -> dict[str, Any]:
        outputs: dict[str, Any] = self._payloads.load_references(stored, "outputs")
        return outputs

    def payload(self, payload_id: str) -> Any:
        """Load a value that is kept by reference; raises PayloadMissing if it no longer exists."""
        return self._payloads.load_payload(payload_id)

    def history(self, execution_id: str) -> list[dict[str, Any]]:
        """Return the history of an execution, the oldest entry first. Where it has values, entries have the
        number of their `commit`, a dispatch its `inputs`, and the end of an attempt its `output`."""
        return [*add_values(self.store.history(execution_id))]

    def attempts(self, execution_id: str, step: str | None = None) -> Sequence[Attempt] | None:
        """Return every attempt, or those of one step or item, with inputs, output and error, without secrets;
        None if the history has no values."""
        return list_attempts(self.store.history(execution_id), step)

    def fields_at(self, execution_id: str, commit: int) -> dict[str, Any]:
        """Return the fields of the record after a commit, without secrets; raises HistoryNotKept if the
        history does not have them."""
        return fields_at(self.store.history(execution_id), commit)

    def step_log(self, execution_id: str, step: str | None = None) -> list[LogLine]:
        """Return the log lines of executors, from `log` and from the notes of their heartbeats: all of them,
        or those of a step and its items. Lines of a running step appear within a second."""
        return filter_by_step(self.store.log_lines(execution_id), step)

    lines = renamed_attribute("lines", "step_log")

    def list(self, wanted: ExecutionFilter | None = None, limit: int = 50, cursor: str | None = None) -> Page:
        """Return a page of executions, the newest first, with a cursor for the next page.

        A page may have fewer than `limit` entries and still a cursor, if many executions did not match."""
        return self._listing.page(wanted or ExecutionFilter(), limit, cursor)

    def list_all(self, wanted: ExecutionFilter | None = None) -> Iterator[Summary]:
        """Yield every execution that matches a filter, page by page."""
        return self._listing.all(wanted or ExecutionFilter())

    def details(self, executions: Sequence[Summary]) -> Sequence[ExecutionDetails]:
        """Return the error of each of some listed executions, without secrets, and its active steps."""
        return DetailReader(self._redis, self._keys, self.store).read(executions)

    def failures(self, wanted: ExecutionFilter | None = None) -> FailureReport:
        """Group the executions that failed, or of which a step will be tried again, by workflow, step and
        cause. The statuses of the filter do not matter."""
        return self._failures.report(wanted or ExecutionFilter())

    def wait(self, execution_id: str, timeout_s: float | None = None) -> FinalDecision:
        """Wait until an execution ends, without polling; returns its final decision with large values loaded.

        Raises StillRunning if it does not end in time, RecordNotFound if it does not exist or was deleted,
        and PayloadMissing if a large value of the outcome no longer exists. An outage of Redis is waited for;
        raises Unavailable if Redis is not back in time."""
        return self._ends.wait(self.store.full_id(execution_id), timeout_s)

    def result(self, execution_id: str, timeout_s: float | None = None) -> Any:
        """Wait until an execution ends, and return its outcome; raises ExecutionFailed if it has none."""
        return read_outcome(execution_id, self.wait(execution_id, timeout_s))
