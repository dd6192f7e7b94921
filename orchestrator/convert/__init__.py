"""Foreign workflow documents as documents of ours, with notes on what could not be converted.

    converted = convert(text)          # or convert(text, "flow8")
    converted.text                     # our YAML
    converted.notes                    # what a person must look at

A document is read, its dialect detected, and converted by the module of that dialect; nothing of it is ever
evaluated. The result is checked as any spec is, and what is wrong with it becomes a note too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import InvalidSpec, OrchestratorError, Problem
from orchestrator.application.spec.document import scan_document
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.spec.yaml_writer import render_yaml
from orchestrator.application.values.document_limits import not_json_reason
from orchestrator.convert.flow8 import convert_flow8, looks_like_flow8
from orchestrator.convert.flowtoy import convert_flowtoy
from orchestrator.convert.jinja import is_template
from orchestrator.convert.notes import Note, Notes
from orchestrator.convert.runfox import convert_runfox, looks_like_runfox

__all__ = ["DIALECTS", "ConversionResult", "Note", "UnknownDialect", "convert"]

_CONVERTERS: dict[str, Callable[[dict[str, Any], Notes], dict[str, Any]]] = {
    "flowtoy": convert_flowtoy,
    "flow8": convert_flow8,
    "runfox": convert_runfox,
}
DIALECTS = tuple(_CONVERTERS)


class UnknownDialect(OrchestratorError):
    """Nothing in the document shows what it is written in, or the dialect that was named is unknown."""


@dataclass(frozen=True, slots=True)
class ConversionResult:
    document: dict[str, Any]
    text: str
    notes: tuple[Note, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be done by hand."""
        return all(note.kind == "changed" for note in self.notes)


def convert(text: str, dialect: str | None = None) -> ConversionResult:
    """The document in `text` as one of ours; InvalidSpec if it cannot be read, or UnknownDialect."""
    source, problems = scan_document(text)
    if not isinstance(source.data, dict):
        raise InvalidSpec([Problem("", "bad_type", "a workflow document must be a mapping")])
    dialect = dialect or _detected(source.data, text)
    if dialect not in _CONVERTERS:
        raise UnknownDialect(f"{dialect!r} is no dialect: choose {', '.join(DIALECTS)}")
    notes = Notes()
    for problem in problems:
        notes.add_lost(problem.path, problem.message, "read as null" if problem.code == "not_json" else "")
    document = _CONVERTERS[dialect](_readable(source.data) if problems else source.data, notes)
    _check(document, notes)
    is_same = document == source.data and not problems
    return ConversionResult(document, text if is_same else _written(document), notes.as_tuple())


def _readable(value: Any) -> Any:
    """Without what is no JSON: a note says that it is read as null. No document is deeper than its limit."""
    if isinstance(value, dict):
        return {key: _readable(item) for key, item in value.items() if not_json_reason(key) is None}
    if isinstance(value, list):
        return [_readable(item) for item in value]
    return value if not_json_reason(value) is None else None


def _detected(data: dict[str, Any], text: str) -> str:
    if looks_like_flow8(data):
        return "flow8"
    if isinstance(data.get("flow"), list):
        return "flowtoy"
    if looks_like_runfox(data):
        return "runfox"
    if is_template(text):
        return "flowtoy"
    raise UnknownDialect(f"nothing shows what this is written in: name its dialect, {' or '.join(DIALECTS)}")


def _written(document: dict[str, Any]) -> str:
    try:
        return render_yaml(document)
    except InvalidSpec:  # it has become too deep for a document, and a note says so
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _check(document: dict[str, Any], notes: Notes) -> None:
    try:
        check_spec(document)
    except InvalidSpec as error:
        for problem in error.problems:
            hint = f"; {problem.hint}" if problem.hint else ""
            notes.add_lost(
                problem.path, f"{problem.message}{hint}", "the result is not valid until this is put right"
            )
