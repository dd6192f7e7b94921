"""DispatchJobs as RQ jobs: the smallest hash that a stock `rq worker --serializer json` runs."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import NoneType
from typing import Any

from orchestrator.application.records.decisions import DispatchJob, build_idempotency_key
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.dispatch_tokens import has_secret
from orchestrator.application.values.payload_refs import MAX_JOB_BYTES
from orchestrator.redis_rq.json_codec import dumps_envelope, json_fragment, loads
from orchestrator.redis_rq.keys import Keys, job_id_of, lease_member

RUN_STEP = "orchestrator.worker.harness.run_step"
"""The function that all our jobs call."""

MAX_DATA_BYTES = 4 * MAX_JOB_BYTES
"""The maximum size of a job after decompression: far more than the inputs of a step may have."""

TIMEOUT_MARGIN_S = 30
"""RQ's own timeout is only a fallback: the deadline in the record comes first."""


def job_args(job: DispatchJob, events: str, queue: str) -> list[str | int]:
    """One job as arguments of commit.lua; `events` is the stream for its result, `queue` its RQ queue."""
    timeout = -1 if job.timeout_s is None else math.ceil(job.timeout_s) + TIMEOUT_MARGIN_S
    args = [events, job.fn, json_fragment(job.inputs)]
    data = dumps_envelope([RUN_STEP, None, args, _options(job)])
    return [job_id_of(queue, job.token), data, timeout, lease_of_job(job)]


def _options(job: DispatchJob) -> dict[str, Any]:
    """The options that differ from their defaults. A token with a secret is one of them: only the data of a
    job carries it."""
    options = {name: value for name, default in _DEFAULTS.items() if (value := getattr(job, name)) != default}
    return {**options, "token": job.token} if has_secret(job.token) else options


_OPTIONS = (
    "round",
    "iteration",
    "timeout_s",
    "max_output_bytes",
    "heartbeat_s",
    "source",
    "secrets",
    "redact",
    "traceparent",
)
_DEFAULTS = {one.name: one.default for one in fields(DispatchJob) if one.name in _OPTIONS}


JOB_FIELDS = ("data", "description")
"""The fields of a job that read_payload() takes. The description is the lease: RQ shows it, and does not
change it when it compresses the data of a failed job."""


def build_payload(args: Sequence[Any], options: Mapping[str, Any], lease: str, job_id: str) -> dict[str, Any]:
    """Everything that the harness needs: from the arguments of a job, which are event stream, executor and
    inputs, and from its lease, which names the dispatch. Raises ValueError or TypeError for another shape.

    The lease of a job without a token in its options ends with the token: it is one of the last release, or
    its token has no secret."""
    events, fn, inputs = args
    execution, step_id, run_id, attempt, dispatch = lease.split("|")
    complete = {**_DEFAULTS, **options}
    return {
        **{name: complete[name] for name in ("round", "iteration", "timeout_s", "max_output_bytes")},
        **options,
        "execution": execution,
        "step": step_id,
        "fn": fn,
        "inputs": inputs,
        "run_id": int(run_id),
        "attempt": int(attempt),
        "key": build_idempotency_key(execution, step_id, complete["round"], complete["iteration"]),
        "token": options.get("token", dispatch),
        "job_id": job_id,
        "events": events,
        "leases": Keys.from_events_key(events).leases,
    }


def read_payload(
    data: str | bytes | None, description: str | bytes | None, *, job_id: str
) -> dict[str, Any] | None:
    """The payload of an RQ job from its JOB_FIELDS; None when there is no job, or when it is not one of ours.
    Any client of Redis can write a job, so the fields and their types are checked."""
    if data is None:
        return None
    try:
        function, instance, args, options = loads(unpack_data(data).decode())
        if (function, instance) != (RUN_STEP, None):
            return None
        lease = description.decode() if isinstance(description, bytes) else description or ""
        payload = build_payload(args, options, lease, job_id)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return payload if _is_complete(payload) else None


def unpack_data(data: str | bytes) -> bytes:
    """The data of a job as JSON: RQ compresses it when it saves a job. Raises ValueError for data that is not
    a list, or too large."""
    plain = data.encode() if isinstance(data, str) else data
    if plain[:1] != b"[":
        unpacker = zlib.decompressobj()
        try:
            plain = unpacker.decompress(plain, MAX_DATA_BYTES)
        except zlib.error as error:
            raise ValueError("neither a JSON list nor a compressed one") from error
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
    "job_id": (str,),
    "timeout_s": (*_NUMBER, NoneType),
    "max_output_bytes": (int,),
    "events": (str,),
    "leases": (str,),
}
_OPTION_TYPES: Mapping[str, tuple[type, ...]] = {
    "heartbeat_s": _NUMBER,
    "source": (dict,),
    "secrets": (list,),
    "redact": (list,),
    "traceparent": (str,),
}


def _is_complete(payload: Mapping[str, Any]) -> bool:
    return (
        payload.keys() >= _TYPES.keys()
        and all(isinstance(payload[name], types) for name, types in _TYPES.items())
        and all(isinstance(payload.get(name, types[0]()), types) for name, types in _OPTION_TYPES.items())
    )


def read_job(payload: Mapping[str, Any], queue: str) -> DispatchJob:
    return DispatchJob(
        workflow_execution_id=payload["execution"],
        step_id=payload["step"],
        fn=payload["fn"],
        inputs=payload["inputs"],
        run_id=payload["run_id"],
        attempt=payload["attempt"],
        round=payload["round"],
        iteration=payload["iteration"],
        token=payload["token"],
        queue=queue,
        timeout_s=payload["timeout_s"],
        max_output_bytes=payload["max_output_bytes"],
        heartbeat_s=payload.get("heartbeat_s"),
        source=payload.get("source"),
        secrets=tuple(map(tuple, payload.get("secrets", ()))),
        redact=tuple(payload.get("redact", ())),
        traceparent=payload.get("traceparent"),
    )


def lease_of_payload(payload: Mapping[str, Any]) -> str:
    """The lease member of a job, by its payload."""
    names = ("execution", "step", "run_id", "attempt", "token")
    return lease_member(*(payload[name] for name in names))


def lease_of_job(job: DispatchJob) -> str:
    return lease_member(job.workflow_execution_id, job.step_id, job.run_id, job.attempt, job.token)


def lease_of_step(workflow_execution_id: str, step_id: str, step: StepRecord) -> str:
    """The lease member of the current dispatch of a step."""
    return lease_member(workflow_execution_id, step_id, step.run_id, step.attempt, step.token or "")
