"""What a commit adds to the counters of the metrics: a pure function of its record and its changes.

    count_commit(record, changes, ...) -> Counts(workflow={"steps|complete": 1, "run|250": 1, ...},
                                                 queues={"default": {"wait|10": 1, "wait|sum": 7}})

The store adds these to its counters in the same write as the commit, so they count a result once. A field
is the name of a counter and what it distinguishes, joined by SEPARATOR. It names no execution and no step.

A histogram has one field per bucket, by its upper bound in ms, which counts the values of that bucket alone,
and the field `sum` in ms. A sample is in the smallest bucket that is not below it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import (
    FINAL_STEP_STATUSES,
    FINAL_WORKFLOW_STATUSES,
    WorkflowStatus,
)
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.values.unit_id import WEBHOOK_UNIT, split_unit

SEPARATOR = "|"
STARTED, RETRIES, REJECTED = "started", "retries", "rejected"
EXECUTIONS, STEPS, FAILURES, RUN, WAIT = "executions", "steps", "failures", "run", "wait"
SUM, INFINITE = "sum", "inf"
OTHER = "other"
"""The label value of everything beyond a limit."""

BUCKETS_MS = (
    *(5, 10, 25, 50, 100, 250, 500),
    *(1_000, 2_500, 5_000, 10_000, 30_000),
    *(60_000, 300_000, 1_800_000, 7_200_000),
)
"""The upper bounds of the buckets of both histograms, from 5 ms to 2 h."""

FAILURE_KINDS = frozenset(
    {
        "bad_output",
        "branch_target",
        "child_failed",
        "compensation",
        "declared",
        "exception",
        "expression",
        "internal",
        "loop_limit",
        "lost",
        "no_branch",
        "payload_missing",
        "refused",
        "rejected",
        "signal_timeout",
        "stalled",
        "timeout",
    }
)
"""The kinds of failure that are counted by their name. A worker may publish any other."""

MAX_NAME_CHARS = 100
DEFAULT_PRIORITY = 3

_STEP_ENDS = {str(status): f"{STEPS}{SEPARATOR}{status}" for status in FINAL_STEP_STATUSES}
_FAILED = ("failed", "skipped")
"""A step that has failed, and one with `on_error: skip`. A cancelled one may have an error of before."""
_BUCKET_NAMES = (*map(str, BUCKETS_MS), INFINITE)
_FIELDS = {
    histogram: (
        tuple(f"{histogram}{SEPARATOR}{name}" for name in _BUCKET_NAMES),
        f"{histogram}{SEPARATOR}{SUM}",
    )
    for histogram in (RUN, WAIT)
}

Fields = dict[str, int]


class Counts(NamedTuple):
    """What a commit adds, by field: to the counters of its workflow, and to those of each queue."""

    workflow: Fields
    queues: dict[str, Fields]


def count_commit(
    record: WorkflowRecord, changes: Changes, queue_of: Callable[[str], str], *, creates: bool = False
) -> Counts:
    """Count what a commit changes. `record` is as it was before, and `queue_of` names the queue of a unit."""
    counts = Counts({}, {})
    if creates:
        counts.workflow[STARTED] = 1
    status: WorkflowStatus | None = changes.fields.get("status")
    if status in FINAL_WORKFLOW_STATUSES:
        counts.workflow[f"{EXECUTIONS}{SEPARATOR}{status}"] = 1
    _count_transitions(changes, counts.workflow)
    if changes.finished_dispatches:
        _count_dispatches(changes, queue_of, counts)
    return counts


def workflow_label(record: WorkflowRecord) -> str:
    """The name of the workflow of a record, shortened; empty for a workflow without a name."""
    return (record.spec.name or "")[:MAX_NAME_CHARS]


def queue_label(name: str, priority: int) -> str:
    """The name of a queue, with its priority unless that is the default one."""
    name = name[:MAX_NAME_CHARS]
    return name if priority == DEFAULT_PRIORITY else f"{name}:{priority}"


def _count_transitions(changes: Changes, counts: Fields) -> None:
    """Count the steps that ended, and the retries and failures of all units."""
    for entry in changes.history:
        to = entry.get("to")
        if to is None:
            continue
        ended = _STEP_ENDS.get(to)
        if ended is not None and not split_unit(entry["step"])[1]:
            counts[ended] = counts.get(ended, 0) + 1
        # The next iteration of a loop is a first attempt again.
        is_retry = to == "retry" and entry["attempt"] > 1
        if is_retry:
            counts[RETRIES] = counts.get(RETRIES, 0) + 1
        if "error" in entry and (is_retry or to in _FAILED):
            kind = entry["error"].get("kind")
            kind = kind if kind in FAILURE_KINDS else OTHER
            failed = f"{FAILURES}{SEPARATOR}{kind}"
            counts[failed] = counts.get(failed, 0) + 1


def _count_dispatches(changes: Changes, queue_of: Callable[[str], str], counts: Counts) -> None:
    """Count how long each job has waited in its queue and how long it ran. The end of a child is the result
    of a step too, but had no job; a webhook is no step."""
    results = dict(changes.recorded_results)
    for unit, before in changes.finished_dispatches:
        if before.child is not None or unit == WEBHOOK_UNIT:
            continue
        times = _times(before, results.get(unit) or changes.steps.get(unit), changes.at_ms)
        if times is not None:
            wait_ms, run_ms = times
            _observe(counts.workflow, RUN, run_ms)
            _observe(counts.queues.setdefault(queue_of(unit), {}), WAIT, wait_ms)


def _times(before: StepRecord, after: StepRecord | None, now_ms: int) -> tuple[int, int] | None:
    """How long a job waited and ran, in ms; None if its worker did not say when it began. The worker has
    another clock than Redis, so its time counts only as far as it is between the dispatch and the result."""
    started_at = (after.started_at if after is not None else None) or before.started_at
    started_ms, dispatched_ms = _parse_ms(started_at), _parse_ms(before.dispatched_at)
    if started_ms is None or dispatched_ms is None:
        return None
    started_ms = max(min(started_ms, now_ms), dispatched_ms)
    return started_ms - dispatched_ms, max(now_ms - started_ms, 0)


def _observe(counts: Fields, histogram: str, value_ms: int) -> None:
    buckets, total = _FIELDS[histogram]
    bucket = buckets[bisect_left(BUCKETS_MS, value_ms)]
    counts[bucket] = counts.get(bucket, 0) + 1
    counts[total] = counts.get(total, 0) + value_ms


def _parse_ms(at: str | None) -> int | None:
    """A time as iso() writes it, in ms; None for anything else."""
    if at is None or len(at) != len("2026-01-31T12:00:00.000Z") or not at[20:23].isdecimal():
        return None
    second = _parse_second(at[:19])
    return None if second is None else second * 1000 + int(at[20:23])


@lru_cache(maxsize=256)
def _parse_second(at: str) -> int | None:
    try:
        return int(datetime.fromisoformat(f"{at}+00:00").timestamp())
    except ValueError:
        return None


def cumulate(fields: Mapping[str, int]) -> list[tuple[float, int]]:
    """A histogram by its buckets, as their upper bounds in s, each with the number of values up to it.
    `fields` are the numbers by the names of the buckets."""
    total, buckets = 0, []
    for bound_ms, name in zip((*BUCKETS_MS, float("inf")), _BUCKET_NAMES, strict=True):
        total += fields.get(name, 0)
        buckets.append((bound_ms / 1000, total))
    return buckets
