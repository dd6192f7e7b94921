"""The workflows of the torture run, each with a model: its result is a pure function of its inputs.

    kind = KINDS["diamond"]
    kind.document, kind.expected({"n": 3, "ms": 20})

No document contains a race, so neither order nor repetition may change its result. A step whose worker is
lost too often loses an attempt, so every step has many attempts, except for the failures that are intended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

PATIENT = {"max_retries": 50, "initial_delay_ms": 50, "backoff_multiplier": 1.0}
DEFAULTS = {"retry": {**PATIENT, "non_retryable": ["ValueError", "timeout"]}}
MS = {"var": "input.ms"}
N = {"var": "input.n"}


@dataclass(frozen=True, slots=True)
class End:
    """How an execution must end; `error` is the kind of its error."""

    status: str
    outcome: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """`prompt` is what it needs to end: a signal, or a cancellation. `adds` is the step whose completions are
    counted in a value that all executions of this kind share. `repeats` are steps that complete more than
    once, each time in another run."""

    name: str
    document: Json
    expected: Callable[[Json], End]
    prompt: str | None = None
    adds: str | None = None
    repeats: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        return f"all-{self.name}"


def _plus(step_id: str, a: Any, b: Any, *after: str, **keys: Any) -> Json:
    return {
        "id": step_id,
        "fn": "plus",
        "input": {"a": a, "b": b, "ms": MS},
        "depends_on": list(after),
        **keys,
    }


def _value(step_id: str) -> Json:
    return {"var": f"steps.{step_id}.output.value"}


def _kind(name: str, steps: list[Json], expected: Callable[[Json], End], **others: Any) -> Kind:
    keys: Json = {
        name: others.pop(name) for name in ("outputs", "kv", "inputs", "schedule") if name in others
    }
    document = {"name": name, "defaults": DEFAULTS, "steps": steps, **keys}
    return Kind(name, document, expected, **others)


def _complete(outcome: Callable[[int], Any]) -> Callable[[Json], End]:
    return lambda inputs: End("complete", outcome(inputs["n"]))


DIAMOND = _kind(
    "diamond",
    [
        _plus("a", N, 1),
        _plus("b", _value("a"), 10, "a"),
        _plus("c", _value("a"), 100, "a"),
        _plus("d", _value("b"), _value("c"), "b", "c", kv_add={"flow_group:total": 1}),
    ],
    _complete(lambda n: {"sum": 2 * n + 112}),
    outputs={"sum": _value("d")},
    kv={"scopes": ["flow_group"]},
    adds="d",
)
MAP = _kind(
    "map",
    [
        {
            "id": "each",
            "fn": "plus",
            "map": {"over": {"var": "input.list"}, "max_parallel": 3},
            "input": {"a": {"var": "item"}, "b": {"var": "index"}, "ms": MS},
        },
        {
            "id": "sum",
            "fn": "total",
            "depends_on": ["each"],
            "input": {"values": {"vars": "steps.each.output.items[*].value"}},
        },
    ],
    lambda inputs: End(
        "complete",
        {"sum": sum(one + index for index, one in enumerate(inputs["list"])), "count": len(inputs["list"])},
    ),
    outputs={"sum": _value("sum"), "count": {"var": "steps.each.output.count"}},
)
LOOP = _kind(
    "loop",
    [
        {
            "id": "climb",
            "fn": "climb",
            "loop": {"max_iterations": 5},
            "input": {"height": {"var": "ctx.loop.value.value"}, "n": N, "ms": MS},
        }
    ],
    _complete(lambda n: {"height": 3 * n}),
    outputs={"height": _value("climb")},
)
RETRY = _kind(
    "retry",
    [{"id": "flaky", "fn": "flaky", "input": {"n": N}}, _plus("after", _value("flaky"), 1, "flaky")],
    _complete(lambda n: {"value": n + 1}),
    outputs={"value": _value("after")},
)
WAIT = _kind(
    "wait",
    [
        _plus("before", N, 1),
        {"id": "approval", "wait": {"signal": "approve"}, "depends_on": ["before"]},
        _plus("after", _value("before"), {"var": "steps.approval.output.bonus"}, "approval"),
    ],
    _complete(lambda n: {"value": n + 1 + 7}),
    outputs={"value": _value("after")},
    prompt="approve",
)
CHILD_DOCUMENT = {
    "defaults": DEFAULTS,
    "steps": [_plus("one", N, 1), _plus("two", _value("one"), 2, "one")],
    "outputs": {"value": _value("two")},
}
CHILD = _kind(
    "child",
    [
        {"id": "kid", "workflow": CHILD_DOCUMENT, "input": {"n": N, "ms": MS}},
        {
            "id": "bad",
            "workflow": {"steps": [{"id": "broken", "fn": "broken", "retry": DEFAULTS["retry"]}]},
            "retry": 0,
            "on_error": "continue",
        },
        _plus("after", _value("kid"), 1, "kid", "bad"),
    ],
    _complete(lambda n: {"value": n + 4, "bad": "child_failed"}),
    outputs={"value": _value("after"), "bad": {"var": "ctx.error.bad.kind"}},
)
UNDO = {"fn": "undo", "retry": PATIENT}
COMPENSATION = _kind(
    "compensation",
    [
        _plus("charge", N, 1, compensate=UNDO),
        _plus("reserve", _value("charge"), 1, "charge", compensate=UNDO),
        {"id": "ship", "fn": "broken", "depends_on": ["reserve"]},
    ],
    lambda inputs: End("failed", None, "exception"),
)
CONCURRENCY = _kind(
    "concurrency",
    [
        _plus("print", N, 5, concurrency={"key": "printer", "limit": 2}, kv_add={"flow_group:total": 1}),
        _plus("bind", _value("print"), 5, "print", concurrency={"key": "binder", "limit": 1}),
    ],
    _complete(lambda n: {"value": n + 10}),
    outputs={"value": _value("bind")},
    kv={"scopes": ["flow_group"]},
    adds="print",
)
TIMEOUT = _kind(
    "timeout",
    [
        {"id": "slow", "fn": "oversleep", "timeout": "1s", "on_error": "continue"},
        _plus("after", N, 1, "slow"),
    ],
    _complete(lambda n: {"value": n + 1, "slow": "timeout"}),
    outputs={"value": _value("after"), "slow": {"var": "ctx.error.slow.kind"}},
)
JOIN = _kind(
    "join",
    [
        _plus("a", N, 1),
        {"id": "b", "fn": "broken", "on_error": "skip"},
        {"id": "choice", "switch": {"on": {"%": [N, 2]}, "cases": {"0": ["even"]}, "default": ["odd"]}},
        _plus("even", N, 20),
        _plus("odd", N, 10),
        {"id": "pause", "delay": "500ms", "depends_on": ["a"]},
        _plus("any", _value("a"), 1, "a", "b", join="any"),
        _plus(
            "end",
            _value("any"),
            {"+": [{"var": ["steps.even.output.value", 0]}, {"var": ["steps.odd.output.value", 0]}]},
            *("any", "pause", "even", "odd"),
            join="done",
        ),
    ],
    _complete(lambda n: {"value": n + 2 + n + (10 if n % 2 else 20)}),
    outputs={"value": _value("end")},
)
SET = _kind(
    "set",
    [
        {
            **_plus("grow", {"var": ["state.value", 0]}, N),
            "branch": [
                {"condition": {"===": [{"var": "ok"}, False]}, "action": "retry"},  # workers were lost
                {"condition": {"<": [{"var": "value"}, {"*": [N, 3]}]}, "action": {"set": "grow"}},
                {"condition": True, "action": "complete"},
            ],
        },
        _plus("after", _value("grow"), 1, "grow"),
    ],
    _complete(lambda n: {"value": 3 * n + 1}),
    outputs={"value": _value("after")},
    repeats=frozenset({"grow"}),
)
CANCEL = _kind(
    "cancel",
    [_plus("before", N, 1, compensate=UNDO), {"id": "never", "wait": {"signal": "never"}}],
    lambda inputs: End("cancelled"),
    prompt="cancel",
)

SCHEDULED_INPUTS = {"n": 7, "ms": 50}


def _scheduled(overlap: str) -> Kind:
    """A registered workflow that only its schedule starts. A timetable has its slots."""
    return _kind(
        f"scheduled-{overlap}",
        [_plus("one", N, 1), _plus("two", _value("one"), 2, "one")],
        _complete(lambda n: {"value": n + 3}),
        inputs={name: {"default": value} for name, value in SCHEDULED_INPUTS.items()},
        outputs={"value": _value("two")},
        schedule={"cron": "@daily", "overlap": overlap},
    )


SCHEDULED = [_scheduled("allow"), _scheduled("queue")]

KINDS = {
    kind.name: kind
    for kind in (
        *(DIAMOND, MAP, LOOP, RETRY, WAIT, CHILD),
        *(COMPENSATION, CONCURRENCY, TIMEOUT, JOIN, SET, CANCEL),
    )
}
