"""What is wrong with a call, in the words of Python: the step and the argument that were meant."""

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

_CALLED_OTHERWISE = {"depends_on": "after"}


def check_arguments(method: str, keys: Mapping[str, object], arguments: type) -> None:
    """A TypeError for a keyword that a method does not have, as Python itself would raise it."""
    known = arguments.__annotations__
    for key in keys:
        if key not in known:
            wanted = _CALLED_OTHERWISE.get(key, key)
            raise TypeError(add_suggestion(f"{method}() has no argument {key!r}", wanted, known))


def add_suggestion(message: str, word: str, known: Iterable[str]) -> str:
    """A message with what was probably meant."""
    hint = suggest(word, known)
    return f"{message}; {hint}" if hint else message


def suggest(word: str, known: Iterable[str]) -> str | None:
    close = get_close_matches(word, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None


def check_header(raw: dict[str, Any]) -> None:
    """InvalidSpec with all that is wrong with keys of a document, whatever its steps say."""
    report = Report(raw, (), check_data(raw))
    report.raise_if_any()
    parse(WorkflowModel, {**raw, "steps": []}, (), report)
    report.raise_if_any()


def check_step(raw: dict[str, Any], path: Path) -> None:
    """InvalidSpec with all that is wrong with a step, whatever the rest of the document says."""
    report = Report(raw, (), check_data(raw, path))
    report.raise_if_any()
    parse(StepModel, raw, path, report)
    check_kind(raw, path, report)
    report.raise_if_any()


def locate_problems(invalid: InvalidSpec, path: Path, step_id: str | None = None) -> InvalidSpec:
    """The same problems, of what is about to be added at `path`."""
    name = "" if step_id is None else f"step {step_id!r}: "
    return InvalidSpec(
        replace(problem, path=problem.path or render_path(path), message=name + problem.message)
        for problem in invalid.problems
    )


def name_steps_in_problems(invalid: InvalidSpec, document: Mapping[str, Any]) -> InvalidSpec:
    """The same problems, each with the name of its step, also in the workflows inside of a workflow."""
    return InvalidSpec(_named(problem, document) for problem in invalid.problems)


def _named(problem: Problem, document: Any) -> Problem:
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
    """The name of a step as a document says it, right or wrong."""
    keys = (key for key in ("id", "op", "name") if isinstance(child(raw, key), str))
    return next((str(raw[key]) for key in keys), None)
