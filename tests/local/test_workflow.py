"""The handle on one execution."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator import (
    Cancelled,
    Complete,
    Dispatch,
    Failed,
    Halt,
    InvalidEvent,
    InvalidSpec,
    Pending,
    RecordConflict,
    Workflow,
)
from orchestrator.application.records.events import make_failure
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.backend import (
    Backend,
    InMemoryStore,
    InProcessRunner,
    SqliteRunner,
    SqliteStore,
    Store,
)
from orchestrator.backend.ports import Committed
from orchestrator.local import InProcessWorker, job_run
from orchestrator.local.driver import ExecutionDriver
from worlds.documents import document_of
from worlds.records import NOW_MS

DIAMOND = document_of(
    {
        "a": {"input": {"n": {"var": "input.n"}}},
        "b": {"depends_on": ["a"], "input": {"n": {"var": "steps.a.output.n"}}},
        "c": {"depends_on": ["a"], "input": {"n": {"var": "steps.a.output.n"}}},
        "d": {"input": {"all": [{"var": "steps.b.output.n"}, {"var": "steps.c.output.n"}]}},
    },
    outputs={"all": {"var": "steps.d.output.all"}},
)
CHAIN = document_of({"a": {}, "b": {"depends_on": ["a"]}})


def increment(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
    return inputs if "all" in inputs else {"n": inputs.get("n", 0) + 1}


def fail(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("boom")


def start(spec: dict[str, Any], inputs: dict[str, Any] | None = None, **backend: Any) -> Workflow:
    return Workflow.from_dict(spec, Backend(**backend), inputs)


def claim(workflow: Workflow) -> list[orchestrator.DispatchJob]:
    decision = workflow.advance()
    assert isinstance(decision, Dispatch)
    return decision.jobs


class Clock:
    """Seconds go by when the test says so."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


# ---- a new one, and one that exists


def test_a_spec_may_be_yaml_or_data() -> None:
    backend = Backend(increment)

    from_yaml = Workflow.from_yaml("steps: [{id: a, fn: a}, {id: b, fn: b, depends_on: [a]}]", backend)
    from_dict = Workflow.from_dict(CHAIN, backend)

    assert from_yaml.id.partition("#")[0] == from_dict.id.partition("#")[0]
    assert from_yaml.run() == from_dict.run() == Complete({})


@pytest.mark.parametrize("make", [Workflow.from_yaml, Workflow.from_dict])
def test_an_invalid_spec_is_refused_with_all_its_problems(make: Any) -> None:
    spec = document_of({"a": {"depends_on": ["x"]}, "b": {"max_attempts": 0}})
    text = str(spec) if make == Workflow.from_yaml else spec

    with pytest.raises(InvalidSpec) as caught:
        make(text, Backend())

    assert [problem.code for problem in caught.value.problems] == ["unknown_dependency", "bad_type"]


def test_an_execution_is_resumed_by_its_id_or_its_execution_id() -> None:
    workflow = start(CHAIN)
    execution_id = workflow.id.partition("#")[2]

    assert Workflow.resume(workflow.id, workflow.backend).id == workflow.id
    assert Workflow.resume(execution_id, workflow.backend).id == workflow.id


@pytest.mark.parametrize("unknown", ["unknown", "unknown#1"])
def test_resuming_an_unknown_execution_is_a_key_error(unknown: str) -> None:
    with pytest.raises(KeyError):
        Workflow.resume(unknown, Backend())


def test_two_handles_on_one_execution_are_interchangeable() -> None:
    first = start(CHAIN)
    second = Workflow.resume(first.id, first.backend)

    claim(first)
    second.on_step_result("a", {"n": 1})
    assert [job.step_id for job in claim(first)] == ["b"]
    first.on_step_result("b", {"n": 2})

    assert second.advance() == first.advance() == Complete({})
    assert first.state == second.state == {"n": 2}


# ---- run


def test_run_drives_an_execution_to_its_end() -> None:
    assert start(DIAMOND, {"n": 1}, executor=increment).run() == Complete({"all": [3, 3]})


