"""Converts workflow documents of flowtoy, flow8 and runfox, with notes on what could not be converted.

    converted = convert(text)          # or convert(text, "flow8")
    converted.text                     # our YAML
    converted.notes                    # what a person must check or finish

The document is read, its dialect is detected, and the module of that dialect converts it. Nothing in it is
ever evaluated. The result is checked like any spec, and each problem becomes a note too. Jinja templates need
the library jinja2 and JMESPath needs jmespath; MissingLibrary names the extra that installs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.document import scan_document
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.spec.yaml_writer import render_yaml
from orchestrator.application.values.document_limits import not_json_reason
from orchestrator.convert.dialects import (
    AmbiguousDocument,
    UnknownDialect,
    detect_dialect,
    find_foreign_dialect,
)
from orchestrator.convert.flow8 import convert_flow8
from orchestrator.convert.flowtoy import convert_flowtoy
from orchestrator.convert.libraries import MissingLibrary
from orchestrator.convert.notes import Note, Notes
from orchestrator.convert.quoting import quote_braces
from orchestrator.convert.runfox import convert_runfox

__all__ = [
    "DIALECTS",
    "AmbiguousDocument",
    "ConversionResult",
    "MissingLibrary",
    "Note",
    "UnknownDialect",
    "convert",
    "find_foreign_dialect",
]

_CONVERTERS: dict[str, Callable[[dict[str, Any], Notes], dict[str, Any]]] = {
    "flowtoy": convert_flowtoy,
    "flow8": convert_flow8,
    "runfox": convert_runfox,
}
DIALECTS = tuple(_CONVERTERS)
_CHOICES = f"{', '.join(DIALECTS[:-1])} or {DIALECTS[-1]}"


@dataclass(frozen=True, slots=True)
class ConversionResult:
    document: dict[str, Any]
    text: str
    notes: tuple[Note, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing has to be finished by hand."""
        return all(note.kind == "changed" for note in self.notes)


def convert(text: str, dialect: str | None = None) -> ConversionResult:
    """Convert the document in `text`.

    InvalidSpec: it cannot be read. UnknownDialect: its dialect is unknown. MissingLibrary: install the extra.
    """
    source, problems = scan_document(text)
    if not isinstance(source.data, dict):
        raise InvalidSpec([Problem("", "bad_type", "a workflow document must be a mapping")])
    dialect = dialect or detect_dialect(source.data, text)
    if dialect is None:
        raise UnknownDialect(f"cannot detect the dialect of this document; choose {_CHOICES}")
    if dialect not in _CONVERTERS:
        raise UnknownDialect(f"unknown dialect {dialect!r}; choose {_CHOICES}")
    notes = Notes()
    for problem in problems:
        notes.add_lost(problem.path, problem.message, "read as null" if problem.code == "not_json" else "")
    document = _CONVERTERS[dialect](_replace_non_json(source.data) if problems else source.data, notes)
    document = quote_braces(document)
    _note_problems(document, notes)
    is_same = document == source.data and not problems
    located = tuple(note.located_by(source.source_map) for note in notes.as_tuple())
    return ConversionResult(document, text if is_same else _write(document), located)


def _replace_non_json(value: Any) -> Any:
    """Replace values that are not JSON with null. Their notes say so, and the reader limits the depth."""
    if isinstance(value, dict):
        return {key: _replace_non_json(item) for key, item in value.items() if not_json_reason(key) is None}
    if isinstance(value, list):
        return [_replace_non_json(item) for item in value]
    return value if not_json_reason(value) is None else None


def _write(document: dict[str, Any]) -> str:
    try:
        return render_yaml(document)
    except InvalidSpec:  # it is too deep for a document, which is already in the notes
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _note_problems(document: dict[str, Any], notes: Notes) -> None:
    try:
        check_spec(document)
    except InvalidSpec as error:
        for problem in error.problems:
            hint = f"; {problem.hint}" if problem.hint else ""
            notes.add_invalid(problem.path, f"{problem.message}{hint}")
