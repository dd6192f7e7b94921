"""Warns of texts that look like a template where it would stay plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.application.expressions.short_references import Part, parse_text
from orchestrator.application.spec.expansion import SOURCES_ROOT
from orchestrator.application.spec.expression_places import PlaceKind, rewrite_texts
from orchestrator.application.spec.report import Report
from orchestrator.application.values.paths import Path

_CONFIGURATION_ROOTS = frozenset({SOURCES_ROOT, "raw", "input", "json"})
"""The root that a configuration can read, and those of the templates of the executor `process`."""
_NAMES = ("op", "fn", "type", "workflow")


def warn_of_templates(workflow: dict[str, Any], report: Report) -> None:
    """Report the templates of a workflow that stay plain text. Inline child workflows are left out."""
    for path, value in _find_verbatim_values(workflow):
        for where, text in _find_texts(value, path):
            if "{{" in text:
                message = "looks like a template, but no expression is evaluated here"
                hint = "write result_expr instead of result" if "result" in path else None
                report.warn(where, "doubtful_template", message, hint)

    def check_configuration(text: str, path: Path, kind: PlaceKind) -> str:
        if kind == "configuration" and not all(map(_is_known, parse_text(text, is_lenient=True))):
            message = "looks like a template, but stays plain text in the configuration of a source"
            hint = f"it can read {SOURCES_ROOT}.<name>.<VARIABLE> only: pass other values as inputs"
            report.warn(path, "doubtful_template", message, hint)
        return text

    rewrite_texts(workflow, check_configuration)


def _is_known(part: Part) -> bool:
    if isinstance(part, str):
        return "{{" not in part
    return part.path.partition(".")[0] in _CONFIGURATION_ROOTS


def _find_verbatim_values(workflow: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield the values of a workflow in which users may expect a template, although none is evaluated."""
    webhook = _mapping(workflow.get("webhook"))
    for key in ("url", "headers"):
        yield ("webhook", key), webhook.get(key)
    for name, declared in _mapping(workflow.get("inputs")).items():
        yield ("inputs", name, "default"), _mapping(declared).get("default")
    key = "flow" if "flow" in workflow else "steps"
    for n, step in enumerate(_list(workflow.get(key))):
        for name in _NAMES:
            value = _mapping(step).get(name)
            yield (key, n, name), value if isinstance(value, str) else None
        for entry, branch in enumerate(_list(_mapping(step).get("branch"))):
            yield (key, n, "branch", entry, "result"), _mapping(branch).get("result")


def _find_texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _find_texts(item, (*path, key))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
