"""Workflow.run() without a worker: independent steps run at once, in threads and in one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Complete, Failed, Workflow
from orchestrator.backend import InMemoryStore, InProcessRunner, SqliteRunner, SqliteStore
from orchestrator.local import job_pool
from orchestrator.local.worker import InProcessWorker
from worlds.documents import document, step
from worlds.waiting import PATIENCE_S

Json = dict[str, Any]


def meet(count: int) -> Any:
    """An executor that returns when `count` calls of it are inside at the same time."""
    barrier = threading.Barrier(count)

    def executor(inputs: Json) -> Json:
        barrier.wait(PATIENCE_S)
        return {}

    return executor


def run(spec: Json, executors: Any, **options: Any) -> Any:
    return Workflow.from_dict(spec, Backend(executors, **options)).run()


# ---- at once


def test_independent_steps_run_at_once() -> None:
    spec = document(step("a", fn="meet"), step("b", fn="meet"), step("c", fn="meet"))

    assert isinstance(run(spec, {"meet": meet(3)}), Complete)


def test_independent_steps_on_sqlite_run_at_once(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"
    spec = document(step("a", fn="meet"), step("b", fn="meet"), step("c", fn="meet"))

    done = run(spec, {"meet": meet(3)}, store=SqliteStore(path), runner=SqliteRunner(path))

    assert isinstance(done, Complete)


def test_items_of_a_map_run_at_once() -> None:
    spec = document({"id": "m", "fn": "meet", "map": {"over": [1, 2, 3, 4]}})

    assert isinstance(run(spec, {"meet": meet(4)}), Complete)


def test_children_run_at_once() -> None:
    kid = {"steps": [step("x", fn="meet")]}
    spec = document({"id": "left", "workflow": kid}, {"id": "right", "workflow": kid})

    assert isinstance(run(spec, {"meet": meet(2)}), Complete)


@pytest.fixture
def all_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every executor that has returned counts as short, however busy the machine is."""
    monkeypatch.setattr(job_pool, "SHORT_S", PATIENCE_S)


@pytest.mark.usefixtures("all_are_short")
def test_steps_whose_executor_was_short_share_a_thread() -> None:
    threads: list[str] = []
    backend = Backend({"note": lambda inputs: threads.append(threading.current_thread().name)}, threads=4)
    spec = document(*(step(name, fn="note") for name in "abcd"))
    Workflow.from_dict(document(step("first", fn="note")), backend).run()
    threads.clear()

    done = Workflow.from_dict(spec, backend).run()

    assert isinstance(done, Complete)
    assert len(threads) == 4
    assert len(set(threads)) == 1


@pytest.mark.usefixtures("all_are_short")
def test_a_step_whose_executor_was_short_does_not_hold_up_others_when_it_takes_long() -> None:
    together = meet(3)
    calls: list[Json] = []

    def short_at_first(inputs: Json) -> Json:
        calls.append(inputs)
        return {} if len(calls) == 1 else together(inputs)

    backend = Backend({"f": short_at_first}, threads=3)
    Workflow.from_dict(document(step("first", fn="f")), backend).run()

    done = Workflow.from_dict(document(*(step(name, fn="f") for name in "abc")), backend).run()

    assert isinstance(done, Complete)


class Count:
    """An executor that returns when `size` calls of it are inside, and notes how many there were at most."""

    def __init__(self, size: int) -> None:
        self._barrier, self._lock = threading.Barrier(size), threading.Lock()
        self._inside = self.most = 0

    def __call__(self, inputs: Json) -> Json:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        self._barrier.wait(PATIENCE_S)
        with self._lock:
            self._inside -= 1
        return {}


def test_max_workers_still_limits_one_execution() -> None:
    count = Count(2)
    spec = document(*(step(name, fn="count") for name in "abcdef"), runner={"max_workers": 2})

    assert isinstance(run(spec, {"count": count}), Complete)
    assert count.most == 2


