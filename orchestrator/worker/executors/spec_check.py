"""Whether a document and the executors that are here fit together, before anything is started.

Judged are the steps, their compensations, the children that are written in the document, the types of its
sources, and its webhook. A child that is only named is a document of its own, and not followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import ConfigurationMissing, HeartbeatMissing
from orchestrator.application.spec.document import scan_documents
from orchestrator.application.spec.model import WEBHOOK_STEP, LoadedSpec
from orchestrator.application.spec.report import Report
from orchestrator.application.spec.sources import ENV
from orchestrator.application.values.paths import Path
from orchestrator.invocation.parameters import check_requested_parameters
from orchestrator.worker.executors.catalogue import Catalogue
from orchestrator.worker.executors.input_types import find_key_problems
from orchestrator.worker.executors.signature import Signature

CODES = frozenset({"bad_executor", "bad_input", "unknown_executor"})

_LISTED = "`orchestrator executors` lists those that are here; --executors MODULE adds one"


def check_executors(loaded: LoadedSpec, texts: Sequence[tuple[str, str]], catalogue: Catalogue) -> None:
    """InvalidSpec with every place where they do not fit. `texts` are what the spec was loaded from."""
    data, documents, _ = scan_documents(texts)
    report = Report(data, documents)
    told: set[Path] = set()
    for call in _calls(loaded, ()):
        _check(call, catalogue, report, told)
    report.raise_if_any()


@dataclass(frozen=True, slots=True)
class _Call:
    """One place where an executor is named, and what it will be given; `inputs` None: what nobody wrote."""

    fn: str
    fn_at: Path
    at: Path = ()
    step: str = ""
    inputs: Mapping[str, Any] | None = None
    heartbeat_s: float | None = None
    source: Mapping[str, Any] | None = None


def _calls(loaded: LoadedSpec, path: Path) -> Iterator[_Call]:
    spec, document = loaded.spec, loaded.document
    if spec.webhook is not None:
        yield _Call(WEBHOOK_STEP.fn, (*path, "webhook"))
    for name, source in spec.sources.items():
        if source["type"] != ENV:  # which a worker reads by itself, where other sources refer to it
            yield _Call(source["type"], (*path, "sources", name, "type"))
    key = "flow" if "flow" in document else "steps"
    for n, step in enumerate(spec.steps):
        at: Path = (*path, key, n)
        if step.kind == "task":
            fn_at = _place_of(document[key][n], at, path)
            yield _Call(step.fn, fn_at, at, step.id, step.input, step.heartbeat_s, step.source)
        if step.compensate is not None:
            undo, below = step.compensate, (*at, "compensate")
            yield _Call(undo.fn, (*below, "fn"), below, step.id, undo.input)
        if step.child is not None and step.child.loaded is not None:
            yield from _calls(step.child.loaded, (*at, "workflow"))


def _place_of(raw: Mapping[str, Any], at: Path, document: Path) -> Path:
    """Where the name of a step's executor is written: in the step, or in the source that it starts from."""
    source = raw.get("source")
    if source is None:
        return (*at, next(key for key in ("fn", "op", "type") if raw.get(key)))
    if isinstance(source, str):
        return (*document, "sources", source, "type")
    if "type" in source:
        return (*at, "source", "type")
    if "type" in (source.get("override") or {}):
        return (*at, "source", "override", "type")
    return (*document, "sources", source["base"], "type")


def _check(call: _Call, catalogue: Catalogue, report: Report, told: set[Path]) -> None:
    """`told` are the names that enough was said about: many steps may start from one source."""
    problem: tuple[str, str, str | None]
    entry = catalogue.find(call.fn)
    if entry is None:
        hint = report.suggest(call.fn, catalogue.names) or _LISTED
        problem = "unknown_executor", f"no executor is called {call.fn!r}", hint
    elif entry.signature is None:
        problem = "bad_executor", str(entry.problem), None
    elif call_problem := entry.signature.call_problem:
        problem = "bad_executor", f"the executor {call.fn!r} of {entry.where}: {call_problem}", None
    else:
        _check_given(call, entry.signature, report)
        return
    if call.fn_at not in told:
        told.add(call.fn_at)
        report.add(call.fn_at, *problem)


def _check_given(call: _Call, signature: Signature, report: Report) -> None:
    """What the step will give it, as far as that is written out."""
    try:
        check_requested_parameters(signature.named, call.step, call.fn, call.heartbeat_s, None)
    except HeartbeatMissing as error:
        report.add((*call.at, "heartbeat"), "bad_executor", str(error))
    try:
        check_requested_parameters(signature.named, call.step, call.fn, None, call.source)
    except ConfigurationMissing as error:
        report.add((*call.at, "source"), "bad_executor", str(error))
    if call.inputs is not None and signature.keys is not None:
        for fault in find_key_problems(call.inputs, signature.keys, (*call.at, "input")):
            report.add(fault.path, "bad_input", f"the executor {call.fn!r} {fault.message}", fault.hint)
