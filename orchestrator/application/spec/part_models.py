"""The mappings inside of a step or a workflow, as a user writes them.

The models refuse what is not in the language; `settled()` gives what the program reads. The docstrings and
descriptions are the user's: `schema.py` makes an editor show them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator.application.spec import field_types as f
from orchestrator.application.spec.model import (
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT_S,
    BranchSpec,
    CatchUp,
    CompensateSpec,
    ConcurrencySpec,
    Defaults,
    FinishStatus,
    InputSpec,
    InputType,
    KvScope,
    Limits,
    LoopSpec,
    MapSpec,
    OnMax,
    Overlap,
    RetrySpec,
    ScheduleSpec,
    SwitchSpec,
    WebhookSpec,
)


class SpecModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    noun: ClassVar[str] = ""

    @model_validator(mode="before")
    @classmethod
    def _free_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key[:2] == "x-":
                return {key: value for key, value in data.items() if key[:2] != "x-"}
        return data

    @classmethod
    def key_names(cls) -> list[str]:
        """The keys as they are written."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def invalid_error(message: str) -> PydanticCustomError:
    """For a validator of a whole mapping to raise."""
    return PydanticCustomError("bad_type", "{message}", {"message": message})


def one_of_two_keys(key: str, but_not: str, other: str, but_not_other: str) -> dict[str, Any]:
    """For the schema: one of two keys, and with each of them not a third."""
    pairs = ((key, but_not), (other, but_not_other))
    return {"oneOf": [{"required": [key], "not": {"required": [without]}} for key, without in pairs]}


class InputModel(SpecModel):
    """An input that the workflow expects; others are accepted too."""

    noun = "an input"

    type: InputType | None = Field(None, description="What kind of value it must be; anything if absent.")
    required: bool = Field(False, description="Whether a start without it is refused.")
    default: Any = Field(None, description="What it is when a start does not give it.")

    def to_spec(self) -> InputSpec:
        return InputSpec(self.type, self.required, self.default, "default" in self.model_fields_set)


class LimitsModel(SpecModel):
    """What one execution may use at most: lower than the server's, never higher."""

    noun = "limits"

    max_runs: int = Field(
        Limits().max_runs,
        ge=1,
        le=Limits().max_runs,
        description="How often one step may be reset or retried.",
    )
    max_lost: int = Field(
        Limits().max_lost,
        ge=0,
        le=Limits().max_lost,
        description="How often a step may lose its worker before it has failed.",
    )
    max_steps: int = Field(
        Limits().max_steps, ge=1, le=Limits().max_steps, description="How many steps the workflow may have."
    )
    max_depth: int = Field(
        Limits().max_depth, ge=1, le=Limits().max_depth, description="How deep child workflows may nest."
    )
    max_output_bytes: int = Field(
        Limits().max_output_bytes,
        ge=1,
        le=Limits().max_output_bytes,
        description="How large the output of one step may be, as JSON.",
    )

    def to_spec(self) -> Limits:
        return Limits(**self.model_dump())


class RetryModel(SpecModel):
    """How a failure is tried again. Delays grow by the multiplier up to max_delay_ms; jitter comes on top."""

    noun = "retry"

    max_retries: int = Field(2, ge=0, le=10_000, description="Executions after the first; 0 is none.")
    initial_delay_ms: f.Milliseconds = Field(1_000, description="The delay before the first retry.")
    backoff_multiplier: float = Field(2.0, ge=0, le=1_000, description="By what each delay is multiplied.")
    max_delay_ms: f.Milliseconds | None = Field(None, description="What no delay exceeds, jitter aside.")
    jitter_fraction: float = Field(
        0.0, ge=0, le=1, description="Up to this part of the delay is added, to spread what fails together."
    )
    non_retryable: list[f.FailureName] = Field(
        [],
        description="Failures that are not tried again, neither here nor by max_attempts: types of exceptions"
        " (ValueError, package.Rejected; a base counts), and kinds such as timeout.",
    )

    def to_spec(self) -> RetrySpec | None:
        if not self.max_retries and not self.non_retryable:
            return None
        return RetrySpec(**{**self.model_dump(), "non_retryable": tuple(self.non_retryable)})


