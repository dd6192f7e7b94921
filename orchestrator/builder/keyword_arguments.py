"""The keys of the language as keyword arguments, typed for a type checker.

They have the names of the language, except that `depends_on` is `after` and keys that start with `x-` are in
the mapping `x`. A duration is a text such as "30s", an integer number of seconds, or a timedelta.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Required, TypeAlias, TypedDict

from orchestrator.application.spec.model import (
    AttemptsOn,
    CatchUp,
    FinishStatus,
    History,
    InputType,
    Isolation,
    KvScope,
    OnError,
    OnMax,
    Overlap,
)
from orchestrator.builder.branches import Branch
from orchestrator.builder.expressions import Condition, Expr, Json, Reference, Step, Value

Duration: TypeAlias = str | int | timedelta
Milliseconds: TypeAlias = int | timedelta
Priority: TypeAlias = Literal[1, 2, 3, 4, 5]
Values: TypeAlias = Mapping[str, Value]
StepName: TypeAlias = Step | str
StepNames: TypeAlias = StepName | Sequence[StepName]


# ---- parts


class Retry(TypedDict, total=False):
    max_retries: int
    initial_delay_ms: Milliseconds
    backoff_multiplier: float
    max_delay_ms: Milliseconds
    jitter_fraction: float
    non_retryable: Sequence[str | type[BaseException]]


class Loop(TypedDict, total=False):
    max_iterations: int
    on_max: OnMax


class Filter(TypedDict, total=False):
    """A condition, {expression, value}, or a group of them, {operator, filters}."""

    expression: Condition
    value: Value
    operator: Literal["AND", "OR"]
    filters: Sequence[Filter]


class Concurrency(TypedDict):
    key: Expr | str | int | float
    limit: int


class Compensate(TypedDict, total=False):
    fn: Required[str]
    input: Values
    timeout: Duration
    retry: int | Retry
    queue: str


class SourceDefinition(TypedDict, total=False):
    type: Required[str]
    configuration: Values


class SourceOverride(TypedDict, total=False):
    base: Required[str]
    override: Values


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A declared source, to pass to the steps that call it."""

    name: str
    owner: object

    def override(self, settings: Values) -> SourceOverride:
        """Return the source with other settings for one step."""
        return {"base": self.name, "override": settings}


AnySource: TypeAlias = Source | str | SourceDefinition | SourceOverride


class Input(TypedDict, total=False):
    type: InputType
    required: bool
    default: Json


class Defaults(TypedDict, total=False):
    timeout: Duration
    retry: int | Retry
    on_error: OnError
    attempts_on: AttemptsOn
    queue: str
    priority: Priority
    skip_output_mapping: bool
    isolation: Isolation


class Runner(TypedDict, total=False):
    max_workers: int
    on_error: OnError


class Limits(TypedDict, total=False):
    max_runs: int
    max_lost: int
    max_steps: int
    max_depth: int
    max_output_bytes: int


class Kv(TypedDict, total=False):
    scopes: Sequence[KvScope]


class Webhook(TypedDict, total=False):
    url: Required[str]
    headers: Mapping[str, str]
    on: Sequence[FinishStatus]


class Schedule(TypedDict, total=False):
    cron: Required[str]
    timezone: str
    catch_up: CatchUp
    overlap: Overlap


# ---- steps and workflows


class PlainStepKeys(TypedDict, total=False):
    """Keys of every kind of step that refer to no other step and to no output of the step itself."""

    name: str
    label: str
    description: str
    join: Literal["all", "any", "done"] | int | Expr
    when: Condition
    filters: Filter
    required: Sequence[str | Reference]
    defer_ms: Milliseconds
    max_attempts: int
    attempts_on: AttemptsOn
    retry: int | Retry
    on_error: OnError
    skip_output_mapping: bool
    x: Mapping[str, Json]


class StepKeys(PlainStepKeys, total=False):
    """Keys of every kind of step."""

    after: StepNames
    branch: Sequence[Branch]
    output: Values
    kv_add: Values
    compensate: Compensate


class PlacementKeys(TypedDict, total=False):
    """Keys that say where and how long a step runs."""

    timeout: Duration
    queue: str
    priority: Priority
    tags: Sequence[str]
    concurrency: Concurrency


class WorkKeys(StepKeys, PlacementKeys, total=False):
    """Keys of steps that run an executor or another workflow."""

    input: Values


class ExecutorKeys(TypedDict, total=False):
    """Keys that only steps with an executor have."""

    heartbeat: Duration
    isolation: Isolation


class JobKeys(WorkKeys, ExecutorKeys, total=False):
    """Keys of steps with an executor."""


class WorkflowKeys(TypedDict, total=False):
    """Keys of a workflow, without its inputs, sources, steps and outputs."""

    description: str
    defaults: Defaults
    runner: Runner
    limits: Limits
    kv: Kv
    webhook: Webhook
    timeout: Duration
    retention: Duration
    concurrency: Concurrency
    schedule: Schedule
    history: History
    redact: Sequence[str]
    x: Mapping[str, Json]
