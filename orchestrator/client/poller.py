"""Poller: waits in one event loop for any number of replies and ends of executions.

All waiters share one task. It asks Redis for all of them in one round trip, on one thread: at first after a
few milliseconds, then less often. A waiter occupies no thread and no connection, and can be cancelled at any
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.errors import Unavailable
from orchestrator.client.ends import Ends
from orchestrator.client.replies import NoReply, Replies, ReplyRequest

FIRST_PAUSE_S = 0.005
MAX_PAUSE_S = 0.1

RunInThread = Callable[..., Awaitable[Any]]
"""Calls a function with arguments in a thread."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """Waits for a reply, or for the end of the execution `target`."""

    target: ReplyRequest | str
    done: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Poller:
    def __init__(self, replies: Replies, ends: Ends, run_in_thread: RunInThread) -> None:
        self._replies, self._ends, self._run_in_thread = replies, ends, run_in_thread
        self._waiters: list[_Waiter] = []
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    async def wait_for_reply(self, request: ReplyRequest, timeout_s: float) -> dict[str, Any]:
        """Wait for a reply; raises NoReply or RequestLost as Replies does."""
        try:
            async with asyncio.timeout(timeout_s):
                reply: dict[str, Any] = await self._wait(request)
                return reply
        except TimeoutError:
            last: dict[str, Any] = await self._run_in_thread(self._replies.read_at_last, request, timeout_s)
            return last

    async def wait_for_end(self, workflow_execution_id: str) -> None:
        """Wait until an execution has ended or does not exist any more."""
        await self._wait(workflow_execution_id)

    async def close(self) -> None:
        """Cancel every waiter, and stop asking."""
        for waiter in self._waiters:
            waiter.done.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _wait(self, target: ReplyRequest | str) -> Any:
        waiter = _Waiter(target)
        self._waiters.append(waiter)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            return await waiter.done
        finally:
            self._waiters.remove(waiter)

    async def _poll(self) -> None:
        """Ask until nothing is waited for. An outage of Redis is waited for too; after it, each request that
        has no reply may have been lost with the last writes."""
        pause_s, may_be_lost = FIRST_PAUSE_S, False
        while self._waiters:
            if self._wake.is_set():
                self._wake.clear()
                pause_s = FIRST_PAUSE_S
            asked = list(self._waiters)
            try:
                await self._ask(asked, may_be_lost)
                may_be_lost = False
            except Unavailable:
                may_be_lost = True
            except Exception as error:  # not a matter of time: each waiter raises it
                for waiter in asked:
                    _fail(waiter, error)
            try:
                await asyncio.wait_for(self._wake.wait(), pause_s)
            except TimeoutError:
                pause_s = min(pause_s * 2, MAX_PAUSE_S)

    async def _ask(self, asked: list[_Waiter], may_be_lost: bool) -> None:
        replies = [(one, one.target) for one in asked if isinstance(one.target, ReplyRequest)]
        ends = [(one, one.target) for one in asked if isinstance(one.target, str)]
        if replies:
            names = [request.name for _, request in replies]
            found = await self._run_in_thread(self._replies.read_many, names)
            for (waiter, request), reply in zip(replies, found, strict=True):
                if reply is not None:
                    _succeed(waiter, reply)
                elif may_be_lost:
                    await self._check_lost(waiter, request)
        if ends:
            over = await self._run_in_thread(self._ends.are_over, [target for _, target in ends])
            for (waiter, _), is_over in zip(ends, over, strict=True):
                if is_over:
                    _succeed(waiter, None)

    async def _check_lost(self, waiter: _Waiter, request: ReplyRequest) -> None:
        try:
            reply = await self._run_in_thread(self._replies.read_unless_waiting, request)
        except NoReply as error:
            _fail(waiter, error)
            return
        if reply is not None:
            _succeed(waiter, reply)


def _succeed(waiter: _Waiter, value: Any) -> None:
    if not waiter.done.done():
        waiter.done.set_result(value)


def _fail(waiter: _Waiter, error: Exception) -> None:
    if not waiter.done.done():
        waiter.done.set_exception(error)