def test_a_workflow_without_steps_is_complete() -> None:
    assert start({"steps": [], "outputs": {"n": 1}}).run() == Complete({"n": 1})


def test_running_what_has_ended_gives_its_end_again() -> None:
    workflow = start(DIAMOND, {"n": 1}, executor=increment)

    assert workflow.run() == workflow.run() == Complete({"all": [3, 3]})


def test_a_step_that_raises_fails_the_workflow_and_run_returns_it() -> None:
    workflow = start(CHAIN, executor=fail)

    result = workflow.run()

    assert isinstance(result, Failed)
    error = {"kind": "exception", "type": "ValueError", "message": "boom", "step": "a"}
    assert result.error == {**result.error, **error}
    assert result.error["traceback"].endswith("ValueError: boom")
    assert (workflow.status, workflow.error) == (WorkflowStatus.FAILED, result.error)
    assert workflow.step_statuses == {"a": StepStatus.FAILED, "b": StepStatus.SKIPPED}


def test_a_step_that_raises_is_tried_again_as_often_as_it_may() -> None:
    failures = iter([ValueError("first"), ValueError("second")])

    def flaky(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        for error in failures:
            raise error
        return {"n": 1}

    workflow = start(document_of({"a": {"max_attempts": 3}}), executor=flaky)

    assert workflow.run() == Complete({})
    assert workflow.backend.load(workflow.id).steps["a"].attempt == 3


def test_one_round_of_the_loop_is_one_commit() -> None:
    class CountingStore(InMemoryStore):
        commits = 0

        def commit(self, commits: Any) -> list[Committed]:
            CountingStore.commits += 1
            return super().commit(commits)

    wide = {f"b{n}": {"depends_on": ["a"]} for n in range(50)}
    start(document_of({"a": {}, **wide}), executor=increment, store=CountingStore(), threads=1).run()

    assert CountingStore.commits == 4  # create; claim a; a and all b; the end


def test_with_one_thread_results_are_applied_in_the_order_of_dispatch() -> None:
    steps: dict[str, dict[str, Any]] = {name: {"input": {"by": name}} for name in "zam"}
    workflow = start(document_of(steps), executor=lambda fn, inputs: {"last": inputs["by"]}, threads=1)

    workflow.run()

    assert workflow.state == {"last": "m"}
    assert [e["step"] for e in workflow.history if e.get("to") == "complete"] == ["z", "a", "m"]


def test_an_explicit_worker_is_preferred_to_the_backends_own() -> None:
    runner = InProcessRunner()
    workflow = start(document_of({"a": {}}), executor=fail, runner=runner)

    assert workflow.run(worker=InProcessWorker(runner, increment)) == Complete({})


def test_run_waits_for_workers_elsewhere() -> None:
    runner = InProcessRunner()
    workflow = start(CHAIN, runner=runner, poll_interval=0.002)
    worker, stop = InProcessWorker(runner, increment), threading.Event()

    def work() -> None:
        while not stop.wait(0.001):
            worker.run()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert workflow.run() == Complete({})
    finally:
        stop.set()
        thread.join()


def test_a_result_for_a_step_that_does_not_exist_is_a_warning_and_stops_nothing() -> None:
    workflow = start(CHAIN, executor=increment)
    workflow.backend.submit_work_result(workflow.id, "typo", {"n": 1})

    with pytest.warns(RuntimeWarning, match="has no step 'typo'"):
        assert workflow.run() == Complete({})


def test_many_threads_may_run_one_execution_and_each_step_runs_once() -> None:
    runs: list[str] = []

    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        runs.append(fn)
        return {"n": 1}

    steps = {f"s{n}": {"depends_on": [f"s{n - 5}"] if n >= 5 else []} for n in range(40)}
    workflow = start(document_of(steps), executor=execute, poll_interval=0.002)

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: workflow.run(), range(4)))

    assert results == [Complete({})] * 4
    assert sorted(runs) == sorted(steps)


