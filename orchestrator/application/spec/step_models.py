"""Models of a step and of a workflow document.

The models of the mappings inside are in `part_models.py`, `filter_models.py` and `wait_models.py`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from orchestrator.application.spec import field_types as f
from orchestrator.application.spec.filter_models import FilterModel
from orchestrator.application.spec.model import (
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT_S,
    ID_PATTERN,
    Defaults,
    History,
    Isolation,
    StepKind,
    StepSpec,
)
from orchestrator.application.spec.part_models import (
    BranchModel,
    CompensateModel,
    ConcurrencyModel,
    DefaultsModel,
    InputModel,
    KvModel,
    LimitsModel,
    LoopModel,
    MapModel,
    Retry,
    RunnerModel,
    ScheduleModel,
    SourceModel,
    SpecModel,
    StepSourceModel,
    SwitchModel,
    WebhookModel,
    short_form,
)
from orchestrator.application.spec.wait_models import WaitModel
from orchestrator.application.values.durations import parse_duration, parse_ms

__all__ = ["KINDS", "PlainStepModel", "SpecModel", "StepModel", "WorkflowModel"]


class PlainStepModel(SpecModel):
    """The most frequent keys of a step. Steps without other keys use this smaller model, which is faster."""

    noun = "a step"

    id: str | None = Field(None, description="The id of the step; if absent, the op or else the name.")
    op: f.Token | None = Field(
        None, description="The name of the executor, and the id of the step if it has none."
    )
    fn: f.Token | None = Field(None, description="The name of the executor; the op if absent.")
    type: f.Token | None = Field(None, description="An alias of fn.")
    name: str | None = Field(None, description="Text; the id of the step if it has neither id nor op.")
    label: str | None = Field(None, description="Text for people.")
    description: str | None = Field(None, description="Text for people.")
    input: f.Values | None = Field(None, description="The inputs of the executor: literals and expressions.")
    depends_on: list[str] | None = Field(
        None, description="The steps that it waits for, in addition to those that its expressions read."
    )
    branch: list[BranchModel] | None = Field(None, description="What happens next, depending on the result.")
    max_attempts: int = Field(1, ge=1, description="How many attempts it has, without a delay between them.")
    attempts_on: f.Repetition = Field("error", description="any: a success is repeated too.")
    on_error: f.Policy = Field(
        "fail",
        description="What its failure means: fail stops the workflow, skip skips the steps that depend on it,"
        " continue lets them run.",
    )
    queue: f.Identifier = Field(DEFAULT_QUEUE, description="The queue of its jobs.")
    timeout: f.Timeout = Field(
        int(DEFAULT_TIMEOUT_S), description="How long one attempt may take, from its start; or none."
    )

    @property
    def identity(self) -> tuple[str, str] | None:
        """The key that holds the id of this step, and the id."""
        if self.id is not None:
            return "id", self.id
        if self.op is not None:
            return "op", self.op
        return None if self.name is None else ("name", self.name)

    @property
    def token(self) -> str | None:
        return self.fn or self.op or self.type

    def to_spec(self, step_id: str, defaults: Defaults, resolved: dict[str, Any]) -> StepSpec:
        """Build the spec of the step. `resolved` has the attributes that need the rest of the document: those
        of its source, output and child."""
        return StepSpec(**self._attributes(step_id, defaults))

    def _attributes(self, step_id: str, defaults: Defaults) -> dict[str, Any]:
        present = self.model_fields_set
        return {
            "id": step_id,
            "fn": self.fn or self.op or self.type or "",
            "input": self.input or {},
            "depends_on": tuple(self.depends_on or ()),
            "branch": tuple(branch.to_spec() for branch in self.branch) if self.branch else (),
            "max_attempts": self.max_attempts,
            "attempts_on": self.attempts_on if "attempts_on" in present else defaults.attempts_on,
            "on_error": self.on_error if "on_error" in present else defaults.on_error,
            "has_own_on_error": "on_error" in present,
            "queue": self.queue if "queue" in present else defaults.queue,
            "timeout_s": f.timeout_seconds(self.timeout) if "timeout" in present else defaults.timeout_s,
            "name": self.name,
            "label": self.label,
            "description": self.description,
            "retry": defaults.retry,
            "priority": defaults.priority,
            "skip_output_mapping": defaults.skip_output_mapping,
            "isolation": defaults.isolation,
        }


KINDS: tuple[StepKind, ...] = ("wait", "delay", "switch", "workflow")


class StepModel(PlainStepModel):
    """One step: exactly one of a token (op, fn, type or source), wait, delay, switch and workflow."""

    source: Annotated[StepSourceModel | None, BeforeValidator(f.expand_source_name)] = Field(
        None,
        description="A source as the executor: a name, a definition, or a changed one.",
        json_schema_extra=short_form({"type": "string", "minLength": 1}),
    )
    join: f.Join = Field(
        "all",
        description="Which of the steps it depends on must complete: all; any, when all have ended; done, "
        "with any result; a number of them; or an expression over ctx.status.",
    )
    when: f.Condition = Field(None, description="If false, the step is filtered: its path is not taken.")
    filters: FilterModel | None = Field(None, description="More conditions, in groups.")
    required: list[f.Token] | None = Field(
        None, description="Paths such as input.url that must not be null; otherwise the step fails."
    )
    defer_ms: f.Milliseconds = Field(0, description="How long it waits after the steps that it depends on.")
    retry: Retry = None
    output: f.Output = Field(
        None, description="Reshapes the output; expressions read what the executor returned as result."
    )
    skip_output_mapping: bool = Field(False, description="Whether its output is not merged into the state.")
    map: MapModel | None = Field(None, description="One job for each item of a list.")
    loop: LoopModel | None = Field(None, description="Repeats the step until its executor returns done.")
    wait: WaitModel | None = Field(None, description="Waits for a signal; no job.")
    delay: f.Duration | None = Field(None, description="Completes when the time has passed; no job.")
    switch: SwitchModel | None = Field(None, description="Chooses which steps run; no job.")
    workflow: f.Workflow = Field(
        None, description="A child workflow: the name of a registered one, or an inline document."
    )
    priority: f.Priority = Field(DEFAULT_PRIORITY, description="1 is the most urgent, 5 the least.")
    tags: list[f.Token] | None = Field(
        None, description="What its worker must have; the settings map tags to queues."
    )
    kv_add: f.Values | None = Field(
        None, description="Adds to numbers that executions share, when the step completes: key to expression."
    )
    compensate: CompensateModel | None = Field(None, description="Undoes it if the workflow fails later.")
    concurrency: ConcurrencyModel | None = Field(None, description="A limit that executions share.")
    heartbeat: f.PositiveDuration | None = Field(
        None, description="The longest time between two heartbeats of its executor."
    )
    isolation: Isolation = Field(
        "thread", description="process: without Redis its executor runs in a process, which can be killed."
    )

    @property
    def kind(self) -> StepKind:
        return next((kind for kind in KINDS if getattr(self, kind) is not None), "task")

    def to_spec(self, step_id: str, defaults: Defaults, resolved: dict[str, Any]) -> StepSpec:
        present = self.model_fields_set
        attributes = self._attributes(step_id, defaults)
        guards = [] if self.when is None else [("when", self.when)]
        if self.filters is not None:
            guards.append(("filters", self.filters.to_spec()))
        if self.retry is not None:
            attributes["retry"] = self.retry.to_spec()
        if "priority" in present:
            attributes |= {"priority": self.priority, "has_own_priority": True}
        if "skip_output_mapping" in present:
            attributes["skip_output_mapping"] = self.skip_output_mapping
        if "isolation" in present:
            attributes["isolation"] = self.isolation
        if self.kind != "task" and "timeout" not in present:
            attributes["timeout_s"] = None
        return StepSpec(
            **attributes
            | {
                "kind": self.kind,
                "join": "all" if self.join is None else self.join,
                "guards": tuple(guard for _, guard in guards),
                "guard_keys": tuple(key for key, _ in guards),
                "required": tuple(self.required or ()),
                "defer_ms": self.defer_ms,
                "map": self.map.to_spec() if self.map else None,
                "loop": self.loop.to_spec() if self.loop else None,
                "wait": self.wait.to_spec() if self.wait else None,
                "delay_ms": None if self.delay is None else parse_ms(self.delay),
                "switch": self.switch.to_spec() if self.switch else None,
                "tags": () if "queue" in present else tuple(self.tags or ()),
                "kv_add": self.kv_add or {},
                "compensate": self.compensate.to_spec(attributes["queue"], defaults)
                if self.compensate
                else None,
                "concurrency": self.concurrency.to_spec() if self.concurrency else None,
                "heartbeat_s": None if self.heartbeat is None else parse_duration(self.heartbeat),
            }
            | resolved
        )


class WorkflowModel(SpecModel):
    """A workflow. Only steps are required; keys that begin with x- are free."""

    noun = "a workflow"

    name: str | None = Field(None, description="Text for people.")
    description: str | None = Field(None, description="Text for people.")
    inputs: dict[str, InputModel] | None = Field(None, description="The declared inputs.")
    defaults: DefaultsModel | None = Field(None, description="The values of keys that a step does not have.")
    runner: RunnerModel | None = Field(None, description="How the steps of one execution are run.")
    limits: LimitsModel | None = Field(None, description="The limits of one execution.")
    kv: KvModel | None = Field(None, description="Values that executions share.")
    sources: dict[str, SourceModel] | None = Field(
        None,
        description="Executors with their configuration, which steps can call, by name.",
        json_schema_extra={"propertyNames": {"pattern": ID_PATTERN}},
    )
    steps: list[StepModel] | None = Field(
        None, description="The steps; each runs when the steps that it depends on have ended."
    )
    flow: list[StepModel] | None = Field(None, description="An alias of steps.")
    outputs: f.Values | None = Field(
        None, description="The outcome of the workflow: literals and expressions."
    )
    webhook: WebhookModel | None = Field(
        None, description="A URL that receives the outcome when the workflow ends."
    )
    timeout: f.Timeout | None = Field(None, description="How long the whole execution may take; or none.")
    retention: f.PositiveDuration | None = Field(None, description="How long a finished execution is kept.")
    concurrency: ConcurrencyModel | None = Field(None, description="A limit that executions share.")
    schedule: ScheduleModel | None = Field(None, description="When it starts automatically, if registered.")
    history: History | None = Field(
        None, description="What its history has: the moves of its steps, or also every value (full)."
    )
    redact: list[f.Token] | None = Field(
        None, description="Keys whose values are hidden in logs, history and webhooks."
    )
