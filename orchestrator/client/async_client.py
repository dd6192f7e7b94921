"""AsyncClient: the methods of Client for programs on asyncio.

Commands run on a few threads, because they are short. Waiting for a reply or an end takes no thread: all
waiters share one poller. So any number of tasks can wait at once.
"""

from __future__ import annotations

import asyncio
from builtins import list as List
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.explain.run_status import RunStatus
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.decisions import FinalDecision
from orchestrator.application.records.events import ConflictPolicy, Control, ControlEvent, SignalEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.replay import Attempt
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.step_log import LogLine
from orchestrator.application.values.payload_refs import PayloadStore
from orchestrator.client.bulk import BulkAction, make_events
from orchestrator.client.client import Client
from orchestrator.client.controls import CONTROL_BATCH_SIZE, BulkResult, ControlResult, check_reply
from orchestrator.client.ends import StillRunning, read_outcome
from orchestrator.client.poller import Poller
from orchestrator.client.replies import REPLY_TIMEOUT_S, NoReply
from orchestrator.client.starts import StartOptions, StartRequest, StartResult, WorkflowSource
from orchestrator.redis_rq.connection import Client as RedisClient
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.execution_details import ExecutionDetails
from orchestrator.redis_rq.queries.failures import FailureReport
from orchestrator.redis_rq.queries.listing import ExecutionFilter, Page, Summary
from orchestrator.settings import MAX_BACKLOG, Settings

MAX_THREADS = 8
ITERATION_BATCH_SIZE = 100

_P = ParamSpec("_P")
_R = TypeVar("_R")