# ---- a process before this one died


@pytest.mark.parametrize("died", ["before dispatch", "while working", "before the result was written"])
def test_what_a_dead_process_left_in_progress_is_dispatched_again(tmp_path: Path, died: str) -> None:
    clock = Clock()
    before = Backend(store=SqliteStore(tmp_path / "w.db"), runner=InProcessRunner(), clock=clock)
    left = Workflow.from_dict(CHAIN, before)
    jobs = claim(left)
    if died != "before dispatch":
        before.dispatch(left.id, jobs)
        before.take_pending_jobs()
    if died == "before the result was written":
        before.submit_work_result(left.id, "a", {"n": 1})
        before.gather(left.id)
    clock.pass_s(1)

    after = Backend(increment, store=SqliteStore(tmp_path / "w.db"), clock=clock)
    workflow = Workflow.resume(left.id, after)

    assert workflow.run() == Complete({})
    step = after.load(left.id).steps["a"]
    assert (step.run_id, step.attempt, step.lost) == (1, 1, 1)


def test_what_a_sqlite_runner_still_holds_is_not_dispatched_again(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "w.db"
    before = Backend(store=SqliteStore(path), runner=SqliteRunner(path), clock=clock)
    left = Workflow.from_dict(document_of({"a": {}, "b": {}}), before)
    before.dispatch(left.id, claim(left)[:1])  # died before b was dispatched
    clock.pass_s(31)

    runner = SqliteRunner(path)
    after = Backend(store=SqliteStore(path), runner=runner, clock=clock)

    assert Workflow.resume(left.id, after).run(InProcessWorker(runner, increment)) == Complete({})
    assert {name: step.run_id for name, step in after.load(left.id).steps.items()} == {"a": 0, "b": 1}


def test_a_dispatch_that_failed_is_made_again_by_the_next_run() -> None:
    class FullRunner(InProcessRunner):
        is_full = True

        def dispatch(self, workflow_execution_id: str, jobs: Any) -> Any:
            if self.is_full:
                raise OSError("disk full")
            return super().dispatch(workflow_execution_id, jobs)

    runner = FullRunner()
    workflow = start(CHAIN, executor=increment, runner=runner)
    with pytest.raises(OSError, match="disk full"):
        workflow.run()

    runner.is_full = False

    assert workflow.run() == Complete({})


# ---- children that others began


WITH_CHILD = {
    "steps": [
        {"op": "a"},
        {"id": "c", "workflow": {"steps": [{"op": "x"}, {"op": "y", "depends_on": ["x"]}]}},
    ],
    "outputs": {"c": {"var": "ctx.status.c"}},
}


def test_a_child_that_another_thread_began_is_driven_to_its_end() -> None:
    """A process that delivers the start of a child starts the child, and may end a moment later."""

    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        if fn == "a":
            ExecutionDriver(backend).deliver_events()
        return {}

    backend = Backend(execute)
    workflow = Workflow.from_dict(WITH_CHILD, backend)
    thread = threading.Thread(target=workflow.run, daemon=True)

    thread.start()
    thread.join(180)

    assert (workflow.status, workflow.outcome) == (WorkflowStatus.COMPLETE, {"c": "complete"})


def test_a_child_that_a_release_began_is_driven_to_its_end() -> None:
    held = threading.Event()

    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        if fn == "a":
            held.set()
        return {}

    workflow = Workflow.from_dict(WITH_CHILD, Backend(execute))
    workflow.hold("c")
    thread = threading.Thread(target=workflow.run, daemon=True)

    thread.start()
    assert held.wait(180)
    workflow.release("c")
    thread.join(180)

    assert (workflow.status, workflow.outcome) == (WorkflowStatus.COMPLETE, {"c": "complete"})


def test_the_next_process_runs_the_compensation_of_a_child_of_an_earlier_attempt() -> None:
    """The first child times out and is undone, while the second runs; there the process dies."""
    child = {
        "steps": [
            {"op": "x", "compensate": {"fn": "undo"}},
            {"op": "y", "depends_on": ["x"], "retry": {"max_retries": 1, "initial_delay_ms": 3_600_000}},
        ]
    }
    spec = {"steps": [{"id": "c", "workflow": child, "timeout": "10s", "max_attempts": 2}]}
    clock, store, called = Clock(), InMemoryStore(), list[str]()

    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        called.append(fn)
        if fn == "y" and called.count("y") == 1:
            clock.pass_s(20)
            raise ValueError("busy")
        if fn == "undo" and called.count("undo") == 1:
            clock.pass_s(1)
            raise KeyboardInterrupt
        return {}

    weid = Backend(execute, store, clock=clock).create(spec, execution_id="p")
    with pytest.raises(KeyboardInterrupt):
        Workflow(weid, Backend(execute, store, clock=clock)).run()
    assert store.load("p:c:0").status is WorkflowStatus.COMPENSATING

    ended = Workflow(weid, Backend(execute, store, clock=clock)).run()

    assert (ended, store.load("p:c:1").status) == (Complete({}), WorkflowStatus.COMPLETE)
    first = store.load("p:c:0")
    assert (first.status, first.compensated, called.count("undo")) == (WorkflowStatus.CANCELLED, True, 2)


def test_the_start_of_a_child_that_is_no_longer_needed_is_dropped() -> None:
    backend = Backend(clock=Clock())
    workflow = Workflow.from_dict(WITH_CHILD, backend)
    claim(workflow)
    workflow.cancel()

    assert [type(post.event).__name__ for post in backend.shared_state.outgoing_events()] == []


# ---- advance and on_step_result


def test_advance_claims_what_can_run_and_then_has_nothing_more() -> None:
    workflow = start(DIAMOND, {"n": 1})

    [job] = claim(workflow)

    assert (job.workflow_execution_id, job.step_id, job.fn, job.inputs) == (workflow.id, "a", "a", {"n": 1})
    assert (job.run_id, job.attempt, job.op) == (0, 1, "a")
    assert workflow.advance() == Pending()
    assert workflow.status is WorkflowStatus.IN_PROGRESS


def test_of_many_threads_that_advance_one_gets_the_jobs() -> None:
    workflow = start(document_of({f"s{n}": {} for n in range(10)}))

    with ThreadPoolExecutor(8) as pool:
        decisions = list(pool.map(lambda _: workflow.advance(), range(16)))

    dispatched = [decision for decision in decisions if isinstance(decision, Dispatch)]
    assert [len(decision.jobs) for decision in dispatched] == [10]
    assert decisions.count(Pending()) == 15


def test_results_that_come_at_once_are_all_written(tmp_path: Path) -> None:
    workflow = start(document_of({f"s{n}": {} for n in range(24)}), store=SqliteStore(tmp_path / "w.db"))
    jobs = claim(workflow)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: workflow.on_step_result(job.step_id, {job.step_id: 1}), jobs))

    assert workflow.advance() == Complete({})
    assert len(workflow.state) == 24


