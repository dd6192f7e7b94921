"""Models of the mappings inside a step or a workflow document.

A model rejects everything that is not in the language; its `to_spec()` returns the part of the spec.
Docstrings and descriptions are written for users: editors show them, by way of `json_schema.py`.
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
    Isolation,
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
    """The base of all models. Unknown keys are errors, except those that begin with x-."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    noun: ClassVar[str] = ""
    """What a message calls the mapping: "a step"."""

    @model_validator(mode="before")
    @classmethod
    def _drop_extension_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key[:2] == "x-":
                return {key: value for key, value in data.items() if key[:2] != "x-"}
        return data

    @classmethod
    def key_names(cls) -> list[str]:
        """Return the keys of the mapping in a document."""
        return [field.alias or name for name, field in cls.model_fields.items()]


def invalid_error(message: str) -> PydanticCustomError:
    """Build the error that the validator of a whole mapping raises."""
    return PydanticCustomError("bad_type", "{message}", {"message": message})


def one_of_two_keys(key: str, but_not: str, other: str, but_not_other: str) -> dict[str, Any]:
    """Build a schema that requires one of two keys, and with each of them forbids a third."""
    pairs = ((key, but_not), (other, but_not_other))
    return {"oneOf": [{"required": [key], "not": {"required": [without]}} for key, without in pairs]}


class InputModel(SpecModel):
    """An input of the workflow; undeclared inputs are accepted too."""

    noun = "an input"

    type: InputType | None = Field(None, description="The type of the value; any if absent.")
    required: bool = Field(False, description="Whether a start without it is rejected.")
    default: Any = Field(None, description="The value if a start does not have the input.")

    def to_spec(self) -> InputSpec:
        return InputSpec(self.type, self.required, self.default, "default" in self.model_fields_set)


class LimitsModel(SpecModel):
    """The limits of one execution: they can be lower than those of the server, never higher."""

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
        description="How often a step may lose its worker before it fails.",
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
    """How a failure is retried. Delays grow by the multiplier up to max_delay_ms; jitter is added."""

    noun = "retry"

    max_retries: int = Field(
        2, ge=0, le=10_000, description="How many retries after the first execution; 0 is none."
    )
    initial_delay_ms: f.Milliseconds = Field(1_000, description="The delay before the first retry.")
    backoff_multiplier: float = Field(
        2.0, ge=0, le=1_000, description="The factor from one delay to the next."
    )
    max_delay_ms: f.Milliseconds | None = Field(None, description="The longest delay, without jitter.")
    jitter_fraction: float = Field(
        0.0, ge=0, le=1, description="Adds up to this fraction of the delay, to spread simultaneous retries."
    )
    non_retryable: list[f.FailureName] = Field(
        [],
        description="Failures that are not retried, neither here nor by max_attempts: exception types"
        " (ValueError, package.Rejected; a base class counts), and kinds such as timeout.",
    )

    def to_spec(self) -> RetrySpec | None:
        if not self.max_retries and not self.non_retryable:
            return None
        return RetrySpec(**{**self.model_dump(), "non_retryable": tuple(self.non_retryable)})


