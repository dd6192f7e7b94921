"""An execution as JSON, and as a few lines for people; what names a secret is not shown."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.application.redaction.by_key import REDACTED, is_secret_key
from orchestrator.application.spec.model import COMPENSATION_PART, WEBHOOK_UNIT
from orchestrator.cli.output.values import redact_text, redact_value

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord
    from orchestrator.application.records.step_record import StepRecord
    from orchestrator.redis_rq.connection import Client
    from orchestrator.redis_rq.keys import Keys

MAX_STEPS = 50
MAX_VALUE_CHARS = 2_000


def as_json(record: WorkflowRecord) -> str:
    return json.dumps(as_dict(record), indent=2, ensure_ascii=False)


def as_dict(record: WorkflowRecord) -> dict[str, Any]:
    return {
        "workflow_execution_id": record.workflow_execution_id,
        "execution_id": record.execution_id,
        "workflow_id": record.workflow_id,
        "name": record.spec.name,
        "status": record.status.value,
        "outcome": redact_value(record, record.outcome),
        "error": redact_value(record, record.error),
        "inputs": redact_value(record, record.inputs),
        "state": redact_value(record, record.state),
        "group": record.group,
        "schedule": record.schedule,
        "parent": record.parent,
        "cancelled": record.cancelled,
        "compensated": record.compensated,
        "created_at": record.created_at,
        "ended_at": record.ended_at,
        "steps": {step_id: _step(record, step) for step_id, step in record.steps.items()},
        "items": {unit: _step(record, item) for unit, item in record.items.items()},
    }


def _step(record: WorkflowRecord, step: StepRecord) -> dict[str, Any]:
    return {
        "status": step.status.value,
        "run_id": step.run_id,
        "attempt": step.attempt,
        "output": redact_value(record, step.output),
        "error": redact_value(record, step.error),
        "reason": redact_value(record, step.reason),
        "worker": step.worker,
        "child": step.child,
        "started_at": step.started_at,
        "ended_at": step.ended_at,
    }


def summary(record: WorkflowRecord) -> str:
    """How it stands: one line for the execution, one for each step, and what came of it."""
    title = f"{record.spec.name or 'workflow'} {record.execution_id}: {humanize(record.status.value)}"
    took = format_interval(record.created_at, record.ended_at)
    lines = [f"{title} in {took}" if took else title]
    undone = [(unit, item) for unit, item in record.items.items() if unit.endswith(f"#{COMPENSATION_PART}")]
    told = [(unit, item) for unit, item in record.items.items() if unit == WEBHOOK_UNIT]
    shown = [*list(record.steps.items())[:MAX_STEPS], *undone[:MAX_STEPS], *told]
    width = max((len(unit) for unit, _ in shown), default=0)
    lines += [f"  {unit:<{width}}  {_step_line(record, step)}".rstrip() for unit, step in shown]
    if len(record.steps) > MAX_STEPS:
        lines.append(f"  and {len(record.steps) - MAX_STEPS} more; --json shows all")
    if record.error is not None:
        lines.append(f"error: {error_line(redact_value(record, record.error))}")
    if record.outcome is not None:
        lines.append(f"outcome: {_value(redact_value(record, record.outcome))}")
    return "\n".join(lines)


def _step_line(record: WorkflowRecord, step: StepRecord) -> str:
    tries = f"attempt {step.attempt}" if step.attempt > 1 else ""
    took = format_interval(step.started_at, step.ended_at) or ""
    line = f"{humanize(step.status.value):<11}  {took:>8}  {tries}"
    if step.error is not None:
        line = f"{line}  {error_line(redact_value(record, step.error))}"
    elif step.reason:
        line = f"{line}  {redact_text(record, step.reason)}"
    elif step.child is not None:
        line = f"{line}  child {step.child}"
    return line


def dump_redis_keys(record: WorkflowRecord, redis: Client, keys: Keys) -> str:
    """The record and its history, with the commands that show them; the fields of the record in order."""
    stored, entries = keys.workflow(record.workflow_execution_id), keys.history(record.workflow_execution_id)
    fields: dict[str, str] = redis.hgetall(stored)  # type: ignore[assignment]
    lines: list[str] = redis.lrange(entries, 0, -1)  # type: ignore[assignment]
    return "\n".join(
        [
            f"\n$ redis-cli HGETALL '{stored}'",
            *(f"{name}\n{_shown(name, value, record)}" for name, value in sorted(fields.items())),
            f"\n$ redis-cli LRANGE '{entries}' 0 -1",
            *(redact_text(record, line) for line in lines),
        ]
    )


def _shown(name: str, stored: str, record: WorkflowRecord) -> str:
    """A field of a record as Redis holds it, but for secrets among the values that users gave and made."""
    kind, secrets = name.partition(":")[0], record.spec.redact
    if kind == "state" and is_secret_key(name.removeprefix("state:"), secrets):
        return json.dumps(REDACTED)
    if kind not in _VALUES:
        return stored
    value = json.loads(stored)
    if kind in ("step", "item"):
        kept = {"output", "error", "value", "loop_value"}
        value |= {key: redact_value(record, one) for key, one in value.items() if key in kept}
    elif kind == "webhook":
        value["headers"] = dict.fromkeys(value["headers"], REDACTED)
    else:
        value = redact_value(record, value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_VALUES = frozenset({"inputs", "state", "outcome", "error", "signals", "ending", "step", "item", "webhook"})


def humanize(status: str) -> str:
    return status.replace("_", " ")


def format_interval(started_at: str | None, ended_at: str | None) -> str | None:
    if started_at is None or ended_at is None:
        return None
    taken = datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)
    return format_duration(max(taken.total_seconds(), 0.0))


def format_duration(taken: float) -> str:
    """A duration as people tell it, by its two largest units."""
    if taken < 0.9995:
        return f"{taken * 1000:.0f} ms"
    if taken < 59.95:
        return f"{taken:.1f} s"
    whole = round(taken)
    for unit, size, smaller, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "m", 60)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole // 60} m {whole % 60} s"


def error_line(error: dict[str, Any]) -> str:
    """The first line of it: a traceback is for --json."""
    message = str(error.get("message") or error.get("kind") or error).strip().partition("\n")[0]
    return f"{error['type']}: {message}" if error.get("type") else message


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]} ... (--json shows all)"
