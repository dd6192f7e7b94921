"""The counters and histograms that coordinators keep in Redis."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from orchestrator.application.records import metric_counts as counted
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.metrics.families import MAX_LABELS, PREFIX, counter, counters, gauges
from orchestrator.redis_rq.connection import Client, execute_pipeline
from orchestrator.redis_rq.json_codec import loads
from orchestrator.redis_rq.keys import SEQUENCES_PER_QUEUE, Keys
from orchestrator.redis_rq.metric_args import QUEUE, WORKFLOW

WORKFLOW_COUNTERS = (
    (counted.STARTED, "executions_started", "Executions that were created.", ()),
    (
        counted.EXECUTIONS,
        "executions_ended",
        "Executions that ended. One that is retried ends again.",
        ("status",),
    ),
    (counted.STEPS, "steps_ended", "Steps that ended. One that runs again ends again.", ("status",)),
    (counted.RETRIES, "step_retries", "Attempts that were followed by another one.", ()),
    (
        counted.FAILURES,
        "step_failures",
        "Failures of steps, items and compensations, by the kind of the failure.",
        ("kind",),
    ),
)
"""The counters with the label `workflow`: the field, the metric, its help, and its labels after the first."""

SYSTEM_COUNTERS = (
    ("lost", "steps_lost", "Attempts whose worker was lost."),
    ("declined", "steps_declined", "Attempts that a worker without the executor gave back."),
    ("stale", "results_stale", "Events of workers about a dispatch that was no longer current."),
    ("late", "events_late", "Events for executions that had ended."),
    ("conflicts", "decision_conflicts", "Decisions repeated because another coordinator was first."),
    ("dead", "dead_letters_written", "Events that became dead letters."),
    ("not_shared", "shared_values_not_written", "Shared values that could not be written."),
)
"""The fields of the counters of the system, each with its metric and help."""

SLOT_RESULTS = ("started", "missed", "skipped")
_NUMBER = re.compile(r"[0-9]{1,19}")
_MAX_NUMBER = 2**63


def read_counters(client: Client, keys: Keys) -> Iterator[Metric]:
    """All counters, in one round trip."""
    with client.pipeline(transaction=False) as pipe:
        pipe.hgetall(keys.metrics)
        pipe.hgetall(keys.counters)
        pipe.hgetall(keys.schedules)
        pipe.hgetall(keys.sequences)
        replies = execute_pipeline(pipe)
    found, system, schedules, sequences = (_hash(reply) for reply in replies)
    yield from _commit_counters(_numbers(found))
    numbers = _numbers(system)
    for field, name, text in SYSTEM_COUNTERS:
        yield counter(name, text, numbers.get(field, 0))
    yield _schedule_slots(schedules)
    yield _dispatched(_numbers(sequences), keys)


def first_queues(sequences: Mapping[str, int]) -> list[str]:
    """The queues that were used first, at most MAX_LABELS; see FIRST_SEQUENCE."""
    return sorted(sequences, key=lambda queue: sequences[queue])[:MAX_LABELS]


def _commit_counters(found: Mapping[str, int]) -> Iterator[Metric]:
    """What commits have counted; metric_counts.py describes the fields."""
    grouped: defaultdict[str, dict[Sequence[str], int]] = defaultdict(dict)
    for field, count in found.items():
        name, _, rest = field.partition(counted.SEPARATOR)
        parts: tuple[str, ...] = (rest,)
        if name not in (counted.STARTED, counted.RETRIES, counted.REJECTED):
            detail, _, label = rest.partition(counted.SEPARATOR)
            parts = (label, detail)
        grouped[name][parts] = count
    for status in sorted(FINAL_WORKFLOW_STATUSES):  # a rate is right from the first failure on
        for (label,) in list(grouped[counted.STARTED]):
            grouped[counted.EXECUTIONS].setdefault((label, status), 0)
    for kind in RejectionKind:
        grouped[counted.REJECTED].setdefault((kind,), 0)
    for field, name, text, labels in WORKFLOW_COUNTERS:
        yield counters(name, text, ("workflow", *labels), _tuples(grouped[field]))
    yield _histogram("step_run_seconds", "How long attempts ran.", "workflow", grouped[counted.RUN])
    yield _histogram(
        "queue_wait_seconds", "How long jobs waited for a worker.", "queue", grouped[counted.WAIT]
    )
    text = "Starts that were rejected, by reason."
    yield counters("starts_rejected", text, ("reason",), _tuples(grouped[counted.REJECTED]))
    text = "Names with counters of their own, by the kind of the name; the others count as `other`."
    values = {(kind,): found.get(kind, 0) for kind in (WORKFLOW, QUEUE)}
    yield gauges("known_names", text, ("kind",), values)


def _tuples(values: Mapping[Sequence[str], int]) -> Mapping[tuple[str, ...], int]:
    return {tuple(parts): count for parts, count in values.items()}


def _histogram(name: str, text: str, label: str, values: Mapping[Sequence[str], int]) -> Metric:
    by_label: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (own, detail), count in values.items():
        by_label[own][detail] = count
    family = HistogramMetricFamily(PREFIX + name, text, labels=[label])
    for own, fields in sorted(by_label.items()):
        buckets = [(_bound_text(bound), count) for bound, count in counted.cumulate(fields)]
        family.add_metric([own], buckets, sum_value=fields.get(counted.SUM, 0) / 1000)
    return family


def _bound_text(bound_s: float) -> str:
    return "+Inf" if bound_s == float("inf") else repr(float(bound_s))


def _schedule_slots(schedules: Mapping[str, str]) -> Metric:
    """The slots of schedules. The first schedules by name have a label of their own."""
    values: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for position, (name, text) in enumerate(sorted(schedules.items())):
        label = name[: counted.MAX_NAME_CHARS] if position < MAX_LABELS else counted.OTHER
        stored = _object(text)
        for result in SLOT_RESULTS:
            count = stored.get(result, 0)
            values[label, result] += count if isinstance(count, int) and 0 <= count < _MAX_NUMBER else 0
    text = "Slots of schedules that started an execution, that were missed, or that were skipped."
    return counters("schedule_slots", text, ("workflow", "result"), values)


def _dispatched(sequences: Mapping[str, int], keys: Keys) -> Metric:
    """The sequence of the last job of a queue says how many jobs it ever had."""
    named = {
        (keys.queue_name(queue)[: counted.MAX_NAME_CHARS],): sequences[queue] % SEQUENCES_PER_QUEUE
        for queue in first_queues(sequences)
    }
    return counters("jobs_dispatched", "Jobs that were put into a queue.", ("queue",), named)


def _object(text: str) -> dict[str, Any]:
    try:
        stored = loads(text)
    except (ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) else {}


def _hash(reply: Any) -> dict[str, str]:
    return reply if isinstance(reply, dict) else {}


def _numbers(found: Mapping[str, str]) -> dict[str, int]:
    return {field: int(text) for field, text in found.items() if _NUMBER.fullmatch(text)}
