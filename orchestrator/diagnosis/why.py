"""Explains why an execution makes no progress: the reasons of its record, and what Redis shows for each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any

from orchestrator.application.errors import OrchestratorError, RecordNotFound
from orchestrator.application.explain.reasons import Reason, ReasonCode, explain_execution, explain_unit
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import make_record_view
from orchestrator.diagnosis.concurrency import explain_slot
from orchestrator.diagnosis.dispatches import explain_dispatch
from orchestrator.diagnosis.missing_executors import explain_missing_executor
from orchestrator.diagnosis.not_started import execution_of_start, explain_missing_execution
from orchestrator.diagnosis.snapshot import REPAIR_ADVICE, RedisReasonCode, RedisSnapshot
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queued_units import read_status_view
from orchestrator.redis_rq.store import RedisStore

MAX_CHILD_DEPTH = 5
"""Children are explained down to this depth."""
MAX_HISTORY_ENTRIES = 200
MAX_REDIS_LOOKUPS = 20
"""Only this many dispatches and slots are looked up in Redis: an execution may have thousands."""


class UnknownStep(OrchestratorError):
    """The execution has no step of that name."""

    exit_code = 2

    def __init__(self, record: WorkflowRecord, step: str) -> None:
        known = [*record.steps, *record.items]
        close = get_close_matches(step, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        super().__init__(f"execution {record.execution_id!r} has no step {step!r}{hint}")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an execution makes no progress.

    `status` is None if no execution has the id, or not yet. `children` are the executions that it waits for,
    or whose failure made it fail.
    """

    execution_id: str
    workflow_execution_id: str | None
    status: str | None
    reasons: tuple[Reason, ...]
    children: tuple[Explanation, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether there is no such execution, and no start event for it is waiting."""
        return self.status is None and all(one.code != RedisReasonCode.START_WAITS for one in self.reasons)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def why(client: Client, keys: Keys, execution_id: str, step: str = "") -> Explanation:
    """Explain why an execution, or one of its steps, makes no progress.

    `execution_id` is an execution id, a full id, or the entry id of a start. Raises RecordNotFound if the id
    is unknown, and UnknownStep if the execution has no such step.
    """
    return _Explainer(RedisSnapshot(client, keys)).explain(execution_id, step)


class _Explainer:
    def __init__(self, snapshot: RedisSnapshot) -> None:
        self._snapshot, self._store = snapshot, RedisStore(snapshot.client, snapshot.keys)

    def explain(self, execution_id: str, step: str = "", depth: int = 0) -> Explanation:
        snapshot = self._snapshot
        try:
            full_id = self._store.full_id(execution_id)
        except RecordNotFound:
            full_id = execution_of_start(snapshot, execution_id) or ""
        try:
            record = self._store.load(full_id or execution_id)
        except RecordNotFound:
            return self._explain_missing(execution_id, full_id)
        found = self._explain_record(record, step)
        redact = make_record_view(record).text
        reasons = tuple(
            replace(one, words=redact(one.words)) for one in self._add_redis_reasons(record, found)
        )
        if not record.is_final:
            reasons += tuple(snapshot.explain_coordinators(record.workflow_execution_id))
        return Explanation(
            record.execution_id,
            record.workflow_execution_id,
            record.status.value,
            reasons,
            tuple(self.explain(child, depth=depth + 1) for child in self._children(record, found, depth)),
        )

    def _explain_missing(self, execution_id: str, full_id: str) -> Explanation:
        short_id = execution_id.partition("#")[2] or execution_id
        found = explain_missing_execution(self._snapshot, short_id)
        if full_id and "#" not in execution_id:
            key = self._snapshot.keys.execution(execution_id)
            words = f"{key} points to {full_id}, but that record does not exist"
            found.insert(0, Reason(RedisReasonCode.RECORD_GONE, words, advice=REPAIR_ADVICE))
        if not found:
            raise RecordNotFound(execution_id)
        return Explanation(short_id, None, None, tuple(found))

    def _explain_record(self, record: WorkflowRecord, step: str) -> list[Reason]:
        now_ms, since_ms = self._snapshot.now, self._status_since_ms(record)
        view = read_status_view(self._snapshot.client, self._snapshot.keys, record)
        if not step:
            return explain_execution(view, now_ms, since_ms)
        try:
            return explain_unit(view, step, now_ms, since_ms)
        except LookupError:
            raise UnknownStep(record, step) from None

    def _status_since_ms(self, record: WorkflowRecord) -> int | None:
        """Return when the execution reached its status, if the last entries of its history show it."""
        key = self._snapshot.keys.history(record.workflow_execution_id)
        with translate_errors():
            entries: Any = self._snapshot.client.lrange(key, -MAX_HISTORY_ENTRIES, -1)
        for text in reversed(entries):
            with suppress(ValueError, AttributeError, TypeError, KeyError):
                entry = json.loads(text)
                if entry.get("workflow") == record.status:
                    return parse_iso_ms(entry["at"])
        return None

    # ---- what Redis shows

    def _add_redis_reasons(self, record: WorkflowRecord, found: Sequence[Reason]) -> Iterable[Reason]:
        """Yield each reason of the record, followed by what Redis shows about it."""
        lookups, explained_queues = 0, set[str]()
        for reason in found:
            yield reason
            if lookups < MAX_REDIS_LOOKUPS:
                more = self._look_up(record, reason, explained_queues)
                lookups += bool(more)
                yield from more
        yield from self._explain_unregistered(record, {reason.step for reason in found})

    def _look_up(self, record: WorkflowRecord, reason: Reason, explained_queues: set[str]) -> list[Reason]:
        unit = record.steps.get(reason.step) or record.items.get(reason.step)
        match reason.code:
            case ReasonCode.WAITING_FOR_SLOT:
                slot = unit.slot if unit is not None else record.slot
                if slot is None:
                    return []
                return explain_slot(self._snapshot, record, reason.step, slot, list(self._ancestors(record)))
            case ReasonCode.DISPATCHED | ReasonCode.RUNNING if unit is not None:
                found = explain_dispatch(self._snapshot, record, reason.step, unit, explained_queues)
                return found + (self._explain_missing_executor(record, reason) if unit.declined else [])
            case ReasonCode.DECLINED:
                return self._explain_missing_executor(record, reason)
            case ReasonCode.CHILD if unit is not None:
                return self._explain_child(reason.step, unit.child or "")
        return []

    def _explain_missing_executor(self, record: WorkflowRecord, reason: Reason) -> list[Reason]:
        return explain_missing_executor(self._snapshot, record.workflow_execution_id, reason.step)

    def _ancestors(self, record: WorkflowRecord) -> Iterable[tuple[str, str]]:
        """Yield the ancestors of this execution, each with the step that waits for its child."""
        parent = record.parent
        for _ in range(record.spec.limits.max_depth):
            if parent is None:
                return
            yield parent.execution, parent.step_id
            try:
                parent = self._store.load(parent.execution).parent
            except RecordNotFound:
                return

    def _explain_child(self, step_id: str, child: str) -> list[Reason]:
        """Explain why a child does not exist yet; empty if it exists."""
        if self._exists(child):
            return []
        waiting = [
            one.words
            for one in explain_missing_execution(self._snapshot, child)
            if one.code == RedisReasonCode.START_WAITS
        ]
        why = waiting[0] if waiting else "its start event is in no stream"
        words = f"the child {child} of step {step_id} does not exist yet: {why}"
        return [Reason(RedisReasonCode.CHILD_WAITS, words, step_id)]

    def _explain_unregistered(self, record: WorkflowRecord, step_ids: Set[str]) -> list[Reason]:
        """Explain that open steps among `step_ids` start a workflow by a name that is not registered."""
        names = {
            spec.id: spec.child.name
            for spec in record.spec.steps
            if spec.child is not None and spec.child.name is not None and spec.id in step_ids
        }
        if not names or record.is_final:
            return []
        with translate_errors():
            known: Any = self._snapshot.client.hmget(self._snapshot.keys.definitions, list(names.values()))
        return [
            Reason(
                RedisReasonCode.CHILD_UNREGISTERED,
                f"step {step_id} starts the workflow {name!r}, which is not registered",
                step_id,
                advice=f"register it: orchestrator register FILE --name {name}",
            )
            for (step_id, name), workflow_id in zip(names.items(), known, strict=True)
            if workflow_id is None
            and not record.steps[step_id].is_final
            and not self._exists(record.steps[step_id].child)
        ]

    def _children(self, record: WorkflowRecord, found: Iterable[Reason], depth: int) -> list[str]:
        """Return the children to explain: those it waits for, and the one whose failure made it fail."""
        if depth >= MAX_CHILD_DEPTH:
            return []
        waiting = [record.steps[one.step].child or "" for one in found if one.code == ReasonCode.CHILD]
        failed = (record.error or {}).get("child")
        children = [*waiting, *([str(failed)] if failed else [])]
        return [child for child in children[:MAX_REDIS_LOOKUPS] if self._exists(child)]

    def _exists(self, execution: str | None) -> bool:
        keys = self._snapshot.keys
        if not execution:
            return False
        key = keys.workflow(execution) if "#" in execution else keys.execution(execution)
        with translate_errors():
            return bool(self._snapshot.client.exists(key))
