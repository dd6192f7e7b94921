"""Workflow.run(): one process that waits for its own timers, on a clock that moves when it sleeps."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Complete, Failed, Workflow
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import LoopSpec, RetrySpec, StepSpec
from orchestrator.backend import Backend, InMemoryStore, InProcessRunner, SqliteRunner
from orchestrator.backend.ports import Commit, Committed
from worlds.records import NOW_MS
from worlds.specs import branch, delay, loaded_of, map_step, resets, task, wait_step

Json = dict[str, Any]


class Clock:
    """Time passes when the code under test sleeps, or when a test says so."""

    def __init__(self) -> None:
        self.now_ms, self.slept = NOW_MS, list[float]()

    def __call__(self) -> int:
        return self.now_ms

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ms += max(round(seconds * 1000), 1)

    @property
    def passed_ms(self) -> int:
        return self.now_ms - NOW_MS


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("orchestrator.local.workflow.time.sleep", clock.sleep)
    return clock


class Executors:
    """What each call of an executor does, in order: an output, an error to raise, or a function."""

    def __init__(self, clock: Clock | None = None, **scripts: list[Any]) -> None:
        self._clock, self._scripts = clock, scripts
        self.calls: list[tuple[int, str, Json]] = []

    def __call__(self, fn: str, inputs: Json) -> Any:
        self.calls.append((self._clock.passed_ms if self._clock else 0, fn, inputs))
        script = self._scripts.get(fn, [])
        said = script.pop(0) if script else inputs
        if isinstance(said, Exception):
            raise said
        return said(inputs) if callable(said) else said

    def times(self, fn: str) -> list[int]:
        return [at_ms for at_ms, name, _ in self.calls if name == fn]


def begin(backend: Backend, *steps: StepSpec, inputs: Json | None = None, **keys: Any) -> Workflow:
    record = WorkflowRecord(loaded_of(*steps, **keys), "x1", dict(inputs or {}), created_at="now")
    assert backend.commit([Commit(record, Changes(), creates=True)]) == [Committed.YES]
    return Workflow(record.workflow_execution_id, backend)


def backend_on(clock: Clock, execute: Executors | None = None, **keys: Any) -> Backend:
    return Backend(execute, clock=clock, poll_interval=0.01, threads=1, **keys)


# ---- timers


TIMERS: dict[str, tuple[Json, int]] = {
    "two retries": ({"a": task("a", retry=RetrySpec(2, 200))}, 600),
    "a deferred step": ({"b": task("b", defer_ms=500)}, 500),
    "a delay that is deferred": ({"d": delay("d", 300, defer_ms=200)}, 500),
    "a wait without a signal": ({"w": wait_step("w", "go", timeout_ms=700, on_timeout="continue")}, 700),
    "a retry of an item": ({"m": map_step("m", [1, 2, 3], retry=RetrySpec(1, 400))}, 400),
    "the timeout of the workflow": ({"w": wait_step("w", "go")}, 2_000),
}


@pytest.mark.parametrize("kind", TIMERS)
def test_run_sleeps_until_the_next_timer_is_due_and_no_longer(clock: Clock, kind: str) -> None:
    steps, due_ms = TIMERS[kind]
    execute = Executors(clock, a=[ValueError("one"), ValueError("two"), {}], m=[ValueError("one")])
    workflow = begin(backend_on(clock, execute), *steps.values(), timeout_s=2.0)

    ended = workflow.run()

    assert isinstance(ended, Failed if due_ms == 2_000 else Complete)
    assert due_ms <= clock.passed_ms <= due_ms + 60


def test_run_does_not_sleep_while_there_is_work(clock: Clock) -> None:
    execute = Executors(clock)
    begin(backend_on(clock, execute), task("a"), task("b", "a"), map_step("m", [1, 2], "b")).run()

    assert clock.slept == []


def test_a_busy_step_does_not_keep_the_workflow_from_timing_out(clock: Clock) -> None:
    def second(_: Json) -> Json:
        clock.now_ms += 1_000
        return {"_loop": "again", "value": {}}

    execute = Executors(clock, l=[second] * 50)
    workflow = begin(
        backend_on(clock, execute), task("l", loop=LoopSpec(40, "exit_with_last")), timeout_s=5.0
    )

    ended = workflow.run()

    assert isinstance(ended, Failed)
    assert ended.error["kind"] == "timeout"
    assert len(execute.calls) < 10


def test_a_busy_step_does_not_keep_another_from_its_next_attempt(clock: Clock) -> None:
    def second(_: Json) -> Json:
        clock.now_ms += 1_000
        return {"_loop": "again", "value": {}}

    execute = Executors(clock, l=[second] * 50, a=[ValueError("once"), {}])
    begin(
        backend_on(clock, execute),
        task("a", retry=RetrySpec(1, 1_000)),
        task("l", loop=LoopSpec(20, "exit_with_last")),
    ).run()

    assert execute.times("a")[1] <= 5_000


# ---- signals


def test_a_signal_from_another_thread_ends_a_wait() -> None:
    workflow = begin(Backend(poll_interval=0.002), wait_step("w", "go"), outputs={"by": {"var": "state.by"}})
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(workflow.run()))
    thread.start()
    until = time.monotonic() + 10
    while workflow.status is not WorkflowStatus.IN_PROGRESS and time.monotonic() < until:
        time.sleep(0.001)

    workflow.signal("go", {"by": "ada"})
    thread.join(180)

    assert ended == [Complete({"by": "ada"})]


def test_a_signal_makes_the_jobs_that_follow_from_it(clock: Clock) -> None:
    backend = backend_on(clock)
    workflow = begin(backend, wait_step("w", "go"), task("a", "w"))
    workflow.advance()

    workflow.signal("go")

    assert [job.step_id for job in backend.list_pending_jobs()] == ["a"]


def test_the_payload_of_a_signal_is_not_shared_with_its_sender(clock: Clock) -> None:
    workflow = begin(backend_on(clock), task("a"))
    payload = {"list": [1]}
    workflow.signal("go", payload)
    payload["list"].append(2)

    assert workflow.backend.load(workflow.id).signals == [{"name": "go", "payload": {"list": [1]}}]


def test_a_payload_must_be_json(clock: Clock) -> None:
    workflow = begin(backend_on(clock), wait_step("w", "go"))

    with pytest.raises(ValueError, match="not JSON serializable"):
        workflow.signal("go", object())


class OnTheSpot(InProcessRunner):
    """A runner that executes what it is given, and returns the results at once."""

    def dispatch(self, workflow_execution_id: str, jobs: Any) -> Any:
        return [(job.step_id, {"done": job.step_id}) for job in jobs]


def test_results_that_a_runner_gives_on_the_spot_after_a_signal_count(clock: Clock) -> None:
    workflow = begin(backend_on(clock, runner=OnTheSpot()), wait_step("w", "go"), task("a", "w"))
    workflow.advance()

    workflow.signal("go")

    assert workflow.step_statuses["a"] is StepStatus.COMPLETE


# ---- a process before this one


def test_items_that_a_process_before_this_one_left_are_run_again(clock: Clock) -> None:
    store = InMemoryStore()
    before = begin(backend_on(clock, store=store), map_step("m", [1, 2]), timeout_s=60.0)
    before.advance()
    clock.now_ms += 10

    after = Workflow(before.id, backend_on(clock, Executors(clock), store=store))

    assert after.run() == Complete({})


def test_timers_that_a_process_before_this_one_armed_are_waited_for(clock: Clock) -> None:
    store, execute = InMemoryStore(), Executors(clock)
    before = begin(backend_on(clock, store=store), delay("d", 1_000), task("a", "d"))
    before.advance()
    clock.now_ms += 5_000

    assert Workflow(before.id, backend_on(clock, execute, store=store)).run() == Complete({})
    assert execute.times("a") == [5_000 + sum(max(round(s * 1000), 1) for s in clock.slept)]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_new_round_of_items_reaches_a_runner_that_still_has_the_old_one(
    clock: Clock, tmp_path: Path, kind: str
) -> None:
    runner = InProcessRunner() if kind == "memory" else SqliteRunner(tmp_path / "jobs.db")
    backend = backend_on(clock, runner=runner)
    workflow = begin(backend, map_step("m", [1]), task("s", branch=(resets({"!": {"var": "state.x"}}, "m"),)))
    decision = workflow.advance()
    backend.dispatch(workflow.id, decision.jobs)  # type: ignore[union-attr]
    workflow.on_step_result("s", {"x": 1})

    decision = workflow.advance()
    jobs = decision.jobs  # type: ignore[union-attr]
    backend.dispatch(workflow.id, jobs)

    wanted = {job.token for job in jobs}
    pending = {job.token for job in backend.list_pending_jobs()}
    if isinstance(runner, SqliteRunner):
        runner.close()
    assert wanted <= pending


# ---- the two-step use


def test_items_may_be_answered_one_by_one_by_name(clock: Clock) -> None:
    workflow = begin(
        backend_on(clock), map_step("m", [1, 2], branch=(branch({"==": [{"var": "count"}, 2]}, "complete"),))
    )
    workflow.advance()
    workflow.on_step_result("m#1", {"r": 2})
    assert workflow.on_step_result("m#0", {"r": 1}) is None

    assert workflow.advance() == Complete({})
    assert workflow.backend.load(workflow.id).steps["m"].output == {
        "items": [{"r": 1}, {"r": 2}],
        "count": 2,
        "errors": 0,
    }
