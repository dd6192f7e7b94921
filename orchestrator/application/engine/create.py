"""The start of an execution, on its own or as the child of another."""

from __future__ import annotations

from typing import Any

from orchestrator.application.engine.finish import child_result
from orchestrator.application.engine.webhook import read_webhook
from orchestrator.application.errors import OrchestratorError
from orchestrator.application.records.events import Moment, Parent, ResultEvent, StartEvent, make_failure
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import ChildSpec, LoadedSpec


class UnknownWorkflow(OrchestratorError):
    """A start names a workflow that is not registered."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no workflow is registered as {name!r}")
        self.name = name


def new_record(
    loaded: LoadedSpec, execution_id: str, inputs: dict[str, Any], event: StartEvent, moment: Moment
) -> WorkflowRecord:
    """Build the record of a new execution; InvalidEvent when its webhook is not valid."""
    return WorkflowRecord(
        loaded=loaded,
        execution_id=execution_id,
        inputs=inputs,
        created_at=moment.iso,
        start_event=moment.cause or None,
        labels=event.labels,
        group=event.group,
        priority=event.priority,
        idempotency_root=event.idempotency_root,
        schedule=event.schedule,
        parent=event.parent,
        webhook=None if event.webhook is None else read_webhook(event.webhook),
        traceparent=event.traceparent,
    )


def child_spec(parent: LoadedSpec, step_id: str) -> ChildSpec:
    """The child that a step describes: a document, or a name that is looked up when the child starts."""
    child = parent.spec.steps[parent.graph.index[step_id]].child
    assert child is not None, f"{step_id} has no child"
    return child


def reject_child(parent: Parent, reason: str) -> ResultEvent:
    """The result for a parent whose child cannot start."""
    return child_result(parent, None, make_failure("child_failed", f"the child was rejected: {reason}"))
