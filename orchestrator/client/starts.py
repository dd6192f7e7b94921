"""Starts, as a client writes them into their stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.application.errors import StartRejected
from orchestrator.application.records.events import ConflictPolicy
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_inputs, check_spec
from orchestrator.client.payloads import ClientPayloads
from orchestrator.redis_rq.event_codec import dumps, loads

WorkflowSource = str | Mapping[str, Any] | LoadedSpec
"""What is started: a registered name, a document, or one that was loaded."""


@dataclass(frozen=True, slots=True)
class StartResult:
    """An execution that a start has led to. Of one that was there before and is `existing`, the status is
    known too, and its outcome or its error if it has ended."""

    workflow_execution_id: str
    execution_id: str
    existing: bool = False
    status: str | None = None
    outcome: Any = None
    error: dict[str, Any] | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> StartResult:
        return cls(
            answer["workflow_execution_id"],
            answer["execution_id"],
            answer.get("existing", False),
            answer.get("status"),
            answer.get("outcome"),
            answer.get("error"),
        )


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What else a start may say: what happens when its execution id is taken, the labels by which it is
    found, its group, the priority of steps that have none of their own, and the root under which it is not
    to be started twice, and whom to tell of its end: a URL, or a mapping as in a document."""

    conflict_policy: ConflictPolicy | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    priority: int | None = None
    idempotency_root: str | None = None
    idempotency_window_s: int | None = None
    webhook: str | Mapping[str, Any] | None = None

    def fields(self) -> dict[str, Any]:
        given = {name: value for name, value in asdict(self).items() if value not in (None, {})}
        for name in ("labels", "webhook"):
            if isinstance(given.get(name), Mapping):
                given[name] = dumps(given[name])
        return given


class StartWriter:
    """Makes the fields of starts. What one of them has been checked for is not checked again for the next."""

    def __init__(self, large: ClientPayloads) -> None:
        self._large = large
        self._known: dict[int, tuple[WorkflowSource, LoadedSpec, str]] = {}

    def fields(
        self,
        workflow: WorkflowSource,
        inputs: Mapping[str, Any],
        execution_id: str | None = None,
        options: StartOptions | None = None,
    ) -> dict[Any, Any]:
        """A spec is checked here already, so that its problems come at once; and so are inputs that nobody
        can look into later."""
        stowed = self._large.offload(inputs)
        fields: dict[Any, Any] = {"inputs": stowed.text}
        loaded: LoadedSpec | None = None
        if not isinstance(workflow, str):
            _, loaded, fields["spec"] = self._checked(workflow)
        else:
            fields["workflow"] = workflow
            if stowed.payloads:
                loaded = self._large.find(workflow)
        if loaded is not None:
            given = loads(stowed.text) if stowed.payloads else dict(inputs)
            _, problems = check_inputs(loaded.spec, given, dict(inputs))
            if problems:
                raise StartRejected(
                    "\n".join(map(str, problems)), [problem.as_dict() for problem in problems]
                )
        self._large.put(stowed)
        if execution_id is not None:
            fields["execution_id"] = execution_id
        return fields | (options.fields() if options is not None else {})

    def _checked(self, workflow: Mapping[str, Any] | LoadedSpec) -> tuple[WorkflowSource, LoadedSpec, str]:
        """By identity: whoever starts many hands over the same object every time."""
        if id(workflow) not in self._known:
            loaded = workflow if isinstance(workflow, LoadedSpec) else check_spec(dict(workflow))
            self._known[id(workflow)] = (workflow, loaded, dumps(loaded.document))
        return self._known[id(workflow)]
