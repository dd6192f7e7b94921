"""How an execution begins, of its own or as the child of another."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from orchestrator.application.engine.finish import child_result
from orchestrator.application.engine.webhook import read_webhook
from orchestrator.application.errors import OrchestratorError
from orchestrator.application.records.events import Moment, Parent, ResultEvent, StartEvent, failure
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import ChildSpec, LoadedSpec


class UnknownWorkflow(OrchestratorError):
    """A start names a workflow that nobody registered."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no workflow is registered as {name!r}")
        self.name = name


def new_record(
    loaded: LoadedSpec, execution_id: str, inputs: dict[str, Any], event: StartEvent, moment: Moment
) -> WorkflowRecord:
    """The record of an execution that begins; InvalidEvent when its start does not make sense."""
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
        parent=None if event.parent is None else asdict(event.parent),
        webhook=None if event.webhook is None else read_webhook(event.webhook),
    )


def child_spec(parent: LoadedSpec, step_id: str) -> ChildSpec:
    """What a step says of its child: a document, or a name to look up when the child begins."""
    found = parent.spec.steps[parent.graph.index[step_id]].child
    assert found is not None, f"{step_id} has no child"
    return found


def reject_child(parent: Parent, reason: str) -> ResultEvent:
    """What a parent hears when its child cannot begin."""
    return child_result(parent, None, failure("child_failed", f"the child was refused: {reason}"))
