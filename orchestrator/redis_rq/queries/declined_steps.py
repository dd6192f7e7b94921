"""The declined steps that still wait for a worker with their executor."""

from __future__ import annotations

from typing import Any

from orchestrator.redis_rq.connection import execute_pipeline, translate_errors
from orchestrator.redis_rq.declined import DeclinedStep, read_declined
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.queries.inspection import Inspection
from orchestrator.redis_rq.record_codec import unit_field

MAX_STEPS_CHECKED = 1_000


def declined_steps(inspection: Inspection) -> list[DeclinedStep]:
    """The steps that were declined lately and wait by their records, the latest first."""
    client, keys = inspection.client, inspection.keys
    with translate_errors():
        noted = [one for one, _ in read_declined(client, keys)[:MAX_STEPS_CHECKED]]
    with client.pipeline(transaction=False) as pipe:
        for one in noted:
            pipe.hget(keys.workflow(one.execution), unit_field(one.step))
        units = execute_pipeline(pipe) if noted else []
    return [one for one, unit in zip(noted, units, strict=True) if _waits(unit)]


def _waits(stored: Any) -> bool:
    """Whether a unit, as it is stored, was declined and has not been started since."""
    try:
        unit = loads(stored)
        return unit["status"] == "in_progress" and unit.get("declined", 0) > 0 and "started_at" not in unit
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return False  # the execution is gone, or the record cannot be read
