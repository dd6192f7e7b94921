"""What a runner promises: a job is taken once, and its result is returned once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import make_failure
from orchestrator.backend.ports import Runner
from orchestrator.backend.results import ResultPairs, ResultRunner
from orchestrator.testing.contracts.runner_fixtures import RunnerFixtures, RunnerWithLeases, W, job, result_of

RARE: dict[str, Any] = {
    "heartbeat_s": 0.5,
    "source": {"type": "t", "configuration": {"a": ["ž"]}},
}
MAX_TEST_LEASE_S = 2.0
LEASE_PATIENCE_S = 180
"""How long a test waits for a lease to expire, on a busy machine."""


class JobContract(RunnerFixtures):
    """Jobs are listed in the order of dispatch, and each is taken once."""

    def test_pending_jobs_are_listed_whole_in_the_order_of_dispatch(self, runner: Runner) -> None:
        jobs = [
            job(name, attempt=2, round=1, timeout_s=1.5, queue="q", inputs={"x": ["ž"]}, **RARE)
            for name in "cab"
        ]

        self.dispatch(runner, jobs)

        assert runner.list_pending_jobs() == jobs

    def test_a_job_has_its_tags(self, runner: Runner) -> None:
        self.dispatch(runner, [job(tags=("gpu",))])

        assert runner.take_pending_jobs() == [job(tags=("gpu",))]

    def test_listing_is_a_snapshot(self, runner: Runner) -> None:
        self.dispatch(runner, [job()])

        runner.list_pending_jobs()[0].inputs["n"] = "changed"
        runner.list_pending_jobs().clear()

        assert runner.list_pending_jobs() == [job()]

    def test_a_job_is_taken_once(self, runner: Runner) -> None:
        self.dispatch(runner, [job("a"), job("b")])
        self.dispatch(runner, [job("a", weid="w#e2", token="other")])

        assert runner.take_pending_jobs() == [job("a"), job("b"), job("a", weid="w#e2", token="other")]

        assert runner.take_pending_jobs() == []
        assert runner.list_pending_jobs() == []

    def test_a_dispatched_job_belongs_to_the_runner(self, runner: Runner) -> None:
        mine = job(inputs={"list": [1]})
        self.dispatch(runner, [mine])

        mine.inputs["list"].append("mine")

        assert runner.take_pending_jobs() == [job(inputs={"list": [1]})]

    def test_a_pending_job_is_not_dispatched_twice(self, runner: Runner) -> None:
        self.dispatch(runner, [job()])
        self.dispatch(runner, [job()])

        assert runner.take_pending_jobs() == [job()]

    def test_another_run_of_a_step_is_another_job(self, runner: Runner) -> None:
        self.dispatch(runner, [job(run_id=0)])
        self.dispatch(runner, [job(run_id=1)])

        assert runner.take_pending_jobs() == [job(run_id=0), job(run_id=1)]

    def test_each_job_is_taken_by_one_of_many_threads(self, runner: Runner) -> None:
        jobs = [job(f"s{n}") for n in range(200)]

        def dispatch(part: int) -> list[DispatchJob]:
            for one in jobs[part * 50 : part * 50 + 50]:
                self.dispatch(runner, [one])
            return []

        def take(_: int) -> list[DispatchJob]:
            return [one for _ in range(60) for one in runner.take_pending_jobs()]

        with ThreadPoolExecutor(8) as pool:
            dispatched = [pool.submit(dispatch, part) for part in range(4)]
            futures = [*dispatched, *(pool.submit(take, n) for n in range(4))]
            taken = [one.step_id for future in futures for one in future.result()]
        taken += [one.step_id for one in runner.take_pending_jobs()]

        assert sorted(taken) == sorted(one.step_id for one in jobs)


class PairContract(RunnerFixtures):
    """What workers submit is gathered once, as pairs of step id and output."""

    def test_gather_returns_at_once(self, runner: Runner) -> None:
        assert self.gather(runner) == []

        self.dispatch(runner, [job()])

        assert self.gather(runner) == []

    def test_a_result_is_gathered_once(self, runner: Runner) -> None:
        self.dispatch(runner, [job("a"), job("b")])
        first, second = runner.take_pending_jobs()
        runner.submit_work_result(W, "a", {"n": 1}, first)
        runner.submit_work_result(W, "b", None, second)

        assert self.gather(runner) == [("a", {"n": 1}), ("b", None)]

        assert self.gather(runner) == []

    def test_results_go_to_their_own_execution(self, runner: Runner) -> None:
        for weid in (W, "w#e2"):
            self.dispatch(runner, [job(weid=weid, token=f"token of {weid}")])
        _, other = runner.take_pending_jobs()
        runner.submit_work_result("w#e2", "a", {"of": 2}, other)

        assert self.gather(runner) == []
        assert self.gather(runner, "w#e2") == [("a", {"of": 2})]

    def test_a_submitted_result_belongs_to_the_runner(self, runner: Runner) -> None:
        mine: dict[str, Any] = {"list": [1]}
        self.dispatch(runner, [job()])
        [taken] = runner.take_pending_jobs()
        runner.submit_work_result(W, "a", mine, taken)

        mine["list"].append("mine")

        assert self.gather(runner) == [("a", {"list": [1]})]


class ResultContract(RunnerFixtures):
    """Skipped unless the runner carries whole results: error, run_id, attempt and token."""

    def test_a_result_has_run_id_attempt_and_token(self, result_runner: ResultRunner) -> None:
        self.dispatch(result_runner, [job(run_id=3, attempt=2, token="t")])
        [taken] = result_runner.take_pending_jobs()
        result_runner.submit(result_of(taken, {"n": [1, {"ž": None}]}))

        [result] = self.take_results(result_runner)

        assert result == result_of(job(run_id=3, attempt=2, token="t"), {"n": [1, {"ž": None}]})

    def test_a_result_that_is_submitted_with_its_job_names_the_dispatch(
        self, result_runner: ResultRunner
    ) -> None:
        self.dispatch(result_runner, [job(run_id=1), job(run_id=2)])
        first, _ = result_runner.take_pending_jobs()

        result_runner.submit_work_result(W, "a", {"n": 1}, first)

        [result] = self.take_results(result_runner)
        assert (result.run_id, result.token, result.output) == (1, "a-1", {"n": 1})

    def test_an_error_is_returned_as_an_error(self, result_runner: ResultRunner) -> None:
        error = make_failure("exception", "boom", "ValueError")
        self.dispatch(result_runner, [job()])
        [taken] = result_runner.take_pending_jobs()
        result_runner.submit(result_of(taken, error=error))

        assert [(one.output, one.error) for one in self.take_results(result_runner)] == [(None, error)]

    def test_an_error_is_gathered_as_an_output(self, result_runner: ResultRunner) -> None:
        self.dispatch(result_runner, [job()])
        [taken] = result_runner.take_pending_jobs()
        result_runner.submit(result_of(taken, error=make_failure("exception", "boom")))

        assert self.gather(result_runner) == [("a", {"ok": False, "error": "boom"})]

    def test_an_output_that_looks_like_an_error_is_an_output(self, result_runner: ResultRunner) -> None:
        result_runner.submit_work_result(W, "a", {"ok": False, "error": "handled"}, job())

        [result] = self.take_results(result_runner)
        assert (result.output, result.error) == ({"ok": False, "error": "handled"}, None)

    def test_an_output_that_is_not_json_is_a_failure(self, result_runner: ResultRunner) -> None:
        result_runner.submit_work_result(W, "a", {"when": object()}, job())

        [result] = self.take_results(result_runner)
        assert result.error is not None
        assert result.error["kind"] == "bad_output"

    def test_of_two_results_of_one_dispatch_the_first_counts(self, result_runner: ResultRunner) -> None:
        self.dispatch(result_runner, [job()])
        [taken] = result_runner.take_pending_jobs()
        result_runner.submit(result_of(taken, {"by": "first"}))
        result_runner.submit(result_of(taken, {"by": "second"}))

        assert self.gather(result_runner) == [("a", {"by": "first"})]

    def test_a_job_with_a_result_is_no_longer_pending(self, result_runner: ResultRunner) -> None:
        self.dispatch(result_runner, [job()])

        result_runner.submit(result_of(job(), {"n": 1}))

        assert result_runner.take_pending_jobs() == []

    def test_returned_jobs_are_pending_again(self, result_runner: ResultRunner) -> None:
        self.dispatch(result_runner, [job("a"), job("b")])
        taken = result_runner.take_pending_jobs()

        result_runner.return_jobs(taken[1:])

        assert result_runner.take_pending_jobs() == [job("b")]

    @pytest.mark.parametrize("then", ["pending", "taken", "finished"])
    def test_a_job_of_an_earlier_execution_with_the_same_id_has_no_effect(
        self, result_runner: ResultRunner, then: str
    ) -> None:
        old, new = job(token="old"), job(token="new")
        self.dispatch(result_runner, [old])
        if then != "pending":
            result_runner.take_pending_jobs()
        if then == "finished":
            result_runner.submit(result_of(old, {"by": "old"}))

        self.dispatch(result_runner, [new])

        assert result_runner.take_pending_jobs() == [new]
        result_runner.submit(result_of(old, {"by": "old"}))
        result_runner.submit(result_of(new, {"by": "new"}))
        outputs = {one.token: one.output for one in self.take_results(result_runner)}
        assert outputs["new"] == {"by": "new"}

    def test_a_late_result_of_an_earlier_execution_leaves_the_new_job_pending(
        self, result_runner: ResultRunner
    ) -> None:
        old, new = job(token="old"), job(token="new")
        self.dispatch(result_runner, [old])
        result_runner.take_pending_jobs()
        self.dispatch(result_runner, [new])

        result_runner.submit(result_of(old, {"by": "old"}))

        assert result_runner.take_pending_jobs() == [new]
        assert "new" not in {one.token for one in self.take_results(result_runner)}

    def test_the_runner_holds_the_pending_and_finished_dispatches_of_an_execution(
        self, result_runner: ResultRunner
    ) -> None:
        if result_runner.held_tokens(W) is None:
            pytest.skip("the runner does not know which dispatches it holds")
        self.dispatch(result_runner, [job("a"), job("b")])
        self.dispatch(result_runner, [job("c", weid="w#e2")])
        result_runner.submit(result_of(job("b"), {}))

        assert result_runner.held_tokens(W) == {"a-0", "b-0"}

        self.take_results(result_runner)
        assert result_runner.held_tokens(W) == {"a-0"}

    def test_each_result_is_gathered_by_one_of_many_threads(self, result_runner: ResultRunner) -> None:
        def submit(part: int) -> ResultPairs:
            for n in range(50):
                result_runner.submit(result_of(job(f"s{part}-{n}"), {"n": n}))
            return []

        def gather(_: int) -> ResultPairs:
            return [pair for _ in range(60) for pair in self.gather(result_runner)]

        with ThreadPoolExecutor(8) as pool:
            submitted = [pool.submit(submit, part) for part in range(4)]
            futures = [*submitted, *(pool.submit(gather, n) for n in range(4))]
            gathered = [pair for future in futures for pair in future.result()]
        gathered += self.gather(result_runner)

        expected = [f"s{part}-{n}" for part in range(4) for n in range(50)]
        assert sorted(step_id for step_id, _ in gathered) == sorted(expected)


class LeaseContract(RunnerFixtures):
    """Skipped unless the runner leases jobs: take_jobs(), renew_leases() and acknowledge()."""

    def test_no_more_jobs_are_taken_than_the_limit(self, leased_runner: RunnerWithLeases) -> None:
        self.dispatch(leased_runner, [job(name) for name in "abc"])

        assert leased_runner.take_jobs(0) == []
        assert leased_runner.take_jobs(2) == [job("a"), job("b")]
        assert leased_runner.take_jobs(2) == [job("c")]
        assert leased_runner.take_jobs(2) == []

    def test_a_job_under_a_lease_is_held(self, leased_runner: RunnerWithLeases) -> None:
        self.dispatch(leased_runner, [job()])
        taken = leased_runner.take_jobs(1)

        leased_runner.renew_leases(taken)

        assert leased_runner.held_tokens(W) == {"a-0"}

    def test_results_are_returned_until_they_are_acknowledged(self, leased_runner: RunnerWithLeases) -> None:
        self.dispatch(leased_runner, [job("a"), job("b")])
        for one in leased_runner.take_jobs(2):
            leased_runner.submit(result_of(one, {"n": 1}))

        first, second = leased_runner.results(W)
        assert leased_runner.results(W) == [first, second]
        leased_runner.acknowledge([first])

        assert leased_runner.results(W) == [second]
        assert leased_runner.held_tokens(W) == {"b-0"}

    def test_acknowledging_twice_changes_nothing(self, leased_runner: RunnerWithLeases) -> None:
        self.dispatch(leased_runner, [job()])
        leased_runner.submit(result_of(leased_runner.take_jobs(1)[0], {"n": 1}))
        results = leased_runner.results(W)

        leased_runner.acknowledge(results)
        leased_runner.acknowledge(results)

        assert leased_runner.results(W) == []

    def test_a_job_is_no_longer_held_when_its_lease_has_expired(
        self, leased_runner: RunnerWithLeases
    ) -> None:
        if leased_runner.lease_s > MAX_TEST_LEASE_S:
            pytest.skip(f"the fixture `runner` has leases of more than {MAX_TEST_LEASE_S:g} s")
        self.dispatch(leased_runner, [job()])
        leased_runner.take_jobs(1)
        deadline = time.monotonic() + LEASE_PATIENCE_S

        while leased_runner.held_tokens(W):
            assert time.monotonic() < deadline
            time.sleep(0.05)

        assert leased_runner.take_jobs(1) == [], "the driver dispatches the step again, under a new token"


class RunnerContract(JobContract, PairContract, ResultContract, LeaseContract):
    """What every runner promises. A subclass defines the fixture `runner`."""
