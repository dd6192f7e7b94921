"""The pictures of the documentation. `scripts/pictures` draws them into docs/pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.application.records.status import FINAL_STEP_STATUSES, FINAL_WORKFLOW_STATUSES
from scripts.documentation.drawing import Arrow, Box, Message, draw_boxes, draw_sequence

KINDS = {
    "deferred": "waiting",
    "waiting": "waiting",
    "in_progress": "active",
    "retry": "held",
    "on_hold": "held",
    "paused": "held",
    "compensating": "held",
    "complete": "good",
    "failed": "bad",
    "cancelled": "bad",
    "halted": "bad",
    "skipped": "quiet",
    "filtered": "quiet",
}
"""The colour of each status, as the page has it."""

STEP_PLACES = {
    "ready": (0.4, 1.4),
    "on_hold": (0.4, 0),
    "waiting": (1.8, 0.4),
    "deferred": (1.8, 1.4),
    "in_progress": (1.8, 2.4),
    "retry": (1.8, 3.8),
    "filtered": (0, 3),
    "skipped": (0.8, 3),
    "complete": (3.4, 0.4),
    "failed": (3.4, 1.4),
    "halted": (3.4, 2.4),
    "cancelled": (3.4, 3.8),
}
STEP_ARROWS = (
    Arrow("ready", "on_hold", "hold", shift=-30),
    Arrow("on_hold", "ready", "release", shift=-30),
    Arrow("ready", "waiting", "wait"),
    Arrow("ready", "deferred", "delay"),
    Arrow("ready", "in_progress", "a job"),
    Arrow("ready", "filtered", "path not taken"),
    Arrow("ready", "skipped", "a parent failed", at=0.75),
    Arrow("deferred", "in_progress", "its time has come"),
    Arrow("deferred", "complete", "delay is over", at=0.3),
    Arrow("waiting", "complete", "signal"),
    Arrow("waiting", "failed", "no signal in time", at=0.3),
    Arrow("in_progress", "complete", "success", at=0.3),
    Arrow("in_progress", "failed", "no attempt is left", at=0.55),
    Arrow("in_progress", "halted", "a branch"),
    Arrow("in_progress", "cancelled", "the execution ends"),
    Arrow("in_progress", "retry", "an attempt is left", shift=-36, at=0.65),
    Arrow("retry", "in_progress", "its time has come", shift=-36, at=0.65),
)
"""The moves that explain the rest. docs/language.md has the table of all moves."""

EXECUTION_PLACES = {
    "pending": (0, 1.2),
    "in_progress": (1.2, 1.2),
    "paused": (1.2, 0),
    "compensating": (1.2, 2.6),
    "complete": (2.8, 0),
    "halted": (2.8, 0.85),
    "failed": (2.8, 1.7),
    "cancelled": (2.8, 2.6),
}
EXECUTION_ARROWS = (
    Arrow("pending", "in_progress", "first job"),
    Arrow("in_progress", "paused", "pause", shift=-24),
    Arrow("paused", "in_progress", "unpause", shift=-24),
    Arrow("in_progress", "complete", "all steps ended"),
    Arrow("in_progress", "halted", "a branch", at=0.6),
    Arrow("in_progress", "failed", "a step failed", at=0.6),
    Arrow("in_progress", "cancelled", "cancel", at=0.45),
    Arrow("in_progress", "compensating", "undo"),
    Arrow("compensating", "failed", "after a failure", at=0.28),
    Arrow("compensating", "cancelled", "after a cancel"),
)


def draw_step_states() -> str:
    return draw_boxes("The states of a step", _status_boxes(STEP_PLACES), STEP_ARROWS)


def draw_execution_states() -> str:
    return draw_boxes("The states of an execution", _status_boxes(EXECUTION_PLACES), EXECUTION_ARROWS)


def _status_boxes(places: Mapping[str, tuple[float, float]]) -> list[Box]:
    ends = {status.value for status in {*FINAL_STEP_STATUSES, *FINAL_WORKFLOW_STATUSES}}
    return [
        Box(name, column, row, KINDS.get(name, "plain"), "an end" if name in ends else "")
        for name, (column, row) in places.items()
    ]


def draw_step_flow() -> str:
    client, redis, coordinator, worker = range(4)
    return draw_sequence(
        "The way of a step, from the start event to its result",
        ("client", "Redis", "coordinator", "worker"),
        (
            Message(client, redis, "XADD: start event"),
            Message(redis, coordinator, "read events"),
            Message(coordinator, coordinator, "decide: a pure function", "active"),
            Message(coordinator, redis, "commit, one script"),
            Message(redis, redis, "record, job, lease, reply, ack", "good"),
            Message(redis, client, "reply: accepted"),
            Message(redis, worker, "job with inputs and token"),
            Message(worker, worker, "executor(inputs)", "active"),
            Message(worker, redis, "XADD: result event with output"),
            Message(redis, coordinator, "read events"),
            Message(coordinator, coordinator, "decide: is the token current?", "active"),
            Message(coordinator, redis, "commit, one script"),
            Message(redis, redis, "record, next jobs, ack", "good"),
        ),
    )


def draw_leases_and_tokens() -> str:
    coordinator, redis, first, second = range(4)
    return draw_sequence(
        "A lease that expires, and a token that fences the late result",
        ("coordinator", "Redis", "worker 1", "worker 2"),
        (
            Message(coordinator, redis, "commit: job with token A"),
            Message(redis, first, "job; the lease begins"),
            Message(first, redis, "renew the lease"),
            Message(first, first, "stands still", "bad"),
            Message(redis, redis, "the lease expires", "held"),
            Message(redis, coordinator, "sweep: lost event, token A"),
            Message(coordinator, redis, "commit: job with token B"),
            Message(redis, second, "job; a new lease begins"),
            Message(second, redis, "result with token B"),
            Message(redis, coordinator, "token B is current: it counts"),
            Message(first, redis, "late result with token A"),
            Message(redis, coordinator, "token A is stale: dropped"),
        ),
    )


def draw_deployment() -> str:
    boxes = (
        Box("applications", 0, 0, details="any language"),
        Box("orchestrator web", 0, 1, details="page and HTTP API"),
        Box("Redis", 1.5, 0.5, "active", "all state"),
        Box("replicas", 1.5, 1.7, "quiet", "Sentinel"),
        Box("coordinators", 3, 0, "good", "two or more, no disk"),
        Box("workers", 3, 1, "good", "any number per queue"),
        Box("other services", 3, 2, "quiet", "called by executors"),
        Box("Prometheus", 0, 2, "quiet", "reads /metrics"),
    )
    arrows = (
        Arrow("applications", "Redis", "starts, signals"),
        Arrow("orchestrator web", "Redis", "reads, controls"),
        Arrow("Prometheus", "orchestrator web"),
        Arrow("coordinators", "Redis", "events, commits"),
        Arrow("workers", "Redis", "jobs, results"),
        Arrow("workers", "other services"),
        Arrow("replicas", "Redis", "replication"),
    )
    return draw_boxes(
        "The processes of a system: every arrow is a connection that its start opens", boxes, arrows
    )


PICTURES: Mapping[str, Callable[[], str]] = {
    "step-states.svg": draw_step_states,
    "execution-states.svg": draw_execution_states,
    "step-flow.svg": draw_step_flow,
    "leases-and-tokens.svg": draw_leases_and_tokens,
    "deployment.svg": draw_deployment,
}
"""The files in docs/pictures that are drawn here."""
