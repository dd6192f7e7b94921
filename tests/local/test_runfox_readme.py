"""The seed's README, with only the import changed: its quickstart and its four execution modes."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import orchestrator as rfx
import orchestrator.backend
import orchestrator.local
from orchestrator.backend import (
    InMemoryStore,
    InProcessRunner,
    InProcessWorker,
    SqliteRunner,
    SqliteStore,
)

SPEC = """
name: example
steps:
  - id: greet
    fn: make_greeting
    input:
      name: {"var": "input.name"}

  - id: shout
    fn: upper
    depends_on: [greet]
    input:
      text: {"var": "steps.greet.output.text"}

outputs:
  message: {"var": "steps.shout.output.text"}
"""

FIBONACCI = """
steps:
  - id: seed
    fn: fib_seed
  - id: iterate
    fn: fib_step
    depends_on: [seed]
    input:
      a: {"var": "state.fib_n"}
      b: {"var": "state.fib_n1"}
    branch:
      - condition: {"<": [{"var": "state.fib_n"}, 100]}
        action: {set: "steps.iterate.status", value: ready}
      - condition: {">=": [{"var": "state.fib_n"}, 100]}
        action: complete
outputs:
  n: {"var": "state.fib_n"}
"""

HALTING = """
steps:
  - id: moderate
    fn: moderate
    branch:
      - condition: {">=": [{"var": "scores.unsafe"}, 0.7]}
        action: halt
        result: {status: rejected, reason: unsafe}
  - id: publish
    fn: publish
    depends_on: [moderate]
"""


def execute(fn: str, inputs: dict[str, Any]) -> Any:
    if fn == "make_greeting":
        return {"text": f"hello, {inputs['name']}"}
    if fn == "upper":
        return {"text": inputs["text"].upper()}
    return None


def local_backend() -> tuple[rfx.Backend, InProcessWorker]:
    runner = InProcessRunner()
    return rfx.Backend(store=InMemoryStore(), runner=runner), InProcessWorker(runner, execute)


def test_the_quickstart() -> None:
    runner = InProcessRunner()
    worker = InProcessWorker(runner, execute)
    backend = rfx.Backend(store=InMemoryStore(), runner=runner)

    wf = rfx.Workflow.from_yaml(SPEC, backend, inputs={"name": "world"})
    result = wf.run(worker=worker)

    assert result == rfx.Complete({"message": "HELLO, WORLD"})
    assert result.outcome == {"message": "HELLO, WORLD"}


def test_the_identifiers_of_the_quickstart_are_the_seeds() -> None:
    backend, _ = local_backend()

    wf = rfx.Workflow.from_yaml(SPEC, backend, inputs={"name": "world"})

    record = backend.load(wf.id)
    assert record.workflow_id == "ca2c43dd6c84947e7c5b4a81cb708641"
    assert backend.workflow_execution_id(record) == wf.id == f"{record.workflow_id}#{record.execution_id}"
    assert backend.step_key(wf.id, "greet") == f"{wf.id}#greet"
    assert backend.step_run_key(wf.id, "greet", 0) == f"{wf.id}#greet#0"


def test_local_with_sqlite_persistence(tmp_path: Path) -> None:
    runner = InProcessRunner()
    worker = InProcessWorker(runner, execute)
    backend = rfx.Backend(store=SqliteStore(str(tmp_path / "workflow.db")), runner=runner)
    wf = rfx.Workflow.from_yaml(SPEC, backend, inputs={"name": "world"})

    assert wf.run(worker=worker).outcome == {"message": "HELLO, WORLD"}

    later = rfx.Backend(store=SqliteStore(str(tmp_path / "workflow.db")))
    assert rfx.Workflow.resume(wf.id, later).outcome == {"message": "HELLO, WORLD"}


@contextmanager
def external_worker(backend: rfx.Backend) -> Iterator[None]:
    """The worker protocol of the seed: poll, execute, submit."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.001):
            for job in backend.take_pending_jobs():
                backend.submit_work_result(
                    job.workflow_execution_id, job.step_id, execute(job.fn, job.inputs)
                )

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_async_local_with_a_sqlite_worker(tmp_path: Path) -> None:
    path = str(tmp_path / "workflow.db")
    backend = rfx.Backend(store=SqliteStore(path), runner=SqliteRunner(path))
    wf = rfx.Workflow.from_yaml(SPEC, backend, inputs={"name": "world"})

    with external_worker(rfx.Backend(store=SqliteStore(path), runner=SqliteRunner(path))):
        result = wf.run()

    assert result.outcome == {"message": "HELLO, WORLD"}
    assert backend.list_pending_jobs() == []


