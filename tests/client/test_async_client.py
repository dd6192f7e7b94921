"""AsyncClient: the same methods as Client, for asyncio, on a real Redis."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from effort import count
from orchestrator.application.errors import InvalidSpec, RecordNotFound, StartRejected, Unavailable
from orchestrator.application.records.decisions import Cancelled, Complete, Failed
from orchestrator.client import (
    AsyncClient,
    Client,
    ControlRejected,
    ExecutionFailed,
    ExecutionFilter,
    NoReply,
    RequestLost,
    StartRequest,
    StartResult,
    StillRunning,
)
from orchestrator.client.async_client import MAX_THREADS
from processes import PATIENCE_S, Stack, stack
from servers.redis_server import own_redis
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, durable_world, running
from worlds.waiting import wait_until

ADD = document(step("a", fn="add", input={"x": 1, "y": 2}), outputs={"sum": {"var": "steps.a.output.sum"}})
WAIT = document({"id": "w", "wait": {"signal": "go"}}, step("b", fn="add", after="w"))
FAIL = document(step("a", fn="fail", input={"message": "as asked"}))

Use = Callable[[AsyncClient], Awaitable[Any]]


def use(redis: Any, what: Use) -> Any:
    """Run a coroutine with a client."""

    async def run() -> Any:
        async with asyncio.timeout(PATIENCE_S), AsyncClient(redis) as client:
            return await what(client)

    return asyncio.run(run())


def methods(client: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(value, eval_str=True)
        for name, value in vars(client).items()
        if inspect.isfunction(value) and name[0] != "_"
    }


def test_it_has_the_methods_of_the_client_with_the_same_parameters() -> None:
    ours, theirs = methods(AsyncClient), methods(Client)
    closing = ours.pop("aclose")

    assert not closing.parameters.keys() - {"self"}
    assert ours.keys() == theirs.keys()
    for name, signature in theirs.items():
        assert list(ours[name].parameters.values()) == list(signature.parameters.values()), name
    assert inspect.signature(AsyncClient).parameters == inspect.signature(Client).parameters


def test_every_method_is_a_coroutine_or_an_asynchronous_iterator() -> None:
    iterators = {"list_all", "select"}

    functions = {name: vars(AsyncClient)[name] for name in methods(AsyncClient)}

    plain = {name for name, function in functions.items() if not inspect.iscoroutinefunction(function)}
    assert plain == iterators
    for name in iterators:
        assert inspect.signature(functions[name]).return_annotation.startswith("AsyncIterator")


# ---- with real processes


@pytest.fixture
def system(redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    with stack(redis_url, "step_functions", tmp_path) as processes:
        processes.coordinator()
        processes.worker()
        yield processes


@pytest.mark.slow
def test_a_program_on_asyncio_starts_controls_and_follows_executions(system: Stack) -> None:
    async def scenario(client: AsyncClient) -> None:
        await client.register("add", ADD)
        started = await client.start("add", execution_id="one", reply_timeout_s=PATIENCE_S)
        assert started.execution_id == "one"
        assert await client.result("one") == {"sum": 3}
        assert await client.last_outputs("one") == await client.outputs("one") == {"a": {"sum": 3}}
        assert (await client.run_status("one")).completed_steps == 1
        assert (await client.status("one")).value == "complete"
        assert (await client.record("one")).execution_id == "one"
        assert (await client.history("one"))[-1]["workflow"] == "complete"
        assert await client.step_log("one") == []
        with pytest.raises(ControlRejected, match="cannot be cancelled"):
            await client.cancel("one")
        with pytest.raises(StartRejected, match="already exists"):
            await client.start("add", execution_id="one")

        await client.start(WAIT, execution_id="two", labels={"team": "blue"})
        assert (await client.pause("two", "ada", reason="a strike")).status == "paused"
        assert ((await client.run_status("two")).paused or {})["reason"] == "a strike"
        assert (await client.unpause("two", by="ada")).status == "in_progress"
        assert (await client.hold("two", "b")).changed
        assert (await client.release("two", "b")).changed
        with pytest.raises(StillRunning, match=r"'two' has not ended after 0\.05 s"):
            await client.wait("two", timeout_s=0.05)
        assert await client.signal("two", "go", {"n": 1}) is True
        assert await client.wait("two") == Complete({})
        page = await client.list(ExecutionFilter(labels={"team": "blue"}))
        assert [one.execution_id for one in page.executions] == ["two"]
        assert len(await client.details(page.executions)) == 1
        assert [one.execution_id async for one in client.list_all()] == ["two", "one"]

        requests = [StartRequest(ADD, {}, "one"), StartRequest("nothing"), StartRequest({"steps": 1})]
        sent = await client.send_starts([*requests, StartRequest(WAIT, {}, "four")])
        assert isinstance(sent[2], InvalidSpec)
        taken, unknown, four = await client.wait_for_starts([one for one in sent if isinstance(one, str)])
        assert isinstance(taken, StartRejected)
        assert isinstance(unknown, StartRejected)
        assert isinstance(four, StartResult)
        assert four.execution_id == "four"
        [late] = await client.wait_for_starts(["99999999999999-0"], timeout_s=0.05)
        assert isinstance(late, RequestLost)
        with pytest.raises(RecordNotFound):
            await client.control_each("cancel", ["four", "nothing"])
        bulk = await client.control_each("cancel", ["four", "one"], "enough", "ada")
        assert bulk.done == [four.workflow_execution_id]
        assert len(bulk.rejected) == 1
        assert await client.wait("four") == Cancelled("enough")

        await client.start(FAIL, execution_id="three")
        with pytest.raises(ExecutionFailed, match="as asked"):
            await client.result("three")
        assert isinstance(await client.wait("three"), Failed)
        assert len((await client.failures()).groups) == 1
        assert (await client.retry("three", inputs={})).status == "in_progress"
        await client.wait("three")
        assert (await client.rerun("one", "a")).status == "in_progress"
        assert await client.wait("one") == Complete({"sum": 3})
        assert (await client.delete("three")).changed
        with pytest.raises(RecordNotFound):
            await client.wait("three")

    use(system.url, scenario)


TASKS = count(250, 1_000)


@pytest.mark.slow
def test_many_tasks_wait_on_a_few_threads(system: Stack) -> None:
    async def scenario(client: AsyncClient) -> tuple[list[Any], int]:
        entries = await client.start_many([WAIT] * TASKS, [{}] * TASKS, [f"x{n}" for n in range(TASKS)])
        waiting = [asyncio.create_task(client.wait_for_reply(one, PATIENCE_S)) for one in entries]
        replies = await asyncio.gather(*waiting)
        ends = [asyncio.create_task(client.wait(one["execution_id"])) for one in replies]
        await asyncio.sleep(0)
        threads = sum(one.name.startswith("orchestrator-client") for one in threading.enumerate())
        bulk = await client.cancel_all(ExecutionFilter(), "enough", "ada")
        assert len(bulk.done) == TASKS
        return await asyncio.gather(*ends), threads

    ends, threads = use(system.url, scenario)

    assert ends == [Cancelled("enough")] * TASKS
    assert 0 < threads <= MAX_THREADS < TASKS


# ---- waiting


def test_a_reply_that_does_not_come_in_time_is_waited_for_again_with_its_entry(world: RedisWorld) -> None:
    async def scenario(client: AsyncClient) -> Any:
        with pytest.raises(NoReply, match=r"within 0\.05 s") as caught:
            await client.start(ADD, reply_timeout_s=0.05)
        await asyncio.to_thread(lambda: world.settle(world.coordinator(), executors={"add": lambda _: {}}))
        return await client.wait_for_reply(caught.value.entry_id)

    assert use(world.connect(), scenario)["ok"] is True


def test_a_task_that_is_cancelled_stops_to_wait_and_the_others_go_on(world: RedisWorld) -> None:
    async def scenario(client: AsyncClient) -> Any:
        first = asyncio.create_task(client.start(WAIT, execution_id="one", reply_timeout_s=PATIENCE_S))
        second = asyncio.create_task(client.start(WAIT, execution_id="two", reply_timeout_s=PATIENCE_S))
        await asyncio.to_thread(wait_until, lambda: world.client.xlen(world.keys.starts) == 2)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert len(client._poller._waiters) <= 1
        with running(world.coordinator("one", world.connect(), block_ms=20)):
            started = await second
            end = asyncio.create_task(client.wait("one"))  # what was sent takes effect
            await client.cancel("one", reply_timeout_s=PATIENCE_S)
            return started.execution_id, await end, client._poller._waiters

    assert use(world.connect(), scenario) == ("two", Cancelled(None), [])


def test_closing_ends_what_waits(world: RedisWorld) -> None:
    async def scenario(client: AsyncClient) -> Any:
        waiting = asyncio.create_task(client.start(ADD, reply_timeout_s=PATIENCE_S))
        await asyncio.to_thread(wait_until, lambda: client._poller._waiters)
        await client.aclose()
        return (await asyncio.gather(waiting, return_exceptions=True))[0]

    assert isinstance(use(world.connect(), scenario), asyncio.CancelledError)


def outages_of(part: Any, method: str) -> list[Exception]:
    """The outages that a method of the client has met from now on."""
    seen, ordinary = list[Exception](), getattr(part, method)

    def noting(*args: Any) -> Any:
        try:
            return ordinary(*args)
        except Unavailable as error:
            seen.append(error)
            raise

    setattr(part, method, noting)
    return seen


def test_a_start_that_redis_has_lost_in_an_outage_is_not_waited_for(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server:  # it keeps nothing

        async def scenario(client: AsyncClient) -> None:
            outages = outages_of(client._poller._replies, "read_many")
            waiting = asyncio.create_task(client.start(ADD, reply_timeout_s=PATIENCE_S))
            await asyncio.to_thread(wait_until, lambda: client._poller._waiters)
            server.kill()
            await asyncio.to_thread(wait_until, lambda: outages)
            server.start()
            with pytest.raises(RequestLost):
                await waiting

        use(server.url, scenario)


def test_an_end_is_waited_for_during_an_outage(tmp_path: Path) -> None:
    with durable_world(tmp_path) as (world, server):
        coordinator = world.coordinator()
        weid = world.begin(coordinator, ADD)

        async def scenario(client: AsyncClient) -> Any:
            outages = outages_of(client._poller._ends, "are_over")
            waiting = asyncio.create_task(client.wait(weid))
            await asyncio.to_thread(wait_until, lambda: client._poller._waiters)
            server.kill()
            await asyncio.to_thread(wait_until, lambda: outages)
            server.start()
            await asyncio.to_thread(world.settle, coordinator, executors={"add": lambda inputs: {"sum": 3}})
            return await waiting

        assert use(server.url, scenario) == Complete({"sum": 3})


def test_an_error_that_waiting_does_not_end_is_raised_to_every_waiter(world: RedisWorld) -> None:
    async def scenario(client: AsyncClient) -> Any:
        waiting = [asyncio.create_task(client.start(ADD, reply_timeout_s=PATIENCE_S)) for _ in range(2)]
        await asyncio.to_thread(wait_until, lambda: len(client._poller._waiters) == 2)

        def broken(names: Any) -> Any:
            raise LookupError("not a matter of time")

        client._poller._replies.read_many = broken  # type: ignore[method-assign]
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = use(world.connect(), scenario)

    assert [type(one) for one in found] == [LookupError] * 2
