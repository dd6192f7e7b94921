"""Leases of a SqliteRunner: the death of a worker or a driver at any point loses nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Backend, Complete, Failed, Workflow
from orchestrator.application.records.decisions import Dispatch, DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.backend import SqliteRunner, SqliteStore
from orchestrator.local.worker import InProcessWorker
from worlds.documents import Json, document, step
from worlds.records import NOW_MS

CHAIN = document(step("a"), step("b", after="a"))


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms

    def pass_s(self, seconds: float) -> None:
        self.now_ms += round(seconds * 1000)


class Machine:
    """A file, its clock, and the calls of executors in any of its processes."""

    def __init__(self, folder: Path) -> None:
        self.path, self.clock = folder / "w.db", Clock()
        self.calls: list[str] = []
        self._opened: list[SqliteStore | SqliteRunner] = []

    def runner(self, path: Path | None = None) -> SqliteRunner:
        self._opened.append(SqliteRunner(path or self.path, clock=self.clock))
        return self._opened[-1]  # type: ignore[return-value]

    def process(self, runner_path: Path | None = None) -> Backend:
        """A backend of its own, as another process has it."""
        store = SqliteStore(self.path)
        self._opened.append(store)
        return Backend(store=store, runner=self.runner(runner_path), clock=self.clock, poll_interval=0.001)

    def worker(self, backend: Backend) -> InProcessWorker:
        return InProcessWorker(backend.runner, self._call, clock=self.clock)

    def _call(self, fn: str, inputs: Json) -> Any:
        self.calls.append(fn)
        return {}

    def begin(self, backend: Backend, spec: Json = CHAIN) -> tuple[Workflow, list[DispatchJob]]:
        workflow = Workflow.from_dict(spec, backend)
        decision = workflow.advance()
        assert isinstance(decision, Dispatch)
        backend.dispatch(workflow.id, decision.jobs)
        return workflow, decision.jobs

    def resume(self, workflow: Workflow) -> Any:
        backend = self.process()
        return Workflow.resume(workflow.id, backend).run(self.worker(backend))

    def tasks(self, path: Path | None = None) -> list[Any]:
        return self.sql("SELECT step_id, run_id, status FROM tasks ORDER BY rowid", path=path)

    def sql(self, statement: str, *values: Any, path: Path | None = None) -> list[Any]:
        with closing(sqlite3.connect(path or self.path)) as db, db:
            return db.execute(statement, values).fetchall()

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.close()


def lost(backend: Backend, workflow: Workflow) -> list[str]:
    return [event.step_id for event in backend.find_lost_dispatches(backend.load(workflow.id))]


def answer(job: DispatchJob, output: Any) -> ResultEvent:
    return ResultEvent(
        job.workflow_execution_id, job.step_id, output, None, job.run_id, job.attempt, job.token
    )


# ---- workers that die


def test_a_job_whose_worker_died_is_given_to_another_when_its_lease_has_expired(machine: Machine) -> None:
    backend = machine.process()
    workflow, _ = machine.begin(backend)
    machine.runner().take_jobs(1)
    machine.clock.pass_s(29)
    assert lost(backend, workflow) == []

    machine.clock.pass_s(2)
    assert lost(backend, workflow) == ["a"]

    assert machine.resume(workflow) == Complete({})
    ended = backend.load(workflow.id).steps["a"]
    assert (ended.run_id, ended.attempt, ended.lost) == (1, 1, 1)
    assert (machine.calls, machine.tasks()) == (["a", "b"], [])


def test_a_lease_that_is_renewed_does_not_expire(machine: Machine) -> None:
    backend, worker = machine.process(), machine.runner()
    workflow, _ = machine.begin(backend)
    jobs = worker.take_jobs(1)
    for _ in range(3):
        machine.clock.pass_s(20)
        worker.renew_leases(jobs)

    assert lost(backend, workflow) == []


def test_a_job_that_no_worker_has_taken_is_not_lost(machine: Machine) -> None:
    backend = machine.process()
    workflow, _ = machine.begin(backend)
    machine.clock.pass_s(100_000)

    assert lost(backend, workflow) == []


def test_jobs_that_were_returned_have_no_lease(machine: Machine) -> None:
    backend, worker = machine.process(), machine.runner()
    workflow, _ = machine.begin(backend)
    worker.return_jobs(worker.take_jobs(1))
    machine.clock.pass_s(100_000)

    assert lost(backend, workflow) == []
    assert machine.sql("SELECT status, worker, lease_until_ms FROM tasks") == [("PENDING", None, None)]


def test_a_worker_takes_as_many_jobs_as_it_asks_for(machine: Machine) -> None:
    runner = machine.runner()
    runner.dispatch("w#e", [DispatchJob("w#e", f"s{n}", "f", {}, 0, token=str(n)) for n in range(5)])

    assert [job.step_id for job in runner.take_jobs(2)] == ["s0", "s1"]
    assert runner.take_jobs(0) == []
    assert [job.step_id for job in runner.take_jobs(9)] == ["s2", "s3", "s4"]


def test_a_row_names_the_worker_that_has_it(machine: Machine) -> None:
    machine.begin(machine.process())

    machine.runner().take_jobs(1)

    [(worker, lease_until_ms)] = machine.sql("SELECT worker, lease_until_ms FROM tasks")
    assert ":" in worker
    assert lease_until_ms == NOW_MS + 30_000


def test_an_attempt_whose_timeout_passed_with_its_worker_fails_and_does_not_run_again(
    machine: Machine,
) -> None:
    backend = machine.process()
    workflow, _ = machine.begin(backend, document(step("a", timeout="40s")))
    machine.runner().take_jobs(1)
    machine.clock.pass_s(41)

    ended = machine.resume(workflow)

    assert isinstance(ended, Failed)
    assert ended.error["kind"] == "timeout"
    assert ended.error["message"] == "execution timeout exceeded (40 s)"
    assert (machine.calls, machine.tasks()) == ([], [])


def test_an_attempt_whose_timeout_has_not_passed_runs_again(machine: Machine) -> None:
    workflow, _ = machine.begin(machine.process(), document(step("a", timeout="40s")))
    machine.runner().take_jobs(1)
    machine.clock.pass_s(31)

    assert machine.resume(workflow) == Complete({})
    assert machine.calls == ["a"]


# ---- workers that do not renew


def test_jobs_that_were_taken_together_are_kept_while_results_come(machine: Machine) -> None:
    backend, worker = machine.process(), machine.runner()
    workflow, _ = machine.begin(backend, document(step("a"), step("b"), step("c")))
    jobs = worker.take_pending_jobs()
    for job in jobs[:2]:
        machine.clock.pass_s(200)
        worker.submit_work_result(workflow.id, job.step_id, {}, job)
    machine.clock.pass_s(200)
    assert lost(backend, workflow) == []

    machine.clock.pass_s(101)
    assert lost(backend, workflow) == ["c"]


def test_a_row_that_was_taken_by_sql_without_a_lease_gets_a_long_one(machine: Machine) -> None:
    backend = machine.process()
    workflow, _ = machine.begin(backend)
    machine.sql("UPDATE tasks SET status = 'STARTED'")
    machine.clock.pass_s(3_600)
    assert lost(backend, workflow) == []  # it gets its lease now

    machine.clock.pass_s(299)
    assert lost(backend, workflow) == []
    machine.clock.pass_s(2)
    assert lost(backend, workflow) == ["a"]


def test_a_worker_in_sql_may_set_a_lease_itself(machine: Machine) -> None:
    backend = machine.process()
    workflow, _ = machine.begin(backend)
    machine.sql("UPDATE tasks SET status = 'STARTED', lease_until_ms = ?", NOW_MS + 50_000)
    machine.clock.pass_s(49)
    assert lost(backend, workflow) == []

    machine.clock.pass_s(2)
    assert lost(backend, workflow) == ["a"]


# ---- results


def test_a_result_that_a_driver_has_read_and_not_committed_is_read_by_the_next(machine: Machine) -> None:
    backend, worker = machine.process(), machine.process()
    workflow, _ = machine.begin(backend, document(step("a")))
    machine.worker(worker).run()
    assert len(backend.results(workflow.id)) == 1  # and then it was killed

    assert machine.resume(workflow) == Complete({})
    assert machine.calls == ["a"]
    assert backend.load(workflow.id).steps["a"].run_id == 0


def test_a_commit_deletes_the_rows_of_the_results_that_it_applies(machine: Machine) -> None:
    backend = machine.process()
    workflow, [job] = machine.begin(backend, document(step("a"), step("b", after="a")))
    backend.runner.submit(answer(job, {"n": 1}))

    [result] = backend.results(workflow.id)
    workflow.on_step_result("a", result.output, run_id=0, attempt=1, token=result.token)

    assert machine.tasks() == []  # although it was not acknowledged


def test_with_the_records_in_another_file_a_result_is_kept_until_it_is_acknowledged(
    machine: Machine, tmp_path: Path
) -> None:
    jobs = tmp_path / "jobs.db"
    backend = machine.process(jobs)
    workflow, [job] = machine.begin(backend)
    backend.runner.submit(answer(job, {"n": 1}))
    [result] = backend.results(workflow.id)
    workflow.on_step_result("a", result.output, run_id=0, attempt=1, token=result.token)
    assert machine.tasks(jobs) == [("a", 0, "COMPLETE")]  # killed before it was acknowledged

    again = machine.process(jobs)
    assert Workflow.resume(workflow.id, again).run(machine.worker(again)) == Complete({})

    assert (machine.calls, machine.tasks(jobs)) == (["b"], [])


def test_a_late_result_of_a_lost_dispatch_leaves_nothing_behind(machine: Machine) -> None:
    backend, worker = machine.process(), machine.runner()
    workflow, _ = machine.begin(backend)
    [late] = worker.take_jobs(1)
    machine.clock.pass_s(31)
    assert machine.resume(workflow) == Complete({})

    worker.submit(answer(late, {"by": "the late one"}))

    assert (machine.tasks(), backend.results(workflow.id)) == ([], [])


def test_a_result_that_names_no_dispatch_counts_for_the_one_that_its_record_waits_for(
    machine: Machine,
) -> None:
    backend = machine.process()
    workflow, [job] = machine.begin(backend)
    machine.sql("DELETE FROM tasks")

    backend.submit_work_result(workflow.id, "a", {"n": 1})

    assert [one.token for one in backend.results(workflow.id)] == [job.token]


def test_a_result_that_names_no_dispatch_of_a_step_that_does_not_run_is_dropped(machine: Machine) -> None:
    backend = machine.process()
    workflow, _ = machine.begin(backend)

    backend.submit_work_result(workflow.id, "b", {"n": 1})

    assert backend.results(workflow.id) == []


# ---- rows that are not wanted


def test_a_job_that_is_dispatched_too_late_gets_no_row(machine: Machine) -> None:
    stopped = machine.process()
    workflow = Workflow.from_dict(document(step("a")), stopped)
    decision = workflow.advance()
    assert isinstance(decision, Dispatch)
    machine.clock.pass_s(31)
    assert machine.resume(workflow) == Complete({})

    stopped.dispatch(workflow.id, decision.jobs)

    assert (machine.calls, machine.tasks()) == (["a"], [])


@pytest.mark.parametrize(
    "ends",
    [
        Workflow.cancel,
        lambda workflow: workflow.on_step_result("b", None, error={"kind": "exception", "message": "x"}),
    ],
)
def test_an_execution_that_ends_leaves_no_rows(machine: Machine, ends: Callable[[Workflow], Any]) -> None:
    backend, worker = machine.process(), machine.runner()
    workflow, _ = machine.begin(backend, document(step("a"), step("b"), step("c")))
    [taken] = worker.take_jobs(1)

    ends(workflow)
    workflow.advance()

    assert workflow.status in ("cancelled", "failed")
    assert machine.tasks() == []
    worker.submit(answer(taken, {}))
    assert machine.tasks() == []


def test_a_deleted_execution_leaves_no_rows(machine: Machine) -> None:
    backend, worker = machine.process(), machine.runner()
    workflow, _ = machine.begin(backend)
    [taken] = worker.take_jobs(1)
    workflow.cancel()
    workflow.delete()

    worker.submit(answer(taken, {}))

    assert machine.tasks() == []


def test_a_lease_must_last(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lease_s must be more than 0"):
        SqliteRunner(tmp_path / "w.db", lease_s=0)
