"""Converts flow8 documents: flowlets with the keys of its Go structs in any spelling, in JSON or YAML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.spec.field_types import ON_ERROR
from orchestrator.application.values.durations import parse_ms
from orchestrator.application.values.paths import Path
from orchestrator.convert.flow8_values import (
    convert_duration,
    convert_filters,
    convert_value,
    normalize_number,
    object_id,
)
from orchestrator.convert.json_logic import Rule, access_key, operation, quote_data
from orchestrator.convert.key_spelling import Fields
from orchestrator.convert.notes import LEFT_OUT, CannotConvert, Notes
from orchestrator.convert.step_names import StepIdAllocator
from orchestrator.convert.wrapped_results import flow8_branches

_GLOBAL = "global:"
LISTS = ("flowlets", "layers", "play_layers")
_WRAPPERS = ("flow", "play")
_NO_EQUIVALENT = {
    "idempotency_root": "pass this as idempotency_root when you start an execution",
    "flow_group_id": "pass this as group when you start an execution",
}
_IDENTITIES = {"id", "flow_id", "play_id", "company_id", "created_at", "updated_at"}
_RECORDS = {"started_at", "completed_at", "executed_at", "duration", "status", "output", "error"}
_RECORDS |= {"retry_count", "logs", "kv_updates"}
_RECORDED = frozenset(_IDENTITIES | _RECORDS)
"""Ids and past events: they are not part of the definition, and are left out without a note."""
_RETRY = ("max_retries", "initial_delay_ms", "max_delay_ms", "backoff_multiplier", "jitter_fraction")


def looks_like_flow8(data: dict[str, Any]) -> bool:
    fields = Fields(data)
    parts = [fields, *(Fields(fields.take(name)[0]) for name in _WRAPPERS)]
    if any(part.has(*LISTS) for part in parts):
        return True
    steps, _ = fields.take("steps")
    listed = steps if isinstance(steps, list) else []
    return any(Fields(step).has("module_ref", "flowlet_id") for step in listed)


def convert_flow8(data: dict[str, Any], notes: Notes) -> dict[str, Any]:
    fields = Fields(data)
    wrapped = [fields.take(name) for name in _WRAPPERS]
    head: dict[str, Any] = {}
    tail: dict[str, Any] = {}
    flowlets: list[tuple[Any, Path]] = []
    global_values: dict[str, Any] = {}
    for part in [fields, *(Fields(inner, path) for inner, path in wrapped)]:
        for key in ("name", "description", "metadata"):
            value, _ = part.take(key)
            if value:
                head["x-metadata" if key == "metadata" else key] = value
        url, _ = part.take("webhook_url")
        if url:
            tail["webhook"] = {"url": url}
        listed, path = part.take(*LISTS, "steps")
        flowlets += _collect_flowlets(listed, path, notes)
        values, _ = part.take("global_kv")
        global_values |= values if isinstance(values, dict) else {}
        _note_unread(part, notes)
    kv = {"scopes": ["flow", "global", "flow_group"]}
    converter = _Flowlets(flowlets, notes)
    steps = _add_global_values(converter.convert(), global_values, converter)
    return {**head, "kv": kv, "steps": steps, "outputs": _make_outputs(steps, notes), **tail}


def _add_global_values(
    steps: list[dict[str, Any]], defaults: dict[str, Any], converter: _Flowlets
) -> list[dict[str, Any]]:
    """Add a step that writes the global values which a start gives, if the flow has or reads any."""
    names = dict.fromkeys((*defaults, *_find_global_names(steps)))
    if not names:
        return steps
    values = {f"global:{name}": _global_value(name, defaults.get(name)) for name in names}
    first = {"id": converter.allocate_id("global_values"), "delay": "0s", "output": values}
    for step in steps:
        step.setdefault("depends_on", [first["id"]])
    return [first, *steps]


def _global_value(name: str, default: Any) -> Rule:
    rule = access_key({"var": "input.global"}, name)
    return rule if default is None else operation("any.default", rule, quote_data(default))


def _find_global_names(value: Any) -> Iterator[str]:
    """Return the names of the global values that expressions read."""
    if isinstance(value, list):
        for item in value:
            yield from _find_global_names(item)
    elif isinstance(value, dict):
        key = value.get("kv.get")
        if is_expression(value) and isinstance(key, str) and key.startswith(_GLOBAL):
            yield key.removeprefix(_GLOBAL)
        path = value.get("var")
        if is_expression(value) and isinstance(path, str) and path.startswith("kv.global."):
            yield path.split(".")[2]
        yield from _find_global_names(list(value.values()))


def _make_outputs(steps: list[dict[str, Any]], notes: Notes) -> dict[str, Rule]:
    """Return what a play holds at its end: the output of each layer, and the values of the flow."""
    layers = {
        step.get("name", step["id"]): {"var": f"steps.{step['id']}.output"} for step in steps if "fn" in step
    }
    if is_expression(layers) or LITERAL in layers:
        layers = {f"{name}_": rule for name, rule in layers.items()}
        notes.add_changed(
            (), f"a mapping with the single key {next(iter(layers))[:-1]!r} is an expression here"
        )
    return {"layers": layers, "kv": {"var": "kv.flow"}, "global": {"var": "kv.global"}}


def _collect_flowlets(listed: Any, path: Path, notes: Notes) -> list[tuple[Any, Path]]:
    """Return the flowlets with their paths. A layer may be a flowlet, or contain flowlets."""
    if not isinstance(listed, list):
        if listed is not None:
            notes.add_lost(path, "is not a list of flowlets", LEFT_OUT)
        return []
    found: list[tuple[Any, Path]] = []
    for n, item in enumerate(listed):
        layer = Fields(item, (*path, n))
        inner, where = layer.take("flowlets")
        if isinstance(inner, list):
            found += [(flowlet, (*where, m)) for m, flowlet in enumerate(inner)]
        else:
            found.append((item, (*path, n)))
    return found


def _note_unread(fields: Fields, notes: Notes) -> None:
    for name, value, path in fields.unread():
        if value and name not in _RECORDED:
            notes.add_lost(path, _NO_EQUIVALENT.get(name, "has no equivalent"), LEFT_OUT)


class _Flowlets:
    """Converts the flowlets of one flow. They refer to each other by ids, which become step ids."""

    def __init__(self, flowlets: list[tuple[Any, Path]], notes: Notes) -> None:
        self._notes = notes
        self._ids: dict[str, str] = {}
        ordered: list[tuple[float, Fields, str, str]] = []
        allocator = StepIdAllocator()
        self.allocate_id = allocator.allocate
        for raw, path in flowlets:
            fields = Fields(raw, path)
            flowlet_id = object_id(fields.take("flowlet_id", "id")[0])
            written, _ = fields.take("name", "flowlet_name")
            name = written if isinstance(written, str) and written else flowlet_id or "step"
            step_id = allocator.allocate(name)
            self._ids.setdefault(name, step_id)
            if flowlet_id is not None:
                self._ids[flowlet_id] = step_id
            order, _ = fields.take("order")
            ordered.append((order if isinstance(order, int | float) else 0, fields, name, step_id))
        if len({order for order, *_ in ordered}) > 1:
            message = "Order is not a dependency: steps that do not depend on each other run in parallel"
            notes.add_changed(flowlets[0][1][:-1], message, "the steps are written in that order")
        self._ordered = sorted(ordered, key=lambda entry: entry[0])

    def convert(self) -> list[dict[str, Any]]:
        return [self._convert_step(fields, name, step_id) for _, fields, name, step_id in self._ordered]

    def _convert_step(self, fields: Fields, name: str, step_id: str) -> dict[str, Any]:
        step: dict[str, Any] = {"id": step_id}
        if name != step_id:
            step["name"] = name
        module, _ = fields.take("module_ref")
        if module is not None:
            step["fn"] = module
        parents, _ = fields.take("depends_on")
        if parents:
            listed = parents if isinstance(parents, list) else [parents]
            step["depends_on"] = [self._find_step_id(parent) for parent in listed]
        mapping, path = fields.take("input_mapping", "input")
        mapped = mapping if isinstance(mapping, dict) else {}
        inputs = {key: convert_value(value, (*path, key), self._notes) for key, value in mapped.items()}
        filters, path = fields.take("filters")
        if filters is not None:
            step["filters"] = convert_filters(filters, path, inputs, self._notes)
        if inputs:
            step["input"] = inputs
        step |= self._convert_behaviour(fields)
        step["branch"] = flow8_branches()
        components, path = fields.take("component_config_ids")
        if components:
            step["x-component-config-ids"] = components
            message = "components have no equivalent: pass them to the executor in its input"
            self._notes.add_lost(path, message, "kept as x-component-config-ids")
        _note_unread(fields, self._notes)
        return step

    def _find_step_id(self, value: Any) -> str:
        written = object_id(value) or str(value)
        return self._ids.get(written, written)

    def _convert_behaviour(self, fields: Fields) -> dict[str, Any]:
        step: dict[str, Any] = {}
        timeout, path = fields.take("timeout")
        try:
            written = None if timeout is None else convert_duration(timeout)
            step |= {"timeout": written} if written else {}
            if written and not isinstance(timeout, str) and parse_ms(written) < 1000:
                self._notes.add_changed(path, f"a plain number means nanoseconds: this one is {written}")
        except CannotConvert as reason:
            self._notes.add_lost(path, str(reason), "the default of five minutes is used")
        retry, path = fields.take("retry", "retry_policy")
        step |= self._convert_retry(retry, path)
        policy, path = fields.take("on_error")
        if isinstance(policy, str) and policy.lower() in ON_ERROR:
            step["on_error"] = policy.lower()
        elif policy:
            self._notes.add_lost(path, "is not continue, fail or skip", "fail is used")
        defer_ms, _ = fields.take("defer_after_ms")
        if defer_ms:
            step["defer_ms"] = normalize_number(defer_ms)
        is_skipping, _ = fields.take("skip_output_mapping")
        if is_skipping:
            step["skip_output_mapping"] = is_skipping
        return step

    def _convert_retry(self, retry: Any, path: Path) -> dict[str, Any]:
        if not isinstance(retry, dict):
            return {"retry": normalize_number(retry)} if retry else {}
        fields = Fields(retry, path)
        converted = {key: fields.take(key)[0] for key in _RETRY}
        converted |= {key: normalize_number(converted[key]) for key in _RETRY[:3]}
        _note_unread(fields, self._notes)
        if not converted["max_retries"]:
            return {}
        if not converted["max_delay_ms"]:
            converted["max_delay_ms"] = None
        return {"retry": {key: value for key, value in converted.items() if value is not None}}
