"""Reads workflow files of other systems: those of flowtoy and flow8 are converted, with notes on stderr.

A file is converted only if it cannot be one of ours: orchestrator.convert.find_foreign_dialect decides. One
that cannot be converted completely is rejected, because a part would be missing or mean something else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from orchestrator.cli.output.escaping import print_text

if TYPE_CHECKING:
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.application.spec.report import Report

Texts = Sequence[tuple[str, str]]
"""The texts of a workflow, each with the name of its file."""


def load_files(texts: Texts) -> LoadedSpec:
    """Load a workflow from one or more texts, merged from left to right; convert it if it is foreign."""
    from orchestrator.application.errors import InvalidSpec
    from orchestrator.application.spec.validation import load_specs

    try:
        loaded = load_specs(texts)
    except InvalidSpec:
        converted = _convert(texts, is_valid=False)
        if converted is None:
            raise
        return load_specs(converted)
    has_flow = "flow" in loaded.document
    converted = _convert(texts, is_valid=True) if has_flow else None
    return loaded if converted is None else load_specs(converted)


def scan_files(texts: Texts) -> tuple[LoadedSpec | None, Report]:
    """Like load_files, but return the problems in a report."""
    from orchestrator.application.spec.validation import scan_specs

    loaded, report = scan_specs(texts)
    is_valid = loaded is not None and not report.has_problems
    if is_valid and loaded is not None and "flow" not in loaded.document:
        return loaded, report
    converted = _convert(texts, is_valid)
    return (loaded, report) if converted is None else scan_specs(converted)


def _convert(texts: Texts, is_valid: bool) -> Texts | None:
    """Convert a workflow of another system; None if it is one of ours."""
    from orchestrator.application.errors import InvalidSpec
    from orchestrator.application.spec.document import scan_document, scan_documents
    from orchestrator.convert import AmbiguousDocument, convert, find_foreign_dialect

    text, name = texts[0][0], " + ".join(name for _, name in texts)
    try:
        if len(texts) == 1:
            data = scan_document(text)[0].data
        else:
            data, _, problems = scan_documents(texts)
            if problems:
                return None
            text = json.dumps(data)
        dialect = find_foreign_dialect(data, is_valid)
    except InvalidSpec:
        return None
    except AmbiguousDocument as error:
        raise click.UsageError(f"{name}: {error}") from error
    if dialect is None:
        return None
    result = convert(text, dialect)
    print_text(f"{name}: read as a document of {dialect}", err=True)
    for note in result.notes:
        located = note if len(texts) == 1 else replace(note, line=None)  # merged texts have no positions
        print_text(located.located_in(name), err=True)
    if not result.is_complete:
        raise click.UsageError(
            f"{name} is a document of {dialect}, and parts of it cannot be converted (see above):"
            " run orchestrator convert, finish the result by hand, and use that"
        )
    return [(result.text, f"{name} (converted)")]
