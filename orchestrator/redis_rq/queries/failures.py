"""Failures: the executions that failed, and those of which a step waits for its next attempt, by their cause.

Failed executions are read from the indexes, a page at a time; steps that wait for their next attempt are
found by their timers. Of each execution only the error is read. A whole record is loaded once for each cause,
because the secrets of the execution must not be shown in its message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from orchestrator.application.errors import StoreError, Unavailable
from orchestrator.application.explain.failure_cause import FailureCause, find_cause
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.values.unit_id import UnitId
from orchestrator.redis_rq.connection import Client, execute_pipeline, translate_errors
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import Keys, timer_member
from orchestrator.redis_rq.queries.listing import ExecutionFilter, Listing, Page, Summary
from orchestrator.redis_rq.record_codec import unit_field
from orchestrator.redis_rq.scripts import batches
from orchestrator.redis_rq.store import RedisStore

MAX_EXECUTIONS = 100_000
"""So many failed executions, and so many steps that wait for their next attempt, are read at most."""
MAX_CAUSES = 1_000
"""Further causes are counted, and not told apart."""
MAX_EXAMPLES = 3
PAGE_SIZE = 500

RETRYING = (WorkflowStatus.IN_PROGRESS, WorkflowStatus.PAUSED)
"""The statuses of executions of which a step may wait for its next attempt, and which can be cancelled."""


@dataclass(slots=True)
class FailureGroup:
    """The executions with the same cause: how many failed and how many will try again, when the first and the
    last of those that failed ended, and the ids of some. The times are None if none has failed."""

    cause: FailureCause
    failed: int = 0
    retrying: int = 0
    first_at: str | None = None
    last_at: str | None = None
    examples: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "failure": self.cause.id,
            "workflow": self.cause.workflow,
            "step": self.cause.step or None,
            "kind": self.cause.kind,
            "type": self.cause.type,
            "message": self.cause.message,
            "failed": self.failed,
            "retrying": self.retrying,
            "first_at": self.first_at,
            "last_at": self.last_at,
            "examples": self.examples,
        }


@dataclass(slots=True)
class FailureReport:
    """All groups, the largest first. `checked` counts the executions that were read; `is_complete` is false
    if there are more of them. `ungrouped` counts those whose cause was one too many."""

    groups: list[FailureGroup]
    checked: int = 0
    is_complete: bool = True
    ungrouped: int = 0

    def as_dict(self, limit: int) -> dict[str, Any]:
        """The report as plain JSON, with at most `limit` groups."""
        return {
            "failures": [one.as_dict() for one in self.groups[:limit]],
            "groups": len(self.groups),
            "checked": self.checked,
            "complete": self.is_complete,
            "ungrouped": self.ungrouped,
        }


@dataclass(frozen=True, slots=True)
class _Failure:
    """The failure of one execution: its cause, or None if there are too many, and the time of its end, or
    None if it will try again."""

    execution: str
    cause: FailureCause | None
    ended_at: str | None = None


class Failures:
    def __init__(self, client: Client, keys: Keys, store: RedisStore) -> None:
        self._client, self._keys, self._store = client, keys, store
        self._listing = Listing(client, keys)

    def report(self, wanted: ExecutionFilter, max_executions: int | None = None) -> FailureReport:
        """Group the failures that match a filter, whatever statuses it names: those of the newest executions,
        and as many of the steps that wait for their next attempt."""
        groups: dict[FailureCause, FailureGroup] = {}
        report = FailureReport([])
        causes = _Causes(self._store)
        for find in (self._failed, self._retrying):
            found = find(wanted, causes)
            for failure in islice(found, MAX_EXECUTIONS if max_executions is None else max_executions):
                report.checked += 1
                if failure.cause is None:
                    report.ungrouped += 1
                else:
                    _count(groups.setdefault(failure.cause, FailureGroup(failure.cause)), failure)
            report.is_complete = report.is_complete and next(found, None) is None
        by_last = sorted(groups.values(), key=lambda one: one.last_at or "", reverse=True)
        report.groups = sorted(by_last, key=lambda one: one.failed + one.retrying, reverse=True)
        return report

    def select(self, failure_id: str, wanted: ExecutionFilter, *, is_retrying: bool) -> Iterator[str]:
        """Yield the executions with this cause: those that failed, or those that will try again."""
        find = self._retrying if is_retrying else self._failed
        for failure in islice(find(wanted, _Causes(self._store, failure_id)), MAX_EXECUTIONS):
            if failure.cause is not None and failure.cause.id == failure_id:
                yield failure.execution

    def page(
        self, failure_id: str, wanted: ExecutionFilter, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """A page of the executions that failed with this cause, the newest first. It may end early, like any
        page of a list."""
        causes = _Causes(self._store, failure_id)

        def has_cause(executions: Sequence[Summary]) -> list[bool]:
            found = self._find_causes(executions, causes)
            return [cause is not None and cause.id == failure_id for cause in found]

        return self._listing.page(_failed(wanted), limit, cursor, has_cause)

    def _failed(self, wanted: ExecutionFilter, causes: _Causes) -> Iterator[_Failure]:
        for page in batches(self._listing.all(_failed(wanted), PAGE_SIZE), PAGE_SIZE):
            for one, cause in zip(page, self._find_causes(page, causes), strict=True):
                yield _Failure(one.workflow_execution_id, cause, one.ended_at or one.created_at)

    def _find_causes(self, failed: Sequence[Summary], causes: _Causes) -> Iterator[FailureCause | None]:
        """Yield the cause of each of some failed executions."""
        fields = [(one.workflow_execution_id, "error") for one in failed]
        for one, error in zip(failed, self._read(fields), strict=True):
            yield causes.find(one, error.get("step"), error)

    def _retrying(self, wanted: ExecutionFilter, causes: _Causes) -> Iterator[_Failure]:
        """Each execution once per cause, though many of its items may wait."""
        seen: set[tuple[str, str]] = set()
        is_open = replace(wanted, statuses=RETRYING)
        for page in batches(self._retry_timers(), PAGE_SIZE):
            executions = dict.fromkeys(execution for execution, _ in page)
            matching = {one.workflow_execution_id: one for one in self._listing.find(executions, is_open)}
            units = [one for one in page if one[0] in matching]
            steps = self._read([(execution, unit_field(unit)) for execution, unit in units])
            for (execution, unit), step in zip(units, steps, strict=True):
                error = step.get("error")
                if step.get("status") != "retry" or not isinstance(error, dict):
                    continue  # its next attempt has begun meanwhile, or it is repeated after a success
                cause = causes.find(matching[execution], unit, error)
                name = execution, cause.id if cause is not None else ""
                if name not in seen:
                    seen.add(name)
                    yield _Failure(execution, cause)

    def _retry_timers(self) -> Iterator[tuple[str, str]]:
        """Yield the execution and the unit of each timer of a next attempt. Some may come twice."""
        pattern = timer_member("retry", "*", "*", "*")
        with translate_errors():
            for member, _ in self._client.zscan_iter(self._keys.timers, match=pattern, count=PAGE_SIZE):
                parts = str(member).split("|")
                if len(parts) == 4 and not UnitId(parts[2]).is_webhook:
                    yield parts[1], parts[2]

    def _read(self, fields: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Read one JSON object of each record; an empty one where there is none that can be read."""
        if not fields:
            return []
        with self._client.pipeline(transaction=False) as pipe:
            for execution, name in fields:
                pipe.hget(self._keys.workflow(execution), name)
            found = execute_pipeline(pipe)
        return [_parse(one) for one in found]