def test_processes_see_what_the_others_have_committed(tmp_path: Path) -> None:
    """Two backends on one file are two processes: what one has kept is stale once the other commits."""
    mine, theirs = (Backend(store=SqliteStore(tmp_path / "w.db")) for _ in range(2))
    workflow = Workflow.from_dict(CHAIN, mine)
    elsewhere = Workflow.resume(workflow.id, theirs)

    claim(elsewhere)
    assert workflow.advance() == Pending()
    workflow.on_step_result("a", {"n": 1})
    assert [job.step_id for job in claim(elsewhere)] == ["b"]
    workflow.on_step_result("b", {"n": 2})

    assert elsewhere.advance() == Complete({})


def test_on_step_result_says_what_came_of_it() -> None:
    halts = {"condition": {"==": [{"var": "n"}, 3]}, "action": "halt", "result": {"why": "three"}}
    workflow = start(document_of({"a": {"max_attempts": 2}, "b": {"branch": [halts]}, "c": {}}))
    claim(workflow)

    assert workflow.on_step_result("c", {"n": 1}) is None
    assert workflow.on_step_result("a", None, error=make_failure("exception", "boom")) == Pending()
    assert workflow.on_step_result("b", {"n": 3}) == Halt({"why": "three"})
    assert workflow.on_step_result("b", {"n": 3}) is None
    assert workflow.advance() == Halt({"why": "three"})


