"""Deadlines that passed while no process ran the execution. docs/durability.md has the table.

tests/redis_rq/test_deadlines_on_resume.py has the same cases on Redis.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Complete, Failed, Workflow
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.decisions import Dispatch
from orchestrator.backend import SqliteRunner, SqliteStore
from orchestrator.local.worker import InProcessWorker
from worlds.documents import Json, document, step
from worlds.records import NOW_MS

LATER_MS = 120_000
"""Longer than a lease and the timeouts here, shorter than the default timeout of a step."""


class Files:
    """Processes on one file, one after the other; the second begins two minutes later."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._path, self._stack = path, stack
        self._now_ms = NOW_MS
        self.calls: list[str] = []

    def process(self) -> Backend:
        store = self._stack.enter_context(closing(SqliteStore(self._path)))
        runner = self._stack.enter_context(closing(SqliteRunner(self._path, clock=self._clock)))
        return Backend(store=store, runner=runner, clock=self._clock, poll_interval=0.001)

    def _clock(self) -> int:
        return self._now_ms

    def leave(self, spec: Json, takes: int = 0, fails: str = "") -> Workflow:
        """Start an execution, take jobs, and let the process die."""
        backend = self.process()
        workflow = Workflow.from_dict(spec, backend)
        decision = workflow.advance()
        if isinstance(decision, Dispatch):
            backend.dispatch(workflow.id, decision.jobs)
        if fails:
            failure = {"kind": "exception", "message": "the first attempt"}
            workflow.on_step_result(fails, None, error=failure)
            workflow.advance()
            backend.take_pending_jobs()
        assert isinstance(backend.runner, SqliteRunner)
        assert len(backend.runner.take_jobs(takes)) == takes
        self._now_ms += LATER_MS
        return workflow

    def resume(self, workflow: Workflow) -> Any:
        backend = self.process()
        worker = InProcessWorker(backend.runner, self._call, clock=self._clock)
        return Workflow.resume(workflow.id, backend).run(worker)

    def _call(self, fn: str, inputs: Json) -> Any:
        self.calls.append(fn)
        return {}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Files]:
    with ExitStack() as stack:
        yield Files(tmp_path / "w.db", stack)


def error_kind(ended: Any) -> str:
    assert isinstance(ended, Failed), ended
    return str(ended.error["kind"])


def test_in_memory_an_execution_ends_with_its_process() -> None:
    left = Workflow.from_dict(document(step("a")), Backend())

    with pytest.raises(RecordNotFound):
        Workflow.resume(left.id, Backend())


def test_on_sqlite_a_step_past_its_timeout_fails_and_does_not_run_again(files: Files) -> None:
    left = files.leave(document(step("a", timeout="1m")), takes=1)

    assert error_kind(files.resume(left)) == "timeout"
    assert files.calls == []


def test_on_sqlite_a_step_that_was_not_taken_runs_whatever_its_timeout(files: Files) -> None:
    left = files.leave(document(step("a", timeout="1m")))

    assert files.resume(left) == Complete({})
    assert files.calls == ["a"]


def test_on_sqlite_a_step_within_its_timeout_runs_again(files: Files) -> None:
    left = files.leave(document(step("a")), takes=1)

    assert files.resume(left) == Complete({})
    assert files.calls == ["a"]


def test_on_sqlite_a_workflow_past_its_timeout_fails_and_runs_nothing(files: Files) -> None:
    left = files.leave(document(step("a"), timeout="1m"))

    assert error_kind(files.resume(left)) == "timeout"
    assert files.calls == []


def test_on_sqlite_a_wait_past_its_timeout_fails(files: Files) -> None:
    wait = {"id": "w", "wait": {"signal": "go", "timeout": "1m"}}
    left = files.leave(document(wait, step("a", after="w")))

    assert error_kind(files.resume(left)) == "signal_timeout"
    assert files.calls == []


@pytest.mark.parametrize(
    ("spec", "leave"),
    [
        (document({"id": "d", "delay": "1m"}, step("a", after="d")), {}),
        (document(step("a", retry={"max_retries": 1, "initial_delay_ms": 60_000})), {"fails": "a"}),
    ],
)
def test_on_sqlite_a_delay_or_a_pause_that_is_over_goes_on_at_once(
    files: Files, spec: Json, leave: dict[str, Any]
) -> None:
    left = files.leave(spec, **leave)

    assert files.resume(left) == Complete({})
    assert files.calls == ["a"]
