"""What is wrong with a document: gathered, put in our own words and codes, and given its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from orchestrator.application.errors import InvalidSpec, Problem
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
from orchestrator.application.values.paths import Path, child, parse_path, render_path

CODES = frozenset(
    {
        "bad_duration",
        "bad_id",
        "bad_path",
        "bad_policy",
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
        "no_token",
        "not_json",
        "too_big",
        "too_deep",
        "unknown_action",
        "unknown_dependency",
        "unknown_key",
        "unknown_operator",
        "unknown_source",
        "unknown_target",
    }
)
WARNINGS = frozenset({"repeats_on_success", "state_read_race", "unused_source"})


class Report:
    """Gathers problems, and gives each its place and all of them the order of the document.

    `data` was read from one document, merged from several, or made in Python. Paths are those of a workflow;
    `inside` gives the report on one that is written inside of another.
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
        self._unreadable = {problem.path for problem in self._problems if self._is_of_its_owner(problem)}
        self._comparisons = [20_000]  # what hints may cost altogether: about a second
        self._ordinals: dict[int, dict[str, int]] = {}

    def inside(self, path: Path) -> Report:
        inner = copy(self)
        inner._base = (*self._base, *path)
        return inner

    def text(self, path: Path) -> str:
        return render_path((*self._base, *path))

    def add(self, path: Path, code: str, message: str, hint: str | None = None) -> None:
        self.extend([Problem(self.text(path), code, message, hint)])

    def extend(self, problems: Iterable[Problem]) -> None:
        """Add problems whose paths are whole, as `text` gives them."""
        for problem in problems:
            if len(self._problems) == MAX_PROBLEMS:
                raise InvalidSpec([*self.with_positions(self._problems), TOO_MANY_PROBLEMS], self._source)
            if problem.path not in self._unreadable:
                self._problems.append(problem)

    def ignore_further(self, path: Path) -> None:
        """Enough has been said of this value."""
        self._unreadable.add(self.text(path))

    def suggest(self, word: Any, known: Sequence[str]) -> str | None:
        """The hint that names what was probably meant."""
        self._comparisons[0] -= len(known)
        if not isinstance(word, str) or len(word) > 128 or self._comparisons[0] < 0:
            return None
        folded = {name.lower(): name for name in known}
        close = get_close_matches(word.lower(), folded, n=1)
        return f"did you mean {folded[close[0]]!r}?" if close else None

    def raise_if_any(self) -> None:
        if self._problems:
            raise InvalidSpec(self.with_positions(self._problems), self._source)

    def with_positions(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        placed = []
        for problem in problems:
            path = parse_path(problem.path, self._data)
            problem = self._with_place(path, problem)
            place = self._order.get(problem.source, 0), problem.line or 0, problem.column or 0
            placed.append(((*place, *self._position(path)), problem))
        return tuple(problem for _, problem in sorted(placed, key=lambda entry: entry[0]))

    def _with_place(self, path: Path, problem: Problem) -> Problem:
        is_placed = problem.line is not None or problem.source is not None
        if is_placed or not self._documents:
            return problem
        owner = find_owner(path, self._documents)
        line, column = owner.source_map.find(path, of_key=problem.code == "unknown_key") or (None, None)
        return replace(problem, line=line, column=column, source=owner.source if self._is_merged else None)

    def _is_of_its_owner(self, problem: Problem) -> bool:
        """Of a value that a later file has replaced, nothing else is known to be wrong."""
        if not self._is_merged:
            return True
        return find_owner(parse_path(problem.path, self._data), self._documents).source == problem.source

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


# What pydantic finds ----------------------------------------------------------------------------------------

_M = TypeVar("_M", bound=SpecModel)


def parse(model: type[_M], raw: Mapping[str, Any], path: Path, report: Report) -> _M:
    """The model of what is right in `raw`; what is wrong is reported and left out."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        wrong: set[Path] = set()
        for fault in error.errors(include_url=False):
            _report_fault(fault, model, path, report)
            wrong.add(fault["loc"][:2] if fault["loc"][0] in _SEPARATE else fault["loc"][:1])
        return model.model_validate(_without(raw, wrong))


def kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "a mapping"


def _without(raw: Mapping[str, Any], wrong: set[Path]) -> dict[str, Any]:
    right: dict[str, Any] = {}
    for key, value in raw.items():
        if (key,) in wrong:
            continue
        if key in _SEPARATE and isinstance(value, dict):
            value = {name: part for name, part in value.items() if (key, name) not in wrong}
        elif key in _SEPARATE and isinstance(value, list):
            value = [part for n, part in enumerate(value) if (key, n) not in wrong]
        right[key] = value
    return right


_SEPARATE = frozenset({"inputs", "defaults", "limits", "runner", "sources", "branch"})
"""Keys of which one part is left out and the others are kept."""

_NAMED = frozenset({"inputs", "sources"})
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
    "string_type": "a text",
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
    """The model of the mapping at `loc`; the names of inputs and sources are no keys of the language."""
    is_name = False
    for segment in loc:
        if isinstance(segment, int) or is_name:
            is_name = False
            continue
        model = _PARTS[segment]
        is_name = segment in _NAMED
    return model


def _report_fault(fault: ErrorDetails, model: type[SpecModel], path: Path, report: Report) -> None:
    """Say what pydantic found in our own codes and words."""
    found, value, context, loc = fault["type"], fault["input"], fault.get("ctx", {}), fault["loc"]
    code, hint = "bad_type", None
    if found in CODES:
        code, message = found, fault["msg"]
        choices = sorted(zone_names()) if loc[-1] == "timezone" else _CHOICES.get(loc[-1], ())
        hint = report.suggest(value, choices)
    elif found == "extra_forbidden":
        code = "unknown_key"
        owner = _model_at(model, loc[:-1])
        message = f"{loc[-1]!r} is not a key of {owner.noun}"
        hint = report.suggest(loc[-1], owner.key_names())
    elif found == "missing":
        code = "unknown_action" if loc[-1] == "action" else "bad_type"
        what = {"action": "an action", "condition": "a condition"}.get(str(loc[-1]), f"the key {loc[-1]!r}")
        message = f"{_model_at(model, loc[:-1]).noun} needs {what}"
    elif found in _MUST_BE:
        message = f"must be {_MUST_BE[found]}, not {kind(value)}"
        if found == "string_type" and isinstance(value, int | float):
            hint = "write it in quotes"
        elif found == "list_type" and isinstance(value, str):
            hint = f"write [{value}]"
    elif found == "less_than_equal":
        is_limit = _model_at(model, loc[:-1]) is LimitsModel
        rule = "may only lower the limit of the server, which is" if is_limit else "must be at most"
        message = f"{rule} {context['le']}"
    elif found == "greater_than_equal":
        message = f"must be at least {context['ge']}"
    elif found == "literal_error":
        message = f"must be {context['expected'].replace(chr(39), '')}"
        hint = report.suggest(value, _OPTION.findall(context["expected"]))
    elif found == "string_too_short":
        message = "must not be empty"
    else:
        message = f"does not fit here: {kind(value)}"
    report.add((*path, *loc), code, message, hint)
