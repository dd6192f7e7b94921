"""An execution as JSON, as a short summary, and as Redis stores it; secrets are redacted in all three.

Of the token of a dispatch only the public part is shown.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator.application.explain.execution_json import as_dict
from orchestrator.application.explain.formatting import format_error, format_interval, humanize
from orchestrator.application.records.visible_fields import hide_token_secret
from orchestrator.application.redaction.by_key import REDACTED, is_secret_key
from orchestrator.application.values.unit_id import UnitId
from orchestrator.cli.output.escaping import format_json
from orchestrator.cli.output.values import redact_text, redact_value

if TYPE_CHECKING:
    from orchestrator.application.explain.status_view import StatusView
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import StepRecord
    from orchestrator.redis_rq.connection import Client
    from orchestrator.redis_rq.keys import Keys

MAX_STEPS = 50
MAX_VALUE_CHARS = 2_000


def as_json(view: StatusView) -> str:
    return format_json(as_dict(view), indent=2)


def summary(record: WorkflowRecord) -> str:
    """Format an execution in a few lines: its status, its steps, and its error or outcome."""
    title = f"{record.spec.name or 'workflow'} {record.execution_id}: {humanize(record.status.value)}"
    duration = format_interval(record.created_at, record.ended_at)
    lines = [f"{title} in {duration}" if duration else title]
    compensations = [pair for pair in record.items.items() if UnitId(pair[0]).is_compensation]
    webhook = [pair for pair in record.items.items() if UnitId(pair[0]).is_webhook]
    shown = [*list(record.steps.items())[:MAX_STEPS], *compensations[:MAX_STEPS], *webhook]
    width = max((len(unit) for unit, _ in shown), default=0)
    lines += [f"  {unit:<{width}}  {_format_step(record, step)}".rstrip() for unit, step in shown]
    if len(record.steps) > MAX_STEPS:
        lines.append(f"  and {len(record.steps) - MAX_STEPS} more; --json shows all")
    if record.error is not None:
        lines.append(f"error: {format_error(redact_value(record, record.error))}")
    if record.outcome is not None:
        lines.append(f"outcome: {_format_value(redact_value(record, record.outcome))}")
    return "\n".join(lines)


def _format_step(record: WorkflowRecord, step: StepRecord) -> str:
    attempt = f"attempt {step.attempt}" if step.attempt > 1 else ""
    duration = format_interval(step.started_at, step.ended_at) or ""
    line = f"{humanize(step.status.value):<11}  {duration:>8}  {attempt}"
    if step.error is not None:
        line = f"{line}  {format_error(redact_value(record, step.error))}"
    elif step.reason:
        line = f"{line}  {redact_text(record, step.reason)}"
    elif step.child is not None:
        line = f"{line}  child {step.child}"
    return line


def _format_value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} ... (--json shows all)"


# ---- as Redis stores it


def dump_redis_keys(record: WorkflowRecord, redis: Client, keys: Keys) -> str:
    """Print the record and the history as redis-cli would, with the commands; the fields are sorted."""
    record_key, history_key = (
        keys.workflow(record.workflow_execution_id),
        keys.history(record.workflow_execution_id),
    )
    fields: dict[str, str] = redis.hgetall(record_key)  # type: ignore[assignment]
    entries: list[str] = redis.lrange(history_key, 0, -1)  # type: ignore[assignment]
    return "\n".join(
        [
            f"\n$ redis-cli HGETALL '{record_key}'",
            *(f"{name}\n{_redact_field(name, value, record)}" for name, value in sorted(fields.items())),
            f"\n$ redis-cli LRANGE '{history_key}' 0 -1",
            *(redact_text(record, entry) for entry in entries),
        ]
    )


_FIELDS_WITH_USER_DATA = frozenset(
    {"inputs", "state", "outcome", "error", "signals", "ending", "step", "item", "webhook"}
)
_DISPATCHES = frozenset({"step", "item", "parent"})


def _redact_field(name: str, stored: str, record: WorkflowRecord) -> str:
    """Redact the user data in a field of the record's hash; all else stays as Redis stores it."""
    kind, secrets = name.partition(":")[0], record.spec.redact
    if kind == "state" and is_secret_key(name.removeprefix("state:"), secrets):
        return json.dumps(REDACTED)
    if kind not in _FIELDS_WITH_USER_DATA | _DISPATCHES:
        return stored
    value = json.loads(stored)
    if kind in _DISPATCHES:
        value = hide_token_secret(value)
        user_data = {"output", "error", "value", "loop_value"}
        value |= {key: redact_value(record, one) for key, one in value.items() if key in user_data}
    elif kind == "webhook":
        value["headers"] = dict.fromkeys(value["headers"], REDACTED)
    else:
        value = redact_value(record, value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
