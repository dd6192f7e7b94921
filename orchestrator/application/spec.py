"""What a user writes, and what the rest of the program reads.

The Written... models are the document key by key: they refuse what is not in the language and describe it
(JSON schema). The frozen dataclasses are the same facts with every alias, default and case settled; only they
leave this layer's door, `validation.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator.application.durations import parse_duration

if TYPE_CHECKING:
    from orchestrator.application.validation import LoadedSpec

NOT_YET = frozenset(
    {
        "document.concurrency",
        "document.flow",
        "document.kv",
        "document.redact",
        "document.retention",
        "document.runner",
        "document.schedule",
        "document.sources",
        "document.timeout",
        "document.webhook",
        "defaults.priority",
        "defaults.retry",
        "defaults.skip_output_mapping",
        "step.compensate",
        "step.concurrency",
        "step.defer_ms",
        "step.delay",
        "step.filters",
        "step.heartbeat",
        "step.join",
        "step.kv_add",
        "step.loop",
        "step.map",
        "step.output",
        "step.priority",
        "step.required",
        "step.retry",
        "step.skip_output_mapping",
        "step.source",
        "step.switch",
        "step.tags",
        "step.wait",
        "step.when",
        "step.workflow",
    }
)
"""Keys of the language that this release refuses; take a line away when its key has arrived."""

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 3

InputType = Literal["string", "number", "integer", "boolean", "object", "array"]
OnError = Literal["fail", "skip", "continue"]
AttemptsOn = Literal["error", "any"]
Action = Literal["halt", "complete", "retry", "fail", "skip", "set"]
Kind = Literal["task", "wait", "delay", "switch", "workflow"]
Scope = Literal["flow", "global", "flow_group"]
OnMax = Literal["fail", "exit_with_last"]
OnTimeout = Literal["fail", "continue"]
End = Literal["complete", "halted", "failed", "cancelled"]
CatchUp = Literal["none", "one", "all"]
Overlap = Literal["allow", "skip", "queue"]

PLAIN_ACTIONS = ("halt", "complete", "retry", "fail", "skip")
ID_RULE = "must be letters, digits, '_', '-' and '.', at most 128 of them"

_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")


# What the program reads -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A declared input of the workflow; `type` None takes any value."""

    type: InputType | None = None
    required: bool = False
    default: Any = None
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """What one execution may use at most; a document may lower these, never raise them."""

    max_runs: int = 10_000
    max_lost: int = 3
    max_steps: int = 100_000
    max_depth: int = 16
    max_output_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """How often a failure is tried again, and after what delay; never 0 times: then there is no RetrySpec."""

    max_retries: int = 2
    initial_delay_ms: int = 1_000
    backoff_multiplier: float = 2.0
    max_delay_ms: int | None = None
    jitter_fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds for every step that does not say otherwise."""

    timeout_s: float | None = DEFAULT_TIMEOUT_S
    on_error: OnError = "fail"
    attempts_on: AttemptsOn = "error"
    queue: str = DEFAULT_QUEUE
    retry: RetrySpec | None = None
    priority: int = DEFAULT_PRIORITY
    skip_output_mapping: bool = False


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """One way on after a result. `targets` is what `set` says, as written; the others leave it None."""

    condition: Any
    action: Action
    targets: Any = None
    result: Any = field(default_factory=dict)
    result_expr: Any = None
    has_result_expr: bool = False


@dataclass(frozen=True, slots=True)
class MapSpec:
    """One job per item of a list; the inputs see the item under the name `as_`, and `index`."""

    over: Any
    as_: str = "item"
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class LoopSpec:
    max_iterations: int = 10
    on_max: OnMax = "fail"


@dataclass(frozen=True, slots=True)
class WaitSpec:
    """The signals a step waits for. `is_any`: a list of events was written; the first one wins and is named
    in the output; its timeout is an event too, so `on_timeout` is then "continue"."""

    signals: tuple[str, ...]
    timeout_ms: int | None = None
    on_timeout: OnTimeout = "fail"
    is_any: bool = False


@dataclass(frozen=True, slots=True)
class SwitchSpec:
    """Which of the listed steps go on; `default` None: no match is a failure."""

    on: Any
    cases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    default: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A workflow as a step: registered under `name`, or written inline, and then already loaded."""

    name: str | None = None
    document: dict[str, Any] | None = None
    loaded: LoadedSpec | None = None


@dataclass(frozen=True, slots=True)
class CompensateSpec:
    fn: str
    input: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = DEFAULT_TIMEOUT_S
    retry: RetrySpec | None = None
    queue: str = DEFAULT_QUEUE


