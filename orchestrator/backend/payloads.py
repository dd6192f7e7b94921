"""Large values in one process: who keeps them, and how a worker has them and leaves them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.errors import InvalidSpec, PayloadMissing, Problem, TooLarge
from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.events import failure
from orchestrator.application.spec.model import WEBHOOK_UNIT
from orchestrator.application.values.payload_refs import (
    PayloadStore,
    has_references,
    load,
    offload_inputs,
    offload_output,
    payload_limit,
)
from orchestrator.backend.copies import NotJson, dumps


@runtime_checkable
class HasPayloads(Protocol):
    """A store or a runner with a payload store of its own."""

    @property
    def payloads(self) -> PayloadStore | None: ...


class MemoryPayloads:
    """They stay as long as the process does, as all records in memory do."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def put(self, payload_id: str, data: bytes) -> None:
        self._kept[payload_id] = data

    def get(self, payload_id: str) -> bytes | None:
        return self._kept.get(payload_id)


class BadInputs(Exception):
    """Inputs of a job that cannot be loaded: `failure` says why."""

    def __init__(self, kind: str, error: Exception) -> None:
        super().__init__(str(error))
        self.failure = failure(kind, str(error))


def load_job_inputs(job: DispatchJob, payloads: Callable[[], PayloadStore]) -> DispatchJob:
    """A job with all that its inputs refer to; a webhook only says that there is a large value."""
    if job.step_id == WEBHOOK_UNIT or not has_references(job.inputs):
        return job
    try:
        inputs = load(job.inputs, payloads().get, payload_limit(os.environ), "inputs")
    except PayloadMissing as error:
        raise BadInputs("payload_missing", error) from error
    except TooLarge as error:
        raise BadInputs("expression", error) from error
    return replace(job, inputs=inputs)


def store_large_inputs(inputs: dict[str, Any] | None, payloads: PayloadStore) -> dict[str, Any] | None:
    """Inputs of a start with references to what they have too much of; what else is wrong with them is for
    check_inputs() to say."""
    try:
        text = dumps(inputs)
    except NotJson:
        return inputs
    try:
        stowed = offload_inputs(text, payload_limit(os.environ))
    except TooLarge as error:
        raise InvalidSpec([Problem("inputs", "too_big", str(error))]) from error
    if not stowed.payloads:
        return inputs
    stowed.put_into(payloads)
    found: dict[str, Any] = json.loads(stowed.text)
    return found


def store_large_output(text: str, job: DispatchJob, payloads: Callable[[], PayloadStore]) -> str:
    """An output with references to what it has too much of; NotJson when it cannot be kept."""
    if len(text) * 4 <= job.max_output_bytes:
        return text  # a character has four bytes at the most
    try:
        stowed = offload_output(text, job.max_output_bytes, payload_limit(os.environ), job.step_id)
    except TooLarge as error:
        raise NotJson(str(error)) from error
    if stowed.payloads:
        stowed.put_into(payloads())
    return stowed.text


def find_payloads(keeper: object) -> PayloadStore | None:
    return keeper.payloads if isinstance(keeper, HasPayloads) else None
