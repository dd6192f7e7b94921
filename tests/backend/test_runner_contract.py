"""What every Runner promises."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backend.port_implementations import RUNNERS
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, make_failure
from orchestrator.backend.ports import LeasedRunner
from orchestrator.backend.results import ResultRunner

W = "w#e1"
RARE: dict[str, Any] = {
    "heartbeat_s": 0.5,
    "source": {"type": "t", "configuration": {"a": ["ž"]}},
    "tags": ("gpu",),
}


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ResultRunner]:
    with RUNNERS[request.param](tmp_path) as made:
        yield made


def job(step_id: str = "a", run_id: int = 0, weid: str = W, **keys: Any) -> DispatchJob:
    keys = {"inputs": {"n": 1}, "token": f"{step_id}-{run_id}", **keys}
    return DispatchJob(weid, step_id, fn=f"fn_{step_id}", run_id=run_id, **keys)


def answer(one: DispatchJob, output: Any = None, error: dict[str, Any] | None = None) -> ResultEvent:
    weid, step_id = one.workflow_execution_id, one.step_id
    return ResultEvent(weid, step_id, output, error, one.run_id, one.attempt, one.token, "host", "2026-01-01")


def take_results(runner: ResultRunner, weid: str = W) -> list[ResultEvent]:
    """The results, as a driver takes them: a runner with leases returns them until they are acknowledged."""
    results = runner.results(weid)
    if isinstance(runner, LeasedRunner):
        assert runner.results(weid) == results
        runner.acknowledge(results)
    assert runner.results(weid) == []
    return results


def test_gather_answers_at_once_and_has_nothing_yet(runner: ResultRunner) -> None:
    assert runner.gather(W) == []

    runner.dispatch(W, [job()])

    assert runner.gather(W) == []
    assert runner.results(W) == []


def test_pending_jobs_are_listed_whole_in_the_order_of_dispatch(runner: ResultRunner) -> None:
    jobs = [
        job(name, attempt=2, round=1, timeout_s=1.5, queue="q", inputs={"x": ["ž"]}, **RARE) for name in "cab"
    ]

    assert runner.dispatch(W, jobs) == []

    assert runner.list_pending_jobs() == jobs


def test_listing_is_a_snapshot(runner: ResultRunner) -> None:
    runner.dispatch(W, [job()])

    runner.list_pending_jobs()[0].inputs["n"] = "changed"
    runner.list_pending_jobs().clear()

    assert runner.list_pending_jobs() == [job()]


def test_a_job_is_taken_once(runner: ResultRunner) -> None:
    runner.dispatch(W, [job("a"), job("b")])
    runner.dispatch("w#e2", [job("a", weid="w#e2")])

    assert runner.take_pending_jobs() == [job("a"), job("b"), job("a", weid="w#e2")]

    assert runner.take_pending_jobs() == []
    assert runner.list_pending_jobs() == []


def test_a_job_belongs_to_the_runner_once_dispatched(runner: ResultRunner) -> None:
    mine = job(inputs={"list": [1]})
    runner.dispatch(W, [mine])

    mine.inputs["list"].append("mine")

    assert runner.take_pending_jobs() == [job(inputs={"list": [1]})]


def test_a_job_that_is_pending_is_not_dispatched_twice(runner: ResultRunner) -> None:
    runner.dispatch(W, [job()])
    runner.dispatch(W, [job()])

    assert runner.take_pending_jobs() == [job()]


def test_another_run_of_a_step_is_another_job(runner: ResultRunner) -> None:
    runner.dispatch(W, [job(run_id=0)])
    runner.dispatch(W, [job(run_id=1)])

    assert runner.take_pending_jobs() == [job(run_id=0), job(run_id=1)]


def test_what_was_submitted_is_gathered_once(runner: ResultRunner) -> None:
    runner.dispatch(W, [job("a"), job("b")])
    runner.take_pending_jobs()
    runner.submit_work_result(W, "a", {"n": 1})
    runner.submit_work_result(W, "b", None)

    assert runner.gather(W) == [("a", {"n": 1}), ("b", None)]

    assert runner.gather(W) == []


def test_results_go_to_their_own_execution(runner: ResultRunner) -> None:
    for weid in (W, "w#e2"):
        runner.dispatch(weid, [job(weid=weid)])
    runner.take_pending_jobs()
    runner.submit_work_result("w#e2", "a", {"of": 2})

    assert runner.gather(W) == []
    assert runner.gather("w#e2") == [("a", {"of": 2})]


def test_a_result_carries_all_that_fences_it(runner: ResultRunner) -> None:
    runner.dispatch(W, [job(run_id=3, attempt=2, token="t")])
    [taken] = runner.take_pending_jobs()
    runner.submit(answer(taken, {"n": [1, {"ž": None}]}))

    [result] = take_results(runner)

    assert result == answer(job(run_id=3, attempt=2, token="t"), {"n": [1, {"ž": None}]})


def test_a_job_given_with_a_result_names_the_dispatch(runner: ResultRunner) -> None:
    runner.dispatch(W, [job(run_id=1), job(run_id=2)])
    first, _ = runner.take_pending_jobs()

    runner.submit_work_result(W, "a", {"n": 1}, first)

    [result] = take_results(runner)
    assert (result.run_id, result.token, result.output) == (1, "a-1", {"n": 1})


def test_an_error_arrives_as_an_error_and_in_a_pair_as_an_output(runner: ResultRunner) -> None:
    error = make_failure("exception", "boom", "ValueError")
    runner.dispatch(W, [job("a"), job("b")])
    first, second = runner.take_pending_jobs()
    runner.submit(answer(first, error=error))

    assert [(one.output, one.error) for one in take_results(runner)] == [(None, error)]

    runner.submit(answer(second, error=error))
    assert runner.gather(W) == [("b", {"ok": False, "error": "boom"})]


def test_an_output_that_looks_like_an_error_is_an_output(runner: ResultRunner) -> None:
    runner.submit_work_result(W, "a", {"ok": False, "error": "handled"})

    assert [(one.output, one.error) for one in runner.results(W)] == [
        ({"ok": False, "error": "handled"}, None)
    ]


def test_an_output_that_is_not_json_is_a_failure(runner: ResultRunner) -> None:
    runner.submit_work_result(W, "a", {"when": object()})

    [result] = take_results(runner)
    assert result.error is not None
    assert result.error["kind"] == "bad_output"


def test_a_result_belongs_to_the_runner_once_submitted(runner: ResultRunner) -> None:
    mine: dict[str, Any] = {"list": [1]}
    runner.submit_work_result(W, "a", mine)

    mine["list"].append("mine")

    assert runner.gather(W) == [("a", {"list": [1]})]


def test_of_two_results_of_one_dispatch_the_first_counts(runner: ResultRunner) -> None:
    runner.dispatch(W, [job()])
    [taken] = runner.take_pending_jobs()
    runner.submit(answer(taken, {"by": "first"}))
    runner.submit(answer(taken, {"by": "second"}))

    assert runner.gather(W) == [("a", {"by": "first"})]


def test_a_job_with_a_result_is_no_longer_pending(runner: ResultRunner) -> None:
    runner.dispatch(W, [job()])

    runner.submit(answer(job(), {"n": 1}))

    assert runner.take_pending_jobs() == []


def test_jobs_that_were_given_back_are_pending_again(runner: ResultRunner) -> None:
    runner.dispatch(W, [job("a"), job("b")])
    taken = runner.take_pending_jobs()

    runner.return_jobs(taken[1:])

    assert runner.take_pending_jobs() == [job("b")]


@pytest.mark.parametrize("then", ["pending", "taken", "finished"])
def test_a_job_of_an_earlier_execution_with_the_same_id_has_no_effect(
    runner: ResultRunner, then: str
) -> None:
    old, new = job(token="old"), job(token="new")
    runner.dispatch(W, [old])
    if then != "pending":
        runner.take_pending_jobs()
    if then == "finished":
        runner.submit(answer(old, {"by": "old"}))

    runner.dispatch(W, [new])

    assert runner.take_pending_jobs() == [new]
    runner.submit(answer(old, {"by": "old"}))
    runner.submit(answer(new, {"by": "new"}))
    brought = {one.token: one.output for one in runner.results(W)}
    assert brought["new"] == {"by": "new"}


def test_a_late_result_of_that_one_leaves_the_new_job_pending(runner: ResultRunner) -> None:
    old, new = job(token="old"), job(token="new")
    runner.dispatch(W, [old])
    runner.take_pending_jobs()
    runner.dispatch(W, [new])

    runner.submit(answer(old, {"by": "old"}))

    assert runner.take_pending_jobs() == [new]
    assert "new" not in {one.token for one in runner.results(W)}


def test_the_runner_holds_what_is_pending_or_finished_of_one_execution(runner: ResultRunner) -> None:
    runner.dispatch(W, [job("a"), job("b")])
    runner.dispatch("w#e2", [job("c", weid="w#e2")])
    runner.submit(answer(job("b"), {}))

    assert runner.held_tokens(W) == {"a-0", "b-0"}

    take_results(runner)
    assert runner.held_tokens(W) == {"a-0"}


def test_among_threads_every_job_is_taken_exactly_once(runner: ResultRunner) -> None:
    jobs = [job(f"s{n}") for n in range(200)]

    def dispatch(part: int) -> list[DispatchJob]:
        for one in jobs[part * 50 : part * 50 + 50]:
            runner.dispatch(W, [one])
        return []

    def take(_: int) -> list[DispatchJob]:
        return [one for _ in range(60) for one in runner.take_pending_jobs()]

    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(dispatch, part) for part in range(4)] + [pool.submit(take, n) for n in range(4)]
        taken = [one.step_id for future in work for one in future.result()]
    taken += [one.step_id for one in runner.take_pending_jobs()]

    assert sorted(taken) == sorted(one.step_id for one in jobs)


def test_among_threads_every_result_is_gathered_exactly_once(runner: ResultRunner) -> None:
    def submit(part: int) -> list[tuple[str, Any]]:
        for n in range(50):
            runner.submit(answer(job(f"s{part}-{n}"), {"n": n}))
        return []

    def gather(_: int) -> list[tuple[str, Any]]:
        return [pair for _ in range(60) for pair in runner.gather(W)]

    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(submit, part) for part in range(4)] + [pool.submit(gather, n) for n in range(4)]
        gathered = [pair for future in work for pair in future.result()]
    gathered += runner.gather(W)

    assert sorted(step_id for step_id, _ in gathered) == sorted(
        f"s{p}-{n}" for p in range(4) for n in range(50)
    )
