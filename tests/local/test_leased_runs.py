"""Workflow.run() on a runner with leases: it takes what it can run, and renews the leases of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from orchestrator import Backend, Complete, Workflow
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.backend import InProcessRunner
from orchestrator.backend.ports import LeasedRunner
from worlds.documents import document, step
from worlds.waiting import PATIENCE_S, wait_until

Json = dict[str, Any]


class Leases(InProcessRunner):
    """A runner with leases in memory, which notes how it is used."""

    lease_s = 0.2

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[int] = []
        self.renewed: list[str] = []
        self.kept: dict[str, ResultEvent] = {}
        self.submitted: list[ResultEvent] = []
        self.lost_checks = 0

    def take_jobs(self, limit: int) -> list[DispatchJob]:
        self.limits.append(limit)
        jobs = super().take_pending_jobs()
        self.return_jobs(jobs[limit:])
        return jobs[:limit]

    def take_pending_jobs(self) -> list[DispatchJob]:
        raise AssertionError("the jobs of this runner are taken under leases")

    def submit(self, result: ResultEvent) -> None:
        self.submitted.append(result)
        super().submit(result)

    def renew_leases(self, jobs: Sequence[DispatchJob]) -> None:
        self.renewed += [job.step_id for job in jobs]

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        for result in super().results(workflow_execution_id):
            self.kept[result.token or ""] = result
        return list(self.kept.values())

    def acknowledge(self, results: Sequence[ResultEvent]) -> None:
        for result in results:
            del self.kept[result.token or ""]

    def held_tokens(self, workflow_execution_id: str) -> set[str]:
        self.lost_checks += 1
        return super().held_tokens(workflow_execution_id)


def test_a_job_is_taken_when_a_thread_is_free_for_it() -> None:
    runner, inside = Leases(), threading.Barrier(2)

    def work(inputs: Json) -> Json:
        inside.wait(PATIENCE_S)
        return {}

    backend = Backend({"work": work}, runner=runner, threads=2)
    assert isinstance(runner, LeasedRunner)

    done = Workflow.from_dict(document(*(step(name, fn="work") for name in "abcd")), backend).run()

    assert isinstance(done, Complete)
    assert max(runner.limits) == 2
    assert runner.kept == {}


def test_with_one_thread_one_job_is_taken_at_a_time() -> None:
    runner = Leases()
    backend = Backend({"work": dict}, runner=runner, threads=1)

    Workflow.from_dict(document(*(step(name, fn="work") for name in "abc")), backend).run()

    assert set(runner.limits) == {1}
    assert runner.kept == {}


def test_leases_are_renewed_and_lost_dispatches_looked_for_while_a_function_runs() -> None:
    runner = Leases()

    def work(inputs: Json) -> Json:
        wait_until(lambda: runner.renewed.count("a") > 2 and runner.lost_checks > 2)
        return {}

    done = Workflow.from_dict(document(step("a", fn="work")), Backend({"work": work}, runner=runner)).run()

    assert isinstance(done, Complete)


def test_nothing_is_renewed_when_nothing_runs() -> None:
    runner = Leases()
    Workflow.from_dict(document(step("a", fn="work")), Backend({"work": dict}, runner=runner)).run()

    before = len(runner.renewed)
    time.sleep(2 * runner.lease_s)

    assert len(runner.renewed) == before


def test_a_run_that_was_given_up_is_ended_in_the_runner() -> None:
    runner, release = Leases(), threading.Event()

    def hang(inputs: Json) -> Json:
        release.wait(PATIENCE_S)
        return {}

    spec = document(step("a", fn="hang", timeout="50ms", on_error="continue"))
    Workflow.from_dict(spec, Backend({"hang": hang}, runner=runner)).run()
    release.set()

    assert [(one.step_id, one.error is not None) for one in runner.submitted] == [("a", True)]
