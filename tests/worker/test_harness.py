"""The harness: whatever an executor does, and whatever Redis does meanwhile, it publishes one result."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.values.trace_context import context_of_attempt
from orchestrator.invocation.executors import Executor, Executors
from orchestrator.redis_rq.connection import Client
from orchestrator.worker import lease
from orchestrator.worker.harness import Harness
from servers.proxy import Proxy
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld, durable_world
from worlds.waiting import PATIENCE_S, in_thread, wait_until

ONE = document(step("a"))


def dispatched(world: RedisWorld, spec: Json = ONE) -> Json:
    """A job of a fresh execution, popped and not yet started."""
    world.begin(world.coordinator(), spec)
    payload = world.pop()
    assert payload is not None
    return payload


def harness(world: RedisWorld, executor: Executor, client: Client | None = None, **options: Any) -> Harness:
    return Harness(client or world.client, Executors(mapping={"a": executor}), worker="host:1", **options)


def published(world: RedisWorld) -> list[dict[str, str]]:
    return [fields for _, fields in world.events() if fields["type"] == "result"]


def ended(world: RedisWorld, executor: Executor, spec: Json = ONE) -> Any:
    """The step after the executor has run and the coordinator has applied the result."""
    payload = dispatched(world, spec)
    assert harness(world, executor).run(payload) is True
    world.coordinator().run_once()
    return world.record(payload["execution"]).steps["a"]


# ---- results of executors


def test_the_result_is_published_before_the_harness_returns(world: RedisWorld) -> None:
    payload = dispatched(world)
    seen: list[int] = []

    def executor(inputs: Json) -> Json:
        seen.append(len(published(world)))
        return {"n": 1}

    assert harness(world, executor).run(payload) is True

    assert seen == [0]
    [fields] = published(world)
    assert (fields["execution"], fields["step"], fields["output"]) == (payload["execution"], "a", '{"n":1}')
    assert (fields["token"], fields["run_id"], fields["attempt"]) == (payload["token"], "0", "1")
    assert (fields["worker"], "started_at" in fields, "error" in fields) == ("host:1", True, False)


def test_an_executor_gets_its_inputs(world: RedisWorld) -> None:
    seen: list[Json] = []
    payload = dispatched(world, document(step("a", input={"x": [1, {"y": "ü"}]})))
    harness(world, lambda inputs: seen.append(inputs)).run(payload)
    assert seen == [{"x": [1, {"y": "ü"}]}]


def test_an_executor_gets_the_parameters_that_it_requests(
    world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[Any] = []

    def executor(inputs: Json, heartbeat: Any, configuration: Json, context: Json) -> None:
        heartbeat(0.5, note="page 3")
        seen.extend([inputs, configuration, context])

    payload = dispatched(world, document(step("a", input={"x": 1}, timeout="9s")))
    before = datetime.now(UTC)

    assert harness(world, executor).run(payload) is True

    inputs, configuration, context = seen
    assert (inputs, configuration) == ({"x": 1}, {})
    deadline = datetime.fromisoformat(context.pop("deadline"))
    assert timedelta(seconds=8.99) < deadline - before < timedelta(seconds=9 + PATIENCE_S)
    assert context == {
        "execution_id": payload["execution"].partition("#")[2],
        "workflow_execution_id": payload["execution"],
        "step": "a",
        "item": None,
        "attempt": 1,
        "run_id": 0,
        "round": 0,
        "iteration": None,
        "idempotency_key": payload["key"],
        "traceparent": str(context_of_attempt(payload["execution"], "a", 0, 1)),
    }
    assert "0.5: page 3" in caplog.text


def test_the_execute_of_a_module_gets_the_parameters_that_it_requests(
    world: RedisWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "def execute(fn, inputs, context): return {'fn': fn, 'deadline': context['deadline']}"
    (tmp_path / "catches_all.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    payload = dispatched(world, document(step("a", timeout="none")))

    Harness(world.client, Executors(["catches_all"])).run(payload)

    assert published(world)[0]["output"] == '{"fn":"a","deadline":null}'


def test_an_exception_of_the_executor_is_the_error_of_its_attempt(world: RedisWorld) -> None:
    def executor(inputs: Json) -> Json:
        raise LookupError("no such order")

    error = ended(world, executor).error

    assert (error["kind"], error["type"], error["message"]) == ("exception", "LookupError", "no such order")
    assert "in executor" in error["traceback"]


@pytest.mark.parametrize("code", [0, 1, None, "bye"])
def test_an_executor_that_exits_has_failed(world: RedisWorld, code: Any) -> None:
    def executor(inputs: Json) -> Json:
        raise SystemExit(code)

    error = ended(world, executor).error
    assert (error["kind"], error["type"]) == ("exception", "SystemExit")


def test_a_message_that_is_not_utf8_is_repaired(world: RedisWorld) -> None:
    def executor(inputs: Json) -> Json:
        raise ValueError("half a character: \ud800")

    assert ended(world, executor).error["message"] == "half a character: ?"


def test_an_endless_message_is_cut(world: RedisWorld) -> None:
    def executor(inputs: Json) -> Json:
        raise ValueError("x" * 5_000_000)

    error = ended(world, executor).error
    assert len(error["message"]) == 10_000
    assert len(error["traceback"]) <= 2_000


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_an_exception_that_cannot_be_printed_is_an_error_too(world: RedisWorld) -> None:
    def executor(inputs: Json) -> Json:
        raise Unprintable

    assert ended(world, executor).error["type"] == "Unprintable"


@pytest.mark.parametrize("raised", [asyncio.CancelledError, GeneratorExit])
def test_a_base_exception_is_an_error_too(world: RedisWorld, raised: type[BaseException]) -> None:
    def executor(inputs: Json) -> Json:
        raise raised

    assert ended(world, executor).error["type"] == raised.__name__


BAD_OUTPUTS: dict[str, Callable[[], Any]] = {
    "an object": object,
    "a set": lambda: {"n": {1}},
    "bytes": lambda: {"n": b"x"},
    "NaN": lambda: {"n": float("nan")},
    "infinity": lambda: {"n": float("inf")},
    "half a character": lambda: {"n": "\ud800"},
    "a key that is a tuple": lambda: {(1, 2): 3},
    "a circle": lambda: (circle := {}, circle.update(n=circle), circle)[2],  # type: ignore[var-annotated]
    "too deep": lambda: {"n": nested(100_000)},
}


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("output", BAD_OUTPUTS.values(), ids=BAD_OUTPUTS)
def test_an_output_that_is_not_json_is_an_error(world: RedisWorld, output: Callable[[], Any]) -> None:
    error = ended(world, lambda _: output()).error
    assert error["kind"] == "bad_output"
    assert "not JSON" in error["message"]


class Moody(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("dictionary changed size during iteration")


def test_an_output_that_changes_while_it_is_encoded_is_an_error(world: RedisWorld) -> None:
    assert ended(world, lambda _: Moody(a=1)).error["kind"] == "bad_output"


def test_an_output_that_is_too_large_is_an_error_with_its_size(world: RedisWorld) -> None:
    spec = document(step("a"), limits={"max_output_bytes": 1_000})
    error = ended(world, lambda _: {str(n): "ü" * 40 for n in range(50)}, spec).error
    assert error["kind"] == "bad_output"
    assert "the output of step 'a' has 4,391 bytes" in error["message"]
    assert "allows 1,000" in error["message"]


def test_an_output_of_exactly_the_limit_passes(world: RedisWorld) -> None:
    spec = document(step("a"), limits={"max_output_bytes": 1_008})
    assert ended(world, lambda _: {"n": "ü" * 500}, spec).status == "complete"


def test_nothing_is_an_output(world: RedisWorld) -> None:
    found = ended(world, lambda _: None)
    assert (found.status, found.output) == ("complete", None)


@pytest.mark.parametrize("output", [[1, 2], "text", 7, True, 1.5])
def test_an_output_that_is_not_an_object_fails_the_step(world: RedisWorld, output: Any) -> None:
    error = ended(world, lambda _: output).error
    assert error["kind"] == "bad_output"
    assert "must return an object" in error["message"]


def test_an_unknown_executor_is_an_error_that_names_the_known_ones(world: RedisWorld) -> None:
    payload = dispatched(world)
    Harness(world.client, Executors(mapping={"send_mail": dict, "b": dict}), declines=False).run(
        {**payload, "fn": "sendmail"}
    )
    error = published(world)[0]["error"]
    assert "'sendmail'" in error
    assert "b, send_mail" in error
    assert "did you mean 'send_mail'" in error


def test_an_executor_of_a_package_that_cannot_be_imported_is_an_error(
    world: RedisWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "broken_pkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-pkg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[orchestrator.executors]\na = nowhere_at_all:a\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    payload = dispatched(world)

    assert Harness(world.client, Executors()).run(payload) is True

    assert "nowhere_at_all" in published(world)[0]["error"]


# ---- superseded


def never(inputs: Json) -> Json:
    raise AssertionError("it must not run")


def test_a_dispatch_that_was_superseded_is_not_run(world: RedisWorld) -> None:
    payload = dispatched(world)
    world.client.delete(world.keys.leases)
    assert harness(world, never).run(payload) is False
    assert published(world) == []
    assert world.leases() == {}, "a renewal must never create a lease"


@pytest.fixture
def quick_renewal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lease, "FIRST_RENEWAL_S", 0.01)
    yield
    wait_until(lambda: not renewing())


def renewing() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lease"]


@pytest.mark.usefixtures("quick_renewal")
def test_a_dispatch_that_is_superseded_while_it_runs_publishes_nothing(world: RedisWorld) -> None:
    payload = dispatched(world)

    def executor(inputs: Json) -> Json:
        world.connect().delete(world.keys.leases)
        wait_until(lambda: not renewing())  # the lease has noticed
        return {"n": 1}

    assert harness(world, executor).run(payload) is False
    assert published(world) == []


# ---- slow steps


@pytest.mark.usefixtures("quick_renewal")
def test_a_slow_step_reports_its_start_with_its_first_renewal(world: RedisWorld) -> None:
    payload = dispatched(world, document(step("a", timeout="9s")))
    seen: list[dict[str, str]] = []

    def executor(inputs: Json) -> None:
        seen.extend(wait_until(lambda: [fields for _, fields in world.events()]))

    harness(world, executor).run(payload)

    assert [(fields["type"], fields["token"], fields["worker"]) for fields in seen] == [
        ("started", payload["token"], "host:1")
    ]
    world.coordinator().run_once()
    found = world.record(payload["execution"]).steps["a"]
    assert (found.status, found.worker) == ("complete", "host:1")


def test_a_short_step_reports_no_start(world: RedisWorld) -> None:
    harness(world, lambda _: None).run(dispatched(world))
    assert [fields["type"] for _, fields in world.events()] == ["result"]


@pytest.mark.usefixtures("quick_renewal")
def test_renewals_keep_the_lease(world: RedisWorld) -> None:
    payload = dispatched(world)
    [member] = world.leases()
    scores: set[float] = set()

    def executor(inputs: Json) -> None:
        wait_until(lambda: scores.add(world.leases()[member]) or len(scores) >= 4)  # type: ignore[func-returns-value]

    harness(world, executor, lease_s=0.08).run(payload)

    assert len(scores) >= 4
    assert all(score % 1 == 0 for score in scores), (
        "a renewed lease has no fraction, which marks a queued dispatch"
    )


def test_the_lease_has_the_right_length_by_the_clock_of_redis(world: RedisWorld) -> None:
    payload = dispatched(world)
    found: list[float] = []
    seconds, micros = world.client.time()
    before = int(seconds) * 1000 + int(micros) / 1000

    harness(world, lambda _: found.extend(world.leases().values()), lease_s=60).run(payload)

    seconds, micros = world.client.time()
    assert before + 59_998 <= found[0] <= int(seconds) * 1000 + int(micros) / 1000 + 60_002


# ---- outages of Redis


def warned(caplog: pytest.LogCaptureFixture, text: str) -> Callable[[], bool]:
    return lambda: any(text in record.getMessage() for record in caplog.records)


def test_a_result_waits_until_redis_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with durable_world(tmp_path) as (world, server):
        payload = dispatched(world)

        def executor(inputs: Json) -> Json:
            server.kill()
            return {"n": 1}

        def run() -> None:
            assert harness(world, executor, world.connect()).run(payload) is True

        with in_thread(run):
            wait_until(warned(caplog, "cannot publish"))
            server.start()
        assert len(published(world)) == 1


def test_a_job_waits_for_its_lease_until_redis_is_back(tmp_path: Path) -> None:
    with durable_world(tmp_path) as (world, server):
        payload = dispatched(world)
        client = world.connect()
        server.kill()

        def run() -> None:
            assert harness(world, lambda _: {"n": 1}, client).run(payload) is True

        with in_thread(run) as thread:
            assert thread.is_alive()
            server.start()
        assert len(published(world)) == 1


def test_a_result_waits_until_a_full_redis_has_room(
    world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    payload = dispatched(world)

    def executor(inputs: Json) -> Json:
        world.client.config_set("maxmemory", "1")
        return {"n": 1}

    try:
        with in_thread(lambda: harness(world, executor, world.connect()).run(payload)):
            wait_until(warned(caplog, "cannot publish"))
            world.client.config_set("maxmemory", "0")
    finally:
        world.client.config_set("maxmemory", "0")
    assert len(published(world)) == 1


def test_a_result_is_given_up_when_redis_does_not_come_back(tmp_path: Path) -> None:
    """The harness raises, so that RQ fails the job; the sweep then reports the step as lost."""
    with durable_world(tmp_path) as (world, server):
        payload = dispatched(world)

        def executor(inputs: Json) -> None:
            server.kill()

        with pytest.raises(Exception, match="Redis"):
            harness(world, executor, world.connect(), give_up_after_s=0.2).run(payload)


def test_a_result_whose_reply_was_lost_counts_once(world: RedisWorld, proxy: Proxy, proxied: Client) -> None:
    payload = dispatched(world)
    proxy.drop_reply_of("XADD")

    assert harness(world, lambda _: {"n": 1}, proxied).run(payload) is True

    assert proxy.dropped == 1
    assert len(published(world)) == 2, "an unknown result is sent again"
    world.settle(world.coordinator())
    assert world.moves(payload["execution"], "complete") == ["a"]
    assert world.counter("stale") + world.counter("late") == 1


def test_a_renewal_whose_reply_was_lost_is_repeated(world: RedisWorld, proxy: Proxy, proxied: Client) -> None:
    payload = dispatched(world)
    proxy.drop_reply_of("ZADD")
    assert harness(world, lambda _: {"n": 1}, proxied).run(payload) is True
    assert (proxy.dropped, len(published(world))) == (1, 1)


@pytest.mark.usefixtures("quick_renewal")
def test_an_unavailable_redis_does_not_end_the_renewals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with durable_world(tmp_path) as (world, server):
        payload = dispatched(world)
        [member] = world.leases()

        def executor(inputs: Json) -> None:
            server.restart()
            before = world.leases()[member]
            wait_until(lambda: world.leases()[member] > before)

        assert harness(world, executor, world.connect(), lease_s=0.4).run(payload) is True
