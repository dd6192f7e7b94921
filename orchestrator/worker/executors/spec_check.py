"""Checks a document against the executors that are installed here, before anything is started.

It checks the steps, their compensations, the inline child workflows, the types of the sources, and the
webhook. A child workflow that is referenced by name is a separate document and is not checked. A document
with other problems is checked too, as far as it could be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import ConfigurationMissing, HeartbeatMissing
from orchestrator.application.spec.model import WEBHOOK_STEP, LoadedSpec
from orchestrator.application.spec.report import Report
from orchestrator.application.spec.sources import ENV
from orchestrator.application.values.paths import Path
from orchestrator.invocation.parameters import check_requested_parameters
from orchestrator.worker.executors.catalogue import Catalogue
from orchestrator.worker.executors.input_types import find_key_problems
from orchestrator.worker.executors.signature import Signature

CODES = frozenset({"bad_executor", "bad_input", "unknown_executor"})

_HOW_TO_LIST = "`orchestrator executors` lists the executors found here; --executors MODULE adds a module"


def check_executors(loaded: LoadedSpec, report: Report, catalogue: Catalogue) -> None:
    """Add all problems to the report of the document. The spec may be that of a document with problems."""
    reported: set[Path] = set()
    for call in _find_calls(loaded, ()):
        _check(call, catalogue, report, reported)


@dataclass(frozen=True, slots=True)
class _Call:
    """One place in the document that names an executor. `inputs` is None where the document has none."""

    fn: str
    fn_path: Path
    path: Path = ()
    step: str = ""
    inputs: Mapping[str, Any] | None = None
    heartbeat_s: float | None = None
    source: Mapping[str, Any] | None = None


def _find_calls(loaded: LoadedSpec, path: Path) -> Iterator[_Call]:
    spec, document = loaded.spec, loaded.document
    if spec.webhook is not None:
        yield _Call(WEBHOOK_STEP.fn, (*path, "webhook"))
    for name, source in spec.sources.items():
        if source["type"] != ENV:  # the worker itself reads these, where another source refers to them
            yield _Call(source["type"], (*path, "sources", name, "type"))
    key = "flow" if "flow" in document else "steps"
    for n, step in enumerate(spec.steps):
        step_path: Path = (*path, key, n)
        if step.kind == "task" and step.fn:
            fn_path = _find_fn(document[key][n], step_path, path)
            yield _Call(step.fn, fn_path, step_path, step.id, step.input, step.heartbeat_s, step.source)
        if step.compensate is not None:
            compensation, below = step.compensate, (*step_path, "compensate")
            yield _Call(compensation.fn, (*below, "fn"), below, step.id, compensation.input)
        if step.child is not None and step.child.loaded is not None:
            yield from _find_calls(step.child.loaded, (*step_path, "workflow"))


def _find_fn(raw: Mapping[str, Any], step_path: Path, document: Path) -> Path:
    """The path of the executor's name: in the step, or in the source on which the step is based."""
    source = raw.get("source")
    if source is None:
        return (*step_path, next(key for key in ("fn", "op", "type") if raw.get(key)))
    if isinstance(source, str):
        return (*document, "sources", source, "type")
    if "type" in source:
        return (*step_path, "source", "type")
    if "type" in (source.get("override") or {}):
        return (*step_path, "source", "override", "type")
    return (*document, "sources", source["base"], "type")


def _check(call: _Call, catalogue: Catalogue, report: Report, reported: set[Path]) -> None:
    """Check one call. `reported` has the paths with a reported problem: many steps may use one source."""
    problem: tuple[str, str, str | None]
    entry = catalogue.find(call.fn)
    if entry is None:
        hint = report.suggest(call.fn, catalogue.names) or _HOW_TO_LIST
        problem = "unknown_executor", f"no executor is called {call.fn!r}", hint
    elif entry.signature is None:
        problem = "bad_executor", str(entry.problem), None
    elif call_problem := entry.signature.call_problem:
        problem = "bad_executor", f"the executor {call.fn!r} of {entry.where}: {call_problem}", None
    else:
        _check_arguments(call, entry.signature, report)
        return
    if call.fn_path not in reported:
        reported.add(call.fn_path)
        report.add(call.fn_path, *problem)


def _check_arguments(call: _Call, signature: Signature, report: Report) -> None:
    """Check the heartbeat, the configuration and the literal inputs of a call against the signature."""
    requested = signature.requested_parameters
    try:
        check_requested_parameters(requested, call.step, call.fn, call.heartbeat_s, None)
    except HeartbeatMissing as error:
        report.add((*call.path, "heartbeat"), "bad_executor", str(error))
    try:
        check_requested_parameters(requested, call.step, call.fn, None, call.source)
    except ConfigurationMissing as error:
        report.add((*call.path, "source"), "bad_executor", str(error))
    if call.inputs is not None and signature.keys is not None:
        for problem in find_key_problems(call.inputs, signature.keys, (*call.path, "input")):
            message = f"the executor {call.fn!r} {problem.message}"
            report.add(problem.path, "bad_input", message, problem.hint)