class AsyncClient:
    """Starts, controls and follows executions, as Client does; its methods are coroutines.

    One per event loop is enough, and any number of tasks can share it. A task that is cancelled while it
    waits only stops to wait: a start or a control that was sent takes effect. Close it with aclose(), or use
    it as a block.
    """

    def __init__(
        self,
        redis: str | RedisClient,
        keys: Keys | None = None,
        payloads: PayloadStore | None = None,
        max_backlog: int = MAX_BACKLOG,
        settings: Settings | None = None,
    ) -> None:
        self._client = Client(redis, keys, payloads, max_backlog, settings)
        self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="orchestrator-client")
        self._poller = Poller(self._client._replies, self._client._ends, self._call)

    async def aclose(self) -> None:
        """Cancel what still waits, and end the threads."""
        await self._poller.close()
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _call(self, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call a function on one of the threads."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(*args, **kwargs))

    # ---- starting

    async def register(self, name: str, spec: str | Mapping[str, Any]) -> str:
        return await self._call(self._client.register, name, spec)

    async def start(
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
        entry_id = await self.send_start(workflow, inputs or {}, execution_id, options)
        reply = await self.wait_for_reply(entry_id, reply_timeout_s)
        return await self._call(self._client._read_start, reply)

    async def send_start(
        self,
        workflow: WorkflowSource,
        inputs: Mapping[str, Any],
        execution_id: str | None = None,
        options: StartOptions | None = None,
    ) -> str:
        return await self._call(self._client.send_start, workflow, inputs, execution_id, options)

    async def start_many(
        self,
        workflows: Iterable[WorkflowSource],
        inputs: Iterable[Mapping[str, Any]],
        execution_ids: Iterable[str | None] | None = None,
        options: StartOptions | None = None,
    ) -> List[str]:
        return await self._call(self._client.start_many, workflows, inputs, execution_ids, options)

    async def send_starts(self, requests: Sequence[StartRequest]) -> List[str | OrchestratorError]:
        return await self._call(self._client.send_starts, requests)

    async def wait_for_starts(
        self, entry_ids: Sequence[str], timeout_s: float = REPLY_TIMEOUT_S
    ) -> List[StartResult | OrchestratorError]:
        return list(await asyncio.gather(*(self._wait_for_start(one, timeout_s) for one in entry_ids)))

    async def _wait_for_start(self, entry_id: str, timeout_s: float) -> StartResult | OrchestratorError:
        try:
            reply = await self.wait_for_reply(entry_id, timeout_s)
        except NoReply as error:
            return error
        return await self._call(self._client._try_start, reply)

    async def wait_for_reply(self, entry_id: str, timeout_s: float = REPLY_TIMEOUT_S) -> dict[str, Any]:
        request = self._client._replies.request_for_start(entry_id)
        return await self._poller.wait_for_reply(request, timeout_s)

    # ---- controlling

    async def cancel(
        self,
        execution_id: str,
        reason: str | None = None,
        by: str | None = None,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
    ) -> ControlResult:
        return await self._control("cancel", execution_id, reply_timeout_s, reason=reason, by=by)

    async def pause(
        self, execution_id: str, by: str | None = None, *, reason: str | None = None
    ) -> ControlResult:
        return await self._control("pause", execution_id, reason=reason, by=by)

    async def unpause(self, execution_id: str, by: str | None = None) -> ControlResult:
        return await self._control("unpause", execution_id, by=by)

    async def hold(self, execution_id: str, step_id: str, by: str | None = None) -> ControlResult:
        return await self._control("hold", execution_id, step_id=step_id, by=by)

    async def release(self, execution_id: str, step_id: str, by: str | None = None) -> ControlResult:
        return await self._control("release", execution_id, step_id=step_id, by=by)

    async def retry(
        self,
        execution_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        return await self._control("retry", execution_id, reason=reason, by=by, inputs=inputs)

    async def rerun(
        self,
        execution_id: str,
        step_id: str,
        reason: str | None = None,
        by: str | None = None,
        inputs: Mapping[str, Any] | None = None,
    ) -> ControlResult:
        return await self._control(
            "rerun", execution_id, step_id=step_id, reason=reason, by=by, inputs=inputs
        )

    async def delete(self, execution_id: str) -> ControlResult:
        return await self._control("delete", execution_id)

    async def signal(
        self,
        execution_id: str,
        name: str,
        payload: Any = None,
        reply_timeout_s: float | None = REPLY_TIMEOUT_S,
    ) -> bool:
        event = SignalEvent(execution_id, name, payload)
        if reply_timeout_s is None:
            await self._call(self._client._controls.send, event)
            return False
        return not (await self._send(event, reply_timeout_s))["kept"]

    async def cancel_all(
        self,
        wanted: ExecutionFilter,
        reason: str | None = None,
        by: str | None = None,
        failure: str | None = None,
    ) -> BulkResult:
        return await self._send_all(self._client._bulk.events("cancel", wanted, reason, by, failure))

    async def retry_all(
        self,
        wanted: ExecutionFilter,
        reason: str | None = None,
        by: str | None = None,
        failure: str | None = None,
    ) -> BulkResult:
        return await self._send_all(self._client._bulk.events("retry", wanted, reason, by, failure))

    async def delete_all(self, wanted: ExecutionFilter, failure: str | None = None) -> BulkResult:
        return await self._send_all(self._client._bulk.events("delete", wanted, failure=failure))

    async def control_each(
        self, action: BulkAction, executions: Iterable[str], reason: str | None = None, by: str | None = None
    ) -> BulkResult:
        full_ids = await self._call(lambda: [self._client.store.full_id(one) for one in executions])
        return await self._send_all(make_events(action, full_ids, reason, by))

    def select(
        self, action: BulkAction, wanted: ExecutionFilter, failure: str | None = None
    ) -> AsyncIterator[str]:
        return self._iterate(self._client.select(action, wanted, failure))

    async def _control(
        self,
        action: Control,
        execution_id: str,
        timeout_s: float = REPLY_TIMEOUT_S,
        **details: Any,
    ) -> ControlResult:
        event = await self._call(self._client._make_control, action, execution_id, **details)
        return ControlResult.of(await self._send(event, timeout_s))

    async def _send(self, event: ControlEvent | SignalEvent, timeout_s: float) -> Mapping[str, Any]:
        """Send one event and wait for its reply; raises ControlRejected if it is rejected."""
        [request] = await self._call(self._client._controls.send_for_replies, [event])
        return check_reply(await self._poller.wait_for_reply(request, timeout_s))

    async def _send_all(self, events: Iterator[ControlEvent]) -> BulkResult:
        bulk = BulkResult()
        while batch := await self._call(_take, events, CONTROL_BATCH_SIZE):
            requests = await self._call(self._client._controls.send_for_replies, batch)
            for event, request in zip(batch, requests, strict=True):
                reply = await self._poller.wait_for_reply(request, REPLY_TIMEOUT_S)
                bulk.add(event.workflow_execution_id, reply)
        return bulk

    # ---- following

    async def record(self, execution_id: str) -> WorkflowRecord:
        return await self._call(self._client.record, execution_id)

    async def status_view(self, execution_id: str) -> StatusView:
        return await self._call(self._client.status_view, execution_id)

    async def run_status(self, execution_id: str) -> RunStatus:
        return await self._call(self._client.run_status, execution_id)

    async def status(self, execution_id: str) -> WorkflowStatus:
        return await self._call(self._client.status, execution_id)

    async def outputs(self, execution_id: str) -> dict[str, Any]:
        return await self._call(self._client.outputs, execution_id)

    async def last_outputs(self, execution_id: str) -> dict[str, Any]:
        return await self._call(self._client.last_outputs, execution_id)

    async def payload(self, payload_id: str) -> Any:
        return await self._call(self._client.payload, payload_id)

    async def history(self, execution_id: str) -> List[dict[str, Any]]:
        return await self._call(self._client.history, execution_id)

    async def attempts(self, execution_id: str, step: str | None = None) -> Sequence[Attempt] | None:
        return await self._call(self._client.attempts, execution_id, step)

    async def fields_at(self, execution_id: str, commit: int) -> dict[str, Any]:
        return await self._call(self._client.fields_at, execution_id, commit)

    async def step_log(self, execution_id: str, step: str | None = None) -> List[LogLine]:
        return await self._call(self._client.step_log, execution_id, step)

    async def list(
        self, wanted: ExecutionFilter | None = None, limit: int = 50, cursor: str | None = None
    ) -> Page:
        return await self._call(self._client.list, wanted, limit, cursor)

    def list_all(self, wanted: ExecutionFilter | None = None) -> AsyncIterator[Summary]:
        return self._iterate(self._client.list_all(wanted))

    async def details(self, executions: Sequence[Summary]) -> Sequence[ExecutionDetails]:
        return await self._call(self._client.details, executions)

    async def failures(self, wanted: ExecutionFilter | None = None) -> FailureReport:
        return await self._call(self._client.failures, wanted)

    async def wait(self, execution_id: str, timeout_s: float | None = None) -> FinalDecision:
        full_id = await self._call(self._client.store.full_id, execution_id)
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self._poller.wait_for_end(full_id)
                    end = await self._call(self._client._ends.find, full_id)
                    if end is not None:  # else it was reopened at once
                        return end
        except TimeoutError:
            raise StillRunning(full_id, timeout_s or 0) from None

    async def result(self, execution_id: str, timeout_s: float | None = None) -> Any:
        return read_outcome(execution_id, await self.wait(execution_id, timeout_s))

    async def _iterate(self, items: Iterator[_R]) -> AsyncIterator[_R]:
        """Yield the items of an iterator that reads from Redis, a batch per thread call."""
        while batch := await self._call(_take, items, ITERATION_BATCH_SIZE):
            for item in batch:
                yield item


def _take(items: Iterator[_R], count: int) -> List[_R]:
    return list(islice(items, count))
