"""The door: a document in, a checked spec out, or every problem of the document at once, in its own order.

A faulty part is reported and left out, and the rest is checked as if it had not been there: a wrong timeout
neither hides an unknown dependency nor causes more problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import UnionType
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.application.document import (
    MAX_PROBLEMS,
    TOO_MANY_PROBLEMS,
    Path,
    Places,
    check_data,
    child,
    parse_path,
    render_path,
    scan_document,
)
from orchestrator.application.errors import InvalidSpec, Problem
from orchestrator.application.expressions import check, check_condition, is_expression
from orchestrator.application.graph import Graph, build_graph
from orchestrator.application.spec import (
    ID_RULE,
    NOT_YET,
    PLAIN_ACTIONS,
    Defaults,
    InputSpec,
    InputType,
    Limits,
    StepSpec,
    WorkflowSpec,
    Written,
    WrittenBranch,
    WrittenDefaults,
    WrittenDocument,
    WrittenInput,
    WrittenLimits,
    WrittenStep,
    is_id,
    workflow_id,
)

CODES = frozenset(
    {
        "bad_duration",
        "bad_id",
        "bad_path",
        "bad_policy",
        "bad_type",
        "bad_yaml",
        "cycle",
        "duplicate_id",
        "duplicate_key",
        "loop_without_exit",
        "missing_id",
        "no_token",
        "not_json",
        "too_big",
        "too_deep",
        "unknown_action",
        "unknown_dependency",
        "unknown_key",
        "unknown_operator",
        "unknown_target",
    }
)
WARNINGS = frozenset({"repeats_on_success"})


@dataclass(frozen=True, slots=True)
class LoadedSpec:
    """A valid spec with all that is computed from it once."""

    spec: WorkflowSpec
    graph: Graph
    document: dict[str, Any]
    workflow_id: str
    warnings: tuple[Problem, ...] = ()


def load_spec(text: str, source: str | None = None) -> LoadedSpec:
    """The spec in a YAML or JSON text; InvalidSpec with all its problems."""
    document, problems = scan_document(text, source)
    return _checked(document.data, _Report(document.data, document.places, source, problems))


def check_spec(data: Any, places: Places | None = None, source: str | None = None) -> LoadedSpec:
    """The spec in plain data; InvalidSpec with all its problems."""
    report = _Report(data, places, source)
    report.extend(check_data(data))
    report.raise_if_any()
    return _checked(data, report)


def check_inputs(spec: WorkflowSpec, inputs: Any) -> tuple[dict[str, Any], list[Problem]]:
    """The inputs of a start, defaults filled in, and what is wrong with them; undeclared ones pass."""
    if inputs is None:
        inputs = {}
    if not isinstance(inputs, dict):
        return {}, [Problem("inputs", "bad_type", f"must be a mapping, not {_kind(inputs)}")]
    problems = check_data(inputs, ("inputs",))
    filled = dict(inputs)
    for name, declared in spec.inputs.items():
        path = render_path(("inputs", name))
        if name in inputs:
            if not _has_type(inputs[name], declared.type):
                problems.append(Problem(path, "bad_type", _wrong_type(inputs[name], declared)))
        elif declared.has_default:
            filled[name] = declared.default
        elif declared.required:
            problems.append(Problem(path, "bad_type", f"the workflow needs the input {name!r}"))
    return filled, problems


# The walk ---------------------------------------------------------------------------------------------------


def _checked(data: Any, report: _Report) -> LoadedSpec:
    if not isinstance(data, dict):
        report.add((), "bad_type", f"a workflow must be a mapping with steps, not {_kind(data)}")
        report.raise_if_any()
    header = _parse(WrittenDocument, {**data, "steps": []}, (), "document", report)
    defaults = header.defaults.settled() if header.defaults else Defaults()
    limits = header.limits.settled() if header.limits else Limits()
    inputs = {name: declared.settled() for name, declared in (header.inputs or {}).items()}
    _check_inputs_declared(inputs, report)

    steps = _steps(data, defaults, limits, report)
    graph, faults = build_graph(list(steps.values()))
    position = {step.id: n for n, step in steps.items()}
    for fault in faults:
        hint = report.likely(fault.unknown, graph.order) if fault.unknown else None
        report.add(("steps", position[fault.step_id], *fault.where), fault.code, fault.message, hint)
    for n, raw in enumerate(data["steps"] if isinstance(data.get("steps"), list) else ()):
        if isinstance(raw, dict):
            _check_expressions(raw.get("input"), ("steps", n, "input"), report)
            _check_branches(raw.get("branch"), ("steps", n, "branch"), graph, report)
    _check_expressions(data.get("outputs"), ("outputs",), report)

    report.raise_if_any()
    spec = WorkflowSpec(
        name=header.name,
        description=header.description,
        inputs=inputs,
        steps=tuple(steps.values()),
        outputs=header.outputs or {},
        limits=limits,
        defaults=defaults,
    )
    return LoadedSpec(spec, graph, data, workflow_id(data), report.located(_warnings(spec)))


def _check_inputs_declared(inputs: Mapping[str, InputSpec], report: _Report) -> None:
    for name, declared in inputs.items():
        if declared.has_default and not _has_type(declared.default, declared.type):
            report.add(("inputs", name, "default"), "bad_type", _wrong_type(declared.default, declared))


def _steps(data: dict[str, Any], defaults: Defaults, limits: Limits, report: _Report) -> dict[int, StepSpec]:
    """The steps that have an id of their own, by their position in the document."""
    if "steps" not in data:
        report.add(("steps",), "bad_type", "a workflow needs a list of steps; it may be empty")
        return {}
    if not isinstance(data["steps"], list):
        report.add(("steps",), "bad_type", f"must be a list, not {_kind(data['steps'])}")
        return {}
    if len(data["steps"]) > limits.max_steps:
        report.add(("steps",), "too_big", f"has {len(data['steps'])} steps; the limit is {limits.max_steps}")
    steps: dict[int, StepSpec] = {}
    taken: dict[str, int] = {}
    for n, raw in enumerate(data["steps"]):
        path: Path = ("steps", n)
        if not isinstance(raw, dict):
            report.add(path, "bad_type", f"a step must be a mapping, not {_kind(raw)}")
            continue
        written = _parse(WrittenStep, raw, path, "step", report)
        if written.token is None and not _has_any(raw, "fn", "op", "type"):
            report.add(path, "no_token", "a step needs an op or fn: the name of its executor")
        if written.identity is None:
            if not _has_any(raw, "id", "op", "name"):
                report.add(path, "missing_id", "a step needs an id (or an op, which is then its id)")
            continue
        key, name = written.identity
        if not is_id(name):
            hint = f"the {key} is the step's id: give it an id of its own" if key != "id" else None
            report.add((*path, key), "bad_id", ID_RULE, hint)
        if name in taken:
            hint = "give one of them an id of its own" if key != "id" else None
            message = f"the id {name!r} is already taken by steps[{taken[name]}]"
            report.add((*path, key), "duplicate_id", message, hint)
            continue
        taken[name] = n
        steps[n] = written.settled(defaults)
    return steps


def _check_expressions(values: Any, path: Path, report: _Report) -> None:
    """Input and outputs hold expressions but are none themselves: {max: 3} is an input called max."""
    for key, value in values.items() if isinstance(values, dict) else ():
        report.extend(check(value, render_path((*path, key))))


def _check_branches(branches: Any, path: Path, graph: Graph, report: _Report) -> None:
    actions: list[Any] = []
    is_loop = False
    for n, branch in enumerate(branches if isinstance(branches, list) else ()):
        if not isinstance(branch, dict):
            continue
        if "condition" in branch:
            report.extend(check_condition(branch["condition"], render_path((*path, n, "condition"))))
        if "result_expr" in branch:
            report.extend(check(branch["result_expr"], render_path((*path, n, "result_expr"))))
        action = branch.get("action")
        actions.append(action)
        if isinstance(action, dict) and "set" in action:
            is_loop = True
            _check_targets(action["set"], (*path, n, "action", "set"), graph, report)
    if is_loop and "complete" not in actions and "halt" not in actions:
        report.add(path, "loop_without_exit", "a step with a set branch needs a complete or halt branch too")


def _check_targets(targets: Any, path: Path, graph: Graph, report: _Report) -> None:
    if isinstance(targets, list):
        for n, target in enumerate(targets):
            _check_target(target, (*path, n), graph, report)
    else:
        _check_target(targets, path, graph, report)


def _check_target(target: Any, path: Path, graph: Graph, report: _Report) -> None:
    if is_expression(target):
        report.extend(check(target, render_path(path)))
    elif not isinstance(target, str):
        report.add(path, "bad_type", f"must be a step, a list of steps or an expression, not {_kind(target)}")
    elif graph.find_target(target) is None:
        name = target.removeprefix("steps.").removesuffix(".status")
        report.add(path, "unknown_target", f"there is no step {name!r}", report.likely(name, graph.order))


def _warnings(spec: WorkflowSpec) -> Iterable[Problem]:
    for n, step in enumerate(spec.steps):
        if step.max_attempts > 1 and step.attempts_on == "any" and not step.branch:
            message = (
                f"step {step.id!r} runs {step.max_attempts} times even if it succeeds: no branch ends it"
            )
            yield Problem(render_path(("steps", n, "max_attempts")), "repeats_on_success", message)


# Problems ---------------------------------------------------------------------------------------------------


class _Report:
    """Gathers problems, and gives each its place and all of them the order of the document."""

    def __init__(
        self, data: Any, places: Places | None, source: str | None, problems: Iterable[Problem] = ()
    ) -> None:
        self._data, self._places, self._source = data, places, source
        self._problems = list(problems)
        self._unreadable = {problem.path for problem in self._problems}
        self._comparisons = 20_000  # what hints may cost altogether: about a second
        self._ordinals: dict[int, dict[str, int]] = {}

    def add(self, path: Path, code: str, message: str, hint: str | None = None) -> None:
        self.extend([Problem(render_path(path), code, message, hint)])

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if len(self._problems) == MAX_PROBLEMS:
                raise InvalidSpec([*self.located(self._problems), TOO_MANY_PROBLEMS], self._source)
            if problem.path not in self._unreadable:
                self._problems.append(problem)

    def likely(self, word: Any, known: Sequence[str]) -> str | None:
        """The hint that names what was probably meant."""
        self._comparisons -= len(known)
        if not isinstance(word, str) or len(word) > 128 or self._comparisons < 0:
            return None
        folded = {name.lower(): name for name in known}
        close = get_close_matches(word.lower(), folded, n=1)
        return f"did you mean {folded[close[0]]!r}?" if close else None

    def raise_if_any(self) -> None:
        if self._problems:
            raise InvalidSpec(self.located(self._problems), self._source)

    def located(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        placed = []
        for problem in problems:
            path = parse_path(problem.path, self._data)
            problem = self._with_place(path, problem)
            placed.append(((problem.line or 0, problem.column or 0, *self._position(path)), problem))
        return tuple(problem for _, problem in sorted(placed, key=lambda entry: entry[0]))

    def _with_place(self, path: Path, problem: Problem) -> Problem:
        if problem.line is not None or self._places is None:
            return problem
        line, column = self._places.find(path, of_key=problem.code == "unknown_key") or (None, None)
        return replace(problem, line=line, column=column)

    def _position(self, path: Path) -> tuple[int, ...]:
        """Where a path comes in the document; a missing part comes before all that is there."""
        position: list[int] = []
        data = self._data
        for segment in path:
            if isinstance(data, dict):
                if id(data) not in self._ordinals:
                    self._ordinals[id(data)] = {key: n for n, key in enumerate(data)}
                position.append(self._ordinals[id(data)].get(str(segment), -1))
            else:
                position.append(segment if isinstance(segment, int) else -1)
            data = child(data, segment)
        return tuple(position)


_M = TypeVar("_M", bound=Written)


def _parse(model: type[_M], raw: dict[str, Any], path: Path, level: str, report: _Report) -> _M:
    """The model of what is right in `raw`; what is wrong is reported and left out."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        wrong: set[Path] = set()
        for fault in error.errors(include_url=False):
            _report_fault(fault, path, level, report)
            wrong.add(fault["loc"][:2] if fault["loc"][0] in _PARTS else fault["loc"][:1])
        return model.model_validate(_without(raw, wrong))


