"""Expands the short references of a workflow document, so that everything after it sees JSON Logic only.

This is the only place where `{{ path }}` gets its meaning. Where braces hold something else:

    a new document       a problem, at the text
    a flow               nothing; reject_templates reports every template that is left
    a stored document    plain text: a document that was accepted once still runs
    a configuration      plain text, unless the path begins with `sources`: executors have their own templates
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.application.expressions.short_references import (
    MAX_PARTS,
    BadReference,
    build_rule,
    has_braces,
    is_whole_reference,
    parse_text,
)
from orchestrator.application.spec.expression_places import PlaceKind, rewrite_texts
from orchestrator.application.spec.report import Report
from orchestrator.application.values.document_limits import TOO_BIG_HINT
from orchestrator.application.values.paths import Path

SOURCES_ROOT = "sources"
"""The only root that the configuration of a source can read."""


@dataclass(slots=True)
class ReferenceBudget:
    """How many nodes the references of a document and of its inline children may add, all together.

    Without it an alias that repeats a text would make a document large that is small as it is written.
    """

    max_nodes: int
    spent: int = 0

    def spend(self, rule: Any, report: Report) -> None:
        """Count an expression that replaces a text; raise DocumentTooBig if it is too much."""
        if isinstance(rule, dict):
            self.spent += 2 * len(rule["cat"]) if "cat" in rule else 2
        if self.spent > self.max_nodes:
            message = f"the document has more than {self.max_nodes:,} nodes, short references expanded"
            report.stop(message, TOO_BIG_HINT)


def expand_workflow(
    workflow: dict[str, Any], report: Report, budget: ReferenceBudget, *, is_stored: bool
) -> dict[str, Any]:
    """Return a workflow with its short references as expressions; the same object if it has none."""
    expanded: dict[str, Any] = _Expansion(report, budget, is_stored, "flow" in workflow).expand(workflow)
    return expanded


class _Expansion:
    def __init__(self, report: Report, budget: ReferenceBudget, is_stored: bool, is_flow: bool) -> None:
        self._report, self._budget = report, budget
        self._is_lenient, self._is_stored = is_stored or is_flow, is_stored
        self._known: dict[tuple[str, PlaceKind], Any] = {}  # an alias may repeat a long text many times

    def expand(self, workflow: dict[str, Any]) -> Any:
        return rewrite_texts(workflow, self._expand_text)

    def _expand_text(self, text: str, path: Path, kind: PlaceKind) -> Any:
        if not has_braces(text):
            return text
        if (text, kind) not in self._known:
            self._known[text, kind] = self._expand_known(text, path, kind)
        rule = self._known[text, kind]
        if isinstance(rule, BadReference):
            self._report.add(path, "bad_reference", str(rule), rule.hint)
            self._report.ignore_further(path)
            return text
        self._budget.spend(rule, self._report)
        return rule

    def _expand_known(self, text: str, path: Path, kind: PlaceKind) -> Any:
        """Return the expression of a text, the text itself, or what is wrong with it."""
        if kind == "whole" and not is_whole_reference(text) and (self._is_lenient or not _is_one_pair(text)):
            return text
        try:
            root = SOURCES_ROOT if kind == "configuration" else None
            parts = parse_text(text, root=root, is_lenient=self._is_lenient)
        except BadReference as error:
            return error
        if len(parts) > MAX_PARTS and self._is_stored:
            return text
        return text if parts == [text] else build_rule(parts)


def _is_one_pair(text: str) -> bool:
    """Whether a text is one pair of braces, whatever it holds."""
    return text.startswith("{{") and text.endswith("}}") and text.find("{{", 2) < 0
