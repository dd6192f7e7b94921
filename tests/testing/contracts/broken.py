"""Stores and runners with one defect each. The contract tests must find every one of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_log import LogLine
from orchestrator.backend import InMemoryStore, InProcessRunner
from orchestrator.backend.ports import Commit, Committed
from orchestrator.backend.results import ResultPairs, as_pairs


class LosesUpdates(InMemoryStore):
    """A commit overwrites what another one has written since the record was loaded."""

    def _commit(self, commit: Commit) -> Committed:
        stored = self._executions.get(commit.record.workflow_execution_id)
        if stored is not None and not commit.creates:
            commit.record.version = stored.fields["version"]
        return super()._commit(commit)


class ComparesBeforeItLocks(InMemoryStore):
    """Two threads may both find the version that they expect."""

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        for commit in commits:
            stored = self._executions.get(commit.record.workflow_execution_id)
            if not commit.creates and stored and stored.fields["version"] == commit.record.version:
                time.sleep(0.001)
                commit.record.version = stored.fields["version"]
        return super().commit(commits)


class LeavesTheVersion(InMemoryStore):
    """A commit does not change the version."""

    def _commit(self, commit: Commit) -> Committed:
        before = commit.record.version
        result = super()._commit(commit)
        stored = self._executions.get(commit.record.workflow_execution_id)
        if before and stored is not None:
            commit.record.version = stored.fields["version"] = before
        return result


class SharesLoadedRecords(InMemoryStore):
    """The caller of load() gets the values of the store itself."""

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        return self._executions[self.full_id(workflow_execution_id)].record()


class SharesWrittenRecords(InMemoryStore):
    """The store keeps the values of the caller of write()."""

    def write(self, record: WorkflowRecord) -> None:
        stored = self._executions.get(record.workflow_execution_id)
        super().write(record)
        self._put(record, stored.history if stored else [])


class WritesRejectedCommits(InMemoryStore):
    """A rejected commit still writes its state."""

    def _commit(self, commit: Commit) -> Committed:
        result = super()._commit(commit)
        if result is Committed.CONFLICT and commit.record.workflow_execution_id in self._executions:
            self._executions[commit.record.workflow_execution_id].state.update(commit.changes.state)
        return result


class CreatesTwice(InMemoryStore):
    """A second execution with the same id replaces the first."""

    def _commit(self, commit: Commit) -> Committed:
        if commit.creates:
            self._full_ids.pop(commit.record.execution_id, None)
        return super()._commit(commit)


class StopsAtTheFirstRejection(InMemoryStore):
    """One rejected commit rejects the others of its batch."""

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        results: list[Committed] = []
        for commit in commits:
            if results and results[-1] is not Committed.YES:
                results.append(results[-1])
            else:
                results += super().commit([commit])
        return results


class KeepsDeletedItems(InMemoryStore):
    def _commit(self, commit: Commit) -> Committed:
        kept = {unit: item for unit, item in commit.changes.items.items() if item is not None}
        return super()._commit(_with(commit, items=kept))


class KeepsDeletedExecutions(InMemoryStore):
    def _drop(self, record: WorkflowRecord) -> None:
        pass


class ForgetsHistory(InMemoryStore):
    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]:
        return super().history(workflow_execution_id)[-1:]


class ReversesTheStepLog(InMemoryStore):
    def log_lines(self, workflow_execution_id: str) -> list[LogLine]:
        return super().log_lines(workflow_execution_id)[::-1]


class DeliversEventsTwice(InMemoryStore):
    """A commit does not acknowledge the events that it handles."""

    def _commit(self, commit: Commit) -> Committed:
        own = replace(commit, events=())
        result = super()._commit(own)
        commit.record.version = own.record.version
        return result


class HandlesEventsTwice(InMemoryStore):
    """A commit may handle an event that another has handled."""

    def _commit(self, commit: Commit) -> Committed:
        return super()._commit(replace(commit, pending_refs=()))


class LosesEvents(InMemoryStore):
    """Outgoing events are not stored."""

    def _commit(self, commit: Commit) -> Committed:
        return super()._commit(_with(commit, outgoing_events=[]))


class LosesIncrements(InMemoryStore):
    """An increment sets the value."""

    def _commit(self, commit: Commit) -> Committed:
        shared = [replace(one, is_increment=False) for one in commit.changes.shared]
        return super()._commit(_with(commit, shared=shared))


class GrantsEverySlot(InMemoryStore):
    """The limit of a slot does not count."""

    def _commit(self, commit: Commit) -> Committed:
        slots = [replace(one, slot=replace(one.slot, limit=99)) for one in commit.changes.slots]
        return super()._commit(_with(commit, slots=slots))


class ForgetsRoots(InMemoryStore):
    def _commit(self, commit: Commit) -> Committed:
        return super()._commit(replace(commit, idempotency_root=None))


class AdoptsOrphans(InMemoryStore):
    """A child is created although its parent no longer waits for it."""

    def _commit(self, commit: Commit) -> Committed:
        parent, commit.record.parent = commit.record.parent, None
        result = super()._commit(commit)
        commit.record.parent = parent
        return result


class RepeatsVersions(InMemoryStore):
    """The version is a bare counter."""

    def __init__(self) -> None:
        super().__init__(nonce=lambda: "same")


STORES = {
    LosesUpdates: "test_the_second_of_two_commits_to_one_version_is_rejected",
    ComparesBeforeItLocks: "test_no_commit_of_many_threads_is_lost",
    LeavesTheVersion: "test_a_commit_changes_only_the_version_of_its_record",
    SharesLoadedRecords: "test_a_loaded_record_belongs_to_the_caller",
    SharesWrittenRecords: "test_a_written_record_belongs_to_the_store",
    WritesRejectedCommits: "test_a_rejected_commit_changes_nothing",
    CreatesTwice: "test_an_execution_is_created_once",
    StopsAtTheFirstRejection: "test_commits_of_one_batch_are_written_or_rejected_alone",
    KeepsDeletedItems: "test_deleted_items_are_gone_and_the_others_stay",
    KeepsDeletedExecutions: "test_a_deleted_execution_is_gone",
    ForgetsHistory: "test_history_is_kept_in_order_and_belongs_to_the_caller",
    ReversesTheStepLog: "test_lines_are_kept_in_the_order_of_arrival",
    DeliversEventsTwice: "test_outgoing_events_are_kept_in_order_until_a_commit_acknowledges_them",
    HandlesEventsTwice: "test_one_of_many_commits_handles_an_outgoing_event",
    LosesEvents: "test_an_outgoing_event_is_loaded_as_it_was_stored",
    LosesIncrements: "test_no_increment_of_many_threads_is_lost",
    GrantsEverySlot: "test_the_limit_is_the_number_of_slots",
    ForgetsRoots: "test_the_second_start_under_a_root_is_rejected",
    AdoptsOrphans: "test_a_child_that_its_parent_does_not_wait_for_is_an_orphan",
    RepeatsVersions: "test_every_version_is_a_counter_and_a_nonce",
}
"""Each store, and a test that fails on it."""


def _with(commit: Commit, **changes: Any) -> Commit:
    return replace(commit, changes=replace(commit.changes, **changes))


# ---- runners


class ReturnsResultsTwice(InProcessRunner):
    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        return list(self._results.get(workflow_execution_id, {}).values())


class LosesJobs(InProcessRunner):
    """Of the pending jobs only the first reaches a worker."""

    def take_pending_jobs(self) -> list[DispatchJob]:
        return super().take_pending_jobs()[:1]


class GivesJobsTwice(InProcessRunner):
    def take_pending_jobs(self) -> list[DispatchJob]:
        return self.list_pending_jobs()


class TakesWithoutALock(InProcessRunner):
    """A job that is dispatched while another thread takes jobs is lost."""

    def take_pending_jobs(self) -> list[DispatchJob]:
        taken = list(self._pending.values())
        time.sleep(0.01)  # long enough for other threads, also on a busy machine
        self._pending = {}
        return taken


class SharesJobs(InProcessRunner):
    """The runner keeps the inputs of the caller of dispatch()."""

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        super().dispatch(workflow_execution_id, jobs)
        keys = {one.token: key for key, one in self._pending.items()}
        self._pending.update({keys[job.token]: job for job in jobs if job.token in keys})
        return []


class SharesOutputs(InProcessRunner):
    """The runner keeps the output of the caller of submit_work_result()."""

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        ids = () if job is None else (job.run_id, job.attempt, job.token)
        self.submit(ResultEvent(workflow_execution_id, step_id, output, None, *ids))


class MixesExecutions(InProcessRunner):
    """The results of all executions are gathered together."""

    def gather(self, workflow_execution_id: str) -> ResultPairs:
        return [pair for weid in list(self._results) for pair in as_pairs(self.results(weid))]


class TakesTheLastResult(InProcessRunner):
    def submit(self, result: ResultEvent) -> None:
        for results in self._results.values():
            for key, one in list(results.items()):
                if one.token == result.token:
                    del results[key]
        super().submit(result)


class DropsTokens(InProcessRunner):
    def submit(self, result: ResultEvent) -> None:
        super().submit(replace(result, token=None))


class HidesErrors(InProcessRunner):
    def submit(self, result: ResultEvent) -> None:
        super().submit(replace(result, error=None))


class LosesReturnedJobs(InProcessRunner):
    def return_jobs(self, jobs: Sequence[DispatchJob]) -> None:
        pass


RUNNERS = {
    ReturnsResultsTwice: "test_a_result_is_gathered_once",
    LosesJobs: "test_a_job_is_taken_once",
    GivesJobsTwice: "test_a_job_is_taken_once",
    TakesWithoutALock: "test_each_job_is_taken_by_one_of_many_threads",
    SharesJobs: "test_a_dispatched_job_belongs_to_the_runner",
    SharesOutputs: "test_a_submitted_result_belongs_to_the_runner",
    MixesExecutions: "test_results_go_to_their_own_execution",
    TakesTheLastResult: "test_of_two_results_of_one_dispatch_the_first_counts",
    DropsTokens: "test_a_result_has_run_id_attempt_and_token",
    HidesErrors: "test_an_error_is_returned_as_an_error",
    LosesReturnedJobs: "test_returned_jobs_are_pending_again",
}
"""Each runner, and a test that fails on it."""