def test_an_error_without_another_attempt_fails_the_workflow() -> None:
    workflow = start(CHAIN)
    claim(workflow)

    result = workflow.on_step_result("a", None, error=make_failure("exception", "boom"))

    assert result == Failed({"kind": "exception", "message": "boom", "step": "a"})


def test_an_output_that_looks_like_an_error_is_an_output() -> None:
    workflow = start(CHAIN)
    claim(workflow)

    assert workflow.on_step_result("a", {"ok": False, "error": "handled"}) is None

    assert workflow.step_statuses["a"] is StepStatus.COMPLETE


def test_an_output_that_is_not_json_fails_the_step() -> None:
    workflow = start(CHAIN)
    claim(workflow)

    result = workflow.on_step_result("a", {"when": object()})

    assert isinstance(result, Failed)
    assert result.error["kind"] == "bad_output"


@pytest.mark.parametrize("wrong", [{"run_id": 1}, {"attempt": 2}, {"token": "another"}])
def test_a_result_of_another_dispatch_is_dropped(wrong: dict[str, Any]) -> None:
    workflow = start(CHAIN)
    [job] = claim(workflow)
    right: dict[str, Any] = {"run_id": job.run_id, "attempt": job.attempt, "token": job.token}

    assert workflow.on_step_result("a", {"n": 1}, **{**right, **wrong}) is None
    assert workflow.step_statuses == {"a": "in_progress", "b": "ready"}

    workflow.on_step_result("a", {"n": 1}, **right)
    assert workflow.step_statuses == {"a": "complete", "b": "ready"}


def test_a_result_for_a_step_that_is_not_in_progress_is_dropped() -> None:
    workflow = start(CHAIN)

    assert workflow.on_step_result("b", {"n": 1}) is None

    assert (workflow.state, workflow.step_statuses["b"]) == ({}, StepStatus.READY)


def test_a_result_for_a_step_that_does_not_exist_is_refused() -> None:
    with pytest.raises(orchestrator.InvalidEvent, match="has no step 'typo'"):
        start(CHAIN).on_step_result("typo", {})


def test_what_a_caller_is_given_is_the_callers_own() -> None:
    literal = {"list": [1]}
    halts = {"condition": True, "action": "halt", "result": literal}
    workflow = start(document_of({"a": {"input": {"x": literal}, "branch": [halts]}}))

    [job] = claim(workflow)
    job.inputs["x"]["list"].append("mine")
    output: dict[str, Any] = {"list": [1]}
    halt = workflow.on_step_result("a", output)
    assert isinstance(halt, Halt)
    halt.result["list"].append("mine")
    output["list"].append("mine")
    end = workflow.advance()
    assert isinstance(end, Halt)
    end.result["list"].append("mine")

    assert workflow.run() == Halt({"list": [1]})
    assert workflow.state == {"list": [1]}
    assert workflow.outcome == {"list": [1]}


def test_a_job_is_the_callers_own() -> None:
    reads = {"literal": {"list": [1]}, "read": {"var": "steps.a.output.list"}}
    workflow = start(document_of({"a": {}, "b": {"input": reads, "max_attempts": 2}}))
    claim(workflow)
    workflow.on_step_result("a", {"list": [1]})

    [job] = claim(workflow)
    job.inputs["read"].append("mine")
    job.inputs["literal"]["list"].append("mine")

    assert workflow.state == {"list": [1]}
    workflow.on_step_result("b", None, error=make_failure("exception", "again"))
    assert claim(workflow)[0].inputs == {"literal": {"list": [1]}, "read": [1]}


