"""Errors of workflow functions. Those that are found while a workflow is read have the file and the line.

OrchestratorError
├── InvalidSpec        the workflow function is wrong: `problems` has the file, line and column of each
├── OutsideWorkflow    a function that only a running workflow can carry out was called outside of one
├── BadStepInput       the inputs of a step do not have the types of its parameters; not retried
└── BadStepResult      the result of a step does not have the type of its annotation; not retried
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from types import CodeType, TracebackType
from typing import Any, NamedTuple

from pydantic import ValidationError

from orchestrator.application.errors import InvalidSpec, OrchestratorError, Problem
from orchestrator.application.values.paths import parse_path
from orchestrator.builder.expressions import MissingValue, Needed

_PACKAGE = __name__.partition(".")[0]
_ALTERNATIVES: Mapping[Needed, str] = {
    "truth": "write switch() or when= for if; & and | for and, or; op.not_() for not; op.in_() for in;"
    " op.between() for a < x < b; loop() for while",
    "items": "write map_each() for a loop or a comprehension, or op.map() for values without a step",
    "membership": "write op.in_()",
    "text": "write op.cat() for an f-string, str() or %",
    "number": "write op.number() for int() and float(); op.round(), op.abs() for round(), abs()",
    "length": "write op.length()",
    "key": "write switch() to choose between steps, or op.get() to read a dict",
}


class OutsideWorkflow(OrchestratorError):
    """A function that only a running workflow can carry out was called outside of one."""


class BadStepInput(OrchestratorError, ValueError):
    """An input of a step does not have the type of its parameter."""

    non_retryable = True


class BadStepResult(OrchestratorError, ValueError):
    """The result of a step does not have the type of its annotation."""

    non_retryable = True


class Location(NamedTuple):
    """A place in the source of a workflow function."""

    file: str
    line: int
    column: int


def locate_error(error: Exception, workflow: str, own: Location) -> InvalidSpec | None:
    """The problem of a workflow function with its location, or None for an error of other code. `own` is the
    location of the function."""
    if isinstance(error, InvalidSpec):
        problems = error.problems
    elif isinstance(error, MissingValue):
        message = "this value does not exist before the workflow runs"
        problems = (Problem("", "no_value", message, _ALTERNATIVES[error.needed]),)
    elif isinstance(error, ValidationError):
        message = f"a {error.title} cannot be made of values that do not exist before the workflow runs"
        problems = (Problem("", "no_value", message, "use a dict or a dataclass here"),)
    elif isinstance(error, TypeError | ValueError | AttributeError) and _is_raised_here(error.__traceback__):
        problems = (Problem("", "bad_call", str(error)),)
    else:
        return None
    location = find_location(error.__traceback__) or own
    return InvalidSpec(_locate(_drop_step_path(problem), workflow, location) for problem in problems)


def locate_problems(
    invalid: InvalidSpec, workflow: str, own: Location, steps: Mapping[int, Location], document: Any
) -> InvalidSpec:
    """Add to each problem of a document the place where its step was called, or else that of the workflow."""
    return InvalidSpec(
        _locate(problem, workflow, find_step_location(problem, own, steps, document))
        for problem in invalid.problems
    )


def find_step_location(
    problem: Problem, own: Location, steps: Mapping[int, Location], document: Any
) -> Location:
    """The place where the step with this problem was called, or else that of the workflow."""
    path = parse_path(problem.path, document)
    is_step = len(path) > 1 and path[0] == "steps" and isinstance(path[1], int)
    return steps.get(int(path[1]), own) if is_step else own


def at_location(problem: Problem, location: Location) -> Problem:
    return replace(problem, source=location.file, line=location.line, column=location.column)


def find_location(trace: TracebackType | None) -> Location | None:
    """The last place of a traceback that is not in this package or in pydantic: the code of the user."""
    found = None
    while trace is not None:
        if not _is_ours(trace.tb_frame.f_globals, _PACKAGE, "pydantic"):
            found = _location(trace.tb_frame.f_code, trace.tb_lasti, trace.tb_lineno)
        trace = trace.tb_next
    return found


def find_caller() -> Location:
    """The place in the code of the user that called this package."""
    frame = sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals):
        frame = frame.f_back
    return _location(frame.f_code, frame.f_lasti, frame.f_lineno)


def _location(code: CodeType, instruction: int, line: int) -> Location:
    start_line, _, start_column, _ = list(code.co_positions())[instruction // 2]
    return Location(shorten_path(code.co_filename), start_line or line, (start_column or 0) + 1)


def shorten_path(file: str) -> str:
    """The path of a file, relative to the current directory if it is inside."""
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return file if relative.startswith("..") else relative


def _drop_step_path(problem: Problem) -> Problem:
    """The problem without the path of its whole step: the message and the location name the step."""
    return replace(problem, path="") if problem.path.endswith("]") else problem


def _locate(problem: Problem, workflow: str, location: Location) -> Problem:
    if problem.line is not None:
        return problem  # of a workflow that this one calls
    named = replace(problem, message=f"workflow {workflow!r}: {problem.message}")
    return at_location(named, location)


def _is_raised_here(trace: TracebackType | None) -> bool:
    """Whether this package raised the exception."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and _is_ours(trace.tb_frame.f_globals)


def _is_ours(names: Mapping[str, Any], *packages: str) -> bool:
    """Whether a module with these names is in this package, or in one of these."""
    return str(names.get("__name__", "")).partition(".")[0] in (packages or (_PACKAGE,))
