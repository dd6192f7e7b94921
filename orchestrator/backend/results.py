"""Results in two forms: complete ResultEvents, and the pairs (step_id, output) that gather() returns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent, make_failure
from orchestrator.backend.copies import NotJson, to_plain_json
from orchestrator.backend.ports import Runner

ResultPairs = list[tuple[str, Any]]


@runtime_checkable
class ResultRunner(Runner, Protocol):
    """A Runner that carries complete results: with error, run_id, attempt and token."""

    def submit(self, result: ResultEvent) -> None:
        """Submit the result of one dispatch. If a dispatch has two results, the first one counts."""
        ...

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        """The results that gather() returns, complete. Never waits; returns each result once, or, by a
        LeasedRunner, until it is acknowledged."""
        ...

    def held_tokens(self, workflow_execution_id: str) -> set[str] | None:
        """The tokens of the dispatches that this runner still holds; None if it cannot tell."""
        ...

    def return_jobs(self, jobs: Sequence[DispatchJob]) -> None:
        """Make taken jobs that were not run pending again."""
        ...


def as_result_runner(runner: Runner) -> ResultRunner:
    return runner if isinstance(runner, ResultRunner) else PairRunnerAdapter(runner)


class PairRunnerAdapter:
    """Makes a ResultRunner of a Runner that only has pairs: an error becomes an output, as in runfox."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        return self._runner.dispatch(workflow_execution_id, jobs)

    def gather(self, workflow_execution_id: str) -> ResultPairs:
        return self._runner.gather(workflow_execution_id)

    def list_pending_jobs(self) -> list[DispatchJob]:
        return self._runner.list_pending_jobs()

    def take_pending_jobs(self) -> list[DispatchJob]:
        return self._runner.take_pending_jobs()

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        self._runner.submit_work_result(workflow_execution_id, step_id, output)

    def submit(self, result: ResultEvent) -> None:
        [(step_id, output)] = as_pairs([result])
        self._runner.submit_work_result(result.workflow_execution_id, step_id, output)

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        return as_results(workflow_execution_id, self._runner.gather(workflow_execution_id))

    def held_tokens(self, workflow_execution_id: str) -> None:
        return None

    def return_jobs(self, jobs: Sequence[DispatchJob]) -> None:
        for job in jobs:
            self._runner.dispatch(job.workflow_execution_id, [job])


def make_result(
    workflow_execution_id: str,
    step_id: str,
    output: Any,
    job: DispatchJob | None = None,
    error: dict[str, Any] | None = None,
) -> ResultEvent:
    """Build a result from what a caller submits. Without a job only the step's status fences it."""
    try:
        output = to_plain_json(output)
    except NotJson as problem:
        output, error = None, error or make_failure("bad_output", f"the output is not JSON: {problem}")
    if job is None:
        return ResultEvent(workflow_execution_id, step_id, output, error)
    return ResultEvent(workflow_execution_id, step_id, output, error, job.run_id, job.attempt, job.token)


def as_results(workflow_execution_id: str, pairs: ResultPairs | None) -> list[ResultEvent]:
    """The results of pairs. A Runner of the user may return None for no pairs."""
    return [make_result(workflow_execution_id, step_id, output) for step_id, output in pairs or ()]


def as_pairs(results: Iterable[ResultEvent]) -> ResultPairs:
    """The pairs of results; an error has the shape in which branches see it."""
    return [(one.step_id, one.output if one.error is None else _error_output(one.error)) for one in results]


def _error_output(error: Mapping[str, Any]) -> dict[str, Any]:
    return {"ok": False, "error": str(error.get("message", ""))}