def test_an_end_is_the_callers_own() -> None:
    workflow = start(
        document_of({"a": {}}, outputs={"x": {"var": "state.list"}}), executor=lambda *_: {"list": [1]}
    )

    end = workflow.run()
    assert isinstance(end, Complete)
    end.outcome["x"].append("mine")

    assert (workflow.outcome, workflow.state) == ({"x": [1]}, {"list": [1]})
    assert workflow.advance() == Complete({"x": [1]})


UNDOABLE = document_of(
    {"a": {"compensate": {"fn": "undo"}}, "b": {"depends_on": ["a"]}, "c": {"depends_on": ["b"]}}
)


def test_a_result_that_ends_the_workflow_leaves_its_compensation_to_advance() -> None:
    workflow = start(UNDOABLE)
    claim(workflow)
    workflow.on_step_result("a", {})
    claim(workflow)

    assert workflow.on_step_result("b", None, error=make_failure("exception", "boom")) == Pending()

    assert workflow.status is WorkflowStatus.COMPENSATING
    assert [(job.step_id, job.fn) for job in claim(workflow)] == [("a#undo", "undo")]
    workflow.on_step_result("a#undo", {})
    assert isinstance(workflow.advance(), Failed)


def test_a_cancelled_workflow_is_undone_when_it_is_run() -> None:
    undone: list[str] = []

    def execute(fn: str, inputs: dict[str, Any]) -> None:
        undone.append(fn)

    workflow = start(UNDOABLE, executor=execute)
    claim(workflow)
    workflow.on_step_result("a", {})

    workflow.cancel("a duplicate")
    ended = workflow.run()

    assert (ended, undone) == (Cancelled("a duplicate"), ["undo"])
    assert workflow.backend.load(workflow.id).compensated is True


# ---- conflicts


class ContendedStore(InMemoryStore):
    """Another process commits first, a given number of times."""

    def __init__(self, conflicts: int) -> None:
        super().__init__()
        self.conflicts = conflicts

    def commit(self, commits: Any) -> list[Committed]:
        [commit] = commits
        if not commit.creates and self.conflicts:
            self.conflicts -= 1
            theirs = self.load(commit.record.workflow_execution_id)
            theirs.state["contention"] = self.conflicts
            self.write(theirs)
        return super().commit(commits)


def test_when_another_process_commits_first_the_decision_is_repeated() -> None:
    workflow = start(CHAIN, executor=increment, store=ContendedStore(20))

    assert workflow.run() == Complete({})

    assert workflow.state == {"contention": 0, "n": 1}


def test_a_start_is_rejected_when_the_execution_never_stops_changing() -> None:
    workflow = start(CHAIN, store=ContendedStore(10**9))

    with pytest.raises(RecordConflict, match="no longer at version"):
        workflow.advance()


# ---- looking


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return InMemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "w.db")


def test_progress_counts_every_status(store: Store) -> None:
    workflow = start(DIAMOND, {"n": 1}, store=store)
    none = {"ready": 0, "in_progress": 0, "complete": 0, "halted": 0, "retry": 0}

    assert workflow.progress == {**none, "ready": 4, "total": 4}

    claim(workflow)
    workflow.on_step_result("a", {"n": 1})
    claim(workflow)
    assert workflow.progress == {**none, "ready": 1, "in_progress": 2, "complete": 1, "total": 4}

    workflow.on_step_result("b", None, error=make_failure("exception", "boom"))
    counted = {"complete": 1, "failed": 1, "cancelled": 1, "skipped": 1, "total": 4}
    assert workflow.progress == {**none, **counted}


def test_durations_run_from_start_to_end_or_to_now(store: Store) -> None:
    clock = Clock()
    workflow = start(DIAMOND, {"n": 1}, store=store, clock=clock)
    assert (workflow.step_durations, workflow.elapsed) == ({}, 0.0)

    claim(workflow)
    clock.pass_s(1.5)
    assert (workflow.step_durations, workflow.elapsed) == ({"a": 1.5}, 1.5)

    workflow.on_step_result("a", {"n": 1})
    clock.pass_s(10)
    assert (workflow.step_durations, workflow.elapsed) == ({"a": 1.5}, 1.5)

    claim(workflow)
    clock.pass_s(2)
    workflow.on_step_result("b", {"n": 1})
    clock.pass_s(1)
    assert (workflow.step_durations, workflow.elapsed) == ({"a": 1.5, "b": 2.0, "c": 3.0}, 14.5)


