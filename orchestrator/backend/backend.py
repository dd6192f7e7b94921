"""Backend: a Store and a Runner. Every decision is written through it.

    checkout -> (a pure function decides) -> commit -> dispatch

The caller checks a record out, decides upon it, and commits it. A checked-out record belongs to that caller:
a second caller gets a copy of its own, and the store rejects the second commit.
Open records stay in a cache, so that a commit costs what changed and not what the workflow holds. Every
commit, also an empty one, compares the version, and so detects a cached record that is stale.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from copy import deepcopy
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.engine.create import new_record
from orchestrator.application.errors import InvalidSpec, RecordExists, StoreError
from orchestrator.application.explain.status_view import StatusView, may_be_queued
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.decisions import DispatchJob, StateChangeEvent
from orchestrator.application.records.events import (
    IDEMPOTENCY_WINDOW_S,
    ConflictPolicy,
    LostEvent,
    Moment,
    ResultEvent,
    StartEvent,
    iso,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.replay import Attempt, add_values, fields_at, list_attempts
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_log import LogLine, filter_by_step
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_inputs, check_spec, load_spec
from orchestrator.application.values.payload_refs import PayloadStore, load_payloads
from orchestrator.backend import ids as identifiers
from orchestrator.backend.conflicts import resolve_conflict
from orchestrator.backend.copies import copy_json
from orchestrator.backend.memory import InMemoryStore, InProcessRunner
from orchestrator.backend.payloads import MemoryPayloads, find_payloads, store_large_inputs
from orchestrator.backend.ports import (
    Commit,
    Committed,
    LeasedRunner,
    Runner,
    SharedStateStore,
    StepLogStore,
    Store,
)
from orchestrator.backend.record_cache import RecordCache
from orchestrator.backend.results import ResultPairs, as_result_runner
from orchestrator.backend.runfox_api import RunfoxMethods, SharedStateAdapter, ensure_commit
from orchestrator.backend.shared_state import scope_owner
from orchestrator.backend.spec_cache import SpecCache
from orchestrator.backend.status_changes import OnStatus, StatusChange, status_changes
from orchestrator.invocation.executors import ExecutorSource, resolve_executors
from orchestrator.settings import THREADS, Settings, check_history_mode

SPEC_CACHE_SIZE = 64
MAX_ID_TRIES = 20

StateMerge = tuple[str, dict[str, Any], dict[str, Any], StateChangeEvent | None]
OnStateChange = Callable[..., None]
"""Called with the workflow_execution_id, the state before and after and, if it takes four, the event."""


@runtime_checkable
class HistoryStore(Protocol):
    """A store that also finds executions by either id and keeps their history."""

    def full_id(self, execution_id: str) -> str: ...

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]: ...


@runtime_checkable
class BulkLoadStore(Protocol):
    """A store that loads many records in few round trips: all, or the first ones until they have
    `max_bytes`."""

    def load_many(self, ids: Sequence[str]) -> list[WorkflowRecord | StoreError]: ...

    def load_some(self, ids: Sequence[str], max_bytes: int) -> list[WorkflowRecord | StoreError]: ...


@runtime_checkable
class QueueStore(Protocol):
    """A store that also knows the units of an execution whose job no worker has taken."""

    def queued_units(self, record: WorkflowRecord) -> Set[str]: ...


class Backend(RunfoxMethods):
    def __init__(
        self,
        executor: ExecutorSource | None = None,
        store: Store | None = None,
        runner: Runner | None = None,
        poll_interval: float = 0.1,
        on_state_change: OnStateChange | None = None,
        *,
        on_status: OnStatus | None = None,
        clock: Callable[[], int] = identifiers.now_ms,
        nonce: Callable[[], str] = identifiers.random_nonce,
        payloads: PayloadStore | None = None,
        settings: Settings | None = None,
        threads: int = THREADS,
        history: str | None = None,
    ) -> None:
        """Without arguments everything is in memory.

        `executor` runs the steps when Workflow.run() is called without a worker, up to `threads` of them at
        once: a function for all names, a mapping of names to functions, or one or several names of modules.
        For names that a mapping or a module lacks, the built-in executors and those of installed packages are
        used. Without `executor`, workers elsewhere run the steps. `poll_interval` is the longest pause
        between two queries for results, in seconds. `payloads` keeps large values; by default the store's own
        payload store does. `settings` are read from the environment by default. `on_status` is called with a
        StatusChange for each step that changed its status, after the commit. `history` is what the history of
        an execution has, `moves` or `full`, unless its document has a key `history`; by default the settings
        say so.
        """
        self.store = ensure_commit(store if store is not None else InMemoryStore())
        if not isinstance(self.store, SharedStateStore):
            self.store = SharedStateAdapter(self.store)
        self.shared_state = self.store.shared_state
        self.payloads = payloads or find_payloads(self.store) or MemoryPayloads()
        self.runner = as_result_runner(runner if runner is not None else InProcessRunner())
        self.leased_runner = self.runner if isinstance(self.runner, LeasedRunner) else None
        if isinstance(self.runner, InProcessRunner) and self.runner.payloads is None:
            self.runner.payloads = self.payloads
        if threads < 1:
            raise ValueError(f"threads must be 1 or more, not {threads}")
        self.executor = None if executor is None else resolve_executors(executor)
        self.threads = threads
        self.call_environment: Any = None  # Workflow.run() sets it
        self.settings = settings if settings is not None else Settings.from_environment()
        self.poll_interval, self.clock, self.nonce = poll_interval, clock, nonce
        self.history_mode = check_history_mode(history if history is not None else self.settings.history)
        self._on_state_change = on_state_change
        self._on_status = on_status
        self._takes_event = on_state_change is not None and _takes_four(on_state_change)
        self._live = RecordCache()
        self._specs = SpecCache[tuple[type, str]](SPEC_CACHE_SIZE)
        self._began_at = iso(clock())
        self._undelivered: set[str] = set()

    # ---- records

    def create(
        self,
        spec: dict[str, Any] | str,
        inputs: dict[str, Any] | None = None,
        execution_id: str | None = None,
        *,
        conflict_policy: ConflictPolicy = "fail",
        labels: dict[str, str] | None = None,
        group: str | None = None,
        priority: int | None = None,
        idempotency_root: str | None = None,
        idempotency_window_s: int = IDEMPOTENCY_WINDOW_S,
        webhook: str | dict[str, Any] | None = None,
        traceparent: str | None = None,
    ) -> str:
        """Start an execution of a spec, given as data or as YAML, and return its workflow_execution_id.

        If the idempotency root was used within its window, the id is that of the first execution. If the
        execution id is taken, the conflict policy decides (conflicts.py). `webhook` is a URL or a mapping as
        in a document, and overrides the document's own.
        """
        loaded = self._check_spec(spec)
        filled, problems = check_inputs(loaded.spec, self._store_large(inputs), inputs)
        if problems:
            raise InvalidSpec(problems)
        filled = copy_json(filled)
        for candidate in self._execution_ids(execution_id):
            moment = Moment(self.clock(), nonce="")  # nothing is dispatched yet
            event = StartEvent(
                inputs=filled,
                labels=labels or {},
                group=group,
                priority=priority,
                idempotency_root=idempotency_root,
                webhook=webhook,
                traceparent=traceparent,
            )
            record = new_record(loaded, candidate, filled, event, moment)
            root = None if idempotency_root is None else (idempotency_root, idempotency_window_s)
            commit = Commit(record, Changes(moment.at_ms), creates=True, idempotency_root=root)
            created = self._create(commit, conflict_policy if execution_id is not None else None)
            if created is not None:
                return created
        raise RecordExists(candidate)

    def load_payloads(self, value: Any, what: str = "outcome") -> Any:
        """Replace the references in a value by the large values; PayloadMissing if one is missing."""
        return load_payloads(value, self.payloads.get, self.settings.payload_max_bytes, what)

    def _store_large(self, inputs: dict[str, Any] | None) -> dict[str, Any] | None:
        return store_large_inputs(inputs, self.payloads, self.settings.payload_max_bytes)

    def _create(self, commit: Commit, policy: ConflictPolicy | None) -> str | None:
        """The id of the new or existing execution; None if the id is taken and there is no policy."""
        for _ in range(MAX_ID_TRIES):
            [result] = self.commit([commit])
            match result:
                case Committed.YES:
                    return commit.record.workflow_execution_id
                case Committed.REPEATED if commit.idempotency_root is not None:
                    first = self.shared_state.find_by_root(commit.idempotency_root[0])
                    return first or commit.record.workflow_execution_id
                case Committed.EXISTS if policy is None:
                    return None
                case Committed.EXISTS | Committed.CONFLICT if policy is not None:
                    resolved = resolve_conflict(self, commit, policy, self.moment("create"))
                    if isinstance(resolved, WorkflowRecord):
                        return resolved.workflow_execution_id
                    commit = resolved
                case _:
                    weid = commit.record.workflow_execution_id
                    raise StoreError(f"{weid!r} was not created: {result.value}")
        raise RecordExists(commit.record.execution_id)

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        """Load a record as a copy that belongs to the caller."""
        return self.store.load(workflow_execution_id)

    def status_view(self, workflow_execution_id: str) -> StatusView:
        """A record together with its units whose job no worker has taken."""
        record = self.load(workflow_execution_id)
        if not any(may_be_queued(unit) for _, unit in record.units()):
            return StatusView(record)
        if isinstance(self.store, QueueStore):
            return StatusView(record, self.store.queued_units(record))
        tokens = {job.token for job in self.list_pending_jobs()}
        return StatusView(record, {unit for unit, step in record.units() if step.token in tokens})

    def write(self, record: WorkflowRecord) -> None:
        """Write a whole record over what is stored: for repairs, not for decisions. Raises RecordConflict for
        a record that was loaded and has changed since."""
        self.store.write(record)
        self._live.pop(record.workflow_execution_id)

    def find(self, execution_id: str) -> str:
        """The workflow_execution_id for either kind of id; RecordNotFound when there is no such execution."""
        if isinstance(self.store, HistoryStore):
            return self.store.full_id(execution_id)
        return self.store.load(execution_id).workflow_execution_id

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]:
        """One entry per transition, the oldest first; empty when the store keeps no history. Where it keeps
        values, entries have the number of their `commit`, the `inputs` of a dispatch, and the `output`."""
        return list(add_values(self._entries(workflow_execution_id)))

    def attempts(self, workflow_execution_id: str, step: str | None = None) -> list[Attempt] | None:
        """Every attempt with its inputs, output and error; None when the history has no values."""
        return list_attempts(self._entries(workflow_execution_id), step)

    def fields_at(self, workflow_execution_id: str, commit: int) -> dict[str, Any]:
        """The fields of the record after a commit, without secrets; HistoryNotKept if they are not kept."""
        return fields_at(self._entries(workflow_execution_id), commit)

    def _entries(self, workflow_execution_id: str) -> list[dict[str, Any]]:
        return self.store.history(workflow_execution_id) if isinstance(self.store, HistoryStore) else []

    def log_lines(self, workflow_execution_id: str, step: str | None = None) -> list[LogLine]:
        """The step log of an execution or of one step, oldest first; empty when the store keeps none."""
        found = self.store.log_lines(workflow_execution_id) if isinstance(self.store, StepLogStore) else []
        return filter_by_step(found, step)

    lines = log_lines
    """The former name of log_lines()."""

    # ---- decisions

    def moment(self, cause: str = "") -> Moment:
        return Moment(self.clock(), self.nonce(), cause)

    def checkout(self, workflow_execution_id: str) -> WorkflowRecord:
        """Take the cached record or load it, to decide upon it and commit it."""
        live = self._live.pop(workflow_execution_id)
        record = live if live is not None else self.store.load(workflow_execution_id)
        if record.loaded.uses_shared_values:
            self.load_shared_values([record])
        return record

    def checkout_many(
        self, ids: Sequence[str], max_bytes: int | None = None
    ) -> dict[str, WorkflowRecord | StoreError]:
        """Check many records out at once; the value is the error for a record that cannot be loaded. When the
        loaded records have `max_bytes`, the others are left out."""
        found: dict[str, WorkflowRecord | StoreError] = {}
        for one in ids:
            live = self._live.pop(one)
            if live is not None:
                found[one] = live
        cold = [one for one in ids if one not in found]
        if cold:
            found.update(zip(cold, self._load_cold(cold, max_bytes), strict=False))
        self.load_shared_values([record for record in found.values() if isinstance(record, WorkflowRecord)])
        return found

    def _load_cold(self, ids: Sequence[str], max_bytes: int | None) -> list[WorkflowRecord | StoreError]:
        if not isinstance(self.store, BulkLoadStore):
            return [self._load_or_error(one) for one in ids]
        return self.store.load_many(ids) if max_bytes is None else self.store.load_some(ids, max_bytes)

    def is_cached(self, workflow_execution_id: str) -> bool:
        """Whether a record is in memory."""
        return self._live.peek(workflow_execution_id) is not None

    def check_in(self, record: WorkflowRecord) -> None:
        """Keep a record that was checked out and not decided upon."""
        self._live.put(record)

    def load_shared_values(self, records: Sequence[WorkflowRecord]) -> None:
        """Load the shared values of records whose specs may read them."""
        sharing = [record for record in records if record.loaded.uses_shared_values]
        if not sharing:
            return
        scopes = [(record, scope) for record in sharing for scope in ("global", "flow_group")]
        owners = [(scope, scope_owner(record, scope)) for record, scope in scopes]
        for (record, scope), values in zip(scopes, self.shared_state.load_values(owners), strict=True):
            record.shared[scope] = values

    def register(self, name: str, spec: dict[str, Any] | str) -> str:
        """Register a spec under a name, for steps that start it as a child; returns its workflow_id."""
        loaded = self._check_spec(spec)
        self.shared_state.register(name, loaded)
        return loaded.workflow_id

    def spec_of(self, workflow_execution_id: str) -> LoadedSpec:
        """The spec that an execution is pinned to."""
        live = self._live.peek(workflow_execution_id)
        return (live or self.store.load(workflow_execution_id)).loaded

    def _load_or_error(self, workflow_execution_id: str) -> WorkflowRecord | StoreError:
        try:
            return self.store.load(workflow_execution_id)
        except StoreError as error:
            return error

    def drop_cached_records(self) -> None:
        """Empty the record cache: after an outage its records may be stale."""
        self._live.clear()

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """Write decisions. After a rejected commit, check the record out again and decide again."""
        for commit in commits:
            commit.has_delta = (commit.record.spec.history or self.history_mode) == "full"
        results = self.store.commit(commits)
        merges: list[StateMerge] = []
        changed: list[StatusChange] = []
        for commit, result in zip(commits, results, strict=True):
            if result is Committed.YES:
                if self._on_state_change is not None:
                    merges += _merges(commit)
                commit.record.apply(commit.changes)
                commit.record.size += commit.written_bytes
                if self._on_status is not None:
                    changed += status_changes(commit)
                self._live.put(commit.record)
        try:
            for merge in merges:
                self.report_state_change(*merge)
            for change in changed:
                self._report_status(change)
        except BaseException:  # a warning turned into an error, or ^C: the caller does not dispatch the jobs
            for commit in commits:
                self.mark_undelivered(commit.changes.jobs)
            raise
        return results

    def report_state_change(
        self, weid: str, before: dict[str, Any], after: dict[str, Any], event: StateChangeEvent | None
    ) -> None:
        """Call on_state_change. Its exceptions become warnings: an observer must not stop a workflow."""
        if self._on_state_change is None:
            return
        try:
            if self._takes_event:
                self._on_state_change(weid, before, after, event)
            else:
                self._on_state_change(weid, before, after)
        except Exception as error:
            warnings.warn(f"on_state_change failed: {error!r}", RuntimeWarning, stacklevel=2)

    def _report_status(self, change: StatusChange) -> None:
        """Call on_status. Its exceptions become warnings, as those of on_state_change do."""
        assert self._on_status is not None
        try:
            self._on_status(change)
        except Exception as error:
            warnings.warn(f"on_status failed: {error!r}", RuntimeWarning, stacklevel=2)

    # ---- jobs and results

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        """Give jobs to the runner. Returns the results of jobs that ran at once, for on_step_result()."""
        try:
            return self.runner.dispatch(workflow_execution_id, jobs) or []
        except BaseException:
            self.mark_undelivered(jobs)
            raise

    def gather(self, workflow_execution_id: str) -> ResultPairs:
        return self.runner.gather(workflow_execution_id)

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        """The results that gather() returns, with error, run_id, attempt and token. A LeasedRunner returns
        them again until they are acknowledged."""
        return self.runner.results(workflow_execution_id)

    def acknowledge(self, results: Sequence[ResultEvent]) -> None:
        """Delete results of results() that are applied or dropped, after the commit. Does nothing if the
        runner returns each result once."""
        if results and self.leased_runner is not None:
            self.leased_runner.acknowledge(results)

    def list_pending_jobs(self) -> list[DispatchJob]:
        return self.runner.list_pending_jobs()

    def take_pending_jobs(self) -> list[DispatchJob]:
        return self.runner.take_pending_jobs()

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        self.runner.submit_work_result(workflow_execution_id, step_id, output, job)

    def mark_undelivered(self, jobs: Sequence[DispatchJob]) -> None:
        """Note that these dispatches never reached the runner."""
        self._undelivered.update(job.token for job in jobs)

    def find_lost_dispatches(self, record: WorkflowRecord) -> list[LostEvent]:
        """A LostEvent for each dispatch that will never have a result: the runner does not have it.

        A LeasedRunner may not have it yet, because another process is between the commit and the dispatch:
        it is lost after `lease_s`. Without leases it is lost if its process died before this one started.
        """
        held_tokens = (
            self.runner.held_tokens(record.workflow_execution_id) if record.readiness.in_flight else None
        )
        if held_tokens is None:
            return []
        before, reason = self._began_at, "its process ended before its result was written"
        if self.leased_runner is not None:
            lease_ms = round(self.leased_runner.lease_s * 1000)
            before, reason = iso(self.clock() - lease_ms), "its lease has expired"
        return [
            LostEvent(record.workflow_execution_id, step_id, step.run_id, step.attempt, step.token, reason)
            for step_id, step in record.units()
            if step.status is StepStatus.IN_PROGRESS
            and step.token is not None
            and step.token not in held_tokens
            if step.child is None
            if step.token in self._undelivered or (step.dispatched_at or "") < before
        ]

    # ---- keys

    def workflow_execution_id(self, record: WorkflowRecord) -> str:
        return record.workflow_execution_id

    def step_key(self, workflow_execution_id: str, step_id: str) -> str:
        return identifiers.step_key(workflow_execution_id, step_id)

    def step_run_key(self, workflow_execution_id: str, step_id: str, run_id: int) -> str:
        return identifiers.step_run_key(workflow_execution_id, step_id, run_id)

    # ---- helpers of create() and register()

    def _check_spec(self, spec: Any) -> LoadedSpec:
        """Check a spec, once for many executions of it."""
        key = (type(spec), spec if isinstance(spec, str) else repr(spec))
        loaded = self._specs.get(key)
        if loaded is None:
            loaded = load_spec(spec) if isinstance(spec, str) else check_spec(deepcopy(spec))
            self._specs.put(key, loaded)
        return loaded

    def _execution_ids(self, requested: str | None) -> Iterator[str]:
        """The requested id, or random ones to try."""
        if requested is not None:
            yield identifiers.check_execution_id(requested)
            return
        for _ in range(MAX_ID_TRIES):
            yield identifiers.new_execution_id(self.clock(), self.nonce())


def _merges(commit: Commit) -> list[StateMerge]:
    """Copies of the state before and after each change of a commit that is not applied yet."""
    merges: list[StateMerge] = []
    before = copy_json(commit.record.state) if commit.changes.merged else {}
    for step_id, output, removed in commit.changes.merged:
        after = {**before, **copy_json(output)}
        for key in removed:
            after.pop(key, None)
        merges.append((commit.record.workflow_execution_id, before, after, StateChangeEvent(step_id)))
        before = dict(after)
    return merges


def _takes_four(callback: OnStateChange) -> bool:
    try:
        inspect.signature(callback).bind(None, None, None, None)
    except TypeError:
        return False
    except ValueError:
        pass  # it has no signature: pass all four
    return True
