"""Starts whose execution id is taken, in memory and in SQLite: races, and executions that are left over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Complete, Failed, Workflow
from orchestrator.application.errors import InvalidEvent, RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import Moment
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.backend.conflicts import ExecutionIdConflict, resolve_conflict
from orchestrator.backend.ports import Commit, Committed
from worlds.documents import Json, document, step

ONE = document(step("a", input={"n": {"var": "input.n"}}), outputs={"n": {"var": "steps.a.output.n"}})
TWO = document(step("b"))


@pytest.fixture(params=["memory", "sqlite"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    if request.param == "memory":
        yield Backend(echo, store=InMemoryStore(), runner=InProcessRunner(), poll_interval=0.002)
    else:
        store, runner = SqliteStore(tmp_path / "o.db"), SqliteRunner(tmp_path / "o.db")
        yield Backend(echo, store=store, runner=runner, poll_interval=0.002)
        store.close()
        runner.close()


def echo(fn: str, inputs: Json) -> Json:
    if inputs.get("n") == "fails":
        raise ValueError("as asked")
    return inputs


def handle(backend: Backend, name: str = "x") -> Workflow:
    return Workflow.resume(name, backend)


# ---- children of the old one


def parent(child: Json) -> Json:
    return document({"id": "kid", "workflow": child}, outputs={"kid": {"var": "steps.kid.output.n"}})


def test_the_child_of_a_new_parent_replaces_one_whose_parent_was_deleted(backend: Backend) -> None:
    backend.create(parent(ONE), {"n": 1}, "x")
    handle(backend).run()
    former = backend.load("x:kid:0")
    handle(backend).delete()

    backend.create(parent(ONE), execution_id="x")

    assert isinstance(handle(backend).run(), Complete)
    child = backend.load("x:kid:0")
    assert child.parent is not None
    assert former.parent is not None
    assert child.parent.token != former.parent.token


def test_a_child_of_the_replaced_execution_that_has_not_started_never_starts(backend: Backend) -> None:
    backend.create(parent(ONE), execution_id="x")
    handle(backend).advance()
    assert len(backend.shared_state.outgoing_events()) == 1

    backend.create(TWO, execution_id="x", conflict_policy="terminate_existing")

    assert isinstance(Workflow(backend.create(TWO, execution_id="y"), backend).run(), Complete)
    assert isinstance(handle(backend).run(), Complete)
    assert backend.shared_state.outgoing_events() == []
    with pytest.raises(RecordNotFound):
        backend.load("x:kid:0")


# ---- many at once


@pytest.mark.parametrize("policy", ["use_existing", "terminate_existing"])
def test_of_many_threads_that_start_one_id_there_is_one_execution_in_the_end(
    backend: Backend, policy: Any
) -> None:
    def start(n: int) -> str:
        return backend.create(ONE, {"n": n}, "x", conflict_policy=policy)

    with ThreadPoolExecutor(8) as pool:
        created = list(pool.map(start, range(24)))

    assert set(created) == {backend.find("x")}
    assert isinstance(handle(backend).run(), Complete)


# ---- what an unlucky one meets


class Records:
    """A store in which something happens at every look."""

    def __init__(self, backend: Backend, before: Callable[[int], None]) -> None:
        self._backend, self._before, self.looks = backend, before, 0

    def find(self, execution_id: str) -> str:
        return self._backend.find(execution_id)

    def checkout(self, workflow_execution_id: str) -> WorkflowRecord:
        self.looks += 1
        self._before(self.looks)
        return self._backend.checkout(workflow_execution_id)

    def commit(self, commits: Any) -> list[Committed]:
        return self._backend.commit(commits)


def settled(backend: Backend, before: Callable[[int], None]) -> Commit | WorkflowRecord:
    other = Backend(store=InMemoryStore())
    record = other.load(other.create(ONE, execution_id="x"))
    commit = Commit(record, Changes(), creates=True)
    return resolve_conflict(Records(backend, before), commit, "terminate_existing", Moment(1, "n"))


def test_an_execution_that_is_deleted_meanwhile_leaves_its_id_free(backend: Backend) -> None:
    backend.create(ONE, {"n": 1}, "x")
    handle(backend).run()

    commit = settled(backend, lambda look: handle(backend).delete())

    assert isinstance(commit, Commit)
    assert commit.replaces is None


def test_an_execution_that_is_deleted_after_its_cancel_leaves_its_id_free(backend: Backend) -> None:
    backend.create(ONE, {"n": 1}, "x")

    commit = settled(backend, lambda look: handle(backend).delete() if look == 2 else None)

    assert isinstance(commit, Commit)
    assert commit.replaces is None


def test_an_id_whose_record_is_missing_is_rejected_with_a_reason(backend: Backend) -> None:
    backend.create(ONE, {"n": 1}, "x")

    def gone(look: int) -> None:
        raise RecordNotFound("x")

    with pytest.raises(ExecutionIdConflict, match="but its record is missing: choose another id"):
        settled(backend, gone)


def test_an_execution_that_keeps_changing_is_rejected_in_the_end(backend: Backend) -> None:
    backend.create(document(step("a"), step("b")), execution_id="x")

    class Unlucky(Records):
        def commit(self, commits: Any) -> list[Committed]:
            return [Committed.CONFLICT]

    other = Backend(store=InMemoryStore())
    record = other.load(other.create(ONE, execution_id="x"))
    unlucky = Unlucky(backend, lambda look: None)
    with pytest.raises(ExecutionIdConflict, match="and it keeps changing: start again"):
        resolve_conflict(
            unlucky, Commit(record, Changes(), creates=True), "terminate_existing", Moment(1, "n")
        )
    assert unlucky.looks > 2


# ---- handles


def test_a_handle_retries_reruns_and_deletes(backend: Backend) -> None:
    workflow = Workflow(backend.create(ONE, {"n": "fails"}, "x"), backend)
    assert isinstance(workflow.run(), Failed)

    workflow.retry(reason="once more", by="ann")
    assert workflow.status == "in_progress"
    assert isinstance(workflow.run(), Failed)
    workflow.rerun("a")
    workflow.run()

    assert backend.load("x").steps["a"].round == 1
    assert [entry["control"] for entry in workflow.history if "control" in entry] == ["retry", "rerun"]
    workflow.delete()
    with pytest.raises(RecordNotFound):
        backend.load("x")


def test_a_handle_says_why_a_control_is_refused(backend: Backend) -> None:
    workflow = Workflow(backend.create(ONE, {"n": 1}, "x"), backend)

    with pytest.raises(InvalidEvent, match="cannot be retried: it is pending"):
        workflow.retry()
    with pytest.raises(InvalidEvent, match="cannot be rerun: it is pending"):
        workflow.rerun("a")
    with pytest.raises(InvalidEvent, match="cannot be deleted: it is pending"):
        workflow.delete()
