"""runfox's documents are documents of ours: what differs in meaning is told, little is changed."""

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

_NEW_OPERATORS = frozenset({"substr", "all", "none", "some"})
_TOKENS = frozenset({"op", "fn", "type"})


def looks_like_runfox(data: dict[str, Any]) -> bool:
    steps = _mappings(data.get("steps"))
    return any(_TOKENS & step.keys() for _, step in steps) and not any("source" in step for _, step in steps)


def convert_runfox(data: dict[str, Any], notes: Notes) -> dict[str, Any]:
    document = _without_strangers(data, WorkflowModel.key_names(), (), notes)
    if isinstance(document.get("steps"), list):
        document["steps"] = [_step(step, ("steps", n), notes) for n, step in enumerate(document["steps"])]
    for path, value in _values(document):
        _tell_expressions(value, path, notes)
    _tell_attempts(document, notes)
    _tell_failures(document, notes)
    _tell_dependencies(document, notes)
    return document


def _mappings(value: Any) -> list[tuple[int, dict[str, Any]]]:
    items = enumerate(value) if isinstance(value, list) else ()
    return [(n, item) for n, item in items if isinstance(item, dict)]


# Keys that runfox ignores and we refuse


def _without_strangers(
    mapping: dict[str, Any], known: Sequence[str], path: Path, notes: Notes
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in mapping.items():
        is_free = key in known or key.startswith("x-")
        kept[key if is_free else f"x-{key}"] = value
        if not is_free:
            notes.add_changed((*path, key), "runfox ignores this key", f"kept as x-{key}")
    return kept


def _step(step: Any, path: Path, notes: Notes) -> Any:
    if not isinstance(step, dict):
        return step
    step = _without_strangers(step, StepModel.key_names(), path, notes)
    if isinstance(step.get("branch"), list):
        step["branch"] = [
            _without_strangers(entry, BranchModel.key_names(), (*path, "branch", n), notes)
            if isinstance(entry, dict)
            else entry
            for n, entry in enumerate(step["branch"])
        ]
    return step


# What means something else


def _values(document: dict[str, Any]) -> Iterator[tuple[Path, Any]]:
    """The values of inputs and outputs, each with its path."""
    for n, step in _mappings(document.get("steps")):
        if isinstance(step.get("input"), dict):
            yield from ((("steps", n, "input", key), value) for key, value in step["input"].items())
    if isinstance(document.get("outputs"), dict):
        yield from ((("outputs", key), value) for key, value in document["outputs"].items())


def _tell_expressions(value: Any, path: Path, notes: Notes) -> None:
    if isinstance(value, list):
        if _holds_expression(value):
            message = "expressions inside of a list are evaluated here; runfox passes them on as they are"
            notes.add_changed(path, message, "write {$literal: ...} around what is to stay")
    elif is_expression(value):
        for operator in sorted(_NEW_OPERATORS & set(_operators(value))):
            notes.add_changed(path, f"{operator} is an operator here, and data for runfox")
    elif isinstance(value, dict):
        for key, item in value.items():
            _tell_expressions(item, (*path, key), notes)


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


def _tell_attempts(document: dict[str, Any], notes: Notes) -> None:
    steps = _mappings(document.get("steps"))
    entries = [entry for _, step in steps for _, entry in _mappings(step.get("branch"))]
    has_loop = any(isinstance(entry.get("action"), dict) for entry in entries)
    defaults = document.get("defaults")
    for n, step in steps:
        attempts = step.get("max_attempts")
        if not isinstance(attempts, int) or attempts < 2:
            continue
        path: Path = ("steps", n, "max_attempts")
        decides = any(entry.get("condition") is True for _, entry in _mappings(step.get("branch")))
        if "attempts_on" not in {**(defaults if isinstance(defaults, dict) else {}), **step} and not decides:
            message = "only errors use up attempts here; runfox repeats a step that succeeded too"
            notes.add_changed(path, message, "write attempts_on: any for that")
        if has_loop:
            notes.add_changed(
                path, "a step that is set again has its attempts anew; in runfox a set uses one up"
            )


def _tell_failures(document: dict[str, Any], notes: Notes) -> None:
    steps = _mappings(document.get("steps"))
    defaults = document.get("defaults")
    is_settled = isinstance(defaults, dict) and "on_error" in defaults
    if not is_settled and any(not step.get("branch") and "on_error" not in step for _, step in steps):
        message = "an executor that raises fails the workflow here; in runfox its step is complete"
        notes.add_changed(("steps",), message, "write on_error: continue, or a branch, for that")


def _tell_dependencies(document: dict[str, Any], notes: Notes) -> None:
    try:
        loaded = check_spec(document)
    except InvalidSpec:
        return  # told by whoever checks the result
    above = {step.id: step.depends_on for step in loaded.spec.steps}
    work = [MAX_STEPS_SCANNED]
    for n, step in enumerate(loaded.spec.steps):
        for name in _implied(set(loaded.graph.parents[step.id]), step.depends_on, above, work):
            message = f"reads step {name!r} without depends_on: it waits for it here; runfox does not"
            notes.add_changed(("steps", n, "input"), message)


MAX_STEPS_SCANNED = 1_000_000
"""How many steps are looked at for this in all: a document of strangers may have very many."""


def _implied(
    parents: set[str], declared: Sequence[str], above: Mapping[str, Sequence[str]], work: list[int]
) -> list[str]:
    """The parents that are not above a step, as far as it is declared."""
    seen: set[str] = set()
    todo = list(declared)
    while todo and not parents <= seen:
        work[0] -= 1
        if work[0] < 0:
            return []
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(above[name])
    return sorted(parents - seen)
