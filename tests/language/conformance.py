"""One script on every backend: what it ends with must be the same.

A script is a document with its inputs, signals and executors. A backend runs it to its end; nothing sleeps
until a timer is due: when nothing else can happen, the clock is set to the next timer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from language.cases import Case
from language.laws import essence, owner_of
from language.redis_stage import RedisStage
from orchestrator import Backend, Workflow
from orchestrator.application.errors import RecordNotFound
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus
from orchestrator.backend import SqliteRunner, SqliteStore
from orchestrator.invocation.executors import Executor, Executors
from orchestrator.worker.harness import Harness
from worlds.documents import Json
from worlds.engine_checks import all_timers
from worlds.records import NOW_MS
from worlds.redis_world import RedisWorld
from worlds.waiting import in_thread, wait_until

LOCAL = ["memory, 1 thread", "memory, 4 threads", "sqlite"]
SCOPES = ("global", "flow_group")


@dataclass(frozen=True, slots=True)
class Script:
    """`signals` are sent before the first step runs; `replies` when a step of that id waits."""

    document: Json
    execution_id: str
    functions: Mapping[str, Executor] = field(default_factory=dict)
    inputs: Json | None = None
    group: str | None = None
    priority: int | None = None
    signals: Sequence[tuple[str, Any]] = ()
    replies: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    registered: Mapping[str, Json] = field(default_factory=dict)


def result(records: Sequence[WorkflowRecord], load_values: Callable[..., list[Json]]) -> Json:
    """What must be equal: records without times, workers, tokens, tracebacks and the state keys that
    concurrent steps both write, and the shared values."""
    owners = sorted({(scope, owner_of(one, scope)) for one in records for scope in SCOPES})
    shared = dict(zip(owners, load_values(owners), strict=True))
    return {
        "records": {one.execution_id: _without_tracebacks(_essence(one)) for one in records},
        "shared": {":".join(owner): values for owner, values in shared.items() if values},
    }


def _essence(record: WorkflowRecord) -> Json:
    comparable, racing = essence(record), _racing_keys(record)
    comparable["state"] = {key: value for key, value in comparable["state"].items() if key not in racing}
    return comparable


def _racing_keys(record: WorkflowRecord) -> set[str]:
    """The keys in the outputs of two steps of which neither waits for the other: the last result wins."""
    written = {step_id: set(step.output or ()) for step_id, step in record.steps.items()}
    below = {step_id: set(record.graph.descendants([step_id])) for step_id in written}
    return {
        key
        for one, other in combinations(written, 2)
        if other not in below[one] and one not in below[other]
        for key in written[one] & written[other]
    }


def _without_tracebacks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_tracebacks(one) for key, one in value.items() if key != "traceback"}
    return [_without_tracebacks(one) for one in value] if isinstance(value, list) else value


def family(load: Callable[[str], WorkflowRecord], execution_id: str) -> Iterator[WorkflowRecord]:
    """An execution, and the children that its steps have or had."""
    record = load(execution_id)
    yield record
    for step in record.steps.values():
        if step.child is not None:
            try:
                yield from family(load, step.child)
            except RecordNotFound:
                continue  # it has not started yet


def waits_in(records: Sequence[WorkflowRecord], script: Script) -> list[tuple[str, str, int]]:
    return [
        (record.workflow_execution_id, step_id, step.run_id)
        for record in records
        for step_id, step in record.steps.items()
        if step.status is StepStatus.WAITING and step_id in script.replies
    ]


def versions(records: Sequence[WorkflowRecord]) -> dict[str, object]:
    return {one.workflow_execution_id: one.version for one in records}


# ---- in one process


class LocalRun:
    """A script run by Workflow.run(). A thread beside it sends signals and sets the clock."""

    def __init__(self, backend_name: str, folder: Path) -> None:
        self.now_ms, self._replied = NOW_MS, set[tuple[str, str, int]]()
        self._name, self._folder = backend_name, folder

    @contextmanager
    def _backend(self, script: Script) -> Iterator[Backend]:
        threads = 4 if self._name == "memory, 4 threads" else 1
        options: dict[str, Any] = {"clock": lambda: self.now_ms, "poll_interval": 0.001, "threads": threads}
        if self._name == "sqlite":
            path = self._folder / "conformance.db"
            store, runner = SqliteStore(path), SqliteRunner(path)
            yield Backend(script.functions, store, runner, **options)
            store.close()
            runner.close()
        else:
            yield Backend(script.functions, **options)

    def __call__(self, script: Script) -> Json:
        with self._backend(script) as backend:
            for name, document in script.registered.items():
                backend.register(name, document)
            start: dict[str, Any] = {"group": script.group, "priority": script.priority}
            weid = backend.create(script.document, script.inputs, script.execution_id, **start)
            workflow = Workflow(weid, backend)
            for name, payload in script.signals:
                workflow.signal(name, payload)
            with in_thread(workflow.run) as running:
                wait_until(lambda: not running.is_alive() or self._let_time_pass(backend, script))
            return result(list(family(backend.load, weid)), backend.shared_state.load_values)

    def _let_time_pass(self, backend: Backend, script: Script) -> bool:
        """Send a signal or set the clock, if nothing else can happen. False: run() has not ended."""
        records = self._open(backend, script)
        is_busy = any(
            unit.token is not None and unit.child is None for one in records for _, unit in one.units()
        )
        if is_busy or backend.shared_state.outgoing_events() or self._has_due(records):
            return False
        for wait in waits_in(records, script):
            if wait not in self._replied:
                self._replied.add(wait)
                Workflow(wait[0], backend).signal(*script.replies[wait[1]])
                return False
        if versions(self._open(backend, script)) != versions(records):
            return False  # something did happen while the records were read, one after the other
        timers = [timer.due_ms for one in records for timer in all_timers(one)]
        self.now_ms = max(self.now_ms, min(timers, default=self.now_ms))
        return False

    def _open(self, backend: Backend, script: Script) -> list[WorkflowRecord]:
        return [one for one in family(backend.load, script.execution_id) if not one.is_final]

    def _has_due(self, records: Sequence[WorkflowRecord]) -> bool:
        return any(timer.due_ms <= self.now_ms for one in records for timer in all_timers(one))


# ---- on Redis


class FunctionsOf(Executors):
    """The executors of a script."""

    def __init__(self, functions: Mapping[str, Executor]) -> None:
        super().__init__(mapping={})
        self._given = functions

    def find(self, fn: str) -> Executor:
        return self._given[fn]


class RedisRun(RedisStage):
    """A script run by a coordinator and the harness of a worker, on a real Redis."""

    def __init__(self, world: RedisWorld) -> None:
        super().__init__(world)
        self._replied = set[tuple[str, str, int]]()

    def __call__(self, script: Script) -> Json:
        for name, document in script.registered.items():
            self.register(name, document)
        for name, payload in script.signals:
            self.send_signal(script.execution_id, name, payload)
        options = {"group": script.group, "priority": script.priority}
        self.start(script.document, script.inputs, execution_id=script.execution_id, **options)
        harness = Harness(self.world.client, FunctionsOf(script.functions), worker="tester")
        while any(not one.is_final for one in self._records(script)):
            while (payload := self.world.pop()) is not None:
                harness.run(payload)
            self.settle()
            if not self.world.waiting():
                self._let_time_pass(script)
        return result(self._records(script), self.world.store.load_values)

    def _records(self, script: Script) -> list[WorkflowRecord]:
        return list(family(self.world.record, script.execution_id))

    def _let_time_pass(self, script: Script) -> None:
        records = [one for one in self._records(script) if not one.is_final]
        for wait in waits_in(records, script):
            if wait not in self._replied:
                self._replied.add(wait)
                self.send_signal(wait[0], *script.replies[wait[1]])
                return
        timers = self.world.timers().values()
        if records and timers:
            self.pass_time(f"{max(int(min(timers)) - self.now_ms, 0)}ms")


# ---- scripts


def script_of(case: Case, payload: Callable[[str], Json]) -> Script:
    """The first start of a quiet case as a script."""
    start = case.starts[0]
    early = [(str(one.signal), payload(step)) for step, one in case.waits.items() if one.is_early]
    replies = {step: (str(one.signal), payload(step)) for step, one in case.waits.items() if one.signal}
    return Script(
        case.document,
        start.execution_id,
        {fn: case.function(fn) for fn in case.scripts},
        start.inputs,
        start.group,
        start.priority,
        early,
        replies,
        case.registered,
    )
