"""The fixtures of the runner contract. A test is skipped if the runner does not have the part it is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import pytest

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.backend.ports import LeasedRunner, Runner
from orchestrator.backend.results import ResultPairs, ResultRunner

W = "w#e1"
"""The execution of most jobs."""


class RunnerWithLeases(ResultRunner, LeasedRunner, Protocol):
    """A runner that leases the jobs that workers take."""


class RunnerFixtures:
    """A subclass may override dispatch(), gather() and take_results(), if something else carries the jobs and
    results of its runner: on Redis these are commits and event streams."""

    @pytest.fixture
    def runner(self) -> Runner:
        """An empty runner. Each test gets its own."""
        raise NotImplementedError("define the fixture `runner` in your class: it returns an empty runner")

    @pytest.fixture
    def result_runner(self, runner: Runner) -> ResultRunner:
        if not isinstance(runner, ResultRunner):
            pytest.skip("the runner has no submit(), results(), held_tokens() and return_jobs()")
        return runner

    @pytest.fixture
    def leased_runner(self, result_runner: ResultRunner) -> RunnerWithLeases:
        if not isinstance(result_runner, LeasedRunner):
            pytest.skip("the runner has no leases")
        return cast(RunnerWithLeases, result_runner)

    def dispatch(self, runner: Runner, jobs: Sequence[DispatchJob]) -> None:
        """Dispatch jobs of one execution."""
        assert runner.dispatch(jobs[0].workflow_execution_id, jobs) == []

    def gather(self, runner: Runner, workflow_execution_id: str = W) -> ResultPairs:
        return runner.gather(workflow_execution_id)

    def take_results(self, runner: ResultRunner, workflow_execution_id: str = W) -> list[ResultEvent]:
        """The results, as Workflow.run() takes them: a runner with leases returns them until they are
        acknowledged."""
        results = runner.results(workflow_execution_id)
        if isinstance(runner, LeasedRunner):
            assert runner.results(workflow_execution_id) == results
            runner.acknowledge(results)
        assert runner.results(workflow_execution_id) == []
        return results


def job(step_id: str = "a", run_id: int = 0, weid: str = W, **keys: Any) -> DispatchJob:
    keys = {"inputs": {"n": 1}, "token": f"{step_id}-{run_id}", **keys}
    return DispatchJob(weid, step_id, fn=f"fn_{step_id}", run_id=run_id, **keys)


def result_of(one: DispatchJob, output: Any = None, error: dict[str, Any] | None = None) -> ResultEvent:
    weid, step_id = one.workflow_execution_id, one.step_id
    started_at = "2026-01-01T00:00:00.000Z"
    return ResultEvent(weid, step_id, output, error, one.run_id, one.attempt, one.token, "host", started_at)
