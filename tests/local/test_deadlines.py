"""Workflow.run() without a worker: timeouts and heartbeats are enforced, with the failures of Redis."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Cancelled, Complete, Failed, Workflow
from orchestrator.backend import SqliteRunner, SqliteStore
from worlds.documents import document, step
from worlds.waiting import PATIENCE_S, wait_until

Json = dict[str, Any]


class Gate:
    """An executor whose first calls hang until the gate is opened."""

    def __init__(self, hangs: int = 1_000_000) -> None:
        self.calls, self._hangs = 0, hangs
        self.inside, self._open, self.left = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, inputs: Json) -> Json:
        self.calls += 1
        if self.calls <= self._hangs:
            self.inside.set()
            self._open.wait(PATIENCE_S)
            self.left.set()
            return {"late": True}
        return {"late": False}

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Any:
    gate = Gate()
    yield gate
    gate.open()


def start(spec: Json, executors: Any, **options: Any) -> Workflow:
    return Workflow.from_dict(spec, Backend(executors, **options))


# ---- timeouts of functions


def test_a_function_that_hangs_fails_with_timeout_at_its_deadline(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    workflow = start(document(step("a", fn="hang", timeout="50ms")), {"hang": gate})

    with caplog.at_level(logging.WARNING):
        done = workflow.run()

    assert isinstance(done, Failed)
    assert done.error["kind"] == "timeout"
    assert done.error["message"] == "execution timeout exceeded (0.05 s)"
    [line] = [one for one in caplog.records if "goes on in thread" in one.getMessage()]
    assert workflow.id in line.getMessage()
    assert " a run 0 attempt 1" in line.getMessage()
    assert "orchestrator-" in line.getMessage()


def test_the_late_result_of_a_function_is_dropped() -> None:
    gate = Gate(hangs=1)
    spec = document(step("a", fn="hang", timeout="2s", retry=1), step("b", "a", fn="last"))

    def last(inputs: Json) -> Json:
        gate.open()
        assert gate.left.wait(PATIENCE_S)
        return {}

    workflow = start(spec, {"hang": gate, "last": last})

    assert isinstance(workflow.run(), Complete)
    assert gate.calls == 2
    assert workflow.state["late"] is False


@pytest.mark.parametrize("threads", [1, 2])
def test_the_thread_of_a_function_that_hangs_for_ever_is_replaced(gate: Gate, threads: int) -> None:
    steps = [step("a", fn="hang", timeout="50ms", on_error="continue"), step("b", fn="work")]
    workflow = start(
        document(*steps, step("c", "b", fn="work")), {"hang": gate, "work": dict}, threads=threads
    )

    assert isinstance(workflow.run(), Complete)
    assert {name: str(status) for name, status in workflow.step_statuses.items()} == {
        "a": "failed",
        "b": "complete",
        "c": "complete",
    }


def test_a_program_ends_although_a_thread_hangs(tmp_path: Path) -> None:
    program = """
        import time
        from orchestrator import Backend, Workflow

        spec = {"steps": [{"op": "hang", "timeout": "50ms"}]}
        end = Workflow.from_dict(spec, Backend({"hang": lambda inputs: time.sleep(3600)})).run()
        print(end.error["kind"])
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=PATIENCE_S
    )

    assert (ran.stdout, ran.returncode) == ("timeout\n", 0)


def test_a_deadline_counts_from_the_start_and_not_from_the_dispatch(gate: Gate) -> None:
    """The second step waits for the only thread longer than its own timeout."""
    steps = [
        step("a", fn="hang", timeout="4s", on_error="continue"),
        step("b", fn="work", timeout="3s"),
    ]
    workflow = start(document(*steps), {"hang": gate, "work": dict}, threads=1)

    assert isinstance(workflow.run(), Complete)
    assert str(workflow.step_statuses["b"]) == "complete"


