"""The door: a document in, a checked spec out, or every problem of the document at once, in its own order.

A faulty part is reported and left out, and the rest is checked as if it had not been there: a wrong timeout
neither hides an unknown dependency nor causes more problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any

from orchestrator.application.errors import Problem
from orchestrator.application.expressions.evaluation import secret_paths
from orchestrator.application.spec.checks import (
    check_join,
    check_kind,
    check_rule,
    check_step,
    check_step_spec,
    check_values,
    find_warnings,
)
from orchestrator.application.spec.document import (
    Document,
    SourceMap,
    check_data,
    scan_document,
    scan_documents,
)
from orchestrator.application.spec.field_types import timeout_seconds
from orchestrator.application.spec.flowtoy_output import read_output, reject_templates
from orchestrator.application.spec.graph_builder import build_graph
from orchestrator.application.spec.model import (
    ID_RULE,
    ChildSpec,
    Defaults,
    InputSpec,
    InputType,
    Limits,
    LoadedSpec,
    StepSpec,
    WorkflowSpec,
    canonical_json,
    content_hash,
    is_id,
)
from orchestrator.application.spec.report import CODES, WARNINGS, Report, kind, parse
from orchestrator.application.spec.sources import Sources
from orchestrator.application.spec.step_models import PlainStepModel, StepModel, WorkflowModel
from orchestrator.application.values.paths import Path, render_path
from orchestrator.application.values.payload_refs import is_reference
from orchestrator.application.values.secret_refs import SECRET

__all__ = ["CODES", "WARNINGS", "check_inputs", "check_spec", "load_spec", "load_specs"]


def load_spec(text: str, source: str | None = None) -> LoadedSpec:
    """The spec in a YAML or JSON text; InvalidSpec with all its problems."""
    document, problems = scan_document(text, source)
    return _checked(document.data, Report(document.data, [document], problems))


def load_specs(texts: Sequence[tuple[str, str]]) -> LoadedSpec:
    """The spec in several texts, each with its source, merged left to right; problems name the source."""
    if len(texts) == 1:
        return load_spec(*texts[0])
    data, documents, problems = scan_documents(texts)
    return _checked(data, Report(data, documents, problems))


def check_spec(data: Any, source_map: SourceMap | None = None, source: str | None = None) -> LoadedSpec:
    """The spec in plain data; InvalidSpec with all its problems."""
    report = Report(data, [Document(data, source_map or SourceMap(data, lambda: None), source)])
    report.extend(check_data(data))
    report.raise_if_any()
    return _checked(data, report)


def check_inputs(spec: WorkflowSpec, inputs: Any, whole: Any = None) -> tuple[dict[str, Any], list[Problem]]:
    """The inputs of a start, defaults filled in, and what is wrong with them; undeclared ones pass.

    Of what is kept by reference the type is judged by the `whole` inputs, or by nobody who has them not.
    """
    if inputs is None:
        inputs = {}
    if not isinstance(inputs, dict):
        return {}, [Problem("inputs", "bad_type", f"must be a mapping, not {kind(inputs)}")]
    problems = check_data(inputs, ("inputs",))
    filled = dict(inputs)
    for name, declared in spec.inputs.items():
        path = render_path(("inputs", name))
        if name in inputs:
            value = whole[name] if whole is not None and is_reference(inputs[name]) else inputs[name]
            if not is_reference(value) and not _has_type(value, declared.type):
                problems.append(Problem(path, "bad_type", _wrong_type(value, declared)))
        elif declared.has_default:
            filled[name] = declared.default
        elif declared.required:
            problems.append(Problem(path, "bad_type", f"the workflow needs the input {name!r}"))
    return filled, problems


# The walk ---------------------------------------------------------------------------------------------------


def _checked(data: Any, report: Report) -> LoadedSpec:
    if not isinstance(data, dict):
        report.add((), "bad_type", f"a workflow must be a mapping with steps, not {kind(data)}")
        report.raise_if_any()
    loaded = _Walk(data, report, _Nesting()).read()
    report.raise_if_any()
    warnings = find_warnings(loaded.spec, loaded.graph, loaded.document, report)
    return replace(loaded, warnings=report.with_positions(warnings))


@dataclass(frozen=True, slots=True)
class _Nesting:
    """How many levels of children there may be, and how many more below this workflow."""

    most: int = Limits().max_depth
    left: int = Limits().max_depth

    def lowered(self, limits: Limits) -> _Nesting:
        return self if self.left <= limits.max_depth else _Nesting(limits.max_depth, limits.max_depth)


class _Walk:
    """The way through one workflow."""

    def __init__(self, data: dict[str, Any], report: Report, nesting: _Nesting) -> None:
        self._data, self._report, self._text = data, report, canonical_json(data)
        self._has_secrets = f'"{SECRET}":' in self._text  # few documents: the others are not searched
        self._key = "flow" if "flow" in data else "steps"
        if self._key == "flow":
            reject_templates(data, report)
        self._header = parse(WorkflowModel, {**data, "steps": [], "flow": None}, (), report)
        self._defaults = self._settled_defaults()
        self._limits = self._header.limits.to_spec() if self._header.limits else Limits()
        self._nesting = nesting.lowered(self._limits)
        self._sources = self._settled_sources()

    def read(self) -> LoadedSpec:
        header, report = self._header, self._report
        inputs = {name: declared.to_spec() for name, declared in (header.inputs or {}).items()}
        _check_inputs_declared(inputs, report)
        if header.schedule is not None:
            _check_inputs_unasked(inputs, report)
        kv_scopes = tuple(dict.fromkeys(header.kv.scopes)) if header.kv else None

        walked = self._walk_steps()
        steps = {n: step for n, (_, _, step) in walked.items() if step is not None}
        graph, faults = build_graph(list(steps.values()))
        position = {step.id: n for n, step in steps.items()}
        for fault in faults:
            hint = report.suggest(fault.unknown, graph.order) if fault.unknown else None
            report.add((self._key, position[fault.step_id], *fault.where), fault.code, fault.message, hint)
        for n, (raw, written, step) in walked.items():
            path: Path = (self._key, n)
            check_step(raw, written, path, graph, report)
            if step is not None and isinstance(written, StepModel):
                check_step_spec(step, kv_scopes, path, report)
                if not faults:
                    check_join(step, path, graph, report)
        check_values(self._data.get("outputs"), ("outputs",), report)
        if header.concurrency is not None and isinstance(header.concurrency.key, dict):
            check_rule(header.concurrency.key, ("concurrency", "key"), report)

        spec = WorkflowSpec(
            name=header.name,
            description=header.description,
            inputs=inputs,
            steps=tuple(steps.values()),
            outputs=header.outputs or {},
            limits=self._limits,
            defaults=self._defaults,
            max_workers=header.runner.max_workers if header.runner else None,
            kv_scopes=kv_scopes,
            sources=self._sources.definitions,
            timeout_s=None if header.timeout is None else timeout_seconds(header.timeout),
            retention_s=None if header.retention is None else timeout_seconds(header.retention),
            concurrency=header.concurrency.to_spec() if header.concurrency else None,
            redact=tuple(header.redact or ()),
            webhook=header.webhook.to_spec() if header.webhook else None,
            schedule=header.schedule.to_spec() if header.schedule else None,
        )
        return LoadedSpec(
            spec, graph, self._data, content_hash(self._text), uses_shared_values="kv" in self._text
        )

    def _settled_defaults(self) -> Defaults:
        header = self._header
        defaults = header.defaults.to_spec() if header.defaults else Defaults()
        if header.runner is None or "on_error" not in header.runner.model_fields_set:
            return defaults
        policy = header.runner.on_error
        if header.defaults and "on_error" in header.defaults.model_fields_set and defaults.on_error != policy:
            message = f"says {policy}, but defaults.on_error says {defaults.on_error}; keep one"
            self._report.add(("runner", "on_error"), "bad_policy", message)
        return replace(defaults, on_error=policy)

    def _settled_sources(self) -> Sources:
        written = self._data.get("sources")
        names = written if isinstance(written, dict) else {}
        for name in names:
            if not is_id(name):
                self._report.add(("sources", name), "bad_id", ID_RULE)
            if isinstance(names[name], dict):
                path: Path = ("sources", name, "configuration")
                check_values(names[name].get("configuration"), path, self._report, "anywhere")
        definitions = {name: source.to_spec() for name, source in (self._header.sources or {}).items()}
        return Sources(definitions, names, self._report)

    def _walk_steps(self) -> dict[int, tuple[dict[str, Any], PlainStepModel, StepSpec | None]]:
        """By position: what was written, its model, and the step if it has an id of its own."""
        walked: dict[int, tuple[dict[str, Any], PlainStepModel, StepSpec | None]] = {}
        taken: dict[str, int] = {}
        for n, raw in enumerate(self._listed()):
            path: Path = (self._key, n)
            if not isinstance(raw, dict):
                self._report.add(path, "bad_type", f"a step must be a mapping, not {kind(raw)}")
                continue
            model = PlainStepModel if _PLAIN_KEYS.issuperset(raw) else StepModel
            written = parse(model, raw, path, self._report)
            if not written.token or model is StepModel:
                check_kind(raw, path, self._report)
            step_id = self._identified(written, raw, path, taken)
            if step_id is None:
                walked[n] = raw, written, None
                continue
            taken[step_id] = n
            found = self._found(written, raw, path) if isinstance(written, StepModel) else {}
            step = written.to_spec(step_id, self._defaults, found)
            walked[n] = raw, written, _with_secrets(step) if self._has_secrets else step
        return walked

    def _listed(self) -> list[Any]:
        report, document, key = self._report, self._data, self._key
        if key not in document:
            report.add(("steps",), "bad_type", "a workflow needs a list of steps; it may be empty")
            return []
        if key == "flow" and "steps" in document:
            report.add(("flow",), "bad_type", "is another word for steps, which is there too; keep one")
        steps = document[key]
        if not isinstance(steps, list):
            report.add((key,), "bad_type", f"must be a list, not {kind(steps)}")
            return []
        if len(steps) > self._limits.max_steps:
            report.add((key,), "too_big", f"has {len(steps)} steps; the limit is {self._limits.max_steps}")
        return steps

    def _identified(
        self, written: PlainStepModel, raw: Mapping[str, Any], path: Path, taken: Mapping[str, int]
    ) -> str | None:
        identity = written.identity
        if identity is None:
            if not any(raw.get(key) is not None for key in ("id", "op", "name")):
                message = "a step needs an id (or an op, which is then its id)"
                self._report.add(path, "missing_id", message)
            return None
        key, name = identity
        if not is_id(name):
            hint = f"the {key} is the step's id: give it an id of its own" if key != "id" else None
            self._report.add((*path, key), "bad_id", ID_RULE, hint)
        if name in taken:
            hint = "give one of them an id of its own" if key != "id" else None
            message = f"the id {name!r} is already taken by {self._key}[{taken[name]}]"
            self._report.add((*path, key), "duplicate_id", message, hint)
            return None
        return name

    def _found(self, written: StepModel, raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """What the keys of a step mean that need the rest of the document to be read."""
        found: dict[str, Any] = {}
        if written.source is not None:
            source = self._sources.resolve(written.source, raw["source"], (*path, "source"))
            if source is not None:
                found |= {"source": source, "fn": source["type"]}
        if written.output is not None:
            found["output"] = read_output(written.output, (*path, "output"), self._report)
        if written.workflow is not None:
            found["child"] = self._child(written.workflow, (*path, "workflow"))
        return found

    def _child(self, written: Any, path: Path) -> ChildSpec | None:
        if isinstance(written, str):
            if not written:
                self._report.add(path, "bad_type", "must not be empty")
            return ChildSpec(name=written)
        if not isinstance(written, dict):
            message = f"must be a workflow or the name of one, not {kind(written)}"
            self._report.add(path, "bad_type", message)
            return None
        if not self._nesting.left:
            self._report.add(path, "too_deep", f"children may nest {self._nesting.most} deep at most")
            return None
        if written.get("schedule") is not None:
            message = "a child begins when its step does: only a registered workflow has a schedule"
            self._report.add((*path, "schedule"), "bad_schedule", message)
        nesting = replace(self._nesting, left=self._nesting.left - 1)
        loaded = _Walk(written, self._report.inside(path), nesting).read()
        return ChildSpec(document=written, loaded=loaded)


def _with_secrets(step: StepSpec) -> StepSpec:
    undo = step.compensate
    if undo is not None:
        undo = replace(undo, secrets=tuple(secret_paths(undo.input)))
    return replace(step, secrets=tuple(secret_paths(step.input)), compensate=undo)


_PLAIN_KEYS = frozenset(PlainStepModel.key_names())


# Inputs -----------------------------------------------------------------------------------------------------


def _check_inputs_declared(inputs: Mapping[str, InputSpec], report: Report) -> None:
    for name, declared in inputs.items():
        if declared.has_default and not _has_type(declared.default, declared.type):
            report.add(("inputs", name, "default"), "bad_type", _wrong_type(declared.default, declared))


def _check_inputs_unasked(inputs: Mapping[str, InputSpec], report: Report) -> None:
    for name, declared in inputs.items():
        if declared.required and not declared.has_default:
            message = "is required, and a schedule starts the workflow without inputs: give it a default"
            report.add(("inputs", name), "bad_schedule", message)


def _has_type(value: Any, name: InputType | None) -> bool:
    if name is None:
        return True
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


_TYPES: dict[InputType, type | UnionType] = {
    "string": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}


def _wrong_type(value: Any, declared: InputSpec) -> str:
    return f"must be of type {declared.type}, not {kind(value)}"