def test_no_more_functions_run_at_once_than_there_are_threads() -> None:
    count = Count(3)

    run(document(*(step(name, fn="count") for name in "abcdefghi")), {"count": count}, threads=3)

    assert count.most == 3


def test_coroutines_run_at_once_beside_a_function_and_take_no_thread() -> None:
    meeting: dict[str, asyncio.Barrier] = {}
    inside = threading.Barrier(2)

    async def wait_for_all(inputs: Json) -> Json:
        barrier = meeting.setdefault("barrier", asyncio.Barrier(6))
        if await barrier.wait() == 0:
            inside.wait(PATIENCE_S)
        return {"loop": id(asyncio.get_running_loop())}

    def function(inputs: Json) -> Json:
        inside.wait(PATIENCE_S)
        return {}

    steps = [step(f"async{n}", fn="wait_for_all") for n in range(6)]
    outputs = {"loops": [{"var": f"steps.async{n}.output.loop"} for n in range(6)]}
    spec = document(*steps, step("plain", fn="function"), outputs=outputs)

    done = run(spec, {"wait_for_all": wait_for_all, "function": function}, threads=2)

    assert isinstance(done, Complete)
    assert len(set(done.outcome["loops"])) == 1


def test_a_function_that_returns_a_coroutine_takes_no_thread_either() -> None:
    meeting: dict[str, asyncio.Barrier] = {}

    async def wait_for_all() -> Json:
        await meeting.setdefault("barrier", asyncio.Barrier(5)).wait()
        return {}

    spec = document(*(step(name) for name in "abcde"))

    assert isinstance(run(spec, lambda fn, inputs: wait_for_all(), threads=2), Complete)


# ---- one thread


ORDERED = document(
    step("a"),
    step("b"),
    step("c"),
    step("d", "a"),
    step("e", "b"),
    {"id": "m", "fn": "m", "map": {"over": [1, 2, 3], "max_parallel": 2}},
    {"id": "kid", "workflow": {"steps": [step("k1"), step("k2", "k1")]}},
    {**step("f"), "depends_on": ["kid", "m"]},
)


def test_with_one_thread_the_order_is_that_of_a_worker() -> None:
    orders: list[list[Any]] = []
    for threads in (None, 1):
        calls: list[Any] = []

        def execute(fn: str, inputs: Json, calls: list[Any] = calls) -> Json:
            calls.append((fn, inputs))
            return {fn: len(calls)}

        backend = Backend(execute, threads=threads or 4)
        workflow = Workflow.from_dict(ORDERED, backend)
        workflow.run(InProcessWorker(backend.runner, execute) if threads is None else None)
        orders.append([*calls, workflow.state])

    assert orders[1] == orders[0]


def test_with_one_thread_a_long_step_is_looked_at_now_and_then() -> None:
    """Its deadline is in the record, so that each look reads the clock."""
    looks: list[int] = []

    def clock() -> int:
        looks.append(0)
        return time.time_ns() // 1_000_000

    def wait(inputs: Json) -> Json:
        threading.Event().wait(0.5)
        return {"looks": len(looks)}

    spec = document(step("a", fn="dict"), step("b", "a", fn="wait"))
    workflow = Workflow.from_dict(spec, Backend({"dict": dict, "wait": wait}, threads=1, clock=clock))
    workflow.run()

    assert workflow.state["looks"] < 100


def test_with_one_thread_coroutines_run_one_after_another() -> None:
    inside: list[str] = []

    async def alone(inputs: Json) -> Json:
        assert inside == []
        inside.append("x")
        await asyncio.sleep(0.01)
        inside.clear()
        return {}

    spec = document(*(step(name, fn="alone") for name in "abc"))

    assert isinstance(run(spec, {"alone": alone}, threads=1), Complete)


def test_at_least_one_thread_is_needed() -> None:
    with pytest.raises(ValueError, match="threads must be 1 or more, not 0"):
        Backend(threads=0)


