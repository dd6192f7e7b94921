"""Support for flowtoy documents: lists of outputs are translated, and templates that are more than short
references are rejected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.expressions.jsonpath import MAX_SEGMENTS
from orchestrator.application.spec.report import Report
from orchestrator.application.values.json_types import describe_value
from orchestrator.application.values.paths import Path

CONVERT_HINT = "use orchestrator convert, or write an expression"


def reject_templates(document: Mapping[str, Any], report: Report) -> None:
    """Report every template that is left: the executor would receive it as plain text (ruling 17).

    Inline child workflows are checked when they are loaded.
    """
    todo: list[tuple[Any, Path]] = [(document, ())]
    while todo:
        value, path = todo.pop()
        is_input = len(path) == 3 and path[0] == "flow" and path[2] == "input"
        if (is_input and isinstance(value, dict) and list(value) == ["template"]) or (
            isinstance(value, str) and ("{{" in value or "{%" in value)
        ):
            report.add(path, "bad_type", "a template is not evaluated here", CONVERT_HINT)
            report.ignore_further(path)
        elif isinstance(value, dict) and not (len(value) == 1 and LITERAL in value):
            keys = (key for key in value if not key.startswith("x-"))
            todo.extend((value[key], (*path, key)) for key in keys if not _is_child(value[key], (*path, key)))
        elif isinstance(value, list):
            todo.extend((item, (*path, n)) for n, item in enumerate(value))


def _is_child(value: Any, path: Path) -> bool:
    return len(path) == 3 and path[2] == "workflow" and isinstance(value, dict)


def read_output(value: Any, path: Path, report: Report) -> dict[str, Any]:
    """Return the `output` of a step as a mapping of expressions; translate flowtoy's list."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        report.add(
            path, "bad_type", f"must be a mapping of expressions or a list, not {describe_value(value)}"
        )
        return {}
    output: dict[str, Any] = {}
    for n, entry in enumerate(value):
        where = (*path, n)
        if not isinstance(entry, dict):
            report.add(where, "bad_type", f"must be a mapping with a name, not {describe_value(entry)}")
            continue
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            report.add((*where, "name"), "bad_type", "an output needs a name, which is a string")
        elif name in output:
            report.add((*where, "name"), "duplicate_key", f"the output {name!r} is written twice")
        else:
            output[name] = _expression(entry, where, report)
    return output


_TYPES = ("raw", "json", "jmespath")


def _expression(entry: dict[str, Any], path: Path, report: Report) -> Any:
    form = entry.get("type") or "raw"
    if form not in _TYPES:
        hint = report.suggest(form, _TYPES)
        report.add((*path, "type"), "bad_type", "must be raw, json or jmespath", hint)
        return None
    known = ("name", "type", "value", "path") if form == "jmespath" else ("name", "type")
    for key in entry:
        if key not in known and not key.startswith("x-"):
            hint = "write type: jmespath" if key in ("value", "path") else report.suggest(key, known)
            report.add((*path, key), "unknown_key", f"{key!r} is not a key of an output of type {form}", hint)
    if form != "jmespath":
        return {"var": "result"}
    key = "value" if "value" in entry else "path"
    if not isinstance(entry.get(key), str):
        report.add((*path, key), "bad_type", "an output of type jmespath needs a value: its path")
        return None
    translated = translate_path(entry[key])
    if translated is None:
        message = f"the path {entry[key]!r:.80} has more than names, [0] and one [*]"
        report.add((*path, key), "bad_path", message, CONVERT_HINT)
    return translated


_NAME = r'(?:[A-Za-z_][A-Za-z0-9_]*|"[^".\\*\[\]]+")'
_JMESPATH = re.compile(rf"{_NAME}(?:\.{_NAME}|\[[0-9]{{1,9}}\]|\[\*\]){{0,{MAX_SEGMENTS - 2}}}")


def translate_path(path: str) -> dict[str, Any] | None:
    """Translate a simple JMESPath over the result into an expression; None if it is not simple."""
    path = path.strip()
    if path == "@":
        return {"var": "result"}
    if not _JMESPATH.fullmatch(path) or path.count("[*]") > 1:
        return None
    if "[*]" in path:
        return {"vars": f"result.{path}"}
    return {"var": "result." + path.replace('"', "").replace("[", ".").replace("]", "")}
