"""Large values in one process: the stores that keep them, and how a worker loads and stores them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.errors import InvalidSpec, PayloadMissing, Problem, TooLarge
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import make_failure
from orchestrator.application.values.payload_refs import (
    PayloadStore,
    has_references,
    load_payloads,
    offload_inputs,
    offload_output,
)
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from orchestrator.backend.copies import NotJson, dumps


@runtime_checkable
class HasPayloads(Protocol):
    """A store or a runner with a payload store of its own."""

    @property
    def payloads(self) -> PayloadStore | None: ...


class MemoryPayloads:
    """Payloads in memory, until the process ends, like all records in memory."""

    def __init__(self) -> None:
        self._payloads: dict[str, bytes] = {}

    def put(self, payload_id: str, data: bytes) -> None:
        self._payloads[payload_id] = data

    def get(self, payload_id: str) -> bytes | None:
        return self._payloads.get(payload_id)


def load_job_inputs(
    job: DispatchJob, payloads: Callable[[], PayloadStore], max_bytes: int
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The inputs of a job with the large values that they refer to, or the failure. A webhook keeps the
    references."""
    if job.step_id == WEBHOOK_UNIT or not has_references(job.inputs):
        return job.inputs, None
    try:
        return load_payloads(job.inputs, payloads().get, max_bytes, "inputs"), None
    except PayloadMissing as error:
        return job.inputs, make_failure("payload_missing", str(error))
    except TooLarge as error:
        return job.inputs, make_failure("expression", str(error))


def store_large_inputs(
    inputs: dict[str, Any] | None, payloads: PayloadStore, max_bytes: int
) -> dict[str, Any] | None:
    """Store the large values of a start's inputs and put references in their place. check_inputs() reports
    all other problems."""
    try:
        text = dumps(inputs)
    except NotJson:
        return inputs
    try:
        offloaded = offload_inputs(text, max_bytes)
    except TooLarge as error:
        raise InvalidSpec([Problem("inputs", "too_big", str(error))]) from error
    if not offloaded.payloads:
        return inputs
    offloaded.put_into(payloads)
    with_references: dict[str, Any] = json.loads(offloaded.text)
    return with_references


def store_large_output(
    text: str, job: DispatchJob, payloads: Callable[[], PayloadStore], max_bytes: int
) -> tuple[str | None, dict[str, Any] | None]:
    """Store the large values of an output and put references in their place, or return the failure."""
    try:
        offloaded = offload_output(text, job.max_output_bytes, max_bytes, job.step_id)
    except TooLarge as error:
        return None, make_failure("bad_output", str(error))
    if offloaded.payloads:
        offloaded.put_into(payloads())
    return offloaded.text, None


def find_payloads(owner: object) -> PayloadStore | None:
    """The payload store of a store or runner, if it has one."""
    return owner.payloads if isinstance(owner, HasPayloads) else None