def test_the_timeout_of_a_workflow_ends_it_while_a_function_runs(gate: Gate) -> None:
    done = start(document(step("a", fn="hang"), timeout="200ms"), {"hang": gate}, threads=1).run()

    assert isinstance(done, Failed)
    assert done.error["kind"] == "timeout"
    assert done.error["message"] == "the workflow exceeded its timeout (0.2 s)"


def test_the_timeout_of_a_child_ends_it_while_its_function_runs(gate: Gate) -> None:
    kid = {"steps": [step("a", fn="hang", timeout="50ms")]}
    workflow = start(document({"id": "kid", "workflow": kid, "on_error": "continue"}), {"hang": gate})

    assert isinstance(workflow.run(), Complete)
    assert str(workflow.step_statuses["kid"]) == "failed"


def test_an_item_of_a_map_has_its_own_deadline(gate: Gate) -> None:
    def work(inputs: Json) -> Json:
        return gate(inputs) if inputs["n"] == 2 else {}

    items = {"id": "m", "fn": "work", "map": {"over": [1, 2, 3]}, "input": {"n": {"var": "item"}}}
    workflow = start(document({**items, "timeout": "3s", "on_error": "continue"}), {"work": work})

    workflow.run()

    units = workflow.backend.load(workflow.id).items
    assert [units[f"m#{n}"].error is not None for n in range(3)] == [False, True, False]
    error = units["m#1"].error
    assert error is not None
    assert error["kind"] == "timeout"


def test_a_running_step_is_noted_in_its_record_with_its_deadline(gate: Gate) -> None:
    workflow = start(document(step("a", fn="hang", timeout="1h")), {"hang": gate})
    thread = threading.Thread(target=workflow.run)
    thread.start()

    def noted() -> bool:
        found = workflow.backend.load(workflow.id).steps["a"]
        return found.deadline_ms is not None and found.started_at is not None and found.worker is not None

    wait_until(noted)
    gate.open()
    thread.join(PATIENCE_S)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_cancelled_execution_leaves_its_function_behind(gate: Gate, threads: int) -> None:
    workflow = start(document(step("a", fn="hang")), {"hang": gate}, threads=threads)
    ends: list[Any] = []
    thread = threading.Thread(target=lambda: ends.append(workflow.run()))
    thread.start()
    assert gate.inside.wait(PATIENCE_S)
    workflow.cancel()
    thread.join(PATIENCE_S)

    assert isinstance(ends[0], Cancelled)
    assert not gate.left.is_set()


def test_a_function_sees_that_its_result_is_no_longer_needed() -> None:
    seen = threading.Event()

    def look(inputs: Json, cancelled: Any) -> Json:
        while not cancelled():
            time.sleep(0.01)
        seen.set()
        return {}

    start(document(step("a", fn="look", timeout="50ms")), {"look": look}).run()

    assert seen.wait(PATIENCE_S)


# ---- coroutines


def test_a_coroutine_is_cancelled_at_its_deadline() -> None:
    cancelled = threading.Event()

    async def hang(inputs: Json) -> Json:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return {}

    done = start(document(step("a", fn="hang", timeout="50ms")), {"hang": hang}).run()

    assert isinstance(done, Failed)
    assert done.error["kind"] == "timeout"
    assert cancelled.wait(PATIENCE_S)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_coroutine_that_blocks_the_loop_does_not_block_later_ones(gate: Gate, threads: int) -> None:
    async def block(inputs: Json) -> Json:
        return gate(inputs)

    async def work(inputs: Json) -> Json:
        return {"worked": True}

    steps = [step("a", fn="block", timeout="50ms", on_error="continue")]
    steps.append(step("b", "a", fn="work", timeout="2s", retry={"max_retries": 20, "initial_delay_ms": 100}))
    workflow = start(document(*steps), {"block": block, "work": work}, threads=threads)

    assert isinstance(workflow.run(), Complete)
    assert workflow.state["worked"] is True


# ---- heartbeats


