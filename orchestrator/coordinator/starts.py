"""Starts: the spec that a start means, and the commit that would create its execution.

A start comes from a producer, or from a parent that asks for its child. Nothing is written here: the
coordinator commits, and answers what is refused.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from orchestrator.application.engine.create import UnknownWorkflow, child_spec, new_record
from orchestrator.application.engine.transitions import decide
from orchestrator.application.errors import InvalidEvent, InvalidSpec, Unavailable
from orchestrator.application.records.events import Moment, Parent, StartEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.model import ChildSpec, LoadedSpec
from orchestrator.application.spec.tag_routes import TagRoutes
from orchestrator.application.spec.validation import check_inputs, load_spec
from orchestrator.backend.backend import Backend
from orchestrator.backend.ports import Commit, Definitions, Delivery, EventLog

Reply = dict[str, Any]
NamedWorkflows = Mapping[str, str | None]
"""Names of workflows, and the workflow_id that is registered under each, if any."""


class Starts:
    def __init__(
        self,
        backend: Backend,
        log: EventLog,
        definitions: Definitions,
        routes: TagRoutes,
        jobs_per_commit: int,
    ) -> None:
        self._backend, self._log, self._definitions = backend, log, definitions
        self._routes, self._jobs_per_commit = routes, jobs_per_commit
        self._specs = SpecCache()

    def find_named_workflows(self, deliveries: Sequence[Delivery]) -> NamedWorkflows:
        """The registered workflows that some starts name, looked up at once."""
        events = (cast("StartEvent", delivery.event) for delivery in deliveries)
        names = list({event.workflow: None for event in events if event.workflow is not None})
        try:
            return dict(zip(names, self._definitions.named(names), strict=True)) if names else {}
        except Unavailable:
            raise
        except Exception:  # each is asked for by itself then: it must not harm the others
            return {}

    def build_creation(
        self, delivery: Delivery, moment: Moment, named: NamedWorkflows, has_signals: bool = False
    ) -> Commit:
        """The commit that creates what a start asks for. Raises InvalidEvent, InvalidSpec, UnknownWorkflow,
        NoRoute or StoreError when there is nothing that could be created.

        Few executions have signals before they begin: without `has_signals` none are looked for, and the
        store says when there are some (AGAIN).
        """
        event = cast("StartEvent", delivery.event)
        loaded = self._spec_of(event, named)
        self._routes.queues(loaded.spec)
        inputs, problems = check_inputs(loaded.spec, event.inputs)
        if problems:
            raise InvalidSpec(problems)
        execution_id = event.execution_id or execution_id_for_start(delivery)
        record = new_record(loaded, execution_id, inputs, event, moment)
        if has_signals:
            record.signals = self._log.load_early_signals(execution_id)
        self._backend.load_shared_values([record])
        if record.parent is None:
            record.shared["global"] = {}  # what is there is of another that had this id
        changes = decide(record, [], moment, self._jobs_per_commit).changes
        commit = Commit(record, changes, events=[delivery.ref], require_pending=[delivery.ref], creates=True)
        if event.parent is None:
            commit.replies = {delivery.ref.entry_id: _accepted(record.workflow_execution_id)}
        if event.idempotency_root is not None:
            commit.root = (event.idempotency_root, event.idempotency_window_s)
        return commit

    def _spec_of(self, event: StartEvent, named: NamedWorkflows) -> LoadedSpec:
        if event.spec is not None:
            return self._specs.load(event.spec)
        name = event.workflow or ""
        if event.parent is not None:
            child = self._child_of(event.parent)
            if child.loaded is not None:
                return child.loaded
            name = child.name or ""
        workflow_id = named[name] if name in named else self._definitions.named([name])[0]
        if workflow_id is None:
            raise UnknownWorkflow(name)
        return self._definitions.spec(workflow_id)

    def _child_of(self, parent: Parent) -> ChildSpec:
        """Anybody can send what looks like the word of a parent, and name whatever they like."""
        loaded = self._definitions.spec(parent.execution.partition("#")[0])
        position = loaded.graph.index.get(parent.step_id)
        if position is None or loaded.spec.steps[position].child is None:
            raise InvalidEvent(f"workflow {parent.execution!r} has no step {parent.step_id!r} with a child")
        return child_spec(loaded, parent.step_id)

    def reply_to_repeated(self, commit: Commit) -> Reply | None:
        """What became of the first start under the same idempotency root; None when its window has ended."""
        assert commit.root is not None, "only a root makes a start a repeated one"
        first = self._backend.shared_state.find_by_root(commit.root[0])
        if first is None:
            return None
        [record] = self._backend.checkout_many([first]).values()
        if isinstance(record, WorkflowRecord):
            return existing_execution_reply(record)
        return {**_accepted(first), "existing": True}


class SpecCache:
    """Specs by their text: a producer sends the same one again and again, and checking it costs."""

    def __init__(self, kept: int = 256) -> None:
        self._kept = kept
        self._specs: OrderedDict[str, LoadedSpec] = OrderedDict()

    def load(self, text: str) -> LoadedSpec:
        if text in self._specs:
            self._specs.move_to_end(text)
            return self._specs[text]
        loaded = load_spec(text)
        self._specs[text] = loaded
        if len(self._specs) > self._kept:
            self._specs.popitem(last=False)
        return loaded


def execution_id_for_start(delivery: Delivery) -> str:
    """Made from the start's own id, so that the same start makes the same execution."""
    milliseconds, _, sequence = delivery.ref.entry_id.partition("-")
    at = datetime.fromtimestamp(delivery.at_ms // 1000, UTC)
    return f"{at:%Y%m%dT%H%M%S}-{int(milliseconds) % 1000:03x}{int(sequence):x}"


def existing_execution_reply(record: WorkflowRecord) -> Reply:
    """What a start hears that began nothing: the execution that is there, and its result if it has one."""
    answer = {**_accepted(record.workflow_execution_id), "existing": True, "status": record.status.value}
    return answer | ({"outcome": record.outcome, "error": record.error} if record.is_final else {})


def _accepted(workflow_execution_id: str) -> Reply:
    execution_id = workflow_execution_id.partition("#")[2]
    return {"ok": True, "workflow_execution_id": workflow_execution_id, "execution_id": execution_id}
