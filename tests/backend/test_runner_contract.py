"""The contract of a runner, on every runner of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from backend.port_implementations import RUNNERS, redis_client
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.backend.ports import Commit, Committed, Runner
from orchestrator.backend.results import ResultPairs, ResultRunner, as_pairs
from orchestrator.redis_rq.event_codec import read_event
from orchestrator.redis_rq.runner import RqRunner
from orchestrator.redis_rq.store import RedisStore
from orchestrator.testing.contracts import RunnerContract
from orchestrator.testing.contracts.records import record
from orchestrator.testing.contracts.runner_fixtures import W


class OurRunner(RunnerContract):
    name: ClassVar[str]

    @pytest.fixture
    def runner(self, tmp_path: Path) -> Iterator[Runner]:
        with RUNNERS[self.name](tmp_path) as made:
            yield made


class TestInProcessRunner(OurRunner):
    name = "memory"


class TestSqliteRunner(OurRunner):
    name = "sqlite"


BY_OTHER_PARTS = {
    "test_a_job_has_its_tags": "a commit routes jobs by their tags",
    "test_of_two_results_of_one_dispatch_the_first_counts": "the token fences the second: test_runner.py",
    "test_a_job_with_a_result_is_no_longer_pending": "only a worker that took the job has its result",
    "test_returned_jobs_are_pending_again": "a coordinator dispatches them again: test_redis_backend.py",
    "test_a_job_of_an_earlier_execution_with_the_same_id_has_no_effect": "the token fences its result",
    "test_a_pending_job_is_not_dispatched_twice": "a commit is written once, and its jobs with it",
}
"""What other parts than the runner promise on Redis."""


class TestRqRunner(RunnerContract):
    """On Redis a commit writes the jobs, and an event stream carries the results to a coordinator."""

    @pytest.fixture(autouse=True)
    def _is_promised_here(self, request: pytest.FixtureRequest) -> None:
        if reason := BY_OTHER_PARTS.get(request.function.__name__):
            pytest.skip(reason)

    def test_the_list_of_what_other_parts_promise_names_tests(self) -> None:
        assert [name for name in BY_OTHER_PARTS if not hasattr(RunnerContract, name)] == []

    @pytest.fixture
    def runner(self) -> Iterator[Runner]:
        with redis_client() as client:
            yield RqRunner(client)

    def dispatch(self, runner: Runner, jobs: Sequence[DispatchJob]) -> None:
        assert isinstance(runner, RqRunner)
        name = "-".join(f"{job.step_id}.{job.run_id}.{job.token}" for job in jobs)
        commit = Commit(record(_execution_id=name), Changes(jobs=list(jobs)), creates=True)
        assert RedisStore(runner._client).commit([commit]) == [Committed.YES]

    def gather(self, runner: Runner, workflow_execution_id: str = W) -> ResultPairs:
        return as_pairs(self._read_results(runner, workflow_execution_id))

    def take_results(self, runner: ResultRunner, workflow_execution_id: str = W) -> list[ResultEvent]:
        return self._read_results(runner, workflow_execution_id)

    def _read_results(self, runner: Runner, workflow_execution_id: str) -> list[ResultEvent]:
        assert isinstance(runner, RqRunner)
        client, stream = runner._client, runner._keys.events_of(workflow_execution_id)
        found: list[ResultEvent] = []
        entries: list[tuple[str, dict[str, str]]] = client.xrange(stream)  # type: ignore[assignment]
        for entry, fields in entries:
            event = read_event(fields, is_start=False)
            assert isinstance(event, ResultEvent)
            if event.workflow_execution_id == workflow_execution_id and client.xdel(stream, entry):
                found.append(event)
        return found
