"""Starts whose execution id is taken: what each policy does in memory and in SQLite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coreworld import Json, document, step
from orchestrator import Backend, Complete, Failed, Workflow
from orchestrator.application.errors import InvalidEvent, RecordExists, RecordNotFound
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import Moment
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.backend.conflicts import ExecutionIdConflict, resolve_conflict
from orchestrator.backend.ports import Commit, Committed
from orchestrator.local.driver import ExecutionDriver

ONE = document(step("a", input={"n": {"var": "input.n"}}), outputs={"n": {"var": "steps.a.output.n"}})
TWO = document(step("b"))
UNDOABLE = document(step("a", compensate={"fn": "undo"}), step("b", after="a"))


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


def dispatched(backend: Backend, workflow: Workflow) -> None:
    """Its first jobs are with the runner, and no worker has taken them."""
    backend.dispatch(workflow.id, workflow.advance().jobs)  # type: ignore[union-attr]


# ---- policies


def test_without_a_policy_a_taken_id_is_refused(backend: Backend) -> None:
    first = backend.create(ONE, execution_id="x")

    with pytest.raises(RecordExists, match=r"an execution with the id 'x' already exists$"):
        backend.create(ONE, execution_id="x")

    assert backend.find("x") == first


@pytest.mark.parametrize("is_over", [False, True])
def test_use_existing_returns_the_existing_execution(backend: Backend, is_over: bool) -> None:
    first = backend.create(ONE, {"n": 1}, "x")
    if is_over:
        handle(backend).run()

    again = backend.create(ONE, {"n": 2}, "x", conflict_policy="use_existing")

    assert again == first
    assert backend.load("x").inputs == {"n": 1}


def test_use_existing_is_refused_when_it_is_of_another_workflow(backend: Backend) -> None:
    first = backend.create(ONE, execution_id="x")

    with pytest.raises(
        ExecutionIdConflict, match=f"as an execution of another workflow: {first.partition('#')[0]}"
    ):
        backend.create(TWO, execution_id="x", conflict_policy="use_existing")


@pytest.mark.parametrize("spec", [ONE, TWO], ids=["same spec", "another spec"])
@pytest.mark.parametrize("then", ["new", "in progress", "complete", "failed", "paused"])
def test_terminate_existing_cancels_the_existing_execution_and_replaces_it(
    backend: Backend, spec: Json, then: str
) -> None:
    old = backend.create(ONE, {"n": "fails" if then == "failed" else 1}, "x")
    workflow = handle(backend)
    if then == "in progress":
        dispatched(backend, workflow)
    elif then == "paused":
        workflow.pause()
    elif then != "new":
        workflow.run()

    new = backend.create(spec, {"n": 2}, "x", conflict_policy="terminate_existing")

    assert (new == old) == (spec is ONE)
    assert (backend.find("x"), backend.load("x").inputs) == (new, {"n": 2})
    assert backend.history("x") == []
    assert isinstance(handle(backend).run(), Complete)
    if spec is ONE:
        assert handle(backend).outcome == {"n": 2}, "the job of the old execution had no effect"
    else:
        with pytest.raises(RecordNotFound):
            backend.load(old)


def test_terminate_existing_without_an_existing_execution_is_a_normal_start(backend: Backend) -> None:
    backend.create(ONE, {"n": 1}, "x", conflict_policy="terminate_existing")

    assert handle(backend).run() == Complete({"n": 1})


def test_an_execution_with_a_compensation_is_cancelled_compensated_and_then_replaced(
    backend: Backend,
) -> None:
    backend.create(UNDOABLE, {"n": "old"}, "x")
    workflow = handle(backend)
    dispatched(backend, workflow)
    workflow.on_step_result("a", {})

    with pytest.raises(ExecutionIdConflict, match="and it is compensating: start again when it has ended"):
        backend.create(UNDOABLE, {"n": "new"}, "x", conflict_policy="terminate_existing")

    assert backend.load("x").inputs == {"n": "old"}
    workflow.run()
    assert (backend.load("x").status, backend.load("x").compensated) == ("cancelled", True)
    backend.create(UNDOABLE, {"n": "new"}, "x", conflict_policy="terminate_existing")
    assert backend.load("x").inputs == {"n": "new"}


def test_the_values_of_the_old_one_are_not_the_new_ones(backend: Backend) -> None:
    scopes = {"scopes": ["flow", "global"]}
    sets = document({"id": "a", "fn": "a", "output": {"global:seen": 1}}, kv=scopes)
    reads = document(step("a"), outputs={"seen": {"var": "kv.global.seen"}}, kv=scopes)
    backend.create(sets, execution_id="x")
    handle(backend).run()

    backend.create(reads, execution_id="x", conflict_policy="terminate_existing")

    assert handle(backend).run() == Complete({"seen": None})


# ---- children of the old one


def parent(child: Json) -> Json:
    return document({"id": "kid", "workflow": child}, outputs={"kid": {"var": "steps.kid.output.n"}})


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_the_child_of_a_new_parent_replaces_one_that_is_left_over(backend: Backend, how: str) -> None:
    backend.create(parent(ONE), {"n": 1}, "x")
    handle(backend).run()
    former = backend.load("x:kid:0")
    if how == "deleted":
        handle(backend).delete()

    backend.create(parent(ONE), execution_id="x", conflict_policy="terminate_existing")

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


def test_a_left_over_child_that_is_being_undone_is_not_cut_short(backend: Backend) -> None:
    backend.create(parent(UNDOABLE), execution_id="x")
    old = handle(backend)
    old.advance()
    old.pause()
    while backend.shared_state.outgoing_events():
        ExecutionDriver(backend, old.id).deliver_events()
    child = handle(backend, "x:kid:0")
    child.on_step_result("a", {})
    old.cancel()
    assert child.status == "compensating"

    backend.create(parent(UNDOABLE), execution_id="x", conflict_policy="terminate_existing")
    decision = handle(backend).run()

    assert isinstance(decision, Failed)
    assert "and it is compensating: start again when it has ended" in decision.error["message"]


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