def short_form(short: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """For the schema: a shorter form than the mapping."""
    return lambda schema: schema["anyOf"].insert(0, short)


Retry = Annotated[
    RetryModel | None,
    BeforeValidator(f.expand_retry_count),
    Field(
        description="Tries a failure again, later and later. A number is short for max_retries.",
        json_schema_extra=short_form({"type": "integer", "minimum": 0, "maximum": 10_000}),
    ),
]


class DefaultsModel(SpecModel):
    """What holds for every step that does not say otherwise."""

    noun = "defaults"

    timeout: f.Timeout = Field(int(DEFAULT_TIMEOUT_S), description="The timeout of a step that has a job.")
    retry: Retry = None
    on_error: f.Policy = Field("fail", description="What a failure means for the workflow.")
    attempts_on: f.Repetition = Field("error", description="Whether a success is repeated too.")
    queue: f.Identifier = Field(DEFAULT_QUEUE, description="The queue of the jobs.")
    priority: f.Priority = Field(DEFAULT_PRIORITY, description="1 is the most urgent, 5 the least.")
    skip_output_mapping: bool = Field(False, description="Whether outputs stay out of the state.")

    def to_spec(self) -> Defaults:
        return Defaults(
            timeout_s=f.timeout_seconds(self.timeout),
            on_error=self.on_error,
            attempts_on=self.attempts_on,
            queue=self.queue,
            retry=self.retry.to_spec() if self.retry else None,
            priority=self.priority,
            skip_output_mapping=self.skip_output_mapping,
        )


class BranchModel(SpecModel):
    """One way on after a result: the first entry whose condition is true decides."""

    noun = "a branch entry"
    model_config = ConfigDict(json_schema_extra={"not": {"required": ["result", "result_expr"]}})

    condition: f.Condition = Field(description="Sees the output's keys, input, state and steps.")
    action: f.Action = Field(description="What happens then.")
    result: Any = Field(None, description="The outcome of a halt, as it is.")
    result_expr: f.Expression = Field(None, description="The outcome of a halt, evaluated.")

    @model_validator(mode="after")
    def _one_result(self) -> Self:
        if {"result", "result_expr"} <= self.model_fields_set:
            raise invalid_error("has both result and result_expr; keep one")
        return self

    def to_spec(self) -> BranchSpec:
        is_set = isinstance(self.action, dict)
        return BranchSpec(
            condition=self.condition,
            action="set" if is_set else self.action,
            targets=self.action["set"] if is_set else None,
            result=self.result if "result" in self.model_fields_set else {},
            result_expr=self.result_expr,
            has_result_expr="result_expr" in self.model_fields_set,
        )


class MapModel(SpecModel):
    """One job for each item of a list. The output is {items, count, errors}, in the order of the items."""

    noun = "map"

    over: f.Items = Field(description="The list; null is an empty one.")
    as_: f.ItemName = Field("item", alias="as", description="The name of the item in expressions.")
    max_parallel: f.Count | None = Field(None, description="How many items may be in flight at once.")

    def to_spec(self) -> MapSpec:
        return MapSpec(self.over, self.as_, self.max_parallel)


class LoopModel(SpecModel):
    """Repeats the step as long as its executor answers {"_loop": "again", "value": ...}."""

    noun = "loop"

    max_iterations: f.Count = Field(10, description="How often the executor may ask for one more.")
    on_max: OnMax = Field("fail", description="Whether that is a failure, or the last value is the output.")

    def to_spec(self) -> LoopSpec:
        return LoopSpec(self.max_iterations, self.on_max)


class SwitchModel(SpecModel):
    """Chooses which of the listed steps go on; the others are filtered."""

    noun = "switch"

    on: f.Rule = Field(description="Gives the key of the case.")
    cases: dict[str, list[str]] = Field(description="The steps that go on, by key.")
    default: list[str] | None = Field(None, description="The steps that go on when no case fits.")

    def to_spec(self) -> SwitchSpec:
        cases = {key: tuple(ids) for key, ids in self.cases.items()}
        return SwitchSpec(self.on, cases, None if self.default is None else tuple(self.default))


class ConcurrencyModel(SpecModel):
    """At most so many in progress for the same key, across all executions."""

    noun = "concurrency"

    key: f.ConcurrencyKey = Field(
        description="Who shares the limit: a name, or an expression that gives one."
    )
    limit: f.Count = Field(description="How many may be in progress at once.")

    def to_spec(self) -> ConcurrencySpec:
        return ConcurrencySpec(self.key, self.limit)


class CompensateModel(SpecModel):
    """Undoes a completed step when the workflow fails or is cancelled: newest first, one at a time."""

    noun = "compensate"

    fn: f.Token = Field(description="The name of its executor.")
    input: f.Values | None = Field(None, description="What its executor gets: literals and expressions.")
    timeout: f.Timeout = Field(int(DEFAULT_TIMEOUT_S), description="How long one attempt may take.")
    retry: Retry = None
    queue: f.Identifier = Field(DEFAULT_QUEUE, description="Its queue; the step's if absent.")

    def to_spec(self, queue: str, defaults: Defaults) -> CompensateSpec:
        return CompensateSpec(
            fn=self.fn,
            input=self.input or {},
            timeout_s=f.timeout_seconds(self.timeout)
            if "timeout" in self.model_fields_set
            else defaults.timeout_s,
            retry=self.retry.to_spec() if self.retry else defaults.retry,
            queue=self.queue if "queue" in self.model_fields_set else queue,
        )


class SourceModel(SpecModel):
    """What a step can call: an executor, and how it is set up."""

    noun = "a source"

    type: f.Token = Field(description="The executor: http, process, env, or one of yours.")
    configuration: f.Values | None = Field(None, description="What that executor is set up with.")

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "configuration": self.configuration or {}}


