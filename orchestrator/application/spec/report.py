"""Collects the problems of a document, with our own codes and messages, and adds their line and column."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.application.errors import DocumentTooBig, InvalidSpec, Problem
from orchestrator.application.spec.cron import zone_names
from orchestrator.application.spec.document import Document, find_owner
from orchestrator.application.spec.field_types import ON_ERROR, PLAIN_ACTIONS, PLAIN_JOINS
from orchestrator.application.spec.filter_models import FilterModel
from orchestrator.application.spec.part_models import (
    BranchModel,
    CompensateModel,
    ConcurrencyModel,
    DefaultsModel,
    InputModel,
    KvModel,
    LimitsModel,
    LoopModel,
    MapModel,
    RetryModel,
    RunnerModel,
    ScheduleModel,
    SourceModel,
    SpecModel,
    StepSourceModel,
    SwitchModel,
    WebhookModel,
)
from orchestrator.application.spec.wait_models import WaitEventModel, WaitModel
from orchestrator.application.values.document_limits import MAX_PROBLEMS, TOO_MANY_PROBLEMS
from orchestrator.application.values.json_types import describe_value
from orchestrator.application.values.paths import Path, child, parse_path, render_path

CODES = frozenset(
    {
        "bad_duration",
        "bad_id",
        "bad_path",
        "bad_policy",
        "bad_reference",
        "bad_schedule",
        "bad_secret",
        "bad_type",
        "bad_yaml",
        "cycle",
        "duplicate_id",
        "duplicate_key",
        "loop_without_exit",
        "many_kinds",
        "missing_id",
        "missing_input",
        "no_token",
        "not_json",
        "too_big",
        "too_deep",
        "unknown_action",
        "unknown_dependency",
        "unknown_field",
        "unknown_key",
        "unknown_operator",
        "unknown_root",
        "unknown_source",
        "unknown_target",
    }
)
WARNINGS = frozenset(
    {
        "doubtful_operator",
        "doubtful_path",
        "doubtful_template",
        "endless_loop",
        "endless_wait",
        "never_compensates",
        "never_runs",
        "repeats_on_success",
        "state_read_race",
        "uncovered_case",
        "undeclared_input",
        "unknown_output",
        "unused_source",
    }
)
MAX_COMPARED = 1_000_000
"""The budget for all hints of a document. A comparison costs 100, and the product of the lengths of both
names. All of it takes up to an eighth of a second."""
TOO_MANY_WARNINGS = Problem(
    "", "too_big", f"there are more than {MAX_PROBLEMS} warnings; these are some of them"
)


class Report:
    """Collects problems and warnings, adds the position of each, and sorts them in the order of the document.

    A problem makes the document invalid; a warning does not. `data` comes from one document, from several
    merged documents, or from Python. Paths are relative to one workflow; `inside` returns the report for an
    inline child workflow.
    """

    def __init__(
        self, data: Any, documents: Sequence[Document] = (), problems: Iterable[Problem] = ()
    ) -> None:
        self._data, self._documents = data, documents
        self._is_merged = len(documents) > 1
        self._source = documents[0].source if len(documents) == 1 else None
        self._order = {document.source: n for n, document in reversed([*enumerate(documents)])}
        self._base: Path = ()
        self._problems = list(problems)
        self._warnings: list[Problem] = []
        self._unreadable = {problem.path for problem in self._problems if self._is_current(problem)}
        self._comparisons = [MAX_COMPARED]  # shared with children
        self._ordinals: dict[int, dict[str, int]] = {}

    def inside(self, path: Path) -> Report:
        """Return the report for the workflow at this path. It shares problems and warnings with this one."""
        inner = copy(self)
        inner._base = (*self._base, *path)
        return inner

    def full_path(self, path: Path) -> str:
        """Return the path from the root of the document, as text."""
        return render_path((*self._base, *path))

    def add(self, path: Path, code: str, message: str, hint: str | None = None) -> None:
        self.extend([Problem(self.full_path(path), code, message, hint)])

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems whose paths start at the root of the document."""
        for problem in problems:
            if len(self._problems) == MAX_PROBLEMS:
                raise InvalidSpec([*self.with_positions(self._problems), TOO_MANY_PROBLEMS], self._source)
            if problem.path not in self._unreadable:
                self._problems.append(problem)

    def warn(self, path: Path, code: str, message: str, hint: str | None = None) -> None:
        if len(self._warnings) <= MAX_PROBLEMS:
            self._warnings.append(Problem(self.full_path(path), code, message, hint))

    def ignore_further(self, path: Path) -> None:
        """Drop further problems of this value."""
        self._unreadable.add(self.full_path(path))

    def suggest(self, word: Any, known: Sequence[str]) -> str | None:
        """Return a hint with the most similar known name, or None."""
        similar = self.find_similar(word, known)
        return None if similar is None else f"did you mean {similar!r}?"

    def find_similar(self, word: Any, known: Collection[str]) -> str | None:
        """Return the most similar known name, or None."""
        if not isinstance(word, str) or len(word) > 128:
            return None
        self._comparisons[0] -= 100 * len(known) + len(word) * sum(map(len, known))
        if self._comparisons[0] < 0:
            return None
        folded = {name.lower(): name for name in known}
        close = get_close_matches(word.lower(), folded, n=1)
        return folded[close[0]] if close else None

    @property
    def has_problems(self) -> bool:
        return bool(self._problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems with line and column, in the order of the document."""
        return self.with_positions(self._problems)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """The warnings with line and column, in the order of the document."""
        found = self.with_positions(self._warnings[:MAX_PROBLEMS])
        return (*found, TOO_MANY_WARNINGS) if len(self._warnings) > MAX_PROBLEMS else found

    def raise_if_any(self) -> None:
        if self._problems:
            raise InvalidSpec(self.problems, self._source)

    def stop(self, message: str, hint: str) -> NoReturn:
        """Raise DocumentTooBig, a problem of the document as a whole. It has no line: to find it, the
        positions of the whole document would be read."""
        raise DocumentTooBig([Problem("", "too_big", message, hint)], self._source)

    def with_positions(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """Return the problems with line and column, in the order of the document."""
        entries = []
        for problem in problems:
            path, problem = self._at_written_text(problem)
            problem = self._with_position(path, problem)
            position = self._order.get(problem.source, 0), problem.line or 0, problem.column or 0
            entries.append(((*position, *self._ordinal(path)), problem))
        return tuple(problem for _, problem in sorted(entries, key=lambda entry: entry[0]))

    def _at_written_text(self, problem: Problem) -> tuple[Path, Problem]:
        """Return a problem with its path. One inside of an expanded text is a problem of the text."""
        path = parse_path(problem.path, self._data)
        data = self._data
        for depth, segment in enumerate(path):
            if isinstance(data, str):
                return path[:depth], replace(problem, path=render_path(path[:depth]))
            data = child(data, segment)
        return path, problem

    def _with_position(self, path: Path, problem: Problem) -> Problem:
        has_position = problem.line is not None or problem.source is not None
        if has_position or not self._documents:
            return problem
        owner = find_owner(path, self._documents)
        line, column = owner.source_map.find(path, of_key=problem.code == "unknown_key") or (None, None)
        return replace(problem, line=line, column=column, source=owner.source if self._is_merged else None)

    def _is_current(self, problem: Problem) -> bool:
        """Whether the value with the problem is still there after the merge.

        If a later file replaced it, the problem does not hide problems of the new value.
        """
        if not self._is_merged:
            return True
        return find_owner(parse_path(problem.path, self._data), self._documents).source == problem.source

    def _ordinal(self, path: Path) -> tuple[int, ...]:
        """Return the order of a path in the document; a missing key comes before the existing ones."""
        ordinal: list[int] = []
        data = self._data
        for segment in path:
            if isinstance(data, dict):
                if id(data) not in self._ordinals:
                    self._ordinals[id(data)] = {key: n for n, key in enumerate(data)}
                ordinal.append(self._ordinals[id(data)].get(str(segment), -1))
            else:
                ordinal.append(segment if isinstance(segment, int) else -1)
            data = child(data, segment)
        return tuple(ordinal)


# Errors of pydantic ----------------------------------------------------------------------------------------

_M = TypeVar("_M", bound=SpecModel)


def parse(model: type[_M], raw: Mapping[str, Any], path: Path, report: Report) -> _M:
    """Validate `raw`. Report what is wrong, and return the model of the rest."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        for details in error.errors(include_url=False):
            _report_error(details, model, path, report)
        places = [details["loc"] for details in error.errors(include_url=False)]
    rest = _without(raw, places)
    try:
        return model.model_validate(rest)
    except ValidationError as error:  # a part is not valid without what was wrong with it
        places = [details["loc"] for details in error.errors(include_url=False)]
        return model.model_validate(_without(rest, [_whole_part(place) for place in places]))


def _whole_part(place: Path) -> Path:
    return place[:2] if place[0] in _NAMED else place[:1]


def _without(raw: Mapping[str, Any], places: Iterable[Path]) -> dict[str, Any]:
    """Return a mapping without the values at these places."""
    rest = dict(raw)
    entries: dict[str | int, set[str | int]] = {}
    for place in places:
        if place[0] in _LISTS and len(place) > 1:
            entries.setdefault(place[0], set()).add(place[1])
        else:
            _remove(place, rest)
    for key, invalid in entries.items():
        rest[str(key)] = [entry for n, entry in enumerate(raw[str(key)]) if n not in invalid]
    return rest


def _remove(place: Path, mapping: dict[str, Any]) -> None:
    """Remove the value at a place; a list around it is removed as a whole. Inner mappings are copied."""
    *outer, last = place
    for segment in map(str, outer):
        inner = mapping.get(segment)
        if not isinstance(inner, dict):
            last = segment
            break
        mapping[segment] = dict(inner)
        mapping = mapping[segment]
    mapping.pop(str(last), None)


_LISTS = frozenset({"branch", "depends_on"})
"""Lists whose valid entries are kept when another one is invalid."""

_NAMED = frozenset({"inputs", "sources"})
"""Keys whose values are mappings by name."""

_PARTS: dict[str | int, type[SpecModel]] = {
    "any": WaitEventModel,
    "branch": BranchModel,
    "compensate": CompensateModel,
    "concurrency": ConcurrencyModel,
    "defaults": DefaultsModel,
    "filters": FilterModel,
    "inputs": InputModel,
    "kv": KvModel,
    "limits": LimitsModel,
    "loop": LoopModel,
    "map": MapModel,
    "retry": RetryModel,
    "runner": RunnerModel,
    "schedule": ScheduleModel,
    "source": StepSourceModel,
    "sources": SourceModel,
    "switch": SwitchModel,
    "wait": WaitModel,
    "webhook": WebhookModel,
}
_MUST_BE = {
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_CHOICES: dict[str | int, Sequence[str]] = {
    "action": PLAIN_ACTIONS,
    "attempts_on": ("error", "any"),
    "join": PLAIN_JOINS,
    "on_error": ON_ERROR,
}
_OPTION = re.compile("'([^']*)'")


def _model_at(model: type[SpecModel], loc: Path) -> type[SpecModel]:
    """Return the model of the mapping at `loc`. The names of inputs and sources in it are skipped."""
    is_name = False
    for segment in loc:
        if isinstance(segment, int) or is_name:
            is_name = False
            continue
        model = _PARTS[segment]
        is_name = segment in _NAMED
    return model


def _report_error(details: ErrorDetails, model: type[SpecModel], path: Path, report: Report) -> None:
    """Report an error of pydantic with our own code and message."""
    error, value, context, loc = details["type"], details["input"], details.get("ctx", {}), details["loc"]
    code, hint = "bad_type", None
    if error in CODES:
        code, message = error, details["msg"]
        choices = sorted(zone_names()) if loc[-1] == "timezone" else _CHOICES.get(loc[-1], ())
        hint = report.suggest(value, choices)
    elif error == "extra_forbidden":
        code = "unknown_key"
        owner = _model_at(model, loc[:-1])
        message = f"{loc[-1]!r} is not a key of {owner.noun}"
        hint = report.suggest(loc[-1], owner.key_names())
    elif error == "missing":
        code = "unknown_action" if loc[-1] == "action" else "bad_type"
        missing = {"action": "an action", "condition": "a condition"}.get(
            str(loc[-1]), f"the key {loc[-1]!r}"
        )
        message = f"{_model_at(model, loc[:-1]).noun} needs {missing}"
    elif error in _MUST_BE:
        message = f"must be {_MUST_BE[error]}, not {describe_value(value)}"
        if error == "string_type" and isinstance(value, int | float):
            hint = "write it in quotes"
        elif error == "list_type" and isinstance(value, str):
            hint = f"write [{value}]"
    elif error == "less_than_equal":
        is_limit = _model_at(model, loc[:-1]) is LimitsModel
        rule = "may only lower the limit of the server, which is" if is_limit else "must be at most"
        message = f"{rule} {context['le']}"
    elif error == "greater_than_equal":
        message = f"must be at least {context['ge']}"
    elif error == "literal_error":
        message = f"must be {context['expected'].replace(chr(39), '')}"
        hint = report.suggest(value, _OPTION.findall(context["expected"]))
    elif error == "string_too_short":
        message = "must not be empty"
    else:
        message = f"is not valid here: {describe_value(value)}"
    report.add((*path, *loc), code, message, hint)
