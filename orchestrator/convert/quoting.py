"""Quotes the braces of converted texts: what is text in the other system must not be a reference here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.expressions.short_references import has_braces, holds_reference, parse_text
from orchestrator.application.spec.expansion import SOURCES_ROOT
from orchestrator.application.spec.expression_places import PlaceKind, rewrite_texts
from orchestrator.application.values.paths import Path


def quote_braces(
    document: dict[str, Any], note: Callable[[Path], None] = lambda path: None
) -> dict[str, Any]:
    """Return a document with {$literal: ...} around each text whose braces would have a meaning here.

    `note` is called with the path of each such text.
    """

    def quote(text: str, path: Path, kind: PlaceKind) -> Any:
        if not has_braces(text) or not _has_meaning(text, kind):
            return text
        note(path)
        return {LITERAL: text}

    quoted: dict[str, Any] = rewrite_texts(document, quote)
    return quoted


def _has_meaning(text: str, kind: PlaceKind) -> bool:
    if kind == "configuration":
        return parse_text(text, root=SOURCES_ROOT) != [text]
    return kind == "value" and holds_reference(text)
