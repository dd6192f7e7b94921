"""The checked spec of a workflow, as the rest of the program reads it: aliases and defaults are applied.

`step_models.py` and `part_models.py` describe the document that a user writes; `validation.py` turns it into
these classes.
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
from orchestrator.application.values.unit_id import COMPENSATION_PART, WEBHOOK_UNIT, UnitId, split_unit

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 3

InputType = Literal["string", "number", "integer", "boolean", "object", "array"]
OnError = Literal["fail", "skip", "continue"]
AttemptsOn = Literal["error", "any"]
Isolation = Literal["thread", "process"]
History = Literal["moves", "full"]
"""What the history of an execution has: the moves of its steps, or also what each commit changed."""
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

_ID = re.compile(ID_PATTERN)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A declared input of the workflow; without a `type` it takes any value."""

    type: InputType | None = None
    required: bool = False
    default: Any = None
    has_default: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one execution; a document may lower these, never raise them."""

    max_runs: int = 10_000
    max_lost: int = 3
    max_steps: int = 100_000
    max_depth: int = 16
    max_output_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class RetrySpec:
    """How often and after what delay a failure is retried, and which failures are not retried."""

    max_retries: int = 2
    initial_delay_ms: int = 1_000
    backoff_multiplier: float = 2.0
    max_delay_ms: int | None = None
    jitter_fraction: float = 0.0
    non_retryable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values of keys that a step does not have."""

    timeout_s: float | None = DEFAULT_TIMEOUT_S
    on_error: OnError = "fail"
    attempts_on: AttemptsOn = "error"
    queue: str = DEFAULT_QUEUE
    retry: RetrySpec | None = None
    priority: int = DEFAULT_PRIORITY
    skip_output_mapping: bool = False
    isolation: Isolation = "thread"


@dataclass(frozen=True, slots=True)
class BranchSpec:
    """One entry of `branch`. `targets` is the value of `set`, unchanged; None for other actions."""

    condition: Any
    action: Action
    targets: Any = None
    result: Any = field(default_factory=dict)
    result_expr: Any = None
    has_result_expr: bool = False


@dataclass(frozen=True, slots=True)
class MapSpec:
    """One job per item of a list; the inputs can read the item as `as_`, and `index`."""

    over: Any
    as_: str = "item"
    max_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class LoopSpec:
    max_iterations: int = 10
    on_max: OnMax = "fail"


@dataclass(frozen=True, slots=True)
class WaitSpec:
    """The signals that a step waits for.

    `is_any`: the document lists events; the first one wins and is named in the output. A timeout is one of
    these events, so `on_timeout` is "continue" then.
    """

    signals: tuple[str, ...]
    timeout_ms: int | None = None
    on_timeout: OnTimeout = "fail"
    is_any: bool = False


@dataclass(frozen=True, slots=True)
class SwitchSpec:
    """Which of the listed steps run; without a `default`, no match is a failure."""

    on: Any
    cases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    default: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A workflow as a step: a registered `name`, or an inline document, which is loaded already."""

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
    """The URL that receives the outcome of an execution, and for which outcomes."""

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
    """One step, with every alias and default applied.

    - `fn` is empty unless `kind` is "task".
    - `has_own_on_error`, `has_own_priority`: the step itself has the key.
    - `guards` are the conditions under which the step runs, in the order of their evaluation; `guard_keys`
      are the keys that they come from.
    - `timeout_s` has a default for tasks only.
    - `source` is the definition merged from all its parts, {type, configuration}; `fn` is its type then. If
      the configuration has expressions, `source` also has `sources`: the variables that they may read.
    - `tags` choose the queue; they are empty for a step that names its queue.
    - `secrets` are the paths of secret references in `input`. The `source` has its own `secrets`.
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
    isolation: Isolation = "thread"

    @property
    def has_branch_output(self) -> bool:
        """Whether a branch may replace the output."""
        return any(entry.action == "complete" and entry.has_result_expr for entry in self.branch)

    @property
    def compensation_step(self) -> StepSpec:
        """The compensation of this step as a step of its own, which has a job and attempts only."""
        compensate = self.compensate
        assert compensate is not None, f"{self.id} cannot be compensated"
        return StepSpec(
            id=UnitId.for_compensation(self.id),
            fn=compensate.fn,
            input=compensate.input,
            retry=compensate.retry,
            timeout_s=compensate.timeout_s,
            queue=compensate.queue,
            tags=self.tags if compensate.queue == self.queue else (),
            priority=self.priority,
            has_own_priority=self.has_own_priority,
            secrets=compensate.secrets,
            isolation=self.isolation,
        )


WEBHOOK_STEP = StepSpec(
    id=WEBHOOK_UNIT,
    fn="webhook",
    retry=RetrySpec(max_retries=8, max_delay_ms=600_000, jitter_fraction=0.2),
    timeout_s=30.0,
    skip_output_mapping=True,
)
"""The webhook as a step of its own, which has a job and attempts only."""


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
    history: History | None = None


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A valid spec, and everything that is computed from it once."""

    spec: WorkflowSpec
    graph: Graph
    document: dict[str, Any]
    workflow_id: str
    warnings: tuple[Problem, ...] = ()
    uses_shared_values: bool = False
    """Whether its expressions may read values that executions share. They are loaded only for such specs."""
    has_short_references: bool = False
    """Whether its document has short references, which were expanded."""
    keeps_braces: bool = False
    """Whether it was loaded for an execution that was started before there were short references."""
    size: int = field(default=0, compare=False)
    """The number of bytes of its document as JSON: caches are bounded by it."""
    steps: dict[str, StepSpec] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", {step.id: step for step in self.spec.steps})

    def unit_spec(self, unit: str) -> StepSpec:
        """The spec of a unit: an item has that of its map, a compensation and the webhook have their own."""
        if unit == WEBHOOK_UNIT:
            return WEBHOOK_STEP
        step_id, part = split_unit(unit)
        spec = self.steps[step_id]
        return spec.compensation_step if part == COMPENSATION_PART else spec


def is_id(text: str) -> bool:
    """Whether a text is a valid id of a step or queue. Ids become parts of keys, paths and job ids."""
    return _ID.fullmatch(text) is not None


def workflow_id(document: Mapping[str, Any]) -> str:
    """Return the content hash of a document as submitted, without defaults. It equals that of runfox."""
    return content_hash(canonical_json(document))


def canonical_json(document: Mapping[str, Any]) -> str:
    """Return the JSON of a document that is the same for every order of its keys."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def content_hash(text: str) -> str:
    return hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()