def _without(raw: Mapping[str, Any], wrong: set[Path]) -> dict[str, Any]:
    right: dict[str, Any] = {}
    for key, value in raw.items():
        if (key,) in wrong:
            continue
        if key in _PARTS and isinstance(value, dict):
            value = {name: part for name, part in value.items() if (key, name) not in wrong}
        elif key in _PARTS and isinstance(value, list):
            value = [part for n, part in enumerate(value) if (key, n) not in wrong]
        right[key] = value
    return right


_PARTS: dict[str | int, type[Written]] = {
    "inputs": WrittenInput,
    "defaults": WrittenDefaults,
    "limits": WrittenLimits,
    "branch": WrittenBranch,
}
_NOUNS = {"inputs": "an input", "branch": "a branch entry", "step": "a step", "document": "a workflow"}
_LEVELS: dict[str | int, type[Written]] = {**_PARTS, "document": WrittenDocument, "step": WrittenStep}
_MUST_BE = {
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_CHOICES: dict[str | int, Sequence[str]] = {
    "action": PLAIN_ACTIONS,
    "attempts_on": ("error", "any"),
    "on_error": ("fail", "skip", "continue"),
}


def _report_fault(fault: ErrorDetails, path: Path, level: str, report: _Report) -> None:
    """Say what pydantic found in our own codes and words."""
    kind, value, context, loc = fault["type"], fault["input"], fault.get("ctx", {}), fault["loc"]
    key = loc[-1]
    code, hint = "bad_type", None
    if kind in CODES:
        code, message = kind, fault["msg"]
        hint = report.likely(value, _CHOICES.get(key, ()))
    elif kind == "extra_forbidden":
        code = "unknown_key"
        place = str(loc[0]) if len(loc) > 1 else level
        if f"{place}.{key}" in NOT_YET:
            message = f"{key!r} belongs to the language but is not supported by this release"
        else:
            message = f"{key!r} is not a key of {_NOUNS.get(place, place)}"
            hint = report.likely(key, list(_LEVELS[place].model_fields))
    elif kind == "missing":
        code = "unknown_action" if key == "action" else "bad_type"
        message = f"a branch entry needs {'an' if key == 'action' else 'a'} {key}"
    elif kind in _MUST_BE:
        message = f"must be {_MUST_BE[kind]}, not {_kind(value)}"
        if kind == "string_type" and isinstance(value, int | float):
            hint = "write it in quotes"
        elif kind == "list_type" and isinstance(value, str):
            hint = f"write [{value}]"
    elif kind == "less_than_equal":
        message = f"may only lower the limit of the server, which is {context['le']}"
    elif kind == "greater_than_equal":
        message = f"must be at least {context['ge']}"
    elif kind == "literal_error":
        message = f"must be {context['expected'].replace(chr(39), '')}"
        hint = report.likely(value, list(_TYPES))
    elif kind == "string_too_short":
        message = "must not be empty"
    else:
        message = f"does not fit here: {_kind(value)}"
    report.add((*path, *loc), code, message, hint)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "a mapping"


def _has_any(raw: Mapping[str, Any], *keys: str) -> bool:
    return any(raw.get(key) is not None for key in keys)


def _has_type(value: Any, name: InputType | None) -> bool:
    if name is None:
        return True
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])


_TYPES: dict[InputType, type | UnionType] = {
    "string": str,
    "number": int | float,
    "integer": int,
    "boolean": bool,
    "object": dict,
    "array": list,
}


def _wrong_type(value: Any, declared: InputSpec) -> str:
    return f"must be of type {declared.type}, not {_kind(value)}"
