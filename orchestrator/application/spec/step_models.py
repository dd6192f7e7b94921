"""A step and a workflow as a user writes them, key by key; what is inside of the keys is in `parts.py`, and
in modules of their own where that is much."""

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
    """The keys that most steps of most workflows get by with: a large document loads faster for it."""

    noun = "a step"

    id: str | None = Field(None, description="Names the step; the op or else the name if absent.")
    op: f.Token | None = Field(None, description="The name of the executor, and of the step if it has no id.")
    fn: f.Token | None = Field(None, description="The name of the executor; the op if absent.")
    type: f.Token | None = Field(None, description="Another word for fn.")
    name: str | None = Field(None, description="Text; names the step if it has neither id nor op.")
    label: str | None = Field(None, description="Text for people.")
    description: str | None = Field(None, description="Text for people.")
    input: f.Values | None = Field(None, description="What the executor gets: literals and expressions.")
    depends_on: list[str] | None = Field(
        None, description="The steps it waits for, besides those that its expressions read."
    )
    branch: list[BranchModel] | None = Field(None, description="What happens next, by the result.")
    max_attempts: int = Field(1, ge=1, description="How often it is tried in a row, without a delay.")
    attempts_on: f.Repetition = Field("error", description="any: a success is repeated too.")
    on_error: f.Policy = Field(
        "fail",
        description="What its failure means: fail stops the workflow, skip skips what depends on it, "
        "continue lets it run.",
    )
    queue: f.Identifier = Field(DEFAULT_QUEUE, description="The queue of its jobs.")
    timeout: f.Timeout = Field(
        int(DEFAULT_TIMEOUT_S), description="How long one attempt may take, from its start; or none."
    )

    @property
    def identity(self) -> tuple[str, str] | None:
        """The key that names this step, and the name."""
        if self.id is not None:
            return "id", self.id
        if self.op is not None:
            return "op", self.op
        return None if self.name is None else ("name", self.name)

    @property
    def token(self) -> str | None:
        return self.fn or self.op or self.type

    def to_spec(self, step_id: str, defaults: Defaults, found: dict[str, Any]) -> StepSpec:
        """`found` is what the document says elsewhere: of this step's source, output and child."""
        return StepSpec(**self._attributes(step_id, defaults))

    def _attributes(self, step_id: str, defaults: Defaults) -> dict[str, Any]:
        written = self.model_fields_set
        return {
            "id": step_id,
            "fn": self.fn or self.op or self.type or "",
            "input": self.input or {},
            "depends_on": tuple(self.depends_on or ()),
            "branch": tuple(branch.to_spec() for branch in self.branch) if self.branch else (),
            "max_attempts": self.max_attempts,
            "attempts_on": self.attempts_on if "attempts_on" in written else defaults.attempts_on,
            "on_error": self.on_error if "on_error" in written else defaults.on_error,
            "has_own_on_error": "on_error" in written,
            "queue": self.queue if "queue" in written else defaults.queue,
            "timeout_s": f.timeout_seconds(self.timeout) if "timeout" in written else defaults.timeout_s,
            "name": self.name,
            "label": self.label,
            "description": self.description,
            "retry": defaults.retry,
            "priority": defaults.priority,
            "skip_output_mapping": defaults.skip_output_mapping,
        }


KINDS: tuple[StepKind, ...] = ("wait", "delay", "switch", "workflow")


