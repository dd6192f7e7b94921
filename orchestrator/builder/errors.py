"""Errors of a builder call. They name the step and the Python argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.spec.checks import check_kind
from orchestrator.application.spec.document import check_data
from orchestrator.application.spec.report import Report, parse
from orchestrator.application.spec.step_models import StepModel, WorkflowModel
from orchestrator.application.values.paths import Path, child, parse_path, render_path

_ARGUMENT_NAMES = {"depends_on": "after"}


def check_arguments(method: str, keys: Mapping[str, object], arguments: type) -> None:
    """Raise TypeError for an unknown keyword argument, as Python itself does."""
    known = arguments.__annotations__
    for key in keys:
        if key not in known:
            argument = _ARGUMENT_NAMES.get(key, key)
            raise TypeError(add_suggestion(f"{method}() has no argument {key!r}", argument, known))


def add_suggestion(message: str, name: str, known: Iterable[str]) -> str:
    """Add a "did you mean" hint to a message if a known name is similar."""
    hint = suggest(name, known)
    return f"{message}; {hint}" if hint else message


def suggest(name: str, known: Iterable[str]) -> str | None:
    close = get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None


def check_header(raw: dict[str, Any]) -> None:
    """Raise InvalidSpec with all problems of the keys of a document, without its steps."""
    report = Report(raw, (), check_data(raw))
    report.raise_if_any()
    parse(WorkflowModel, {**raw, "steps": []}, (), report)
    report.raise_if_any()


def check_step(raw: dict[str, Any], path: Path) -> None:
    """Raise InvalidSpec with all problems of a step, without the rest of the document."""
    report = Report(raw, (), check_data(raw, path))
    report.raise_if_any()
    parse(StepModel, raw, path, report)
    check_kind(raw, path, report)
    report.raise_if_any()


def locate_problems(invalid: InvalidSpec, path: Path, step_id: str | None = None) -> InvalidSpec:
    """Add the path and the step to problems of a value that is about to be added."""
    name = "" if step_id is None else f"step {step_id!r}: "
    return InvalidSpec(
        replace(problem, path=problem.path or render_path(path), message=name + problem.message)
        for problem in invalid.problems
    )


def name_steps_in_problems(invalid: InvalidSpec, document: Mapping[str, Any]) -> InvalidSpec:
    """Add the name of the step to each problem, including problems in nested workflows."""
    return InvalidSpec(_name_step(problem, document) for problem in invalid.problems)


def _name_step(problem: Problem, document: Any) -> Problem:
    path = parse_path(problem.path, document)
    names: list[str] = []
    while len(path) > 1 and path[0] in ("steps", "flow"):
        step = child(child(document, path[0]), path[1])
        names.insert(0, repr(find_step_name(step)))
        document = child(step, "workflow")
        path = path[3:] if path[2:3] == ("workflow",) else ()
    if not names or problem.message.startswith(f"step {names[0]} "):
        return problem
    return replace(problem, message=f"step {' of '.join(names)}: {problem.message}")


def find_step_name(raw: Any) -> str | None:
    """Return the name of a step in a document, whether it is valid or not."""
    keys = (key for key in ("id", "op", "name") if isinstance(child(raw, key), str))
    return next((str(raw[key]) for key in keys), None)
