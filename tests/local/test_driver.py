"""Executions in one process: children, places under keys and shared values, with no coordinator."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Cancelled, Complete, Dispatch, Failed, Pending, Workflow
from orchestrator.application.errors import InvalidEvent
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ControlEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend import InMemoryStore, SqliteStore
from orchestrator.backend.ports import Store
from orchestrator.local.driver import ExecutionDriver
from worlds.documents import Json, document, step

PATIENCE_S = 180

MakeStore = Callable[[], Any]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield InMemoryStore()
    else:
        sqlite = SqliteStore(tmp_path / "orchestrator.db")
        yield sqlite
        sqlite.close()


def inner(name: str, spec: Json | str, after: str = "", **keys: Any) -> Json:
    """A step that is a workflow of its own."""
    parents = {"depends_on": after.split()} if after else {}
    return {"id": name, "workflow": spec, **parents, **keys}


def added(fn: str, inputs: Json) -> Any:
    if inputs.get("fails"):
        raise ValueError("boom")
    return {"n": inputs.get("n", 0) + 1}


def backend_of(store: Any, execute: Any = added, **keys: Any) -> Backend:
    return Backend(execute, store=store, poll_interval=0.002, **keys)


def start(backend: Backend, spec: Json, inputs: Json | None = None, **keys: Any) -> Workflow:
    return Workflow(backend.create(spec, inputs, **keys), backend)


def in_thread(act: Callable[[], Any]) -> Future[Any]:
    """The result of a function in a daemon thread: one that hangs does not block the tests."""
    end: Future[Any] = Future()

    def run() -> None:
        try:
            end.set_result(act())
        except BaseException as error:
            end.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return end


def soon(act: Callable[[], Any]) -> Any:
    return in_thread(act).result(PATIENCE_S)


def all_at_once(workflows: Sequence[Workflow]) -> list[Any]:
    """How executions end that are run at the same time, each by a thread."""
    ends = [in_thread(workflow.run) for workflow in workflows]
    return [end.result(PATIENCE_S) for end in ends]


ADD_TWO = document(
    step("x", input={"n": {"var": "input.n"}}),
    step("y", after="x", input={"n": {"var": "steps.x.output.n"}}),
    outputs={"n": {"var": "steps.y.output.n"}},
)
WAITS = document({"id": "w", "wait": {"signal": "go"}})


# ---- children


def test_a_child_has_timers_and_retries_of_its_own(store: Store) -> None:
    child = document({"id": "d", "delay": "20ms"}, step("a", after="d", defer_ms=10), timeout="30s")

    assert start(backend_of(store), document(inner("c", child))).run() == Complete({})


def nested(depth: int) -> Json:
    if depth == 0:
        return ADD_TWO
    below = inner("c", nested(depth - 1), input={"n": {"var": "input.n"}})
    return document(below, outputs={"n": {"var": "steps.c.output.n"}})


def test_children_may_have_children(store: Store) -> None:
    workflow = start(backend_of(store), nested(3), {"n": 1}, execution_id="p", group="g", priority=2)

    assert workflow.run() == Complete({"n": 3})

    deepest = workflow.backend.load("p:c:0:c:0:c:0")
    assert (deepest.root, deepest.depth, deepest.group, deepest.priority) == ("p", 3, "g", 2)


def test_a_parent_may_have_many_children(store: Store) -> None:
    child = document(step("a", input={"n": {"var": "input.n"}}), outputs={"n": {"var": "steps.a.output.n"}})
    steps = [inner(f"c{n}", child, input={"n": n}) for n in range(200)]
    spec = document(*steps, outputs={"all": {"vars": "steps[*].output.n"}})

    decision = start(backend_of(store), spec).run()

    assert decision == Complete({"all": [n + 1 for n in range(200)]})


def test_a_runner_that_works_on_the_spot_works_for_children(store: Store) -> None:
    class LocalRunner:
        def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> list[tuple[str, Any]]:
            return [(job.step_id, added(job.fn, job.inputs)) for job in jobs]

        def gather(self, workflow_execution_id: str) -> list[tuple[str, Any]]:
            return []

        def list_pending_jobs(self) -> list[DispatchJob]:
            return []

        take_pending_jobs = list_pending_jobs

        def submit_work_result(
            self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
        ) -> None: ...

    backend = Backend(store=store, runner=LocalRunner(), poll_interval=0.002)

    assert start(backend, nested(2), {"n": 1}).run() == Complete({"n": 3})


class OwnStore:
    """load and write, and nothing else."""

    def __init__(self) -> None:
        self.memory = InMemoryStore()

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        if "#" not in workflow_execution_id:
            raise KeyError(workflow_execution_id)
        return self.memory.load(workflow_execution_id)

    def write(self, record: WorkflowRecord) -> None:
        version = record.version
        self.memory.write(record)
        kept = self.memory._executions[record.workflow_execution_id]
        kept.fields["version"] = record.version = version


def test_a_store_that_loads_and_writes_is_enough_for_children() -> None:
    assert start(backend_of(OwnStore()), nested(2), {"n": 1}).run() == Complete({"n": 3})


def test_a_store_that_loads_and_writes_starts_no_child_that_its_parent_does_not_wait_for() -> None:
    backend = backend_of(OwnStore())
    workflow = start(backend, document(inner("c", ADD_TWO, input={"n": 1})), execution_id="p")
    ExecutionDriver(backend, workflow.id).decide(workflow.id, lambda _: [])
    event = ControlEvent(workflow.id, "cancel")
    ExecutionDriver(backend).decide(workflow.id, lambda _: [event])
    assert len(backend.shared_state.outgoing_events()) == 2, "its start, and its cancel"

    assert workflow.run() == Cancelled()

    assert backend.shared_state.outgoing_events() == []
    with pytest.raises(KeyError):
        backend.load(f"{check_spec(ADD_TWO).workflow_id}#p:c:0")


def test_a_store_that_loads_and_writes_repeats_no_start() -> None:
    backend = backend_of(OwnStore())

    ids = {backend.create(ADD_TWO, {"n": 1}, idempotency_root="order-7") for _ in range(3)}

    assert len(ids) == 1


@pytest.mark.parametrize("make", [InMemoryStore, OwnStore])
def test_children_that_a_failed_parent_does_not_wait_for_are_cancelled_with_their_own(
    make: MakeStore,
) -> None:
    below = document(inner("d", WAITS), step("b"))
    spec = document(inner("c", below), step("y"), step("z", after="y", input={"fails": True}))
    store = make()
    workflow = start(backend_of(store), spec, execution_id="p")

    assert isinstance(soon(workflow.run), Failed)

    kept = store if isinstance(store, InMemoryStore) else store.memory
    assert [kept.load(name).status for name in ("p:c:0", "p:c:0:d:0")] == ["cancelled", "cancelled"]
    assert workflow.backend.shared_state.outgoing_events() == []


def test_children_end_before_their_parent_returns(store: Store) -> None:
    """A child that is cancelled undoes what it did."""
    done: list[str] = []

    def execute(fn: str, inputs: Json) -> Any:
        done.append(fn)
        if fn == "fails":
            raise ValueError("boom")
        return {}

    child = document(step("pay", compensate={"fn": "refund"}), {"id": "w", "wait": {"signal": "go"}})
    spec = document(
        inner("c", child),
        step("a", compensate={"fn": "undo-a"}),
        {"id": "d", "delay": "50ms"},
        step("fails", after="d"),
    )
    workflow = start(backend_of(store, execute), spec, execution_id="p")

    assert isinstance(soon(workflow.run), Failed)

    assert Counter(done) == Counter(["pay", "refund", "a", "undo-a", "fails"])
    below = workflow.backend.load("p:c:0")
    assert (below.status, below.compensated) == ("cancelled", True)
    assert below.cancelled is not None
    assert below.cancelled["reason"] == "step c of p no longer waits for it"
    assert workflow.backend.load(workflow.id).compensated is True


# ---- controls


def test_a_cancel_reaches_all_descendants_although_no_process_runs_them(store: Store) -> None:
    backend = backend_of(store)
    workflow = start(backend, document(inner("c", document(inner("d", WAITS)))), execution_id="p")
    driver = ExecutionDriver(backend, workflow.id)
    driver.decide(workflow.id, lambda _: [])
    while driver.run_once():
        pass
    assert backend.load("p:c:0:d:0").steps["w"].status == "waiting"

    workflow.cancel("enough")

    assert [backend.load(name).status for name in ("p", "p:c:0", "p:c:0:d:0")] == ["cancelled"] * 3
    assert backend.shared_state.outgoing_events() == []
    assert workflow.run() == Cancelled("enough")


def test_a_cancel_undoes_what_was_done_when_it_is_run_again(store: Store) -> None:
    done: list[str] = []

    def execute(fn: str, inputs: Json) -> Any:
        done.append(fn)
        return {}

    spec = document(step("pay", compensate={"fn": "refund"}), {"id": "w", "wait": {"signal": "go"}})
    workflow = start(backend_of(store, execute), spec)
    running = in_thread(workflow.run)
    until(lambda: workflow.step_statuses["pay"] == "complete")
    workflow.cancel("enough")

    assert running.result(PATIENCE_S) == Cancelled("enough")

    assert done == ["pay", "refund"]
    with pytest.raises(InvalidEvent):
        workflow.pause()


def test_a_workflow_is_paused_and_its_steps_held_while_it_runs(store: Store) -> None:
    backend = backend_of(store)
    workflow = start(
        backend, document(step("a"), inner("c", ADD_TWO, "a", input={"n": 1}), step("z", after="c"))
    )
    workflow.pause()
    workflow.hold("z")
    running = in_thread(workflow.run)
    workflow.unpause()
    until(lambda: workflow.step_statuses["c"] == "complete")
    assert (workflow.step_statuses["z"], running.done()) == ("on_hold", False)

    workflow.release("z")

    assert running.result(PATIENCE_S) == Complete({})


def test_a_child_that_a_release_requests_is_started_by_the_driver_of_its_parent(store: Store) -> None:
    workflow = start(backend_of(store), document(inner("c", ADD_TWO, input={"n": 1})))
    workflow.hold("c")
    running = in_thread(workflow.run)
    workflow.release("c")

    assert running.result(PATIENCE_S) == Complete({})


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it never came to this"
        time.sleep(0.001)


# ---- places under keys


class Crowd:
    """An executor that knows how many are in it at a time."""

    def __init__(self) -> None:
        self.inside = self.most = self.calls = 0
        self._lock = threading.Lock()

    def __call__(self, fn: str, inputs: Json) -> Any:
        with self._lock:
            self.inside += 1
            self.calls += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.001)  # long enough for another thread to come in
        with self._lock:
            self.inside -= 1
        return {}


LIMITED = document(
    *(step(f"s{n}", concurrency={"key": {"var": "input.key"}, "limit": 1}) for n in range(4)), step("free")
)


def test_executions_that_share_a_key_are_run_one_after_the_other(store: Store) -> None:
    backend = backend_of(store)
    workflows = [start(backend, LIMITED, {"key": "k"}) for _ in range(3)]

    assert [workflow.run() for workflow in workflows] == [Complete({})] * 3


def test_whole_executions_that_share_a_key_are_run_one_after_the_other(store: Store) -> None:
    backend = backend_of(store)
    spec = document(step("a"), step("b", after="a"), concurrency={"key": "k", "limit": 1})
    workflows = [start(backend, spec) for _ in range(3)]

    ends = all_at_once(workflows)

    assert ends == [Complete({})] * 3


def test_threads_that_run_executions_of_one_key_never_meet_in_it(store: Store) -> None:
    crowd = Crowd()
    backends = [backend_of(store, crowd) for _ in range(4)]
    workflows = [
        start(backend, LIMITED | {"steps": LIMITED["steps"][:4]}, {"key": "k"}) for backend in backends
    ]

    ends = all_at_once(workflows)

    assert ends == [Complete({})] * 4
    assert (crowd.calls, crowd.most) == (16, 1)


def test_threads_may_run_parents_whose_children_share_a_key(store: Store) -> None:
    """Each drives its own children, although one backend serves both; either delivers the events of both."""
    crowd = Crowd()
    backend = backend_of(store, crowd)
    child = document(step("a", concurrency={"key": "k", "limit": 1}), step("b", after="a"))
    spec = document(*(inner(f"c{n}", child) for n in range(5)))
    workflows = [start(backend, spec) for _ in range(2)]

    ends = all_at_once(workflows)

    assert ends == [Complete({})] * 2
    assert crowd.calls == 20
    assert backend.shared_state.outgoing_events() == []


def test_an_execution_with_two_steps_is_granted_slots_too(store: Store) -> None:
    backend = Backend(store=store)
    spec = document(step("a", concurrency={"key": "k", "limit": 1}), concurrency={"key": "w", "limit": 1})
    first, second = start(backend, spec), start(backend, spec)

    claimed = first.advance()
    assert isinstance(claimed, Dispatch)
    assert second.advance() == Pending()
    [job] = claimed.jobs
    first.on_step_result("a", {}, token=job.token)
    assert first.advance() == Complete({})

    assert isinstance(second.advance(), Dispatch)


# ---- several processes with one file


def two_processes(folder: Path, execute: Any = added) -> tuple[Backend, Backend]:
    """Each with a runner of its own, as processes have."""
    mine, theirs = (backend_of(SqliteStore(folder / "one.db"), execute) for _ in range(2))
    return mine, theirs


def test_a_child_is_begun_by_the_process_that_runs_its_parent(tmp_path: Path) -> None:
    mine, theirs = two_processes(tmp_path)
    spec = document(inner("c", ADD_TWO, input={"n": 1}), outputs={"n": {"var": "steps.c.output.n"}})
    parent = start(theirs, spec, execution_id="p")
    ExecutionDriver(theirs, parent.id).decide(parent.id, lambda _: [])

    assert start(mine, document(step("a"))).run() == Complete({})

    assert len(mine.shared_state.outgoing_events()) == 1, "the start of their child waits for them"
    assert soon(parent.run) == Complete({"n": 3})


def test_a_slot_that_another_process_releases_is_granted_to_the_waiter(tmp_path: Path) -> None:
    mine, theirs = two_processes(tmp_path)
    spec = document(step("a", concurrency={"key": "k", "limit": 1}))
    first, second = start(mine, spec), start(theirs, spec)
    for workflow in (first, second):  # both stand in line, in this order
        ExecutionDriver(workflow.backend).decide(workflow.id, lambda _: [])

    assert first.run() == Complete({})

    waiting = theirs.load(second.id).steps["a"]
    assert waiting.slot is not None
    assert (waiting.slot.is_held, waiting.status) == (True, "ready"), "it has a place; they dispatch it"
    assert mine.list_pending_jobs() == []
    assert soon(second.run) == Complete({})


def test_the_end_of_a_child_that_another_process_ran_reaches_its_parent(tmp_path: Path) -> None:
    mine, theirs = two_processes(tmp_path)
    parent = start(theirs, document(inner("c", WAITS), step("z", after="c")), execution_id="p")
    driver = ExecutionDriver(theirs, parent.id)
    driver.decide(parent.id, lambda _: [])
    driver.run_once()
    child = Workflow.resume("p:c:0", mine)
    child.signal("go")

    assert soon(child.run) == Complete({})

    assert theirs.load(parent.id).steps["c"].status == "complete"
    assert mine.list_pending_jobs() == []
    assert soon(parent.run) == Complete({})


# ---- idempotency


def test_a_start_under_a_known_root_gives_the_first_execution(store: Store) -> None:
    now_ms = 1_767_225_600_000
    backend = backend_of(store, clock=lambda: now_ms)
    first = backend.create(ADD_TWO, {"n": 1}, idempotency_root="order-7", idempotency_window_s=60)

    again = backend.create(ADD_TWO, {"n": 2}, idempotency_root="order-7", idempotency_window_s=60)
    other = backend.create(ADD_TWO, {"n": 2}, idempotency_root="order-8", idempotency_window_s=60)

    assert again == first != other
    now_ms += 60_000
    later = backend.create(ADD_TWO, {"n": 2}, idempotency_root="order-7", idempotency_window_s=60)
    assert later not in (first, other)
    assert backend.create(ADD_TWO, idempotency_root="order-7") == later
