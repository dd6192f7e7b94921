"""Backend(store=RedisStore, runner=RqRunner): the handle Workflow, beside coordinators and workers."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Complete, Dispatch, Failed, Pending, Workflow
from orchestrator.redis_rq import RedisStore, RqRunner, runner
from orchestrator.redis_rq.connection import connect
from orchestrator.redis_rq.event_log import DEAD_AFTER_MS
from orchestrator.redis_rq.keys import Keys
from orchestrator.settings import Settings
from orchestrator.wiring import make_backend
from processes import Stack, stack
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running

TWO = document(
    step("a", fn="add", input={"a": {"var": "input.n"}, "b": 1}),
    step("b", after="a", fn="add", input={"a": {"var": "steps.a.output.sum"}, "b": 1}),
    outputs={"sum": {"var": "steps.b.output.sum"}},
)


@pytest.fixture
def backend(redis_url: str) -> Backend:
    return Backend(
        store=RedisStore.from_url(redis_url), runner=RqRunner.from_url(redis_url), poll_interval=0.01
    )


def add(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return {"sum": inputs["a"] + inputs["b"]}


def raise_error(fn: str, inputs: dict[str, Any]) -> None:
    raise ValueError("boom")


# ---- two steps: advance, then the results


def test_a_caller_advances_and_records_results_by_itself(backend: Backend) -> None:
    workflow = Workflow.from_dict(TWO, backend, {"n": 1})

    first = workflow.advance()
    assert isinstance(first, Dispatch)
    assert backend.dispatch(workflow.id, first.jobs) == []
    [job] = backend.take_pending_jobs()
    assert (job.step_id, job.inputs) == ("a", {"a": 1, "b": 1})
    workflow.on_step_result("a", {"sum": 2}, token=job.token)
    assert isinstance(workflow.advance(), Dispatch)
    assert [job.step_id for job in backend.take_pending_jobs()] == ["b"]
    workflow.on_step_result("b", {"sum": 3})

    assert workflow.advance() == Complete({"sum": 3})
    assert backend.list_pending_jobs() == []


def test_what_a_worker_submits_is_applied_by_a_coordinator(backend: Backend, world: RedisWorld) -> None:
    workflow, coordinator = Workflow.from_dict(TWO, backend, {"n": 1}), world.coordinator()
    assert isinstance(workflow.advance(), Dispatch)
    [job] = backend.take_pending_jobs()

    backend.submit_work_result(workflow.id, "a", {"sum": 2}, job)
    assert backend.gather(workflow.id) == []
    coordinator.run_once()

    assert workflow.step_statuses == {"a": "complete", "b": "in_progress"}
    assert workflow.advance() == Pending()


def test_an_output_that_is_not_json_is_a_failure_as_on_other_runners(
    backend: Backend, world: RedisWorld
) -> None:
    workflow, coordinator = Workflow.from_dict(TWO, backend, {"n": 1}), world.coordinator()
    workflow.advance()

    backend.submit_work_result(workflow.id, "a", {"when": object()})
    coordinator.run_once()

    assert workflow.error is not None
    assert workflow.error["kind"] == "bad_output"


# ---- run()


def test_run_with_an_executor_of_this_process_and_a_coordinator(redis_url: str, world: RedisWorld) -> None:
    backend = Backend(add, RedisStore.from_url(redis_url), RqRunner.from_url(redis_url), poll_interval=0.01)
    with running(world.coordinator("one", world.connect(), block_ms=20)):
        assert Workflow.from_dict(TWO, backend, {"n": 1}).run() == Complete({"sum": 3})


def test_an_exception_in_this_process_has_the_same_error_as_on_a_worker(
    redis_url: str, world: RedisWorld
) -> None:
    backend = Backend(
        raise_error, RedisStore.from_url(redis_url), RqRunner.from_url(redis_url), poll_interval=0.01
    )
    with running(world.coordinator("one", world.connect(), block_ms=20)):
        ended = Workflow.from_dict(TWO, backend, {"n": 1}).run()

    assert isinstance(ended, Failed)
    assert (ended.error["kind"], ended.error["type"]) == ("exception", "ValueError")


def test_jobs_that_a_stopped_worker_had_taken_are_dispatched_again(redis_url: str, world: RedisWorld) -> None:
    def stop(fn: str, inputs: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    parts = RedisStore.from_url(redis_url), RqRunner.from_url(redis_url)
    workflow = Workflow.from_dict(TWO, Backend(stop, *parts), {"n": 1})
    with pytest.raises(KeyboardInterrupt):
        workflow.run()

    with running(world.coordinator("one", world.connect(), block_ms=20)):
        again = Workflow.resume(workflow.id, Backend(add, *parts, poll_interval=0.01))
        assert again.run() == Complete({"sum": 3})


@pytest.fixture
def processes(redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    """A coordinator and a worker, as a user runs them beside a program that calls Workflow.run()."""
    with stack(redis_url, "step_functions", tmp_path / "stack") as made:
        made.coordinator()
        made.worker()
        yield made


def test_run_beside_a_coordinator_and_a_worker(backend: Backend, processes: Stack) -> None:
    """Both decide upon every execution. The version check lets one of them write, and nothing runs twice."""
    child = document(step("c", fn="add", input={"a": 1, "b": 1}), outputs={"sum": {"var": "state.sum"}})
    family = document(
        step("m", fn="add", map={"over": [1, 2, 3]}, input={"a": {"var": "item"}, "b": 1}),
        {"id": "child", "workflow": child, "depends_on": ["m"]},
        outputs={"items": {"var": "steps.m.output.items"}, "sum": {"var": "steps.child.output.sum"}},
    )
    workflows = [Workflow.from_dict(TWO, backend, {"n": n}) for n in range(6)]
    workflows.append(Workflow.from_dict(family, backend))

    with ThreadPoolExecutor(len(workflows)) as pool:
        ended = list(pool.map(Workflow.run, workflows))

    assert ended[:-1] == [Complete({"sum": n + 2}) for n in range(6)], processes.log()
    assert ended[-1] == Complete({"items": [{"sum": 2}, {"sum": 3}, {"sum": 4}], "sum": 2})
    for workflow in workflows:
        steps = [one for _, one in backend.load(workflow.id).units()]
        assert {(one.dispatches, one.lost, one.run_id) for one in steps} <= {(1, 0, 0), (0, 0, 0)}


def test_two_programs_run_one_execution(backend: Backend, redis_url: str, world: RedisWorld) -> None:
    other = Backend(add, RedisStore.from_url(redis_url), RqRunner.from_url(redis_url), poll_interval=0.01)
    workflow = Workflow.from_dict(TWO, backend, {"n": 1})
    with running(world.coordinator("one", world.connect(), block_ms=20)), ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(Workflow.run, [workflow, Workflow.resume(workflow.id, other)]))

    assert ended == [Complete({"sum": 3})] * 2


def test_while_no_coordinator_is_alive_the_runner_logs_a_warning(
    redis_url: str, world: RedisWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "COORDINATOR_CHECK_S", 0.0)
    waiting, coordinator = RqRunner.from_url(redis_url), world.coordinator("one")
    coordinator.run_once()
    with caplog.at_level(logging.WARNING):
        waiting.results("w#x")
        assert caplog.messages == []
        world.client.zincrby(world.keys.coordinators, -DEAD_AFTER_MS - 1_000, "one")
        waiting.results("w#x")

    [warning] = caplog.messages
    assert warning.startswith("no coordinator is alive")


# ---- building


def test_the_prefix_is_that_of_the_coordinators(redis_url: str) -> None:
    parts = RedisStore.from_url(redis_url, "shop"), RqRunner.from_url(redis_url, "shop")
    workflow = Workflow.from_dict(TWO, Backend(None, *parts), {"n": 1})
    workflow.advance()

    with connect(redis_url) as client:
        assert client.hget(Keys("shop").workflow(workflow.id), "status") == "in_progress"
        assert client.llen(Keys("shop").rq_queue("shop.default")) == 1


@pytest.mark.parametrize("part", [RedisStore, RqRunner])
def test_a_bad_prefix_is_rejected(part: Any) -> None:
    with pytest.raises(ValueError, match="a prefix must have 1 to 64 letters"):
        part.from_url("redis://localhost", "a b")


def test_a_backend_of_the_settings_has_their_prefix_tags_and_payload_store(
    redis_url: str, tmp_path: Path
) -> None:
    settings = Settings(
        redis_url=redis_url, prefix="shop", tags="gpu=gpu-box", payloads=f"file://{tmp_path}/large"
    )
    backend = make_backend(settings)
    workflow = Workflow.from_dict(document(step("a", tags=["gpu"])), backend, {"text": "x" * 2_000_000})
    workflow.advance()

    assert backend.list_pending_jobs()[0].queue == "gpu-box"
    assert list((tmp_path / "large").rglob("*"))


def test_importing_the_package_loads_neither_redis_nor_rq() -> None:
    program = "import sys, orchestrator.redis_rq; print(sorted({'redis', 'rq'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"