def short_form(short: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Add a short form of a mapping to its schema."""
    return lambda schema: schema["anyOf"].insert(0, short)


Retry = Annotated[
    RetryModel | None,
    BeforeValidator(f.expand_retry_count),
    Field(
        description="Retries failures with growing delays. A number is short for max_retries.",
        json_schema_extra=short_form({"type": "integer", "minimum": 0, "maximum": 10_000}),
    ),
]


class DefaultsModel(SpecModel):
    """The values of keys that a step does not have."""

    noun = "defaults"

    timeout: f.Timeout = Field(int(DEFAULT_TIMEOUT_S), description="The timeout of a step that has a job.")
    retry: Retry = None
    on_error: f.Policy = Field("fail", description="What a failure means for the workflow.")
    attempts_on: f.Repetition = Field("error", description="any: a success is repeated too.")
    queue: f.Identifier = Field(DEFAULT_QUEUE, description="The queue of the jobs.")
    priority: f.Priority = Field(DEFAULT_PRIORITY, description="1 is the most urgent, 5 the least.")
    skip_output_mapping: bool = Field(False, description="Whether outputs are not merged into the state.")
    isolation: Isolation = Field("thread", description="Where an executor runs in one process.")

    def to_spec(self) -> Defaults:
        return Defaults(
            timeout_s=f.timeout_seconds(self.timeout),
            on_error=self.on_error,
            attempts_on=self.attempts_on,
            queue=self.queue,
            retry=self.retry.to_spec() if self.retry else None,
            priority=self.priority,
            skip_output_mapping=self.skip_output_mapping,
            isolation=self.isolation,
        )


class BranchModel(SpecModel):
    """What happens after a result: the first entry whose condition is true decides."""

    noun = "a branch entry"
    model_config = ConfigDict(json_schema_extra={"not": {"required": ["result", "result_expr"]}})

    condition: f.Condition = Field(description="Can read the keys of the output, input, state and steps.")
    action: f.Action = Field(description="The action to take.")
    result: Any = Field(None, description="The outcome of a halt, unchanged.")
    result_expr: f.Expression = Field(
        None,
        description="The outcome of a halt, the output of a complete, or the message of a fail or retry.",
    )

    @model_validator(mode="after")
    def _check_result(self) -> Self:
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
    max_parallel: f.Count | None = Field(None, description="How many items may run at once.")

    def to_spec(self) -> MapSpec:
        return MapSpec(self.over, self.as_, self.max_parallel)


class LoopModel(SpecModel):
    """Repeats the step as long as its executor returns {"_loop": "again", "value": ...}."""

    noun = "loop"

    max_iterations: f.Count = Field(10, description="How often the executor may request another iteration.")
    on_max: OnMax = Field(
        "fail", description="What happens after that: a failure, or the last value becomes the output."
    )

    def to_spec(self) -> LoopSpec:
        return LoopSpec(self.max_iterations, self.on_max)


class SwitchModel(SpecModel):
    """Chooses which of the listed steps run; the others are filtered."""

    noun = "switch"

    on: f.Rule = Field(description="The expression that gives the key of the case.")
    cases: dict[str, list[str]] = Field(description="The steps that run, by key.")
    default: list[str] | None = Field(None, description="The steps that run when no case matches.")

    def to_spec(self) -> SwitchSpec:
        cases = {key: tuple(ids) for key, ids in self.cases.items()}
        return SwitchSpec(self.on, cases, None if self.default is None else tuple(self.default))


class ConcurrencyModel(SpecModel):
    """Limits how many are in progress for the same key, across all executions."""

    noun = "concurrency"

    key: f.ConcurrencyKey = Field(description="The name of the limit, or an expression that gives it.")
    limit: f.Count = Field(description="How many may be in progress at once.")

    def to_spec(self) -> ConcurrencySpec:
        return ConcurrencySpec(self.key, self.limit)


class CompensateModel(SpecModel):
    """Undoes a completed step when the workflow fails or is cancelled: newest first, one at a time."""

    noun = "compensate"

    fn: f.Token = Field(description="The name of its executor.")
    input: f.Values | None = Field(None, description="The inputs of its executor: literals and expressions.")
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
    """An executor with its configuration, which steps can call."""

    noun = "a source"

    type: f.Token = Field(description="The executor: http, process, env, or your own.")
    configuration: f.Values | None = Field(None, description="The configuration of the executor.")

    def to_spec(self) -> dict[str, Any]:
        return {"type": self.type, "configuration": self.configuration or {}}


class StepSourceModel(SpecModel):
    """The source of one step: {type, configuration}, or a base and the changes to it."""

    noun = "the source of a step"
    model_config = ConfigDict(json_schema_extra=one_of_two_keys("base", "configuration", "type", "override"))

    base: f.Token | None = Field(None, description="The name of the source to change.")
    override: f.Override | None = Field(
        None, description="The changes: keys of the configuration, or {type, configuration}."
    )
    type: f.Token | None = Field(None, description="The executor: http, process, env, or your own.")
    configuration: f.Values | None = Field(None, description="The configuration of the executor.")

    @model_validator(mode="after")
    def _check_form(self) -> Self:
        if (self.base is None) == (self.type is None):
            raise invalid_error("needs either a type or a base")
        if self.base is not None and self.configuration is not None:
            raise invalid_error("has a base: write the configuration under override")
        if self.type is not None and self.override is not None:
            raise invalid_error("has an override, but no base to change")
        return self


class RunnerModel(SpecModel):
    """How the steps of one execution are run."""

    noun = "runner"

    max_workers: f.Count | None = Field(None, description="How many steps may run at once; all if absent.")
    on_error: f.Policy = Field("fail", description="The same as in defaults.")


class KvModel(SpecModel):
    """Values that executions share. With this key, prefixes of output keys choose a scope."""

    noun = "kv"

    scopes: list[KvScope] = Field(
        ["flow", "global", "flow_group"], description="The prefixes that output keys may have."
    )


class WebhookModel(SpecModel):
    """A URL that receives the outcome when the workflow ends."""

    noun = "webhook"

    url: f.Address = Field(description="The URL that the outcome is posted to.")
    headers: dict[str, f.Header] | None = Field(None, description="Additional HTTP headers.")
    on: list[FinishStatus] | None = Field(None, description="Which outcomes are posted; all if absent.")

    def to_spec(self) -> WebhookSpec:
        on = {} if self.on is None else {"on": tuple(self.on)}
        return WebhookSpec(self.url, self.headers or {}, **on)


class ScheduleModel(SpecModel):
    """When a registered workflow starts automatically."""

    noun = "schedule"

    cron: f.Cron = Field(
        description="Minute, hour, day, month, weekday; or a macro such as @hourly or @daily."
    )
    timezone: f.TimeZoneName = Field("UTC", description="The time zone of the cron, such as Europe/Berlin.")
    catch_up: CatchUp = Field("none", description="Which missed starts are made up for.")
    overlap: Overlap = Field("allow", description="What happens if the previous execution has not ended.")

    def to_spec(self) -> ScheduleSpec:
        return ScheduleSpec(self.cron, self.timezone, self.catch_up, self.overlap)
