"""A workflow as the rest of the program reads it: every alias, default and case settled.

What a user writes is in `written.py`, key by key; `validation.py` is the door from there to here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from orchestrator.application.errors import Problem
from orchestrator.application.spec.graph import Graph
from orchestrator.application.values.secret_refs import SecretPath

COMPENSATION_PART = "undo"
"""`<step>#undo` is the compensation of a step, as `<step>#<n>` is an item of a map."""

WEBHOOK_UNIT = "#webhook"
"""The unit that tells of the end of an execution: it belongs to no step."""

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 3

InputType = Literal["string", "number", "integer", "boolean", "object", "array"]
OnError = Literal["fail", "skip", "continue"]
AttemptsOn = Literal["error", "any"]
Action = Literal["halt", "complete", "retry", "fail", "skip", "set"]
StepKind = Literal["task", "wait", "delay", "switch", "workflow"]
KvScope = Literal["flow", "global", "flow_group"]
OnMax = Literal["fail", "exit_with_last"]
OnTimeout = Literal["fail", "continue"]
FinishStatus = Literal["complete", "halted", "failed", "cancelled"]
CatchUp = Literal["none", "one", "all"]
Overlap = Literal["allow", "skip", "queue"]

ID_RULE = "must be letters, digits, '_', '-' and '.', at most 128 of them"
ID_PATTERN = r"^[A-Za-z0-9_.-]{1,128}$"

_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}")


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
    """How often a failure is tried again, after what delay, and which failures are not."""

    max_retries: int = 2
    initial_delay_ms: int = 1_000
    backoff_multiplier: float = 2.0
    max_delay_ms: int | None = None
    jitter_fraction: float = 0.0
    non_retryable: tuple[str, ...] = ()


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
    secrets: tuple[SecretPath, ...] = ()


@dataclass(frozen=True, slots=True)
class ConcurrencySpec:
    key: Any
    limit: int


@dataclass(frozen=True, slots=True)
class WebhookSpec:
    """Whom to tell of the end of an execution, and of which ends."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    on: tuple[FinishStatus, ...] = ("complete", "halted", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    cron: str
    timezone: str = "UTC"
    catch_up: CatchUp = "none"
    overlap: Overlap = "allow"


@dataclass(frozen=True, slots=True)
class StepSpec:
    """One step, every alias and default applied. `has_own_on_error`: the step's own key was there.

    `fn` is empty unless `kind` is "task". `guards` are the conditions under which the step runs, in the order
    in which they are evaluated, and `guard_keys` the keys they were written under. `timeout_s` has no default
    but for tasks. `source` is the definition merged from all its parts, {type, configuration}, and `fn` then
    its type; if its configuration has expressions, `sources` says which variables they may read. `tags` are
    those that choose its queue: none for a step that names its queue itself. `secrets` are the places in
    `input` that refer to secrets; those in the configuration of `source` are its own `secrets`.
    """

    id: str
    fn: str
    input: dict[str, Any] = field(default_factory=dict)
    depends_on: tuple[str, ...] = ()
    branch: tuple[BranchSpec, ...] = ()
    max_attempts: int = 1
    attempts_on: AttemptsOn = "error"
    on_error: OnError = "fail"
    has_own_on_error: bool = False
    queue: str = DEFAULT_QUEUE
    timeout_s: float | None = DEFAULT_TIMEOUT_S
    name: str | None = None
    label: str | None = None
    description: str | None = None
    kind: StepKind = "task"
    join: Any = "all"
    guards: tuple[Any, ...] = ()
    guard_keys: tuple[str, ...] = ()
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
    has_own_priority: bool = False
    secrets: tuple[SecretPath, ...] = ()

    @property
    def compensation_step(self) -> StepSpec:
        """The compensation of this step as a step of its own: it has a job and attempts, and nothing else."""
        undo = self.compensate
        assert undo is not None, f"{self.id} cannot be compensated"
        return StepSpec(
            id=f"{self.id}#{COMPENSATION_PART}",
            fn=undo.fn,
            input=undo.input,
            retry=undo.retry,
            timeout_s=undo.timeout_s,
            queue=undo.queue,
            tags=self.tags if undo.queue == self.queue else (),
            priority=self.priority,
            has_own_priority=self.has_own_priority,
            secrets=undo.secrets,
        )


WEBHOOK_STEP = StepSpec(
    id=WEBHOOK_UNIT,
    fn="webhook",
    retry=RetrySpec(max_retries=8, max_delay_ms=600_000, jitter_fraction=0.2),
    timeout_s=30.0,
    skip_output_mapping=True,
)
"""A webhook as a step of its own: it has a job and attempts, and nothing else."""


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
    kv_scopes: tuple[KvScope, ...] | None = None
    sources: dict[str, Any] = field(default_factory=dict)
    timeout_s: float | None = None
    retention_s: float | None = None
    concurrency: ConcurrencySpec | None = None
    redact: tuple[str, ...] = ()
    webhook: WebhookSpec | None = None
    schedule: ScheduleSpec | None = None


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A valid spec with all that is computed from it once."""

    spec: WorkflowSpec
    graph: Graph
    document: dict[str, Any]
    workflow_id: str
    warnings: tuple[Problem, ...] = ()
    uses_shared_values: bool = False
    """Whether its expressions may read values that executions share: they are loaded for no other spec."""
    steps: dict[str, StepSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", {step.id: step for step in self.spec.steps})


def is_id(text: str) -> bool:
    """Whether a text may name a step or a queue: such names become keys, paths and job ids."""
    return _ID.fullmatch(text) is not None


def workflow_id(document: Mapping[str, Any]) -> str:
    """The content hash of a document as submitted, before any default: runfox's, byte for byte."""
    return content_hash(canonical_json(document))


def canonical_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def content_hash(text: str) -> str:
    return hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()
