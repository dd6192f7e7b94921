"""Loads a workflow document: returns the checked spec, or raises InvalidSpec with every problem, in order.

An invalid part is reported and left out, and the rest is checked as if the part were absent: a wrong timeout
neither hides an unknown dependency nor causes further problems.

    load_spec, load_specs, check_spec    a new document, at validate, register and start
    load_stored_spec                     a document that was accepted before

A release may check more than the one before it. What was accepted must still run, so a stored document is
loaded without the checks of References, without warnings, and within the larger limits of earlier releases.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.application.expressions.evaluation import secret_paths
from orchestrator.application.expressions.short_references import has_braces
from orchestrator.application.spec.checks import StepChecks, check_join, check_kind, check_step_spec
from orchestrator.application.spec.document import (
    Document,
    SourceMap,
    check_data,
    scan_document,
    scan_documents,
)
from orchestrator.application.spec.expansion import ReferenceBudget, expand_workflow
from orchestrator.application.spec.expression_checks import ExpressionChecks
from orchestrator.application.spec.field_types import timeout_seconds
from orchestrator.application.spec.flowtoy_output import read_output, reject_templates
from orchestrator.application.spec.graph_builder import EdgeProblem, build_graph
from orchestrator.application.spec.input_checks import (
    check_input_defaults,
    check_inputs,
    check_scheduled_inputs,
)
from orchestrator.application.spec.model import (
    ID_RULE,
    ChildSpec,
    Defaults,
    Limits,
    LoadedSpec,
    StepSpec,
    WorkflowSpec,
    canonical_json,
    content_hash,
    is_id,
)
from orchestrator.application.spec.references import DOCUMENT, STEP, References
from orchestrator.application.spec.report import CODES, WARNINGS, Report, parse
from orchestrator.application.spec.sources import Sources
from orchestrator.application.spec.step_models import PlainStepModel, StepModel, WorkflowModel
from orchestrator.application.spec.template_warnings import warn_of_templates
from orchestrator.application.spec.warning_checks import check_warnings
from orchestrator.application.values.document_limits import (
    DATA_LIMITS,
    DEFAULT_LIMITS,
    TOO_BIG_HINT,
    DocumentLimits,
    too_many_steps_message,
)
from orchestrator.application.values.json_types import describe_value
from orchestrator.application.values.paths import Path, render_path
from orchestrator.application.values.secret_refs import SECRET

__all__ = [
    "CODES",
    "WARNINGS",
    "check_inputs",
    "check_spec",
    "load_spec",
    "load_specs",
    "load_stored_spec",
    "scan_specs",
]


def load_spec(
    text: str,
    source: str | None = None,
    *,
    with_warnings: bool = True,
    limits: DocumentLimits = DEFAULT_LIMITS,
) -> LoadedSpec:
    """Load the spec from a YAML or JSON text; raise InvalidSpec with all its problems.

    A process that shows no warnings need not search for them: `with_warnings=False`.
    """
    document, problems = scan_document(text, source, limits)
    return _load(document.data, Report(document.data, [document], problems), with_warnings, limits)


def load_specs(texts: Sequence[tuple[str, str]]) -> LoadedSpec:
    """Load the spec from several (text, source) pairs, merged left to right; problems name their source."""
    loaded, report = scan_specs(texts)
    report.raise_if_any()
    assert loaded is not None, "what cannot be loaded has problems"
    return replace(loaded, warnings=report.warnings)


def scan_specs(texts: Sequence[tuple[str, str]]) -> tuple[LoadedSpec | None, Report]:
    """Like load_specs, but return the problems and the warnings in a report, so that more can be checked.

    A spec with problems is that of the parts without problems, in the same places. InvalidSpec if a text is
    unreadable.
    """
    if len(texts) == 1:
        document, problems = scan_document(*texts[0])
        data, report = document.data, Report(document.data, [document], problems)
    else:
        data, documents, problems = scan_documents(texts)
        report = Report(data, documents, problems)
    return _scan(data, report, ReferenceBudget(DEFAULT_LIMITS.max_nodes)), report


def check_spec(data: Any, source_map: SourceMap | None = None, source: str | None = None) -> LoadedSpec:
    """Load the spec from plain data; raise InvalidSpec with all its problems."""
    report = Report(data, [Document(data, source_map or SourceMap(data, lambda: None), source)])
    report.extend(check_data(data))
    report.raise_if_any()
    return _load(data, report, with_warnings=True)


def load_stored_spec(data: Any, *, with_short_references: bool = True) -> LoadedSpec:
    """Load the spec from a document that was accepted before.

    `with_short_references=False`: by a release that did not know short references, so its braces are text.
    """
    report = Report(data)
    report.extend(check_data(data, limits=DATA_LIMITS))
    report.raise_if_any()
    budget = ReferenceBudget(sys.maxsize) if with_short_references else None
    loaded = _scan(data, report, budget, is_stored=True)
    report.raise_if_any()
    assert loaded is not None, "what cannot be loaded has problems"
    return loaded


# One workflow -----------------------------------------------------------------------------------------------


def _load(
    data: Any, report: Report, with_warnings: bool, limits: DocumentLimits = DEFAULT_LIMITS
) -> LoadedSpec:
    loaded = _scan(data, report, ReferenceBudget(limits.max_nodes), with_warnings=with_warnings)
    report.raise_if_any()
    assert loaded is not None, "what cannot be loaded has problems"
    return replace(loaded, warnings=report.warnings) if with_warnings else loaded


def _scan(
    data: Any,
    report: Report,
    budget: ReferenceBudget | None,
    *,
    with_warnings: bool = True,
    is_stored: bool = False,
) -> LoadedSpec | None:
    """Load what is valid, and report the rest; None if nothing is. Raises InvalidSpec for a document with
    too many steps, before anything else is checked. Without a budget, short references are text."""
    if not isinstance(data, dict):
        report.add((), "bad_type", f"a workflow must be a mapping with steps, not {describe_value(data)}")
        return None
    if not is_stored and (steps := _count_steps(data)) > DEFAULT_LIMITS.max_steps:
        report.stop(too_many_steps_message(steps, DEFAULT_LIMITS), TOO_BIG_HINT)
    loaded = _WorkflowLoader(data, report, _Nesting(), is_stored, budget).load()
    if with_warnings and not is_stored and not report.has_problems:
        check_warnings(loaded, report)
    return loaded


def _count_steps(data: dict[str, Any]) -> int:
    """The number of steps in a document, with those of its inline children."""
    count, todo = 0, [data]
    while todo:
        workflow = todo.pop()
        steps = workflow.get("flow" if "flow" in workflow else "steps")
        if isinstance(steps, list):
            count += len(steps)
            children = (step.get("workflow") for step in steps if isinstance(step, dict))
            todo += [child for child in children if isinstance(child, dict)]
    return count


@dataclass(frozen=True, slots=True)
class _Nesting:
    """How many levels of child workflows are allowed, and how many of them are left below this workflow."""

    max_levels: int = Limits().max_depth
    left: int = Limits().max_depth

    def lower(self, limits: Limits) -> _Nesting:
        return self if self.left <= limits.max_depth else _Nesting(limits.max_depth, limits.max_depth)


class _WorkflowLoader:
    """Loads one workflow of a document: the document itself or an inline child."""

    def __init__(
        self,
        document: dict[str, Any],
        report: Report,
        nesting: _Nesting,
        is_stored: bool,
        budget: ReferenceBudget | None,
    ) -> None:
        self._document, self._report, self._text = document, report, canonical_json(document)
        self._is_stored, self._budget = is_stored, budget
        self._data = data = self._expand_references()
        self._has_secrets = (
            f'"{SECRET}":' in self._text
        )  # few documents have secrets; the others are not searched
        self._key = "flow" if "flow" in data else "steps"
        if self._key == "flow":
            reject_templates(data, report)
        self._header = parse(WorkflowModel, {**data, "steps": [], "flow": None}, (), report)
        self._defaults = self._merge_defaults()
        self._limits = self._header.limits.to_spec() if self._header.limits else Limits()
        self._nesting = nesting.lower(self._limits)
        self._sources = self._load_sources()

    def _expand_references(self) -> dict[str, Any]:
        """Return the document with expressions instead of short references."""
        if self._budget is None or not has_braces(self._text):
            return self._document
        if not self._is_stored:
            warn_of_templates(self._document, self._report)
        return expand_workflow(self._document, self._report, self._budget, is_stored=self._is_stored)

    def load(self) -> LoadedSpec:
        header, report = self._header, self._report
        inputs = {name: declared.to_spec() for name, declared in (header.inputs or {}).items()}
        check_input_defaults(inputs, report)
        if header.schedule is not None:
            check_scheduled_inputs(inputs, report)
        kv_scopes = tuple(dict.fromkeys(header.kv.scopes)) if header.kv else None

        entries = self._load_steps()
        steps = [step for _, _, step in entries]
        graph, edge_problems = build_graph(steps)
        names = [step.id for step in steps if not _is_placeholder(step.id)]
        for problem in edge_problems:
            hint = report.suggest(problem.unknown, names) if problem.unknown else None
            n = graph.index[problem.step_id]
            where: Path = (self._key, n, *_place_in_document(problem, entries[n][0]))
            report.add(where, problem.code, problem.message, hint)
        references = None
        if not self._is_stored:
            declared = self._data.get("inputs")
            references = References(
                steps, graph, names, declared if isinstance(declared, dict) else None, report
            )
        expressions = ExpressionChecks(report, references)
        step_checks = StepChecks(graph, names, report, expressions)
        for n, (raw, model, step) in enumerate(entries):
            path: Path = (self._key, n)
            step_checks.check(step.id, raw, model, path)
            if isinstance(model, StepModel):
                check_step_spec(step, kv_scopes, path, report)
                if not edge_problems:
                    check_join(step, path, graph, report)
        expressions.check_values(self._data.get("outputs"), ("outputs",), DOCUMENT)
        key = _get(self._data.get("concurrency"), "key")
        if isinstance(key, dict):
            expressions.check_rule(key, ("concurrency", "key"), DOCUMENT)

        spec = WorkflowSpec(
            name=header.name,
            description=header.description,
            inputs=inputs,
            steps=tuple(steps),
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
            history=header.history,
        )
        return LoadedSpec(
            spec,
            graph,
            self._document,
            content_hash(self._text),
            uses_shared_values="kv" in self._text,
            has_short_references=self._data is not self._document,
            keeps_braces=self._budget is None,
            size=len(self._text),
        )

    def _merge_defaults(self) -> Defaults:
        """Return `defaults`, with `runner.on_error`, which is an alias of `defaults.on_error`."""
        header = self._header
        defaults = header.defaults.to_spec() if header.defaults else Defaults()
        if header.runner is None or "on_error" not in header.runner.model_fields_set:
            return defaults
        policy = header.runner.on_error
        if header.defaults and "on_error" in header.defaults.model_fields_set and defaults.on_error != policy:
            message = f"is {policy}, but defaults.on_error is {defaults.on_error}; keep one"
            self._report.add(("runner", "on_error"), "bad_policy", message)
        return replace(defaults, on_error=policy)

    def _load_sources(self) -> Sources:
        sources = self._data.get("sources")
        raw = sources if isinstance(sources, dict) else {}
        for name in raw:
            if not is_id(name):
                self._report.add(("sources", name), "bad_id", ID_RULE)
            if isinstance(raw[name], dict):
                path: Path = ("sources", name, "configuration")
                form = ExpressionChecks(self._report)  # Sources checks what it reads
                form.check_values(raw[name].get("configuration"), path, STEP, "anywhere")
        definitions = {name: source.to_spec() for name, source in (self._header.sources or {}).items()}
        return Sources(definitions, raw, self._report)

    def _load_steps(self) -> list[_Entry]:
        """Return the steps in the order of the document. A step without a unique id gets a placeholder."""
        entries: list[_Entry] = []
        taken: dict[str, int] = {}
        for n, raw in enumerate(self._raw_steps()):
            path: Path = (self._key, n)
            if not isinstance(raw, dict):
                self._report.add(path, "bad_type", f"a step must be a mapping, not {describe_value(raw)}")
                entries.append(({}, PlainStepModel(), StepSpec(_placeholder(path), "")))
                continue
            model_class = PlainStepModel if _PLAIN_KEYS.issuperset(raw) else StepModel
            model = parse(model_class, raw, path, self._report)
            if not model.token or model_class is StepModel:
                check_kind(raw, path, self._report)
            step_id = self._find_id(model, raw, path, taken)
            if step_id is None:
                step_id = _placeholder(path)
            else:
                taken[step_id] = n
            resolved = self._resolve(model, raw, path) if isinstance(model, StepModel) else {}
            step = model.to_spec(step_id, self._defaults, resolved)
            entries.append((raw, model, _with_secrets(step) if self._has_secrets else step))
        return entries

    def _raw_steps(self) -> list[Any]:
        report, document, key = self._report, self._data, self._key
        if key not in document:
            report.add(("steps",), "bad_type", "a workflow needs a list of steps; it may be empty")
            return []
        if key == "flow" and "steps" in document:
            report.add(("flow",), "bad_type", "is an alias of steps, which is present too; keep one")
        steps = document[key]
        if not isinstance(steps, list):
            report.add((key,), "bad_type", f"must be a list, not {describe_value(steps)}")
            return []
        if len(steps) > self._limits.max_steps:
            report.add((key,), "too_big", f"has {len(steps)} steps; the limit is {self._limits.max_steps}")
        return steps

    def _find_id(
        self, model: PlainStepModel, raw: Mapping[str, Any], path: Path, taken: Mapping[str, int]
    ) -> str | None:
        """Return the id of a step, or None if it has none or if another step has the same."""
        identity = model.identity
        if identity is None:
            if not any(raw.get(key) is not None for key in ("id", "op", "name")):
                message = "a step needs an id (or an op, which is then its id)"
                self._report.add(path, "missing_id", message)
            return None
        key, name = identity
        if not is_id(name):
            hint = f"the {key} is the id of the step: add the key id" if key != "id" else None
            self._report.add((*path, key), "bad_id", ID_RULE, hint)
        if name in taken:
            hint = "give one of them the key id" if key != "id" else None
            message = f"the id {name!r} is already taken by {self._key}[{taken[name]}]"
            self._report.add((*path, key), "duplicate_id", message, hint)
            return None
        return name

    def _resolve(self, model: StepModel, raw: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Return the attributes of a step that need the rest of the document: source, output and child."""
        resolved: dict[str, Any] = {}
        if model.source is not None:
            source = self._sources.resolve(model.source, raw["source"], (*path, "source"))
            if source is not None:
                resolved |= {"source": source, "fn": source["type"]}
        if model.output is not None:
            resolved["output"] = read_output(model.output, (*path, "output"), self._report)
        if model.workflow is not None:
            resolved["child"] = self._load_child(model.workflow, (*path, "workflow"))
        return resolved

    def _load_child(self, workflow: Any, path: Path) -> ChildSpec | None:
        if isinstance(workflow, str):
            if not workflow:
                self._report.add(path, "bad_type", "must not be empty")
            return ChildSpec(name=workflow)
        if not isinstance(workflow, dict):
            message = f"must be a workflow or the name of one, not {describe_value(workflow)}"
            self._report.add(path, "bad_type", message)
            return None
        if not self._nesting.left:
            message = f"child workflows may nest at most {self._nesting.max_levels} levels deep"
            self._report.add(path, "too_deep", message)
            return None
        if workflow.get("schedule") is not None:
            message = "a child starts when its step does: only a registered workflow can have a schedule"
            self._report.add((*path, "schedule"), "bad_schedule", message)
        nesting = replace(self._nesting, left=self._nesting.left - 1)
        report, is_stored = self._report.inside(path), self._is_stored
        loaded = _WorkflowLoader(workflow, report, nesting, is_stored, self._budget).load()
        return ChildSpec(document=workflow, loaded=loaded)


_Entry = tuple[dict[str, Any], PlainStepModel, StepSpec]
"""A step as it is written, its model, and its spec."""


def _placeholder(path: Path) -> str:
    """Return the id of a step that has no valid one: its path, which no other step can refer to."""
    return render_path(path)


def _is_placeholder(step_id: str) -> bool:
    return step_id.endswith("]")


def _place_in_document(problem: EdgeProblem, raw: Mapping[str, Any]) -> Path:
    """Return where a problem of an edge is in its step, which may list more than the spec has."""
    if problem.where[:1] == ("depends_on",) and problem.unknown is not None:
        return ("depends_on", raw["depends_on"].index(problem.unknown))
    return problem.where


def _get(mapping: Any, key: str) -> Any:
    return mapping.get(key) if isinstance(mapping, dict) else None


def _with_secrets(step: StepSpec) -> StepSpec:
    compensate = step.compensate
    if compensate is not None:
        compensate = replace(compensate, secrets=tuple(secret_paths(compensate.input)))
    return replace(step, secrets=tuple(secret_paths(step.input)), compensate=compensate)


_PLAIN_KEYS = frozenset(PlainStepModel.key_names())
