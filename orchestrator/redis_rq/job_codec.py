"""DispatchJobs as RQ jobs: the leanest hash that a stock `rq worker --serializer json` runs."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import NoneType
from typing import Any

from orchestrator.application.records.decisions import DispatchJob
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.payload_refs import MAX_JOB_BYTES
from orchestrator.redis_rq.event_codec import dumps_envelope, json_fragment, loads
from orchestrator.redis_rq.keys import Keys, lease_member

RUN_STEP = "orchestrator.worker.harness.run_step"
"""The one function that our jobs call."""

MAX_DATA_BYTES = 4 * MAX_JOB_BYTES
"""What a job may become when it is unpacked: far more than the inputs of a step may have."""

TIMEOUT_MARGIN_S = 30
"""RQ's own timeout is the last line: the deadline in the record comes first."""


def job_args(job: DispatchJob, events: str) -> list[str | int]:
    """One job as commit.lua takes it; `events` is the stream that its result goes to."""
    timeout = -1 if job.timeout_s is None else math.ceil(job.timeout_s) + TIMEOUT_MARGIN_S
    given = [events, job.fn, json_fragment(job.inputs)]
    return [job.token, dumps_envelope([RUN_STEP, None, given, _options(job)]), timeout, lease_of_job(job)]


def _options(job: DispatchJob) -> dict[str, Any]:
    """What is as usual is not said."""
    return {name: value for name, usual in _USUAL.items() if (value := getattr(job, name)) != usual}


_OPTIONS = (
    "round",
    "iteration",
    "timeout_s",
    "max_output_bytes",
    "heartbeat_s",
    "source",
    "secrets",
    "redact",
)
_USUAL = {one.name: one.default for one in fields(DispatchJob) if one.name in _OPTIONS}


JOB_FIELDS = ("data", "description")
"""The fields of a job that read_payload() takes. The description is the lease: RQ shows it, and leaves it as
it is when it compresses the data of a job that has failed."""


def build_payload(given: Sequence[Any], options: Mapping[str, Any], lease: str) -> dict[str, Any]:
    """All that the harness needs, from what a job calls it with, the stream of its events, the executor and
    the inputs, and from its lease, which says whose it is. In jobs of earlier releases it is all in one
    mapping. ValueError or TypeError for what is neither."""
    if len(given) == 1:
        return dict(given[0])
    events, fn, inputs = given
    execution, step_id, run_id, attempt, token = lease.split("|")
    told = {**_USUAL, **options}
    job = DispatchJob(
        execution, step_id, fn, inputs, int(run_id), round=told["round"], iteration=told["iteration"]
    )
    return {
        **{name: told[name] for name in ("round", "iteration", "timeout_s", "max_output_bytes")},
        **options,
        "execution": execution,
        "step": step_id,
        "fn": fn,
        "inputs": inputs,
        "run_id": int(run_id),
        "attempt": int(attempt),
        "key": job.idempotency_key,
        "token": token,
        "events": events,
        "leases": Keys.from_events_key(events).leases,
    }


def read_payload(data: str | bytes | None, description: str | bytes | None) -> dict[str, Any] | None:
    """The payload of an RQ job, by its PARTS; None when there is no job, or when it is not one of ours.
    Anybody who can write to Redis can write a job: whoever runs one may rely on what it has, and of which
    type."""
    if data is None:
        return None
    try:
        function, instance, given, options = loads(unpack_data(data).decode())
        if (function, instance) != (RUN_STEP, None):
            return None
        lease = description.decode() if isinstance(description, bytes) else description or ""
        found = build_payload(given, options, lease)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return found if _is_complete(found) else None


def unpack_data(data: str | bytes) -> bytes:
    """The data of a job as JSON: RQ compresses it when it saves a job. ValueError for what is no list, or
    becomes too large."""
    plain = data.encode() if isinstance(data, str) else data
    if plain[:1] != b"[":
        unpacker = zlib.decompressobj()
        try:
            plain = unpacker.decompress(plain, MAX_DATA_BYTES)
        except zlib.error as error:
            raise ValueError("neither a JSON list nor one that was compressed") from error
        if plain[:1] != b"[" or unpacker.unconsumed_tail:
            raise ValueError(f"not a JSON list of at most {MAX_DATA_BYTES:,} bytes")
    return plain


_NUMBER = (int, float)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "execution": (str,),
    "step": (str,),
    "fn": (str,),
    "inputs": (dict,),
    "run_id": (int,),
    "attempt": (int,),
    "round": (int,),
    "iteration": (int, NoneType),
    "key": (str,),
    "token": (str,),
    "timeout_s": (*_NUMBER, NoneType),
    "max_output_bytes": (int,),
    "events": (str,),
    "leases": (str,),
}
_TYPES_OF_OPTIONS: Mapping[str, tuple[type, ...]] = {
    "heartbeat_s": _NUMBER,
    "source": (dict,),
    "secrets": (list,),
    "redact": (list,),
}


def _is_complete(found: Mapping[str, Any]) -> bool:
    return (
        found.keys() >= _TYPES.keys()
        and all(isinstance(found[name], types) for name, types in _TYPES.items())
        and all(isinstance(found.get(name, types[0]()), types) for name, types in _TYPES_OF_OPTIONS.items())
    )


def read_job(found: Mapping[str, Any], queue: str) -> DispatchJob:
    return DispatchJob(
        workflow_execution_id=found["execution"],
        step_id=found["step"],
        fn=found["fn"],
        inputs=found["inputs"],
        run_id=found["run_id"],
        attempt=found["attempt"],
        round=found["round"],
        iteration=found["iteration"],
        token=found["token"],
        queue=queue,
        timeout_s=found["timeout_s"],
        max_output_bytes=found["max_output_bytes"],
        heartbeat_s=found.get("heartbeat_s"),
        source=found.get("source"),
        secrets=tuple(map(tuple, found.get("secrets", ()))),
        redact=tuple(found.get("redact", ())),
    )


def lease_of_payload(payload: Mapping[str, Any]) -> str:
    """The lease member of a job, by its payload."""
    names = ("execution", "step", "run_id", "attempt", "token")
    return lease_member(*(payload[name] for name in names))


def lease_of_job(job: DispatchJob) -> str:
    return lease_member(job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token)


def lease_of_step(workflow_execution_id: str, step_id: str, step: StepRecord) -> str:
    """The lease member of a dispatch that the record knows."""
    return lease_member(workflow_execution_id, step_id, step.run_id, step.attempt, step.token or "")
