"""Converts runfox documents. They are valid here; notes describe the differences in meaning.

A text with double braces is the only value that is rewritten: it is quoted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.spec.part_models import BranchModel
from orchestrator.application.spec.step_models import StepModel, WorkflowModel
from orchestrator.application.spec.validation import check_spec
from orchestrator.application.values.paths import Path
from orchestrator.convert.notes import Notes
from orchestrator.convert.quoting import quote_braces

_NEW_OPERATORS = frozenset({"substr", "all", "none", "some"})
_TOKENS = frozenset({"op", "fn", "type"})

MAX_STEPS_SCANNED = 1_000_000
"""The number of steps that all searches together may visit, because a foreign document can be very large."""


def looks_like_runfox(data: dict[str, Any]) -> bool:
    steps = _mappings(data.get("steps"))
    return any(_TOKENS & step.keys() for _, step in steps) and not any("source" in step for _, step in steps)


def convert_runfox(data: dict[str, Any], notes: Notes) -> dict[str, Any]:
    document = _rename_unknown_keys(data, WorkflowModel.key_names(), (), notes)
    if isinstance(document.get("steps"), list):
        document["steps"] = [
            _convert_step(step, ("steps", n), notes) for n, step in enumerate(document["steps"])
        ]
    document = quote_braces(document, lambda path: _note_braces(path, notes))
    for path, value in _iterate_values(document):
        _note_expressions(value, path, notes)
    _note_attempts(document, notes)
    _note_failures(document, notes)
    _note_dependencies(document, notes)
    return document


def _mappings(value: Any) -> list[tuple[int, dict[str, Any]]]:
    items = enumerate(value) if isinstance(value, list) else ()
    return [(n, item) for n, item in items if isinstance(item, dict)]


# ---- keys that runfox ignores and we reject


def _rename_unknown_keys(
    mapping: dict[str, Any], known: Sequence[str], path: Path, notes: Notes
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in mapping.items():
        is_free = key in known or key.startswith("x-")
        kept[key if is_free else f"x-{key}"] = value
        if not is_free:
            notes.add_changed((*path, key), "runfox ignores this key", f"kept as x-{key}")
    return kept


def _convert_step(step: Any, path: Path, notes: Notes) -> Any:
    if not isinstance(step, dict):
        return step
    step = _rename_unknown_keys(step, StepModel.key_names(), path, notes)
    if isinstance(step.get("branch"), list):
        step["branch"] = [
            _rename_unknown_keys(entry, BranchModel.key_names(), (*path, "branch", n), notes)
            if isinstance(entry, dict)
            else entry
            for n, entry in enumerate(step["branch"])
        ]
    return step


# ---- differences in meaning


def _iterate_values(document: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """Return the values of inputs and outputs, each with its path."""
    for n, step in _mappings(document.get("steps")):
        if isinstance(step.get("input"), dict):
            yield from ((("steps", n, "input", key), value) for key, value in step["input"].items())
    if isinstance(document.get("outputs"), dict):
        yield from ((("outputs", key), value) for key, value in document["outputs"].items())


def _note_braces(path: Path, notes: Notes) -> None:
    message = "double braces are a reference here, and text in runfox"
    notes.add_changed(path, message, "written as {$literal: ...}")


def _note_expressions(value: Any, path: Path, notes: Notes) -> None:
    if isinstance(value, list):
        if _holds_expression(value):
            message = "expressions inside a list are evaluated here; runfox passes them on unchanged"
            notes.add_changed(path, message, "write {$literal: ...} around values that must stay unchanged")
    elif is_expression(value):
        for operator in sorted(_NEW_OPERATORS & set(_operators(value))):
            notes.add_changed(path, f"{operator} is an operator here, but data in runfox")
    elif isinstance(value, dict):
        for key, item in value.items():
            _note_expressions(item, (*path, key), notes)


def _holds_expression(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_holds_expression, value))
    return is_expression(value) or (isinstance(value, dict) and any(map(_holds_expression, value.values())))


def _operators(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _operators(item)
    elif isinstance(value, dict) and LITERAL not in value:
        if is_expression(value):
            yield from value
        for item in value.values():
            yield from _operators(item)


def _note_attempts(document: dict[str, Any], notes: Notes) -> None:
    steps = _mappings(document.get("steps"))
    entries = [entry for _, step in steps for _, entry in _mappings(step.get("branch"))]
    has_loop = any(isinstance(entry.get("action"), dict) for entry in entries)
    defaults = document.get("defaults")
    for n, step in steps:
        attempts = step.get("max_attempts")
        if not isinstance(attempts, int) or attempts < 2:
            continue
        path: Path = ("steps", n, "max_attempts")
        always_branches = any(entry.get("condition") is True for _, entry in _mappings(step.get("branch")))
        if (
            "attempts_on" not in {**(defaults if isinstance(defaults, dict) else {}), **step}
            and not always_branches
        ):
            message = "only errors use up attempts here; runfox also repeats a step that succeeded"
            notes.add_changed(path, message, "to get that, write attempts_on: any")
        if has_loop:
            notes.add_changed(
                path, "a set action resets the attempts of a step here; in runfox it uses one up"
            )


def _note_failures(document: dict[str, Any], notes: Notes) -> None:
    steps = _mappings(document.get("steps"))
    defaults = document.get("defaults")
    has_policy = isinstance(defaults, dict) and "on_error" in defaults
    if not has_policy and any(not step.get("branch") and "on_error" not in step for _, step in steps):
        message = "an executor that raises fails the workflow here; in runfox the step is complete"
        notes.add_changed(("steps",), message, "to get that, write on_error: continue or a branch")


def _note_dependencies(document: dict[str, Any], notes: Notes) -> None:
    try:
        loaded = check_spec(document)
    except InvalidSpec:
        return  # convert() checks the result and adds these notes
    above = {step.id: step.depends_on for step in loaded.spec.steps}
    budget = [MAX_STEPS_SCANNED]
    for n, step in enumerate(loaded.spec.steps):
        for name in _find_implied_parents(set(loaded.graph.parents[step.id]), step.depends_on, above, budget):
            message = (
                f"reads step {name!r} without depends_on: here this is a dependency, in runfox it is not"
            )
            notes.add_changed(("steps", n, "input"), message)


def _find_implied_parents(
    parents: set[str], declared: Sequence[str], above: Mapping[str, Sequence[str]], budget: list[int]
) -> list[str]:
    """Return the parents of a step that no chain of declared dependencies leads to."""
    seen: set[str] = set()
    todo = list(declared)
    while todo and not parents <= seen:
        budget[0] -= 1
        if budget[0] < 0:
            return []
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(above[name])
    return sorted(parents - seen)
