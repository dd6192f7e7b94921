"""Commits made by hand, without a coordinator."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.events import Moment, ResultEvent, StepEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Commit, Committed, EventRef
from orchestrator.redis_rq.store import RedisStore
from worlds.documents import Json


def creation(
    spec: Json,
    execution_id: str = "x1",
    inputs: Json | None = None,
    refs: Sequence[EventRef] = (),
    limit: int | None = None,
) -> Commit:
    """The commit that a start becomes."""
    moment = now()
    loaded = check_spec(spec)
    record = WorkflowRecord(loaded, execution_id, dict(inputs or {}), created_at=moment.iso)
    changes = decide(record, [], moment, limit).changes
    return Commit(record, changes, events=refs, pending_refs=refs, creates=True)


def decision(record: WorkflowRecord, *events: StepEvent, refs: Sequence[EventRef] = ()) -> Commit:
    """The commit that events become."""
    decided = decide(record, events, now())
    assert not decided.rejected, decided.rejected
    return Commit(record, decided.changes, events=refs)


def commit(store: RedisStore, *commits: Commit) -> list[Committed]:
    """Commit, and do what the owner of the records does: write down what was written."""
    results = store.commit(commits)
    for one, result in zip(commits, results, strict=True):
        if result is Committed.YES:
            one.record.apply(one.changes)
    return results


def written(store: RedisStore, one: Commit) -> WorkflowRecord:
    assert commit(store, one) == [Committed.YES]
    return one.record


def result(record: WorkflowRecord, step_id: str, output: Any = None, **changes: Any) -> ResultEvent:
    """The result of the dispatch that is out."""
    step = record.steps[step_id]
    assert step.token is not None, f"{step_id} is not out: {step}"
    return ResultEvent(
        record.workflow_execution_id,
        step_id,
        output,
        changes.get("error"),
        step.run_id,
        step.attempt,
        step.token,
    )


def now() -> Moment:
    return Moment(int(time.time() * 1000), secrets.token_hex(8), "test")
