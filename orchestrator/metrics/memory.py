"""An estimate of the memory of our keys, from a sample: the number of commands does not grow with the data.

For each status, the keys of SAMPLE executions are measured, and their mean is multiplied by the number of
executions of that status. The keys that exist once are measured by Redis, which samples them too. Keys
that cannot be counted without a scan are not included: payloads, documents, replies, the indexes by name,
group and label, concurrency keys and shared values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.metrics_core import Metric

from orchestrator.application.records.status import WorkflowStatus
from orchestrator.metrics.families import MAX_LABELS, gauge, gauges
from orchestrator.redis_rq.connection import Client, execute_pipeline
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.queries.pending_events import all_streams

SAMPLE = 5
"""How many executions of each status are measured."""
SAMPLED_VALUES = 100
"""Of how many fields of a record Redis takes the size. One of a few fields may have most of it."""

Part = tuple[str, str]
"""The name of a part, and one of its keys."""


def read_memory(client: Client, keys: Keys) -> Iterator[Metric]:
    parts = _single_keys(client, keys)
    with client.pipeline(transaction=False) as pipe:
        for _, key in parts:
            pipe.memory_usage(key)
        for status in WorkflowStatus:
            pipe.zcard(keys.index(status))
            pipe.zrandmember(keys.index(status), SAMPLE)
        pipe.info("memory")
        *found, info = execute_pipeline(pipe)
    sizes: dict[tuple[str, ...], float] = {}
    for (part, _), size in zip(parts, found[: len(parts)], strict=True):
        sizes[(part,)] = sizes.get((part,), 0) + _number(size)
    indexed = found[len(parts) :]
    sizes[("executions",)] = _executions(client, keys, indexed[0::2], indexed[1::2])
    text = "The estimated memory of our keys, by part; see docs/metrics.md for what is left out."
    yield gauges("keys_memory_bytes", text, ("part",), sizes)
    if isinstance(info, dict):  # the user may lack the right to INFO
        used, limit = _number(info.get("used_memory")), _number(info.get("maxmemory"))
        yield gauge("redis_memory_bytes", "The memory that Redis uses for all its data.", used)
        yield gauge("redis_memory_limit_bytes", "The setting maxmemory; 0 for no limit.", limit)


def _single_keys(client: Client, keys: Keys) -> Sequence[Part]:
    """The keys that exist once, with the part that each belongs to."""
    streams = all_streams(client, keys)[: MAX_LABELS + 1]
    return [
        *(("streams", key) for key in (*streams, keys.dead_letters)),
        *(("indexes", keys.index(status)) for status in WorkflowStatus),
        ("indexes", keys.ended),
        ("indexes", keys.leaving),
        ("leases", keys.leases),
        ("timers", keys.timers),
        *(
            ("other", key)
            for key in (keys.metrics, keys.slots, keys.groups, keys.schedules, keys.definitions)
        ),
    ]


def _executions(client: Client, keys: Keys, counts: Sequence[Any], samples: Sequence[Any]) -> float:
    """The memory of all records with their histories, step logs and pointers."""
    ids = [one for sample in samples if isinstance(sample, list) for one in sample]
    with client.pipeline(transaction=False) as pipe:
        for one in ids:
            for key in _keys_of(one, keys):
                pipe.memory_usage(key, SAMPLED_VALUES)
        sizes = iter(execute_pipeline(pipe) if ids else ())
    total = 0.0
    for count, sample in zip(counts, samples, strict=True):
        if isinstance(sample, list) and sample:
            own = sum(_number(next(sizes)) for one in sample for _ in _keys_of(one, keys))
            total += own / len(sample) * _number(count)
    return total


def _keys_of(execution: str, keys: Keys) -> Sequence[str]:
    pointer = keys.execution(execution.partition("#")[2])
    return (keys.workflow(execution), keys.history(execution), keys.step_log(execution), pointer)


def _number(reply: Any) -> int:
    return reply if isinstance(reply, int) else 0
