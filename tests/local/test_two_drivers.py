"""Two processes that drive one execution on a SQLite file. One of them may die at any moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Complete, Workflow
from orchestrator.backend import SqliteRunner, SqliteStore
from orchestrator.local.driver import ExecutionDriver
from orchestrator.local.worker import InProcessWorker
from worlds.documents import Json, document, step
from worlds.waiting import PATIENCE_S

CHILD = document(step("x"), outputs={"n": {"var": "steps.x.output.n"}})
PARENT = document({"id": "c", "workflow": CHILD}, outputs={"n": {"var": "steps.c.output.n"}})


class Files:
    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self.calls: list[str] = []

    def process(self, lease_s: float = 30.0) -> Backend:
        store = self._stack.enter_context(closing(SqliteStore(self._path)))
        runner = self._stack.enter_context(closing(SqliteRunner(self._path, lease_s)))
        return Backend(store=store, runner=runner, poll_interval=0.01)

    def worker(self, backend: Backend) -> InProcessWorker:
        return InProcessWorker(backend.runner, self._call)

    def _call(self, fn: str, inputs: Json) -> Any:
        self.calls.append(fn)
        return {"n": 1}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with ExitStack() as stack:
        yield Files(tmp_path / "w.db", stack)


class WorkerThatSeesADeath:
    """Before its first job, another process that drives the same execution starts the child, and dies."""

    def __init__(self, files: Files, mine: Backend, other: Backend, weid: str) -> None:
        self._worker, self._other, self._weid = files.worker(mine), other, weid
        self._give_up_at = time.monotonic() + PATIENCE_S
        self._is_first = True

    def run(self, workflow_execution_id: str) -> None:
        assert time.monotonic() < self._give_up_at, "the child was never found"
        if self._is_first:
            self._is_first = False
            assert ExecutionDriver(self._other, self._weid).deliver_events() == 1
        self._worker.run(workflow_execution_id)


def test_a_child_that_a_dead_process_has_started_is_found_by_one_that_drives_its_parent(files: Files) -> None:
    mine, other = (files.process(lease_s=0.3) for _ in range(2))
    workflow = Workflow.from_dict(PARENT, mine)

    ended = workflow.run(WorkerThatSeesADeath(files, mine, other, workflow.id))

    assert ended == Complete({"n": 1})
    assert set(files.calls) == {"x"}


def test_two_that_drive_one_execution_run_each_step_once(files: Files) -> None:
    spec = document(
        *(step(f"s{n}") for n in range(10)),
        step("last", after=[f"s{n}" for n in range(10)]),
        {"id": "c", "workflow": CHILD},
        outputs={"n": {"var": "steps.last.output.n"}},
    )
    backends = [files.process() for _ in range(2)]
    weid = Workflow.from_dict(spec, backends[0]).id
    ends: list[Any] = []

    def drive(backend: Backend) -> None:
        ends.append(Workflow.resume(weid, backend).run(files.worker(backend)))

    threads = [threading.Thread(target=drive, args=[backend]) for backend in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert ends == [Complete({"n": 1})] * 2
    assert {step_id: one.lost for step_id, one in backends[0].load(weid).steps.items() if one.lost} == {}
    assert sorted(files.calls) == sorted([*(f"s{n}" for n in range(10)), "last", "x"])


def test_a_signal_of_another_process_is_seen(files: Files) -> None:
    spec = document({"id": "w", "wait": {"signal": "go"}}, step("a", after="w"))
    mine, other = files.process(), files.process()
    workflow = Workflow.from_dict(spec, mine)
    ends: list[Any] = []
    thread = threading.Thread(target=lambda: ends.append(workflow.run(files.worker(mine))))
    thread.start()

    Workflow.resume(workflow.id, other).signal("go")
    thread.join(PATIENCE_S)

    assert (ends, files.calls) == ([Complete({})], ["a"])
