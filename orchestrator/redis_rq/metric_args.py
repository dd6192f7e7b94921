"""The counters of the metrics as arguments of commit.lua, which adds them in the write of their commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from orchestrator.application.records.metric_counts import count_commit, queue_label, workflow_label
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.backend.ports import Commit

WORKFLOW, QUEUE = "workflow", "queue"
"""The kinds of labels. commit_metrics.lua limits the number of labels of each."""

Command = list[str | int | float]
QueueOf = Callable[[WorkflowRecord, str], str]


def count_commands(commit: Commit, queue_of: QueueOf) -> Iterator[Command]:
    """What a commit adds to the counters. `queue_of` names the queue of a unit."""
    record = commit.record

    def label_of(unit: str) -> str:
        spec = record.loaded.unit_spec(unit)
        priority = spec.priority if spec.has_own_priority else record.priority or spec.priority
        return queue_label(queue_of(record, unit), priority)

    counts = count_commit(record, commit.changes, label_of, creates=commit.creates)
    if counts.workflow:
        yield ["COUNT", WORKFLOW, workflow_label(record), *_flatten(counts.workflow)]
    for queue, fields in counts.queues.items():
        yield ["COUNT", QUEUE, queue, *_flatten(fields)]


def _flatten(fields: dict[str, int]) -> Iterator[str | int]:
    for field, count in fields.items():
        yield field
        yield count
