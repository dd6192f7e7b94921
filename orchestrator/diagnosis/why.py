"""Why an execution does not get on: the reasons of its record, and after each what Redis knows about it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from typing import Any

from orchestrator.application.errors import OrchestratorError, RecordNotFound
from orchestrator.application.explain.reasons import Reason, ReasonCode, explain_unit, reasons
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.step_record import Slot
from orchestrator.diagnosis.concurrency import explain_slot
from orchestrator.diagnosis.dispatches import explain_dispatch
from orchestrator.diagnosis.not_started import execution_of_start, explain_missing_execution
from orchestrator.diagnosis.snapshot import REPAIR_ADVICE, RedisReasonCode, RedisSnapshot
from orchestrator.redis_rq.connection import Client, translate_errors
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.store import RedisStore

MAX_CHILD_DEPTH = 5
"""So many generations of children are asked; the last of them says how to ask further."""
MAX_HISTORY_ENTRIES = 200
MAX_REDIS_LOOKUPS = 20
"""Of so many dispatches and places Redis is asked where they are: an execution may have thousands."""


class UnknownStep(OrchestratorError):
    exit_code = 2

    def __init__(self, record: WorkflowRecord, step: str) -> None:
        known = [*record.steps, *record.items]
        close = get_close_matches(step, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        super().__init__(f"execution {record.execution_id!r} has no step {step!r}{hint}")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What keeps an execution; `status` is None when there is none of that id, or not yet. `children` are
    the executions that it waits for, or that it failed with."""

    execution_id: str
    workflow_execution_id: str | None
    status: str | None
    reasons: tuple[Reason, ...]
    children: tuple[Explanation, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """Whether there is no such execution, and none on its way."""
        return self.status is None and all(one.code != RedisReasonCode.START_WAITS for one in self.reasons)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def why(client: Client, keys: Keys, execution_id: str, step: str = "") -> Explanation:
    """Why an execution, or one step of it, does not get on; by any of its ids, or by that of its start.

    RecordNotFound when nobody has ever heard of it, UnknownStep when it has no such step.
    """
    return _Question(RedisSnapshot(client, keys)).answer(execution_id, step)


class _Question:
    def __init__(self, snapshot: RedisSnapshot) -> None:
        self._snapshot, self._store = snapshot, RedisStore(snapshot.client, snapshot.keys)

    def answer(self, execution_id: str, step: str = "", depth: int = 0) -> Explanation:
        snapshot = self._snapshot
        try:
            full = self._store.full_id(execution_id)
        except RecordNotFound:
            full = execution_of_start(snapshot, execution_id) or ""
        try:
            record = self._store.load(full or execution_id)
        except RecordNotFound:
            return self._unknown(execution_id, full)
        found = self._reasons(record, step)
        hide = make_record_view(record).text
        shown = tuple(replace(one, words=hide(one.words)) for one in self._explained(record, found))
        if not record.is_final:
            shown += tuple(snapshot.explain_coordinators(record.workflow_execution_id))
        return Explanation(
            record.execution_id,
            record.workflow_execution_id,
            record.status.value,
            shown,
            tuple(self.answer(child, depth=depth + 1) for child in self._children(record, found, depth)),
        )

    def _unknown(self, execution_id: str, full: str) -> Explanation:
        short = execution_id.partition("#")[2] or execution_id
        found = explain_missing_execution(self._snapshot, short)
        if full and "#" not in execution_id:
            words = f"{self._snapshot.keys.execution(execution_id)} leads to {full}, and its record is gone"
            found.insert(0, Reason(RedisReasonCode.RECORD_GONE, words, advice=REPAIR_ADVICE))
        if not found:
            raise RecordNotFound(execution_id)
        return Explanation(short, None, None, tuple(found))

    def _reasons(self, record: WorkflowRecord, step: str) -> list[Reason]:
        now, since_ms = self._snapshot.now, self._since(record)
        if not step:
            return reasons(record, now, since_ms)
        try:
            return explain_unit(record, step, now, since_ms)
        except LookupError:
            raise UnknownStep(record, step) from None

    def _since(self, record: WorkflowRecord) -> int | None:
        """When the execution came to its status, if that is told by the end of its history."""
        key = self._snapshot.keys.history(record.workflow_execution_id)
        with translate_errors():
            entries: Any = self._snapshot.client.lrange(key, -MAX_HISTORY_ENTRIES, -1)
        for entry in reversed(entries):
            with suppress(ValueError, AttributeError, TypeError, KeyError):
                told = json.loads(entry)
                if told.get("workflow") == record.status:
                    return parse_iso_ms(told["at"])
        return None

    # ---- what Redis knows

    def _explained(self, record: WorkflowRecord, found: Sequence[Reason]) -> Iterable[Reason]:
        looked_at, queues = 0, set[str]()
        for reason in found:
            yield reason
            if looked_at < MAX_REDIS_LOOKUPS:
                more = self._about(record, reason, queues)
                looked_at += bool(more)
                yield from more
        yield from self._unregistered(record, {reason.step for reason in found})

    def _about(self, record: WorkflowRecord, reason: Reason, queues: set[str]) -> list[Reason]:
        unit = record.steps.get(reason.step) or record.items.get(reason.step)
        match reason.code:
            case ReasonCode.WAITING_FOR_SLOT:
                slot = unit.slot if unit is not None else Slot(**record.slot or {})
                return [] if slot is None else self._explain_slot(record, reason.step, slot)
            case ReasonCode.DISPATCHED | ReasonCode.RUNNING if unit is not None:
                return explain_dispatch(self._snapshot, record, reason.step, unit, queues)
            case ReasonCode.CHILD if unit is not None:
                return self._about_child(reason.step, unit.child or "")
        return []

    def _explain_slot(self, record: WorkflowRecord, step_id: str, slot: Slot) -> list[Reason]:
        return explain_slot(self._snapshot, record, step_id, slot, list(self._above(record)))

    def _above(self, record: WorkflowRecord) -> Iterable[tuple[str, str]]:
        """The executions above this one, each with the step that waits for the one below."""
        parent = record.parent
        for _ in range(record.spec.limits.max_depth):
            if parent is None:
                return
            yield parent["execution"], parent["step_id"]
            try:
                parent = self._store.load(parent["execution"]).parent
            except RecordNotFound:
                return

    def _about_child(self, step_id: str, child: str) -> list[Reason]:
        if self._exists(child):
            return []
        waits = [
            one
            for one in explain_missing_execution(self._snapshot, child)
            if one.code == RedisReasonCode.START_WAITS
        ]
        words = waits[0].words if waits else "nobody has begun it yet"
        return [
            Reason(
                RedisReasonCode.CHILD_WAITS,
                f"the child {child} of step {step_id} does not exist yet: {words}",
                step_id,
            )
        ]

    def _unregistered(self, record: WorkflowRecord, told: Set[str]) -> list[Reason]:
        """Children by name that nobody has registered: of steps that have not ended, as far as asked for."""
        named = {
            spec.id: spec.child.name
            for spec in record.spec.steps
            if spec.child is not None and spec.child.name is not None and spec.id in told
        }
        if not named or record.is_final:
            return []
        with translate_errors():
            known: Any = self._snapshot.client.hmget(self._snapshot.keys.definitions, list(named.values()))
        return [
            Reason(
                RedisReasonCode.CHILD_UNREGISTERED,
                f"the child of step {step_id} is the workflow {name!r}, and nobody has registered it",
                step_id,
                advice=f"orchestrator register FILE --name {name}",
            )
            for (step_id, name), workflow_id in zip(named.items(), known, strict=True)
            if workflow_id is None
            and not record.steps[step_id].is_final
            and not self._exists(record.steps[step_id].child)
        ]

    def _children(self, record: WorkflowRecord, found: Iterable[Reason], depth: int) -> list[str]:
        """Those to be asked as well: the ones it waits for, and the one it failed with."""
        if depth >= MAX_CHILD_DEPTH:
            return []
        waiting = [record.steps[one.step].child or "" for one in found if one.code == ReasonCode.CHILD]
        failed = (record.error or {}).get("child")
        wanted = [*waiting, *([str(failed)] if failed else [])]
        return [child for child in wanted[:MAX_REDIS_LOOKUPS] if self._exists(child)]

    def _exists(self, execution: str | None) -> bool:
        keys = self._snapshot.keys
        if not execution:
            return False
        key = keys.workflow(execution) if "#" in execution else keys.execution(execution)
        with translate_errors():
            return bool(self._snapshot.client.exists(key))
