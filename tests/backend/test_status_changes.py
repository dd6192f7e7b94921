"""Backend(on_status=...): each change of a step is reported after its commit, whatever commits it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Complete, Workflow, WorkflowStatus
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore, Store
from orchestrator.backend.status_changes import StatusChange
from orchestrator.client import Client
from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.runner import RqRunner
from worlds.documents import document_of
from worlds.redis_world import RedisWorld

CHAIN = document_of({"a": {}, "b": {"depends_on": ["a"]}})
DISPATCHED_AND_COMPLETE = [
    ("a", "ready", "in_progress"),
    ("a", "in_progress", "complete"),
    ("b", "ready", "in_progress"),
    ("b", "in_progress", "complete"),
]


def output(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return {"n": fn}


def moves(changes: list[StatusChange]) -> list[tuple[str, str, str]]:
    return [(one.step_id, one.before, one.after) for one in changes]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield InMemoryStore()
        return
    sqlite = SqliteStore(tmp_path / "w.db")
    yield sqlite
    sqlite.close()


def run_observed(on_status: Callable[[StatusChange], None], store: Store | None = None) -> Workflow:
    workflow = Workflow.from_dict(CHAIN, Backend(output, store=store, on_status=on_status))
    assert workflow.run() == Complete({})
    return workflow


def test_every_change_of_a_step_is_reported_in_order(store: Store) -> None:
    seen: list[StatusChange] = []

    workflow = run_observed(seen.append, store)

    assert moves(seen) == DISPATCHED_AND_COMPLETE
    assert {(one.workflow_execution_id, one.run_id, one.attempt) for one in seen} == {(workflow.id, 0, 1)}


def test_a_change_is_reported_after_its_commit(store: Store) -> None:
    seen: list[tuple[str, str]] = []

    run_observed(
        lambda one: seen.append((one.after, store.load(one.workflow_execution_id).steps[one.step_id].status)),
        store,
    )

    assert seen == [(after, after) for _, _, after in DISPATCHED_AND_COMPLETE]


def test_the_status_of_a_change_stays_that_of_its_commit(store: Store) -> None:
    seen: list[StatusChange] = []

    workflow = run_observed(seen.append, store)

    states = [{step: it.state for step, it in one.run_status.steps.items()} for one in seen]
    assert states == [
        {"a": "in_progress", "b": "ready"},
        {"a": "complete", "b": "in_progress"},
        {"a": "complete", "b": "in_progress"},
        {"a": "complete", "b": "complete"},
    ]
    assert seen[-1].run_status == workflow.run_status


def test_an_observer_that_raises_is_a_warning_and_the_workflow_goes_on() -> None:
    def fail(change: StatusChange) -> None:
        raise ValueError("no such column")

    with pytest.warns(RuntimeWarning, match="on_status failed: ValueError\\('no such column'\\)"):
        workflow = run_observed(fail)

    assert workflow.status is WorkflowStatus.COMPLETE


def test_a_rejected_commit_reports_nothing() -> None:
    seen: list[StatusChange] = []
    store = InMemoryStore()
    first, second = Backend(store=store, on_status=seen.append), Backend(store=store)
    workflow = Workflow.from_dict(CHAIN, first)
    first.check_in(first.checkout(workflow.id))  # a copy that the next commit makes stale
    Workflow(workflow.id, second).advance()

    workflow.advance()  # claims `a`, which the second backend has claimed already

    assert seen == []


def test_a_coordinator_of_a_program_reports_what_it_commits(world: RedisWorld) -> None:
    seen: list[StatusChange] = []

    def with_observer(backend: Backend, *rest: Any, **keys: Any) -> Coordinator:
        observed = Backend(store=backend.store, runner=backend.runner, on_status=seen.append)
        return Coordinator(observed, *rest, **keys)

    coordinator = world.coordinator(make=with_observer)
    weid = world.begin(coordinator, CHAIN)
    world.settle(coordinator, executors={"a": lambda inputs: {"n": 1}, "b": lambda inputs: {"n": 2}})

    assert moves(seen) == DISPATCHED_AND_COMPLETE
    assert seen[-1].run_status == Client(world.connect(), world.keys).run_status(weid)


# ---- the status of a Workflow and of a Client


def test_a_workflow_and_a_client_have_the_same_status_of_the_same_record(world: RedisWorld) -> None:
    client = Client(world.connect(), world.keys)
    coordinator = world.coordinator()
    weid = world.begin(coordinator, CHAIN)
    workflow = Workflow(weid, Backend(store=world.store, runner=RqRunner(world.client, world.keys)))

    queued = client.run_status(weid), workflow.run_status
    world.settle(coordinator, executors={"a": lambda inputs: {"n": 1}, "b": lambda inputs: {"m": 2}})
    ended = client.run_status(weid), workflow.run_status

    assert queued[0] == queued[1]
    assert (queued[0].steps["a"].state, queued[0].running_count) == ("queued", 0)
    assert ended[0] == ended[1]
    assert (ended[0].status, ended[0].completed_steps) == ("complete", 2)
    assert client.last_outputs(weid) == workflow.last_outputs == {"b": {"m": 2}}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_job_that_no_worker_has_taken_is_queued_in_one_process_too(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    runner = InProcessRunner() if kind == "memory" else SqliteRunner(path)
    backend = Backend(store=InMemoryStore() if kind == "memory" else SqliteStore(path), runner=runner)
    workflow = Workflow.from_dict(CHAIN, backend)
    decision: Any = workflow.advance()
    backend.dispatch(workflow.id, decision.jobs)

    queued = workflow.run_status.steps["a"].state
    backend.take_pending_jobs()
    taken = workflow.run_status.steps["a"].state

    assert (queued, taken) == ("queued", "in_progress")