@dataclass(frozen=True, slots=True)
class ConcurrencySpec:
    key: Any
    limit: int


@dataclass(frozen=True, slots=True)
class WebhookSpec:
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    on: tuple[End, ...] = ("complete", "halted", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    cron: str
    timezone: str = "UTC"
    catch_up: CatchUp = "none"
    overlap: Overlap = "allow"


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step, every alias and default applied. `on_error_written`: the step's own key was there.

    `fn` is empty unless `kind` is "task". `guards` are the conditions under which the step runs, in the order
    in which they are evaluated. `timeout_s` has no default but for tasks.
    """

    id: str
    fn: str
    input: dict[str, Any] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    branch: tuple[BranchSpec, ...] = ()
    max_attempts: int = 1
    attempts_on: AttemptsOn = "error"
    on_error: OnError = "fail"
    on_error_written: bool = False
    queue: str = DEFAULT_QUEUE
    timeout_s: float | None = DEFAULT_TIMEOUT_S
    name: str | None = None
    label: str | None = None
    description: str | None = None
    kind: Kind = "task"
    join: Any = "all"
    guards: tuple[Any, ...] = ()
    required: tuple[str, ...] = ()
    defer_ms: int = 0
    retry: RetrySpec | None = None
    output: dict[str, Any] | None = None
    skip_output_mapping: bool = False
    map: MapSpec | None = None
    loop: LoopSpec | None = None
    wait: WaitSpec | None = None
    delay_ms: int | None = None
    switch: SwitchSpec | None = None
    child: ChildSpec | None = None
    priority: int = DEFAULT_PRIORITY
    tags: tuple[str, ...] = ()
    kv_add: dict[str, Any] = field(default_factory=dict)
    compensate: CompensateSpec | None = None
    concurrency: ConcurrencySpec | None = None
    heartbeat_s: float | None = None
    source: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class WorkflowSpec:
    name: str | None = None
    description: str | None = None
    inputs: dict[str, InputSpec] = field(default_factory=dict)
    steps: tuple[StepSpec, ...] = ()
    outputs: dict[str, Any] = field(default_factory=dict)
    limits: Limits = Limits()
    defaults: Defaults = Defaults()
    max_workers: int | None = None
    kv_scopes: tuple[Scope, ...] | None = None
    sources: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    retention_s: float | None = None
    concurrency: ConcurrencySpec | None = None
    redact: tuple[str, ...] = ()
    webhook: WebhookSpec | None = None
    schedule: ScheduleSpec | None = None


def is_id(text: str) -> bool:
    """Whether a text may name a step or a queue: such names become keys, paths and job ids."""
    return _ID.fullmatch(text) is not None


def workflow_id(document: Mapping[str, Any]) -> str:
    """The content hash of a document as submitted, before any default: runfox's, byte for byte."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.md5(canonical.encode("ascii"), usedforsecurity=False).hexdigest()


# What a user writes -----------------------------------------------------------------------------------------
# A validator's PydanticCustomError carries one of our own codes as its type; validation.py passes it on.


def _policy(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in ("fail", "skip", "continue"):
        return value.lower()
    raise PydanticCustomError("bad_policy", "must be fail, skip or continue")


def _repetition(value: Any) -> Any:
    if value in ("error", "any"):
        return value
    raise PydanticCustomError("bad_policy", "must be error or any")


def _timeout(value: Any) -> Any:
    try:
        seconds = _seconds(value)
    except ValueError as error:
        raise PydanticCustomError("bad_duration", "{why}; or none", {"why": str(error)}) from None
    if seconds == 0:
        raise PydanticCustomError("bad_duration", "must be longer than 0; write none for no timeout")
    return value


def _queue(value: str) -> str:
    if not is_id(value):
        raise PydanticCustomError("bad_id", "{rule}", {"rule": ID_RULE})
    return value


def _action(value: Any) -> Any:
    if isinstance(value, dict) and "set" in value:
        if value.get("value", "ready") != "ready":
            raise PydanticCustomError("bad_type", "value must be ready: a step can be set to nothing else")
        if strangers := [key for key in value if key not in ("set", "value")]:
            raise PydanticCustomError("unknown_key", "set knows no key {key}", {"key": repr(strangers[0])})
    elif value not in PLAIN_ACTIONS:
        known = f"must be {', '.join(PLAIN_ACTIONS)} or {{set: <step>, value: ready}}"
        raise PydanticCustomError("unknown_action", "{known}", {"known": known})
    return value


Token = Annotated[str, Field(min_length=1)]
QueueName = Annotated[str, AfterValidator(_queue)]
Timeout = Annotated[int | str, BeforeValidator(_timeout)]
Policy = Annotated[OnError, BeforeValidator(_policy)]
Repetition = Annotated[AttemptsOn, BeforeValidator(_repetition)]


class Written(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _free_keys(cls, data: Any) -> Any:
        if isinstance(data, dict) and any(key.startswith("x-") for key in data):
            return {key: value for key, value in data.items() if not key.startswith("x-")}
        return data


class WrittenInput(Written):
    type: InputType | None = None
    required: bool = False
    default: Any = None

    def settled(self) -> InputSpec:
        return InputSpec(self.type, self.required, self.default, "default" in self.model_fields_set)


class WrittenLimits(Written):
    max_runs: int = Field(Limits().max_runs, ge=1, le=Limits().max_runs)
    max_lost: int = Field(Limits().max_lost, ge=0, le=Limits().max_lost)
    max_steps: int = Field(Limits().max_steps, ge=1, le=Limits().max_steps)
    max_depth: int = Field(Limits().max_depth, ge=1, le=Limits().max_depth)
    max_output_bytes: int = Field(Limits().max_output_bytes, ge=1, le=Limits().max_output_bytes)

    def settled(self) -> Limits:
        return Limits(**self.model_dump())


class WrittenDefaults(Written):
    timeout: Timeout = int(DEFAULT_TIMEOUT_S)
    on_error: Policy = "fail"
    attempts_on: Repetition = "error"
    queue: QueueName = DEFAULT_QUEUE

    def settled(self) -> Defaults:
        return Defaults(_seconds(self.timeout), self.on_error, self.attempts_on, self.queue)


class WrittenBranch(Written):
    condition: Any
    action: Annotated[Any, BeforeValidator(_action)]
    result: Any = None
    result_expr: Any = None

    @model_validator(mode="after")
    def _one_result(self) -> Self:
        if {"result", "result_expr"} <= self.model_fields_set:
            raise PydanticCustomError("bad_type", "has both result and result_expr; keep one")
        return self

    def settled(self) -> BranchSpec:
        is_set = isinstance(self.action, dict)
        return BranchSpec(
            condition=self.condition,
            action="set" if is_set else self.action,
            targets=self.action["set"] if is_set else None,
            result=self.result if "result" in self.model_fields_set else {},
            result_expr=self.result_expr,
            has_result_expr="result_expr" in self.model_fields_set,
        )


class WrittenStep(Written):
    id: str | None = None
    op: Token | None = None
    fn: Token | None = None
    type: Token | None = None
    name: str | None = None
    label: str | None = None
    description: str | None = None
    input: dict[str, Any] | None = None
    depends_on: list[str] | None = None
    branch: list[WrittenBranch] | None = None
    max_attempts: int = Field(1, ge=1)
    attempts_on: Repetition = "error"
    on_error: Policy = "fail"
    queue: QueueName = DEFAULT_QUEUE
    timeout: Timeout = int(DEFAULT_TIMEOUT_S)

    @property
    def identity(self) -> tuple[str, str] | None:
        """The key that names this step, and the name."""
        named = (("id", self.id), ("op", self.op), ("name", self.name))
        return next(((key, name) for key, name in named if name is not None), None)

    @property
    def token(self) -> str | None:
        return self.fn or self.op or self.type

    def settled(self, defaults: Defaults) -> StepSpec:
        written = self.model_fields_set
        return StepSpec(
            id=self.identity[1] if self.identity else "",
            fn=self.token or "",
            input=self.input or {},
            depends_on=tuple(self.depends_on or ()),
            branch=tuple(branch.settled() for branch in self.branch or ()),
            max_attempts=self.max_attempts,
            attempts_on=self.attempts_on if "attempts_on" in written else defaults.attempts_on,
            on_error=self.on_error if "on_error" in written else defaults.on_error,
            on_error_written="on_error" in written,
            queue=self.queue if "queue" in written else defaults.queue,
            timeout_s=_seconds(self.timeout) if "timeout" in written else defaults.timeout_s,
            name=self.name,
            label=self.label,
            description=self.description,
        )


class WrittenDocument(Written):
    name: str | None = None
    description: str | None = None
    inputs: dict[str, WrittenInput] | None = None
    defaults: WrittenDefaults | None = None
    limits: WrittenLimits | None = None
    steps: list[WrittenStep]
    outputs: dict[str, Any] | None = None


def _seconds(timeout: Any) -> float | None:
    return None if isinstance(timeout, str) and timeout.lower() == "none" else parse_duration(timeout)
