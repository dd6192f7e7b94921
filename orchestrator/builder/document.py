"""Converts the arguments of the builder to the fields of a document, key by key. The models check the result.

Every function takes the value and its owner, which is the workflow that the value is passed to. A value that
reads another workflow is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from orchestrator.application.expressions.short_references import has_braces, holds_reference
from orchestrator.application.values.failure_kinds import type_name
from orchestrator.builder.branches import ABSENT, Branch
from orchestrator.builder.expressions import Expr, Reference, Step, copy_data, render, spec_error
from orchestrator.builder.keyword_arguments import AnySource, Source

FieldWriter = Callable[[Any, object], Any]

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def write_fields(keys: Mapping[str, Any], table: Mapping[str, FieldWriter], owner: object) -> dict[str, Any]:
    """Convert each key with its writer in the table. A key without a writer is plain data."""
    written: dict[str, Any] = {}
    for key, value in keys.items():
        if key == "x":
            written |= {f"x-{name}": copy_data(item) for name, item in value.items()}
        else:
            written[key] = table.get(key, write_data)(value, owner)
    return written


def drop_none(**optional: Any) -> dict[str, Any]:
    """Return the arguments that are not None."""
    return {key: value for key, value in optional.items() if value is not None}


def build_step_identity(step_id: str, fn: str | None, source: AnySource | None) -> dict[str, Any]:
    """Return the keys that name a step and its executor."""
    if fn is None and source is None:
        return {"op": step_id}
    return {"id": step_id, **drop_none(fn=fn, source=source)}


# ---- values


def write_data(value: Any, owner: object) -> Any:
    return copy_data(value)


def write_values(value: Any, owner: object) -> dict[str, Any]:
    """Render a mapping of names to values. The mapping itself is never an expression."""
    if not isinstance(value, Mapping):
        raise TypeError(f"expected a mapping of names to values, not {value!r}")
    return {name: render(item, owner) for name, item in value.items()}


def write_condition(value: Any, owner: object) -> Any:
    if not isinstance(value, Expr | bool):
        raise TypeError(f"a condition must be an expression, True or False, not {value!r}")
    return render(value, owner)


def write_duration(value: Any, owner: object) -> Any:
    """Write a timedelta as the shortest exact text: "2d", "90m", "1500ms"."""
    if not isinstance(value, timedelta):
        return copy_data(value)
    ms = write_milliseconds(value, owner)
    unit = next(unit for unit, size in _UNITS_MS.items() if ms % size == 0) if ms else "s"
    return f"{ms // _UNITS_MS[unit]}{unit}"


def write_milliseconds(value: Any, owner: object) -> Any:
    if not isinstance(value, timedelta):
        return copy_data(value)
    ms, rest = divmod(value, timedelta(milliseconds=1))
    if rest:
        raise spec_error("bad_duration", f"{value!r} is finer than a millisecond")
    return ms


def write_step_name(value: Any, owner: object) -> str:
    if isinstance(value, Step) and value.owner is not owner:
        raise spec_error("unknown_dependency", f"the step {value.id!r} does not belong to this workflow")
    if not isinstance(value, Step | str):
        raise TypeError(f"expected a step or its name, not {value!r}")
    return value.id if isinstance(value, Step) else value


def write_step_names(value: Any, owner: object) -> list[str]:
    listed = [value] if isinstance(value, Step | str) else value
    return [write_step_name(one, owner) for one in listed]


def write_paths(value: Any, owner: object) -> list[Any]:
    return [render(one, owner)["var"] if type(one) is Reference else copy_data(one) for one in value]


def write_branches(value: Any, owner: object, step_id: str) -> list[dict[str, Any]]:
    return [_write_branch(entry, owner, step_id) for entry in value]


def _write_branch(entry: Any, owner: object, step_id: str) -> dict[str, Any]:
    if not isinstance(entry, Branch):
        raise TypeError(f"expected a branch entry such as when(...).halt(), not {entry!r}")
    written: dict[str, Any] = {"condition": write_condition(entry.condition, owner), "action": entry.action}
    if entry.action == "set":
        written["action"] = {"set": _write_targets(entry, owner, step_id), "value": "ready"}
    if entry.outcome is not ABSENT:
        if _has_expressions(entry.outcome):
            written["result_expr"] = render(entry.outcome, owner)
        else:
            written["result"] = copy_data(entry.outcome)
    return written


def _write_targets(entry: Branch, owner: object, step_id: str) -> Any:
    targets = [
        render(one, owner) if isinstance(one, Expr) else write_step_name(one, owner)
        for one in entry.targets or (step_id,)
    ]
    return targets[0] if len(targets) == 1 else targets


def _has_expressions(value: Any) -> bool:
    if isinstance(value, str):
        return has_braces(value) and holds_reference(value)
    if isinstance(value, Mapping):
        return any(map(_has_expressions, value.values()))
    if isinstance(value, Sequence):
        return any(map(_has_expressions, value))
    return isinstance(value, Expr)


# ---- parts


def part_writer(table: Mapping[str, FieldWriter]) -> FieldWriter:
    """Return a writer for a mapping with its own keys. Any other value is a short form and is copied."""

    def write_part(value: Any, owner: object) -> Any:
        return write_fields(value, table, owner) if isinstance(value, Mapping) else copy_data(value)

    return write_part


def _write_filters(value: Any, owner: object) -> list[Any]:
    return [write_filter_group(one, owner) for one in value]


def _write_events(value: Any, owner: object) -> list[Any]:
    return [write_fields(one, {"timeout": write_duration}, owner) for one in value]


def _write_cases(value: Any, owner: object) -> dict[str, list[str]]:
    return {key: write_step_names(names, owner) for key, names in value.items()}


def _write_source(value: Any, owner: object) -> Any:
    if not isinstance(value, Source):
        return write_source_definition(value, owner)
    if value.owner is not owner:
        raise spec_error("unknown_source", f"the source {value.name!r} does not belong to this workflow")
    return value.name


def _write_failures(value: Any, owner: object) -> list[Any]:
    return [type_name(one) if isinstance(one, type) else one for one in value]


_write_retry = part_writer(
    {
        "initial_delay_ms": write_milliseconds,
        "max_delay_ms": write_milliseconds,
        "non_retryable": _write_failures,
    }
)
_write_concurrency = part_writer({"key": render})
write_filter_group: FieldWriter = part_writer(
    {"expression": write_condition, "value": render, "filters": _write_filters}
)
write_source_definition = part_writer({"configuration": write_values, "override": write_values})

STEP_WRITERS: Mapping[str, FieldWriter] = {
    "join": render,
    "when": write_condition,
    "filters": write_filter_group,
    "required": write_paths,
    "defer_ms": write_milliseconds,
    "retry": _write_retry,
    "output": write_values,
    "kv_add": write_values,
    "compensate": part_writer({"input": write_values, "timeout": write_duration, "retry": _write_retry}),
    "input": write_values,
    "timeout": write_duration,
    "concurrency": _write_concurrency,
    "heartbeat": write_duration,
    "source": _write_source,
    "map": part_writer({"over": render}),
    "wait": part_writer({"timeout": write_duration, "any": _write_events}),
    "delay": write_duration,
    "switch": part_writer({"on": render, "cases": _write_cases, "default": write_step_names}),
}
WORKFLOW_WRITERS: Mapping[str, FieldWriter] = {
    "defaults": part_writer({"timeout": write_duration, "retry": _write_retry}),
    "timeout": write_duration,
    "retention": write_duration,
    "concurrency": _write_concurrency,
}