def test_a_function_that_sends_no_heartbeat_is_lost_and_then_fails_like_on_redis(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = Gate()

    def hang(inputs: Json, heartbeat: Any) -> Json:
        return gate(inputs)

    spec = document(step("a", fn="hang", heartbeat="50ms"), limits={"max_lost": 1})
    with caplog.at_level(logging.WARNING):
        done = start(spec, {"hang": hang}).run()
    gate.open()

    assert isinstance(done, Failed)
    assert done.error["kind"] == "lost"
    assert done.error["message"] == (
        "its executor sent no heartbeat for 0.05 s (2 workers lost with this attempt)"
    )
    assert gate.calls == 2
    assert "its executor sent no heartbeat for 0.05 s" in caplog.text


def test_a_coroutine_that_sends_no_heartbeat_is_lost() -> None:
    calls: list[int] = []

    async def hang_once(inputs: Json, heartbeat: Any) -> Json:
        calls.append(1)
        if len(calls) == 1:
            await asyncio.sleep(3600)
        return {}

    assert isinstance(start(document(step("a", fn="h", heartbeat="2s")), {"h": hang_once}).run(), Complete)
    assert len(calls) == 2


def test_a_function_that_sends_heartbeats_may_take_long() -> None:
    def work(inputs: Json, heartbeat: Any) -> Json:
        began = time.monotonic()
        while time.monotonic() < began + 4:
            heartbeat()
            time.sleep(0.01)
        return {}

    workflow = start(document(step("a", fn="work", heartbeat="3s")), {"work": work})

    assert isinstance(workflow.run(), Complete)
    assert workflow.backend.load(workflow.id).steps["a"].lost == 0


# ---- deadlines that pass while no process runs


PROGRAM = """
    import sys, time
    from pathlib import Path
    from orchestrator import Backend, Workflow
    from orchestrator.backend import SqliteRunner, SqliteStore

    def hang(inputs):
        with open("calls", "a") as calls:
            calls.write("call\\n")
        time.sleep(3600)

    backend = Backend({"hang": hang}, SqliteStore("flows.db"), SqliteRunner("flows.db"))
    spec = {"steps": [{"id": "a", "fn": "hang", "timeout": "2s", "on_error": "continue"}]}
    workflow = Workflow(backend.create(spec, execution_id="x1"), backend)
    workflow.run()
"""


def test_a_deadline_that_passed_while_the_process_was_down_is_a_timeout_and_nothing_runs_again(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PROGRAM)], cwd=tmp_path)
    store = SqliteStore(tmp_path / "flows.db")
    try:
        wait_until(lambda: _deadline(store) is not None)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline_ms = _deadline(store)
    assert deadline_ms is not None
    wait_until(lambda: time.time() * 1000 > deadline_ms)
    calls: list[Json] = []
    backend = Backend(
        {"hang": lambda inputs: calls.append(inputs)}, store, SqliteRunner(tmp_path / "flows.db")
    )

    workflow = Workflow.resume("x1", backend)
    workflow.run()

    error = backend.load(workflow.id).steps["a"].error
    assert error is not None
    assert (error["kind"], error["message"]) == ("timeout", "execution timeout exceeded (2 s)")
    assert calls == []
    assert (tmp_path / "calls").read_text() == "call\n"


def _deadline(store: SqliteStore) -> int | None:
    try:
        return store.load(store.full_id("x1")).steps["a"].deadline_ms
    except KeyError:
        return None


@pytest.mark.usefixtures("own_ctrl_c")
def test_a_pending_job_whose_deadline_has_passed_is_not_run(gate: Gate) -> None:
    """After ^C a job is pending again; its deadline is that of its first start."""
    clock = [1_000_000]
    workflow = start(
        document(step("a", fn="hang", timeout="10s", on_error="continue")),
        {"hang": gate},
        clock=lambda: clock[0],
    )

    def interrupt() -> None:
        wait_until(lambda: workflow.backend.load(workflow.id).steps["a"].deadline_ms is not None)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        workflow.run()
    clock[0] += 11_000
    workflow.run()

    error = workflow.backend.load(workflow.id).steps["a"].error
    assert error is not None
    assert error["kind"] == "timeout"
    assert gate.calls == 1