class StepModel(PlainStepModel):
    """One step: exactly one of a token (op, fn, type or source), wait, delay, switch and workflow."""

    source: Annotated[StepSourceModel | None, BeforeValidator(f.expand_source_name)] = Field(
        None,
        description="A source as the executor: its name, itself, or a changed one.",
        json_schema_extra=short_form({"type": "string", "minLength": 1}),
    )
    join: f.Join = Field(
        "all",
        description="Which of the steps it depends on must complete: all; any, once all have ended; done, "
        "however they ended; a number of them; or an expression over ctx.status.",
    )
    when: f.Condition = Field(None, description="False: the step is filtered, its path is not taken.")
    filters: FilterModel | None = Field(None, description="Further conditions, in groups.")
    required: list[f.Token] | None = Field(
        None, description="Paths such as input.url that must not be null: else the step fails."
    )
    defer_ms: f.Milliseconds = Field(0, description="How long it waits once what it depends on has ended.")
    retry: Retry = None
    output: f.Output = Field(
        None, description="Reshapes what the executor returned, which is result in its expressions."
    )
    skip_output_mapping: bool = Field(False, description="Whether its output stays out of the state.")
    map: MapModel | None = Field(None, description="One job for each item of a list.")
    loop: LoopModel | None = Field(None, description="Repeats the step until its executor is done.")
    wait: WaitModel | None = Field(None, description="Waits for a signal; no job.")
    delay: f.Duration | None = Field(None, description="Completes when the time has passed; no job.")
    switch: SwitchModel | None = Field(None, description="Chooses which steps go on; no job.")
    workflow: f.Workflow = Field(
        None, description="A child: the name of a registered workflow, or one written here."
    )
    priority: f.Priority = Field(DEFAULT_PRIORITY, description="1 is the most urgent, 5 the least.")
    tags: list[f.Token] | None = Field(
        None, description="What its worker must have; the settings say which queue that is."
    )
    kv_add: f.Values | None = Field(
        None, description="Adds to numbers that executions share, when it completes: key to expression."
    )
    compensate: CompensateModel | None = Field(None, description="Undoes it if the workflow fails later.")
    concurrency: ConcurrencyModel | None = Field(None, description="A limit that executions share.")
    heartbeat: f.PositiveDuration | None = Field(
        None, description="How often its executor must report to count as alive."
    )

    @property
    def kind(self) -> StepKind:
        return next((kind for kind in KINDS if getattr(self, kind) is not None), "task")

    def to_spec(self, step_id: str, defaults: Defaults, found: dict[str, Any]) -> StepSpec:
        written = self.model_fields_set
        attributes = self._attributes(step_id, defaults)
        guards = [] if self.when is None else [("when", self.when)]
        if self.filters is not None:
            guards.append(("filters", self.filters.to_spec()))
        if self.retry is not None:
            attributes["retry"] = self.retry.to_spec()
        if "priority" in written:
            attributes |= {"priority": self.priority, "has_own_priority": True}
        if "skip_output_mapping" in written:
            attributes["skip_output_mapping"] = self.skip_output_mapping
        if self.kind != "task" and "timeout" not in written:
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
                "tags": () if "queue" in written else tuple(self.tags or ()),
                "kv_add": self.kv_add or {},
                "compensate": self.compensate.to_spec(attributes["queue"], defaults)
                if self.compensate
                else None,
                "concurrency": self.concurrency.to_spec() if self.concurrency else None,
                "heartbeat_s": None if self.heartbeat is None else parse_duration(self.heartbeat),
            }
            | found
        )


class WorkflowModel(SpecModel):
    """A workflow. Only steps are required; keys that begin with x- are free."""

    noun = "a workflow"

    name: str | None = Field(None, description="Text for people.")
    description: str | None = Field(None, description="Text for people.")
    inputs: dict[str, InputModel] | None = Field(None, description="The inputs it expects.")
    defaults: DefaultsModel | None = Field(None, description="What holds for every step.")
    runner: RunnerModel | None = Field(None, description="How the steps are run.")
    limits: LimitsModel | None = Field(None, description="What one execution may use at most.")
    kv: KvModel | None = Field(None, description="Values shared beyond the execution.")
    sources: dict[str, SourceModel] | None = Field(
        None,
        description="What steps can call, by name.",
        json_schema_extra={"propertyNames": {"pattern": ID_PATTERN}},
    )
    steps: list[StepModel] | None = Field(
        None, description="The steps; they run when what they need is there."
    )
    flow: list[StepModel] | None = Field(None, description="Another word for steps.")
    outputs: f.Values | None = Field(None, description="The outcome: literals and expressions.")
    webhook: WebhookModel | None = Field(None, description="Whom to tell when it has ended.")
    timeout: f.Timeout | None = Field(None, description="How long the whole execution may take; or none.")
    retention: f.PositiveDuration | None = Field(None, description="How long the finished execution is kept.")
    concurrency: ConcurrencyModel | None = Field(None, description="A limit that executions share.")
    schedule: ScheduleModel | None = Field(None, description="When it starts by itself, once registered.")
    redact: list[f.Token] | None = Field(None, description="Keys hidden in logs, history and webhooks.")
