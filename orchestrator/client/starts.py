"""Writes start events, as a client adds them to the stream of starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from orchestrator.application.errors import StartRejected
from orchestrator.application.records.events import ConflictPolicy
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_inputs, check_spec
from orchestrator.application.values.trace_context import TRACEPARENT_RULE, parse_traceparent
from orchestrator.client.payloads import ClientPayloads
from orchestrator.redis_rq.json_codec import dumps, loads

WorkflowSource = str | Mapping[str, Any] | LoadedSpec
"""The workflow to start: a registered name, a document, or a loaded spec."""


@dataclass(frozen=True, slots=True)
class StartResult:
    """The execution that a start led to.

    `existing` is true if it existed before. Then `status` is set too, and `outcome` or `error` if it has
    ended.
    """

    workflow_execution_id: str
    execution_id: str
    existing: bool = False
    status: str | None = None
    outcome: Any = None
    error: dict[str, Any] | None = None

    @classmethod
    def of(cls, reply: Mapping[str, Any]) -> StartResult:
        return cls(
            reply["workflow_execution_id"],
            reply["execution_id"],
            reply.get("existing", False),
            reply.get("status"),
            reply.get("outcome"),
            reply.get("error"),
        )


@dataclass(frozen=True, slots=True)
class StartOptions:
    """Optional fields of a start.

    conflict_policy        what happens if the execution id is taken
    labels, group          how the execution is found and grouped
    priority               of steps that have none of their own
    idempotency_root       a second start with the same root, within the window, returns the first execution
    idempotency_window_s   how long the root is remembered; a day by default
    webhook                called when the execution ends: a URL, or a mapping as in a document
    traceparent            the span that causes the start, as in W3C Trace Context
    """

    conflict_policy: ConflictPolicy | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    priority: int | None = None
    idempotency_root: str | None = None
    idempotency_window_s: int | None = None
    webhook: str | Mapping[str, Any] | None = None
    traceparent: str | None = None

    def __post_init__(self) -> None:
        if self.traceparent is not None and parse_traceparent(self.traceparent) is None:
            raise StartRejected(f"traceparent {self.traceparent[:80]!r} {TRACEPARENT_RULE}")

    def fields(self) -> dict[str, Any]:
        fields = {name: value for name, value in asdict(self).items() if value not in (None, {})}
        for name in ("labels", "webhook"):
            if isinstance(fields.get(name), Mapping):
                fields[name] = dumps(fields[name])
        return fields


@dataclass(frozen=True, slots=True)
class StartRequest:
    """One of several starts, with options of its own."""

    workflow: WorkflowSource
    inputs: Mapping[str, Any] = field(default_factory=dict)
    execution_id: str | None = None
    options: StartOptions | None = None


class StartWriter:
    """Makes the fields of start events. A spec that is used several times is checked once."""

    def __init__(self, payloads: ClientPayloads) -> None:
        self._payloads = payloads
        self._checked: dict[int, tuple[WorkflowSource, LoadedSpec, str]] = {}

    def fields(
        self,
        workflow: WorkflowSource,
        inputs: Mapping[str, Any],
        execution_id: str | None = None,
        options: StartOptions | None = None,
    ) -> dict[Any, Any]:
        """Make the fields of one start, and store its large inputs.

        A spec is checked here, so that its problems are raised at once. Inputs with large values are checked
        here too: a coordinator only sees references in their place.
        """
        offloaded = self._payloads.offload(inputs)
        fields: dict[Any, Any] = {"inputs": offloaded.text}
        loaded: LoadedSpec | None = None
        if not isinstance(workflow, str):
            _, loaded, fields["spec"] = self._check(workflow)
        else:
            fields["workflow"] = workflow
            if offloaded.payloads:
                loaded = self._payloads.find_definition(workflow)
        if loaded is not None:
            with_references = loads(offloaded.text) if offloaded.payloads else dict(inputs)
            _, problems = check_inputs(loaded.spec, with_references, dict(inputs))
            if problems:
                raise StartRejected(
                    "\n".join(map(str, problems)), [problem.as_dict() for problem in problems]
                )
        self._payloads.put(offloaded)
        if execution_id is not None:
            fields["execution_id"] = execution_id
        return fields | (options.fields() if options is not None else {})

    def _check(self, workflow: Mapping[str, Any] | LoadedSpec) -> tuple[WorkflowSource, LoadedSpec, str]:
        """Check a spec once per object: start_many() often passes the same object every time."""
        if id(workflow) not in self._checked:
            loaded = workflow if isinstance(workflow, LoadedSpec) else check_spec(dict(workflow))
            self._checked[id(workflow)] = (workflow, loaded, dumps(loaded.document))
        return self._checked[id(workflow)]
