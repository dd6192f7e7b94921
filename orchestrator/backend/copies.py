"""Copies that share nothing with the original, made where values enter or leave a record.

Inside the backend, values are shared and never changed. Outside, the holder of a value may change it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, TypeVar

from orchestrator.application.records.decisions import Dispatch, DispatchJob
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.step_record import StepRecord

CopyValue = Callable[[Any], Any]
_D = TypeVar("_D")

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class NotJson(ValueError):
    """A value that JSON cannot represent."""


def dumps(value: Any) -> str:
    try:
        text = _encode(value)
        text.encode()  # half a surrogate pair cannot be encoded, and no store can keep it
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error
    return text


def to_plain_json(value: Any) -> Any:
    """The value after a round trip through JSON; NotJson when JSON cannot represent it."""
    return json.loads(dumps(value))


def copy_json(value: Any) -> Any:
    """Copy a value that is known to be JSON."""
    if isinstance(value, dict):
        return {key: copy_json(item) if isinstance(item, _NESTED) else item for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) if isinstance(item, _NESTED) else item for item in value]
    return value


_NESTED = (dict, list)


def isolate_record(record: WorkflowRecord, copy: CopyValue = copy_json) -> WorkflowRecord:
    """Copy a record. The copy shares only the spec, which never changes."""
    values = {name: copy(getattr(record, name)) for name in _VALUES}
    steps = {step_id: _isolate_step(step, copy) for step_id, step in record.steps.items()}
    items = {unit: _isolate_step(item, copy) for unit, item in record.items.items()}
    return replace(record, steps=steps, items=items, **values)


_SHARED = ("loaded", "steps", "items", "status", "parent", "slot")
_VALUES = tuple(f.name for f in fields(WorkflowRecord) if f.init and f.name not in _SHARED)


def _isolate_step(step: StepRecord, copy: CopyValue) -> StepRecord:
    values = {name: getattr(step, name) for name in ("output", "error", "value", "loop_value")}
    if all(value is None for value in values.values()):
        return step  # frozen, and nothing else in it can be changed
    return step.with_changes(**{name: copy(value) for name, value in values.items()})


def isolate_job(job: DispatchJob) -> DispatchJob:
    own = DispatchJob(*_job_values(job))
    own.inputs = copy_json(job.inputs)
    if job.source is not None:
        own.source = copy_json(job.source)
    return own


_job_values = attrgetter(*(f.name for f in fields(DispatchJob)))


def isolate_decision(decision: _D) -> _D:
    """Copy a decision for a caller: its jobs, outcome and error belong to the caller."""
    if isinstance(decision, Dispatch):
        return replace(decision, jobs=[isolate_job(job) for job in decision.jobs])
    if decision is None:
        return decision
    kind: Any = type(decision)
    copy: _D = kind(*[copy_json(getattr(decision, name)) for name in kind.__slots__])
    return copy