class _Causes:
    """Finds causes, and loads the record of an execution for each that it has not seen yet. If there are too
    many, only `wanted_id` is still recognized, unless the message contains secrets."""

    def __init__(self, store: RedisStore, wanted_id: str = "") -> None:
        self._store, self._wanted_id = store, wanted_id
        self._known: dict[FailureCause, FailureCause] = {}

    def find(self, summary: Summary, step: str | None, error: Mapping[str, Any]) -> FailureCause | None:
        """Return the cause of an execution's failure; None if there are too many causes."""
        name, execution_id = summary.name, summary.execution_id
        stored = find_cause(name, step, error, execution_id)
        if stored not in self._known:
            if len(self._known) >= MAX_CAUSES:
                return stored if stored.id == self._wanted_id else None
            redacted = self._redact(summary.workflow_execution_id, error)
            self._known[stored] = find_cause(name, step, redacted, execution_id)
        return self._known[stored]

    def _redact(self, execution: str, error: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            record = self._store.load(execution)
        except Unavailable:
            raise
        except StoreError:  # without its record, the secrets of an execution are not known
            return {**error, "message": "its record cannot be read"}
        redacted: Mapping[str, Any] = make_record_view(record)(dict(error))
        return redacted


def _failed(wanted: ExecutionFilter) -> ExecutionFilter:
    return replace(wanted, statuses=[WorkflowStatus.FAILED])


def _count(group: FailureGroup, failure: _Failure) -> None:
    ended_at = failure.ended_at
    if ended_at is None:
        group.retrying += 1
    else:
        group.failed += 1
        group.first_at = min(group.first_at or ended_at, ended_at)
        group.last_at = max(group.last_at or ended_at, ended_at)
    if len(group.examples) < MAX_EXAMPLES:
        group.examples.append(failure.execution.partition("#")[2])


def _parse(stored: Any) -> dict[str, Any]:
    with suppress(ValueError, TypeError):
        value = loads(stored)
        if isinstance(value, dict):
            return value
    return {}