# ---- the calling thread


def test_executors_see_the_context_of_the_caller() -> None:
    user = contextvars.ContextVar("user", default="nobody")
    user.set("ada")

    async def later(inputs: Json) -> Json:
        return {"later": user.get()}

    def change(inputs: Json) -> Json:
        before = user.get()
        user.set("eve")
        return {"now": before}

    spec = document(step("a", fn="change"), step("b", "a", fn="change"), step("c", "b", fn="later"))
    workflow = Workflow.from_dict(spec, Backend({"change": change, "later": later}))
    workflow.run()

    assert workflow.state == {"now": "ada", "later": "ada"}
    assert user.get() == "ada"


def test_an_executor_that_calls_sys_exit_fails_its_step() -> None:
    def leave(inputs: Json) -> Json:
        raise SystemExit("bye")

    done = run(document(step("a", fn="leave")), {"leave": leave})

    assert isinstance(done, Failed)
    assert (done.error["kind"], done.error["type"]) == ("exception", "SystemExit")


def test_what_is_not_an_exception_leaves_run_and_its_job_is_pending_again() -> None:
    class Stop(BaseException):
        pass

    calls: list[str] = []

    def stop_once(inputs: Json) -> Json:
        calls.append("call")
        if len(calls) == 1:
            raise Stop
        return {}

    workflow = Workflow.from_dict(document(step("a", fn="stop_once")), Backend({"stop_once": stop_once}))
    with pytest.raises(Stop):
        workflow.run()

    assert [job.step_id for job in workflow.backend.list_pending_jobs()] == ["a"]
    assert isinstance(workflow.run(), Complete)
    assert len(calls) == 2


@pytest.mark.usefixtures("own_ctrl_c")
def test_ctrl_c_ends_run_while_a_function_hangs_and_its_job_is_pending_again() -> None:
    inside, release = threading.Event(), threading.Event()

    def hang(inputs: Json) -> Json:
        inside.set()
        release.wait(PATIENCE_S)
        return {}

    def interrupt() -> None:
        inside.wait(PATIENCE_S)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    workflow = Workflow.from_dict(document(step("a", fn="hang")), Backend({"hang": hang}, poll_interval=60))
    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        workflow.run()

    assert not release.is_set()
    assert [job.step_id for job in workflow.backend.list_pending_jobs()] == ["a"]
    release.set()
    assert isinstance(workflow.run(), Complete)


def test_an_error_of_the_store_in_a_pool_thread_leaves_run() -> None:
    class FailingStore(InMemoryStore):
        is_broken = False

        def commit(self, commits: Any) -> Any:
            if self.is_broken:
                raise OSError("no space left")
            return super().commit(commits)

    store = FailingStore()

    def break_store(inputs: Json) -> Json:
        store.is_broken = True
        return {}

    with pytest.raises(OSError, match="no space left"):
        run(document(step("a", fn="break_store")), {"break_store": break_store}, store=store)


def test_a_result_from_elsewhere_is_found() -> None:
    class Elsewhere(InProcessRunner):
        """Its jobs are run by another process, which returns their results later."""

        def take_pending_jobs(self) -> list[Any]:
            for job in super().take_pending_jobs():
                self.submit_work_result(job.workflow_execution_id, job.step_id, {}, job)
            return []

    assert isinstance(run(document(step("a"), step("b", "a")), {}, runner=Elsewhere()), Complete)


def test_two_runs_of_one_backend_share_their_jobs() -> None:
    spec = document(step("a", fn="meet"), step("b", fn="meet"))
    backend = Backend({"meet": meet(4)}, threads=2)
    workflows = [Workflow.from_dict(spec, backend) for _ in range(2)]
    ends: list[Any] = []
    threads = [threading.Thread(target=lambda one=one: ends.append(one.run())) for one in workflows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert [type(end) for end in ends] == [Complete, Complete]
