"""Checks the webhooks of the executions that ended last. The failure of a webhook changes no status, so only
the record of its own unit shows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import StoreError
from orchestrator.application.explain.text import format_duration, summarize_error
from orchestrator.application.records.events import parse_iso_ms
from orchestrator.application.records.record_view import make_record_view
from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.diagnosis.checks import Check, ok, warning
from orchestrator.diagnosis.snapshot import RedisSnapshot
from orchestrator.redis_rq.connection import execute_pipeline
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.record_codec import unit_field
from orchestrator.redis_rq.store import RedisStore

RECENT_MS = 3_600_000
"""Older failures are mentioned, and are not a warning."""
MAX_ENDED_CHECKED = 250
"""So many executions are read of each of the two indexes of ended executions."""
MAX_MESSAGE_CHARS = 200


@dataclass(frozen=True, slots=True)
class _Webhook:
    execution: str
    unit: StepRecord

    @property
    def failed_ms(self) -> int:
        return parse_iso_ms(self.unit.ended_at) if self.unit.ended_at else 0


def check_webhooks(snapshot: RedisSnapshot) -> Check:
    """Check that the last ends were posted. A webhook that is rejected or that failed is not posted again."""
    executions = _last_ended(snapshot)
    webhooks = _read_webhooks(snapshot, executions)
    failed = [one for one in webhooks if one.unit.status is StepStatus.FAILED]
    open_count = sum(not one.unit.is_final for one in webhooks)
    among = f"the last {len(executions)} executions that ended"
    numbers = {
        "checked": len(executions),
        "webhooks": len(webhooks),
        "failed": len(failed),
        "open": open_count,
    }
    if not failed:
        waiting = f"; {open_count} not posted yet" if open_count else ""
        return ok("webhooks", f"{len(webhooks) or 'none'} among {among}{waiting}", **numbers)
    newest = max(failed, key=lambda one: one.failed_ms)
    name, age_ms = newest.execution.partition("#")[2], snapshot.now - newest.failed_ms
    found = (
        f"{len(failed)} of {len(webhooks)} webhooks of {among} were not delivered; the newest, of {name},"
        f" {format_duration(age_ms)} ago: {_describe_failure(snapshot, newest)}"
    )
    numbers["newest_failure_ms"] = age_ms
    if age_ms > RECENT_MS:
        return ok("webhooks", found, **numbers)
    return warning("webhooks", found, f"see the cause: orchestrator explain {name}", **numbers)


def _last_ended(snapshot: RedisSnapshot) -> list[str]:
    """Return the executions that ended last. Those with a retention of their own have an index of their own,
    by the time of their deletion."""
    with snapshot.client.pipeline(transaction=False) as pipe:
        for index in (snapshot.keys.ended, snapshot.keys.leaving):
            pipe.zrevrange(index, 0, MAX_ENDED_CHECKED - 1)
        found = execute_pipeline(pipe)
    members = [member for one in found if not isinstance(one, Exception) for member in one]
    return [str(member).partition("|")[0] for member in members]


def _read_webhooks(snapshot: RedisSnapshot, executions: Sequence[str]) -> list[_Webhook]:
    """Return the webhooks of executions. A unit that cannot be read is left out."""
    if not executions:
        return []
    with snapshot.client.pipeline(transaction=False) as pipe:
        for execution in executions:
            pipe.hget(snapshot.keys.workflow(execution), unit_field(WEBHOOK_UNIT))
        found: list[Any] = execute_pipeline(pipe)
    webhooks = []
    for execution, stored in zip(executions, found, strict=True):
        with suppress(ValueError, TypeError, LookupError, AttributeError):
            webhooks.append(_Webhook(execution, StepRecord.from_dict(loads(stored))))
    return webhooks


def _describe_failure(snapshot: RedisSnapshot, webhook: _Webhook) -> str:
    """Return the error of a webhook, without the secrets of its execution."""
    try:
        record = RedisStore(snapshot.client, snapshot.keys).load(webhook.execution)
    except StoreError:
        return "its record cannot be read"
    return make_record_view(record).text(summarize_error(webhook.unit.error or {}))[:MAX_MESSAGE_CHARS]
