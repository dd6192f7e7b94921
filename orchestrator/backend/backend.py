"""Backend: a Store and a Runner, and the only place where anything is written.

    checkout -> (a pure function decides) -> commit -> dispatch

Whoever decides checks a record out, and commits with it. A record that is checked out belongs to that one
caller: another one who asks for it meanwhile gets a copy of its own, and the store refuses the second commit.
Live records are kept in a cache, so that a commit costs what changed and not what the workflow holds; a stale
one is noticed by the version that every commit compares, the empty one too.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from threading import Lock
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.engine.create import new_record
from orchestrator.application.errors import InvalidSpec, RecordExists, StoreError
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
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_log import LogLine, filter_by_step
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_inputs, check_spec, load_spec
from orchestrator.application.values.payload_refs import PayloadStore, load, payload_limit
from orchestrator.backend import ids as identifiers
from orchestrator.backend.conflicts import resolve_conflict
from orchestrator.backend.copies import copy_json
from orchestrator.backend.memory import InMemoryStore, InProcessRunner
from orchestrator.backend.payloads import MemoryPayloads, find_payloads, store_large_inputs
from orchestrator.backend.ports import Commit, Committed, Runner, SharedStateStore, StepLogStore, Store
from orchestrator.backend.record_cache import RecordCache
from orchestrator.backend.results import ResultPairs, as_result_runner
from orchestrator.backend.runfox_api import RunfoxMethods, SharedStateAdapter, ensure_commit
from orchestrator.backend.shared_state import scope_owner
from orchestrator.backend.worker import ExecutorFunctions, InProcessWorker

SPEC_CACHE_SIZE = 64
MAX_ID_TRIES = 20

StateMerge = tuple[str, dict[str, Any], dict[str, Any], StateChangeEvent | None]
OnStateChange = Callable[..., None]
"""Called with workflow_execution_id, the state before, the state after and, if it takes four, the event."""


@runtime_checkable
class HistoryStore(Protocol):
    """What a store may know beside its records."""

    def full_id(self, execution_id: str) -> str: ...

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]: ...


@runtime_checkable
class BulkLoadStore(Protocol):
    """A store that loads many records in one round trip."""

    def load_many(self, ids: Sequence[str]) -> list[WorkflowRecord | StoreError]: ...


class Backend(RunfoxMethods):
    def __init__(
        self,
        executor: ExecutorFunctions | None = None,
        store: Store | None = None,
        runner: Runner | None = None,
        poll_interval: float = 0.1,
        on_state_change: OnStateChange | None = None,
        *,
        clock: Callable[[], int] = identifiers.now_ms,
        nonce: Callable[[], str] = identifiers.random_nonce,
        payloads: PayloadStore | None = None,
    ) -> None:
        """`executor` is for an InProcessWorker of the backend's own; `poll_interval` is the longest pause
        between two looks for results, in seconds; `payloads` keep large values, instead of the store's."""
        self._store = ensure_commit(store if store is not None else InMemoryStore())
        if not isinstance(self._store, SharedStateStore):
            self._store = SharedStateAdapter(self._store)
        self.shared_state = self._store.shared_state
        self.payloads = payloads or find_payloads(self._store) or MemoryPayloads()
        self._runner = as_result_runner(runner if runner is not None else InProcessRunner())
        if isinstance(self._runner, InProcessRunner) and self._runner.payloads is None:
            self._runner.payloads = self.payloads
        self.worker: InProcessWorker | None = None
        if executor is not None:
            self.worker = InProcessWorker(
                self._runner, executor, clock=clock, store=self._store, payloads=self.payloads
            )
        self.poll_interval, self.clock, self.nonce = poll_interval, clock, nonce
        self._on_state_change = on_state_change
        self._takes_event = on_state_change is not None and _takes_four(on_state_change)
        self._live = RecordCache()
        self._specs: OrderedDict[tuple[type, str], LoadedSpec] = OrderedDict()
        self._lock = Lock()
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
    ) -> str:
        """Start an execution of a spec, given as data or as YAML, and return its workflow_execution_id.

        Under an idempotency root that was used within its window, that is the id of the first execution; for
        an execution id that is taken, the conflict policy says what happens (conflicts.py).
        `webhook` is a URL, or a mapping as in a document, before whose own it comes.
        """
        loaded = self._loaded(spec)
        filled, problems = check_inputs(loaded.spec, store_large_inputs(inputs, self.payloads), inputs)
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
            )
            record = new_record(loaded, candidate, filled, event, moment)
            root = None if idempotency_root is None else (idempotency_root, idempotency_window_s)
            commit = Commit(record, Changes(moment.at_ms), creates=True, root=root)
            created = self._create(commit, conflict_policy if execution_id is not None else None)
            if created is not None:
                return created
        raise RecordExists(candidate)

    def loaded(self, value: Any, what: str = "outcome") -> Any:
        """A value of a record with what is kept of it by reference; PayloadMissing when that is gone."""
        return load(value, self.payloads.get, payload_limit(os.environ), what)

    def _create(self, commit: Commit, policy: ConflictPolicy | None) -> str | None:
        """The id of what a creation came to; None when its id is taken and no policy says what then."""
        for _ in range(MAX_ID_TRIES):
            [result] = self.commit([commit])
            match result:
                case Committed.YES:
                    return commit.record.workflow_execution_id
                case Committed.REPEATED if commit.root is not None:
                    return (
                        self.shared_state.find_by_root(commit.root[0]) or commit.record.workflow_execution_id
                    )
                case Committed.EXISTS if policy is None:
                    return None
                case Committed.EXISTS | Committed.CONFLICT if policy is not None:
                    settled = resolve_conflict(self, commit, policy, self.moment("create"))
                    if isinstance(settled, WorkflowRecord):
                        return settled.workflow_execution_id
                    commit = settled
                case _:
                    weid = commit.record.workflow_execution_id
                    raise StoreError(f"{weid!r} was not created: {result.value}")
        raise RecordExists(commit.record.execution_id)

    def load(self, workflow_execution_id: str) -> WorkflowRecord:
        """A copy of the record that is the caller's own."""
        return self._store.load(workflow_execution_id)

    def write(self, record: WorkflowRecord) -> None:
        """Put a whole record, whatever was there: for repairs, not for decisions."""
        self._store.write(record)
        self._live.take(record.workflow_execution_id)

    def find(self, execution_id: str) -> str:
        """The workflow_execution_id behind an id of either kind; RecordNotFound when there is none."""
        if isinstance(self._store, HistoryStore):
            return self._store.full_id(execution_id)
        return self._store.load(execution_id).workflow_execution_id

    def history(self, workflow_execution_id: str) -> list[dict[str, Any]]:
        """One entry per transition, the oldest first; nothing when the store keeps none."""
        return self._store.history(workflow_execution_id) if isinstance(self._store, HistoryStore) else []

    def lines(self, workflow_execution_id: str, step: str | None = None) -> list[LogLine]:
        """What executors said, the oldest first; nothing when the store keeps none."""
        found = self._store.lines(workflow_execution_id) if isinstance(self._store, StepLogStore) else []
        return filter_by_step(found, step)

    # ---- decisions

    def moment(self, cause: str = "") -> Moment:
        return Moment(self.clock(), self.nonce(), cause)

    def checkout(self, workflow_execution_id: str) -> WorkflowRecord:
        """The live record, to decide upon and to commit with."""
        live = self._live.take(workflow_execution_id)
        record = live if live is not None else self._store.load(workflow_execution_id)
        self.load_shared_values([record])
        return record

    def checkout_many(self, ids: Sequence[str]) -> dict[str, WorkflowRecord | StoreError]:
        """As checkout(), of many at once; what cannot be loaded is its error."""
        found: dict[str, WorkflowRecord | StoreError] = {}
        for one in ids:
            live = self._live.take(one)
            if live is not None:
                found[one] = live
        cold = [one for one in ids if one not in found]
        if isinstance(self._store, BulkLoadStore):
            found.update(zip(cold, self._store.load_many(cold) if cold else (), strict=True))
        else:
            found.update((one, self._load_or_error(one)) for one in cold)
        self.load_shared_values([record for record in found.values() if isinstance(record, WorkflowRecord)])
        return found

    def load_shared_values(self, records: Sequence[WorkflowRecord]) -> None:
        """Give records the values that executions share, as far as their specs may read them."""
        sharing = [record for record in records if record.loaded.uses_shared_values]
        if not sharing:
            return
        scopes = [(record, scope) for record in sharing for scope in ("global", "flow_group")]
        found = self.shared_state.shared([(scope, scope_owner(record, scope)) for record, scope in scopes])
        for (record, scope), values in zip(scopes, found, strict=True):
            record.shared[scope] = values

    def register(self, name: str, spec: dict[str, Any] | str) -> str:
        """Keep a spec under a name for steps that start it as their child; returns its workflow_id."""
        loaded = self._loaded(spec)
        self.shared_state.register(name, loaded)
        return loaded.workflow_id

    def spec_of(self, workflow_execution_id: str) -> LoadedSpec:
        """The spec that an execution is pinned to."""
        live = self._live.peek(workflow_execution_id)
        return (live or self._store.load(workflow_execution_id)).loaded

    def _load_or_error(self, workflow_execution_id: str) -> WorkflowRecord | StoreError:
        try:
            return self._store.load(workflow_execution_id)
        except StoreError as error:
            return error

    def drop_cached_records(self) -> None:
        """Drop what is kept in memory: after an outage nothing of it is sure."""
        self._live.clear()

    def commit(self, commits: Sequence[Commit]) -> list[Committed]:
        """Write decisions; records of refused ones are forgotten: check out again and decide again."""
        results = self._store.commit(commits)
        merges: list[StateMerge] = []
        for commit, result in zip(commits, results, strict=True):
            if result is Committed.YES:
                if self._on_state_change is not None:
                    merges += _merges(commit)
                commit.record.apply(commit.changes)
                self._live.keep(commit.record)
        try:
            for merge in merges:
                self.report_state_change(*merge)
        except BaseException:  # a warning that is an error, or ^C: nobody is told what to dispatch
            for commit in commits:
                self.mark_undelivered(commit.changes.jobs)
            raise
        return results

    def report_state_change(
        self, weid: str, before: dict[str, Any], after: dict[str, Any], event: StateChangeEvent | None
    ) -> None:
        """Call on_state_change. What it raises becomes a warning: an observer must not stop a workflow."""
        if self._on_state_change is None:
            return
        try:
            if self._takes_event:
                self._on_state_change(weid, before, after, event)
            else:
                self._on_state_change(weid, before, after)
        except Exception as error:
            warnings.warn(f"on_state_change failed: {error!r}", RuntimeWarning, stacklevel=2)

    # ---- jobs and results

    def dispatch(self, workflow_execution_id: str, jobs: Sequence[DispatchJob]) -> ResultPairs:
        """Hand jobs to the runner. Pairs it returns were run on the spot; they are for on_step_result()."""
        try:
            return self._runner.dispatch(workflow_execution_id, jobs)
        except BaseException:
            self.mark_undelivered(jobs)
            raise

    def gather(self, workflow_execution_id: str) -> ResultPairs:
        return self._runner.gather(workflow_execution_id)

    def results(self, workflow_execution_id: str) -> list[ResultEvent]:
        """What gather() returns, with error, run_id, attempt and token."""
        return self._runner.results(workflow_execution_id)

    def list_pending_jobs(self) -> list[DispatchJob]:
        return self._runner.list_pending_jobs()

    def take_pending_jobs(self) -> list[DispatchJob]:
        return self._runner.take_pending_jobs()

    def submit_work_result(
        self, workflow_execution_id: str, step_id: str, output: Any, job: DispatchJob | None = None
    ) -> None:
        self._runner.submit_work_result(workflow_execution_id, step_id, output, job)

    def mark_undelivered(self, jobs: Sequence[DispatchJob]) -> None:
        """Remember that these dispatches never reached the runner."""
        self._undelivered.update(job.token for job in jobs)

    def find_lost_dispatches(self, record: WorkflowRecord) -> list[LostEvent]:
        """Dispatches in a record that nobody will ever answer: their process died before this one began, or
        they never reached the runner; and the runner, which can tell, does not have them."""
        held_tokens = (
            self._runner.held_tokens(record.workflow_execution_id) if record.readiness.in_flight else None
        )
        if held_tokens is None:
            return []
        reason = "its process ended before its result was written"
        return [
            LostEvent(record.workflow_execution_id, step_id, step.run_id, step.attempt, step.token, reason)
            for step_id, step in record.units()
            if step.status is StepStatus.IN_PROGRESS
            and step.token is not None
            and step.token not in held_tokens
            if step.child is None
            if step.token in self._undelivered or (step.dispatched_at or "") < self._began_at
        ]

    # ---- keys

    def workflow_execution_id(self, record: WorkflowRecord) -> str:
        return record.workflow_execution_id

    def step_key(self, workflow_execution_id: str, step_id: str) -> str:
        return identifiers.step_key(workflow_execution_id, step_id)

    def step_run_key(self, workflow_execution_id: str, step_id: str, run_id: int) -> str:
        return identifiers.step_run_key(workflow_execution_id, step_id, run_id)

    # ---- what is kept in memory

    def _loaded(self, spec: Any) -> LoadedSpec:
        """The checked spec; many executions of one spec check it once."""
        key = (type(spec), spec if isinstance(spec, str) else repr(spec))
        with self._lock:
            loaded = self._specs.pop(key, None)
        if loaded is None:
            loaded = load_spec(spec) if isinstance(spec, str) else check_spec(deepcopy(spec))
        with self._lock:
            self._specs[key] = loaded
            if len(self._specs) > SPEC_CACHE_SIZE:
                self._specs.popitem(last=False)
        return loaded

    def _execution_ids(self, given: str | None) -> Iterator[str]:
        if given is not None:
            yield identifiers.check_execution_id(given)
            return
        for _ in range(MAX_ID_TRIES):
            yield identifiers.new_execution_id(self.clock(), self.nonce())


def _merges(commit: Commit) -> list[StateMerge]:
    """The state before and after each merge of a commit that is not applied yet, as copies."""
    merges: list[StateMerge] = []
    before = copy_json(commit.record.state) if commit.changes.merged else {}
    for step_id, output in commit.changes.merged:
        after = {**before, **copy_json(output)}
        merges.append((commit.record.workflow_execution_id, before, after, StateChangeEvent(step_id)))
        before = dict(after)
    return merges


def _takes_four(callback: OnStateChange) -> bool:
    try:
        inspect.signature(callback).bind(None, None, None, None)
    except TypeError:
        return False
    except ValueError:
        pass  # it tells nothing of itself: it gets everything
    return True