def test_event_driven() -> None:
    backend, _ = local_backend()
    my_queue: deque[rfx.DispatchJob] = deque()
    halted: list[str] = []

    def send_on(wf: rfx.Workflow) -> None:
        result = wf.advance()
        if isinstance(result, rfx.Dispatch):
            backend.dispatch(wf.id, result.jobs)
            for job in backend.take_pending_jobs():
                my_queue.append(job)

    def start_workflow(spec: str, inputs: dict[str, Any]) -> str:
        wf = rfx.Workflow.from_yaml(spec, backend, inputs=inputs)
        send_on(wf)
        return wf.id

    def handle_result(workflow_execution_id: str, step_id: str, output: Any) -> None:
        wf = rfx.Workflow.resume(workflow_execution_id, backend)
        step_result = wf.on_step_result(step_id, output)
        if isinstance(step_result, rfx.Halt):
            halted.append(wf.id)
            return
        send_on(wf)

    ids = [start_workflow(SPEC, {"name": name}) for name in ("world", "moon")]
    while my_queue:
        job = my_queue.popleft()
        handle_result(job.workflow_execution_id, job.step_id, execute(job.fn, job.inputs))

    handles = [rfx.Workflow.resume(one, backend) for one in ids]
    assert [wf.outcome for wf in handles] == [{"message": "HELLO, WORLD"}, {"message": "HELLO, MOON"}]
    assert [wf.advance() for wf in handles] == [rfx.Complete(wf.outcome) for wf in handles]
    assert halted == []


def test_the_executor_may_be_given_to_the_backend() -> None:
    wf = rfx.Workflow.from_yaml(SPEC, rfx.Backend(execute), inputs={"name": "world"})

    assert wf.run().outcome == {"message": "HELLO, WORLD"}


def test_a_loop_runs_as_long_as_its_data_says() -> None:
    def fibonacci(fn: str, inputs: dict[str, Any]) -> dict[str, int]:
        if fn == "fib_seed":
            return {"fib_n": 0, "fib_n1": 1}
        return {"fib_n": inputs["b"], "fib_n1": inputs["a"] + inputs["b"]}

    result = rfx.Workflow.from_yaml(FIBONACCI, rfx.Backend(fibonacci)).run()

    # The state a branch reads is the one before the merge: the loop ends one number after 100 is passed.
    assert result == rfx.Complete({"n": 233})


def test_a_halt_ends_the_workflow_with_its_payload() -> None:
    wf = rfx.Workflow.from_yaml(HALTING, rfx.Backend(lambda fn, inputs: {"scores": {"unsafe": 0.9}}))

    assert wf.run() == rfx.Halt({"status": "rejected", "reason": "unsafe"})

    assert wf.status is rfx.WorkflowStatus.HALTED
    assert wf.step_statuses == {"moderate": rfx.StepStatus.HALTED, "publish": rfx.StepStatus.READY}


def test_state_changes_are_observed() -> None:
    seen: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def on_state_change(workflow_execution_id: str, previous_state: Any, new_state: Any) -> None:
        seen.append((workflow_execution_id, previous_state, new_state))

    runner = InProcessRunner()
    backend = rfx.Backend(store=InMemoryStore(), runner=runner, on_state_change=on_state_change)
    wf = rfx.Workflow.from_yaml(SPEC, backend, inputs={"name": "world"})
    wf.run(worker=InProcessWorker(runner, execute))

    assert seen == [
        (wf.id, {}, {"text": "hello, world"}),
        (wf.id, {"text": "hello, world"}, {"text": "HELLO, WORLD"}),
    ]


def test_the_recommended_error_pattern_lets_a_branch_decide() -> None:
    spec = """
    steps:
      - id: a
        fn: fails
        branch:
          - condition: {"==": [{"var": "ok"}, false]}
            action: halt
            result: {status: error}
    """
    wf = rfx.Workflow.from_yaml(spec, rfx.Backend(lambda fn, inputs: {"error": "boom", "ok": False}))

    assert wf.run() == rfx.Halt({"status": "error"})


def test_the_worker_has_a_new_home_and_the_old_import_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from orchestrator.backend import InProcessWorker as old

    assert old is orchestrator.local.InProcessWorker
    with pytest.raises(AttributeError, match="has no attribute 'InProcessWorkr'"):
        _ = orchestrator.backend.InProcessWorkr
