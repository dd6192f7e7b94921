"""From what a caller gives to what a document says, key by key. What is left to check is the models' matter.

Every function takes the value and its owner, the workflow that it is given to: a value that reads another
workflow is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from orchestrator.application.values.failure_kinds import type_name
from orchestrator.builder.branches import ABSENT, Branch
from orchestrator.builder.expressions import Expr, Reference, Step, copy_data, render, spec_error
from orchestrator.builder.keyword_arguments import AnySource, Source

FieldWriter = Callable[[Any, object], Any]

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def write(keys: Mapping[str, Any], table: Mapping[str, FieldWriter], owner: object) -> dict[str, Any]:
    """The keys that were given, and no others; what the table does not know is plain data."""
    written: dict[str, Any] = {}
    for key, value in keys.items():
        if key == "x":
            written |= {f"x-{name}": copy_data(item) for name, item in value.items()}
        else:
            written[key] = table.get(key, data)(value, owner)
    return written


def drop_none(**optional: Any) -> dict[str, Any]:
    """The arguments that are not None."""
    return {key: value for key, value in optional.items() if value is not None}


def build_step_identity(step_id: str, fn: str | None, source: AnySource | None) -> dict[str, Any]:
    """What names a step and its executor."""
    if fn is None and source is None:
        return {"op": step_id}
    return {"id": step_id, **drop_none(fn=fn, source=source)}


# Values -----------------------------------------------------------------------------------------------------


def data(value: Any, owner: object) -> Any:
    return copy_data(value)


def values(value: Any, owner: object) -> dict[str, Any]:
    """A name to a value each; the mapping itself is never an expression, whatever its only name is."""
    if not isinstance(value, Mapping):
        raise TypeError(f"a mapping of names to values is wanted, not {value!r}")
    return {name: render(item, owner) for name, item in value.items()}


def condition(value: Any, owner: object) -> Any:
    if not isinstance(value, Expr | bool):
        raise TypeError(f"a condition is an expression, True or False, not {value!r}")
    return render(value, owner)


def duration(value: Any, owner: object) -> Any:
    """A timedelta as the shortest text that is exact: "2d", "90m", "1500ms"."""
    if not isinstance(value, timedelta):
        return copy_data(value)
    ms = milliseconds(value, owner)
    unit = next(unit for unit, size in _UNITS_MS.items() if ms % size == 0) if ms else "s"
    return f"{ms // _UNITS_MS[unit]}{unit}"


def milliseconds(value: Any, owner: object) -> Any:
    if not isinstance(value, timedelta):
        return copy_data(value)
    ms, rest = divmod(value, timedelta(milliseconds=1))
    if rest:
        raise spec_error("bad_duration", f"{value!r} is finer than a millisecond")
    return ms


def step_name(value: Any, owner: object) -> str:
    if isinstance(value, Step) and value.owner is not owner:
        raise spec_error("unknown_dependency", f"the step {value.id!r} does not belong to this workflow")
    if not isinstance(value, Step | str):
        raise TypeError(f"a step or its name is wanted, not {value!r}")
    return value.id if isinstance(value, Step) else value


def step_names(value: Any, owner: object) -> list[str]:
    listed = [value] if isinstance(value, Step | str) else value
    return [step_name(one, owner) for one in listed]


def paths(value: Any, owner: object) -> list[Any]:
    return [render(one, owner)["var"] if type(one) is Reference else copy_data(one) for one in value]


def branches(value: Any, owner: object, step_id: str) -> list[dict[str, Any]]:
    return [_branch(entry, owner, step_id) for entry in value]


def _branch(entry: Any, owner: object, step_id: str) -> dict[str, Any]:
    if not isinstance(entry, Branch):
        raise TypeError(f"a branch entry is written when(...).halt() or the like, not {entry!r}")
    written: dict[str, Any] = {"condition": condition(entry.condition, owner), "action": entry.action}
    if entry.action == "set":
        written["action"] = {"set": _targets(entry, owner, step_id), "value": "ready"}
    if entry.outcome is not ABSENT:
        if _has_expressions(entry.outcome):
            written["result_expr"] = render(entry.outcome, owner)
        else:
            written["result"] = copy_data(entry.outcome)
    return written


def _targets(entry: Branch, owner: object, step_id: str) -> Any:
    targets = [
        render(one, owner) if isinstance(one, Expr) else step_name(one, owner)
        for one in entry.targets or (step_id,)
    ]
    return targets[0] if len(targets) == 1 else targets


def _has_expressions(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_expressions, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(map(_has_expressions, value))
    return isinstance(value, Expr)


# Parts ------------------------------------------------------------------------------------------------------


def part(table: Mapping[str, FieldWriter]) -> FieldWriter:
    """A mapping with keys of its own; what is no mapping has to be a short form of it."""

    def written(value: Any, owner: object) -> Any:
        return write(value, table, owner) if isinstance(value, Mapping) else copy_data(value)

    return written


def _filters(value: Any, owner: object) -> list[Any]:
    return [filters(one, owner) for one in value]


def _events(value: Any, owner: object) -> list[Any]:
    return [write(one, {"timeout": duration}, owner) for one in value]


def _cases(value: Any, owner: object) -> dict[str, list[str]]:
    return {key: step_names(names, owner) for key, names in value.items()}


def _source(value: Any, owner: object) -> Any:
    if not isinstance(value, Source):
        return source(value, owner)
    if value.owner is not owner:
        raise spec_error("unknown_source", f"the source {value.name!r} does not belong to this workflow")
    return value.name


def _failures(value: Any, owner: object) -> list[Any]:
    return [type_name(one) if isinstance(one, type) else one for one in value]


retry = part({"initial_delay_ms": milliseconds, "max_delay_ms": milliseconds, "non_retryable": _failures})
concurrency = part({"key": render})
filters: FieldWriter = part({"expression": condition, "value": render, "filters": _filters})
source = part({"configuration": values, "override": values})

STEP_WRITERS: Mapping[str, FieldWriter] = {
    "join": render,
    "when": condition,
    "filters": filters,
    "required": paths,
    "defer_ms": milliseconds,
    "retry": retry,
    "output": values,
    "kv_add": values,
    "compensate": part({"input": values, "timeout": duration, "retry": retry}),
    "input": values,
    "timeout": duration,
    "concurrency": concurrency,
    "heartbeat": duration,
    "source": _source,
    "map": part({"over": render}),
    "wait": part({"timeout": duration, "any": _events}),
    "delay": duration,
    "switch": part({"on": render, "cases": _cases, "default": step_names}),
}
WORKFLOW_WRITERS: Mapping[str, FieldWriter] = {
    "defaults": part({"timeout": duration, "retry": retry}),
    "timeout": duration,
    "retention": duration,
    "concurrency": concurrency,
}