class StepSourceModel(SpecModel):
    """The source of one step: {type, configuration}, or the base it starts from and what it changes."""

    noun = "the source of a step"
    model_config = ConfigDict(json_schema_extra=one_of_two_keys("base", "configuration", "type", "override"))

    base: f.Token | None = Field(None, description="The name of the source it starts from.")
    override: f.Override | None = Field(
        None, description="What is different here: of the configuration, unless it has a key of that name."
    )
    type: f.Token | None = Field(None, description="The executor: http, process, env, or one of yours.")
    configuration: f.Values | None = Field(None, description="What that executor is set up with.")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.base is None) == (self.type is None):
            raise invalid_error("needs either a type, or a base to start from")
        if self.base is not None and self.configuration is not None:
            raise invalid_error("has a base: write the configuration under override")
        if self.type is not None and self.override is not None:
            raise invalid_error("has an override, but no base that it could change")
        return self


class RunnerModel(SpecModel):
    """How the steps of one execution are run."""

    noun = "runner"

    max_workers: f.Count | None = Field(None, description="How many steps may be in flight; all if absent.")
    on_error: f.Policy = Field("fail", description="The same as in defaults.")


class KvModel(SpecModel):
    """Values shared beyond the execution: its presence gives meaning to prefixes of output keys."""

    noun = "kv"

    scopes: list[KvScope] = Field(
        ["flow", "global", "flow_group"], description="The prefixes that output keys may have."
    )


class WebhookModel(SpecModel):
    """Whom to tell when the workflow has ended."""

    noun = "webhook"

    url: f.Address = Field(description="Where the outcome is posted.")
    headers: dict[str, f.Header] | None = Field(None, description="HTTP headers to send along.")
    on: list[FinishStatus] | None = Field(None, description="Which ends are told; all of them if absent.")

    def to_spec(self) -> WebhookSpec:
        told = {} if self.on is None else {"on": tuple(self.on)}
        return WebhookSpec(self.url, self.headers or {}, **told)


class ScheduleModel(SpecModel):
    """When a registered workflow starts by itself."""

    noun = "schedule"

    cron: f.Cron = Field(description="Minute, hour, day, month, weekday; or @hourly, @daily and the like.")
    timezone: f.TimeZoneName = Field("UTC", description="The time zone of the clock, such as Europe/Berlin.")
    catch_up: CatchUp = Field("none", description="Which of the starts that were missed are made up for.")
    overlap: Overlap = Field("allow", description="What happens when the last start has not ended yet.")

    def to_spec(self) -> ScheduleSpec:
        return ScheduleSpec(self.cron, self.timezone, self.catch_up, self.overlap)