def test_looking_at_state_outcome_and_history(store: Store) -> None:
    clock = Clock()
    workflow = start(CHAIN, executor=lambda fn, inputs: {fn: 1}, store=store, clock=clock)
    assert (workflow.status, workflow.outcome, workflow.error) == (WorkflowStatus.PENDING, None, None)

    workflow.run()

    assert (workflow.status, workflow.outcome, workflow.state) == ("complete", {}, {"a": 1, "b": 1})
    moves = [(e["step"], e["from"], e["to"]) for e in workflow.history if "to" in e]
    assert moves == [
        ("a", "ready", "in_progress"),
        ("a", "in_progress", "complete"),
        ("b", "ready", "in_progress"),
        ("b", "in_progress", "complete"),
    ]
    assert [e["workflow"] for e in workflow.history if "workflow" in e] == ["in_progress", "complete"]


def test_a_handle_shows_its_id_and_status() -> None:
    workflow = start(CHAIN)

    assert repr(workflow) == f"Workflow(id='{workflow.id}', status='pending')"
    assert repr(Workflow("unknown#1", workflow.backend)) == "Workflow(id='unknown#1', status=None)"


# ---- controls


def test_the_compensation_after_a_cancel_is_run_by_the_next_run() -> None:
    called: list[str] = []
    execute = {name: lambda inputs, name=name: called.append(name) for name in ("a", "b", "undo")}
    workflow = start(
        document_of({"a": {"compensate": {"fn": "undo"}}, "b": {"depends_on": ["a"]}}), executor=execute
    )
    claim(workflow)
    workflow.on_step_result("a", {})

    workflow.cancel("changed our mind")

    assert workflow.status is WorkflowStatus.COMPENSATING
    assert workflow.run() == Cancelled("changed our mind")
    assert called == ["undo"]


def test_a_control_that_is_refused_changes_nothing() -> None:
    workflow = start(CHAIN, executor=increment)
    before = workflow.backend.load(workflow.id)

    with pytest.raises(InvalidEvent, match="cannot be unpaused: it is pending"):
        workflow.unpause()

    assert workflow.backend.load(workflow.id) == before


# ---- what it costs


def commits_and_sizes(steps: int) -> tuple[int, int]:
    """How many commits a chain takes, and how many steps the largest of them touches."""
    sizes: list[int] = []

    class MeasuringStore(InMemoryStore):
        def load(self, workflow_execution_id: str) -> Any:
            raise AssertionError("nothing is copied whole while a workflow runs")

        def commit(self, commits: Any) -> list[Committed]:
            sizes.extend(len(commit.changes.steps) for commit in commits)
            return super().commit(commits)

    chain = {f"s{n}": {"depends_on": [f"s{n - 1}"] if n else []} for n in range(steps)}
    start(document_of(chain), executor=increment, store=MeasuringStore()).run()
    return len(sizes), max(sizes)


def test_a_step_of_a_long_chain_costs_what_one_of_a_short_chain_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine a step may run for so long that its start is committed too.
    monkeypatch.setattr(job_run, "STARTED_AFTER_S", 600.0)

    assert commits_and_sizes(10) == (12, 2)
    assert commits_and_sizes(1000) == (1002, 2)


def test_a_record_of_the_live_cache_is_not_shared_with_the_store() -> None:
    backend = Backend(store=InMemoryStore())
    weid = backend.create(CHAIN)
    live = backend.checkout(weid)

    live.state["never committed"] = True
    live.steps.clear()

    assert backend.load(weid).state == {}
    assert list(backend.load(weid).steps) == ["a", "b"]
