"""The sources of a document: what steps can call, and how that is set up.

A configuration is evaluated on the worker, which knows its environment and nothing of the execution. So its
expressions may read sources of type env, `sources.<name>.<VARIABLE>`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from orchestrator.application.expressions.evaluation import (
    LITERAL,
    is_constant,
    is_expression,
    secret_paths,
)
from orchestrator.application.expressions.json_logic import DATA_OPERATORS, SCOPED_OPERATORS
from orchestrator.application.expressions.jsonpath import BadPath, parse
from orchestrator.application.spec.part_models import StepSourceModel
from orchestrator.application.spec.report import Report
from orchestrator.application.values.paths import Path
from orchestrator.application.values.secret_refs import is_reference

ENV = "env"

Names = tuple[str, ...]

_INSTEAD = "read sources.<name>.<VARIABLE> of a source of type env, or give it to the executor as an input"


class Sources:
    """`names` are all sources that were written, the wrong ones too."""

    def __init__(self, definitions: dict[str, dict[str, Any]], names: Iterable[str], report: Report) -> None:
        self.definitions, self._names, self._report = definitions, list(names), report
        self._variables = {
            name: variables
            for name, definition in definitions.items()
            if definition["type"] == ENV and (variables := self._variables_of(name)) is not None
        }
        for name, definition in definitions.items():
            self._check(definition["configuration"], ("sources", name, "configuration"))

    def resolve(self, written: StepSourceModel, raw: Any, path: Path) -> dict[str, Any] | None:
        """The definition that a step means: {type, configuration}. One with expressions has `sources` too:
        the variables that they may read, by source. One that refers to secrets has `secrets`: where."""
        if written.type is not None:
            configuration = written.configuration or {}
            self._check(configuration, (*path, "configuration"))
            return self._whole(written.type, configuration)
        base, override = written.base, written.override or {}
        change, where = override.get("configuration"), (*path, "override", "configuration")
        if change is None:  # without that key, the override is written as a change of the configuration
            change, where = {key: value for key, value in override.items() if key != "type"}, where[:-1]
        self._check(change, where)
        if base not in self._names:
            hint = self._report.suggest(base, self._names)
            hint = hint or f"define it under sources, or write {{type: {base}}}"
            where = path if isinstance(raw, str) else (*path, "base")
            self._report.add(where, "unknown_source", f"there is no source {base!r}", hint)
        if base not in self.definitions:
            return None
        definition = self.definitions[base]
        kind = override.get("type", definition["type"])
        return self._whole(kind, merge_configuration(definition["configuration"], change))

    def _whole(self, kind: str, configuration: dict[str, Any]) -> dict[str, Any]:
        definition: dict[str, Any] = {"type": kind, "configuration": configuration}
        if places := [list(place) for place in secret_paths(configuration)]:
            definition["secrets"] = places
        if all(map(is_constant, configuration.values())):
            return definition
        read = [self._find(names) for _, _, names in _readings(configuration) if names]
        return {**definition, "sources": {found[0]: self._variables[found[0]] for found in read if found}}

    def _variables_of(self, name: str) -> list[str] | None:
        variables: Any = self.definitions[name]["configuration"].get("vars", [])
        if isinstance(variables, list) and all(isinstance(one, str) and one for one in variables):
            return list(variables)
        path = ("sources", name, "configuration", "vars")
        self._report.add(path, "bad_type", "must be a list of names of environment variables")
        return None

    # ---- what a configuration reads

    def _check(self, configuration: dict[str, Any], path: Path) -> None:
        for where, operator, names in _readings(configuration):
            place = (*path, *where)
            if names is not None and names[:1] == ("sources",) and len(names) > 1:
                self._check_variable(names, place)
            else:
                message = f"cannot read {_what(operator, names)} here: a source is configured on the worker"
                self._report.add(place, "bad_path", message, _INSTEAD)

    def _check_variable(self, names: Names, place: Path) -> None:
        found, report = self._find(names), self._report
        if found is None:
            self._check_source(names[1], place)
            return
        source, rest = found
        variables = self._variables[source]
        if rest and rest[0] not in variables:
            hint = report.suggest(rest[0], variables) or "add it to its vars"
            report.add(place, "bad_path", f"the source {source!r} has no variable {rest[0]!r}", hint)

    def _check_source(self, name: str, place: Path) -> None:
        """One that is wrong itself was reported where it stands."""
        kind = self.definitions[name]["type"] if name in self.definitions else ENV
        if name not in self._names:
            hint = self._report.suggest(name, list(self._variables)) or "define it under sources, of type env"
            self._report.add(place, "unknown_source", f"there is no source {name!r}", hint)
        elif kind != ENV:
            message = f"the source {name!r} is of type {kind}: only those of type {ENV} can be read"
            self._report.add(place, "unknown_source", message)

    def _find(self, names: Names) -> tuple[str, Names] | None:
        """The source of type env that a path reads, and what follows; names may contain dots."""
        for end in range(len(names), 1, -1):
            name = ".".join(names[1:end])
            if name in self._variables:
                return name, names[end:]
        return None


def merge_configuration(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key, lists and scalars replace; so do expressions and references to secrets: they
    are values."""
    made = dict(base)
    for key, value in change.items():
        before = made.get(key)
        is_deeper = _is_mapping(before) and _is_mapping(value)
        made[key] = merge_configuration(before, value) if is_deeper else value  # type: ignore[arg-type]
    return made


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict) and not (is_expression(value) or _is_literal(value) or is_reference(value))


def _is_literal(value: dict[str, Any]) -> bool:
    return len(value) == 1 and LITERAL in value


def _readings(configuration: dict[str, Any]) -> Iterator[tuple[Path, str, Names | None]]:
    """Where the expressions in a configuration read their data: the place, the operator, and the names that
    its path begins with, None if that is not known before it runs."""
    for key, value in configuration.items():
        yield from _readings_in(value, (key,), is_item=False)


def _readings_in(value: Any, path: Path, is_item: bool) -> Iterator[tuple[Path, str, Names | None]]:
    if isinstance(value, list):
        for n, item in enumerate(value):
            yield from _readings_in(item, (*path, n), is_item)
    elif isinstance(value, dict) and is_expression(value):
        [(operator, given)] = value.items()
        path = (*path, operator)
        args = given if isinstance(given, list) else [given]
        if operator in DATA_OPERATORS and not (is_item and operator in _OF_ITEMS):
            with suppress(BadPath):  # not a path at all: the check of the expression says so
                yield path, operator, _names(operator, args[0] if args else None)
        for n, item in enumerate(args):
            is_body = n == 1 and operator in SCOPED_OPERATORS
            where = (*path, n) if isinstance(given, list) else path
            yield from _readings_in(item, where, is_item or is_body)
    elif isinstance(value, dict) and not _is_literal(value):
        for key, item in value.items():
            yield from _readings_in(item, (*path, key), is_item)


_OF_ITEMS = frozenset({"var", "vars", "missing", "missing_some"})
"""In the body of map and its kin these read the item, and not the data."""


def _what(operator: str, names: Names | None) -> str:
    if operator not in ("var", "vars"):
        return f"what {operator} needs"
    if names is None:
        return "a path that is not written out"
    if names == ("sources",):
        return "all sources at once"
    return repr(names[0]) if names else "all there is"


def _names(operator: str, path: Any) -> Names | None:
    if isinstance(path, dict | list) or operator not in ("var", "vars"):
        return None
    if operator == "vars":
        return parse(str(path)).names
    return () if path is None or path == "" else tuple(str(path).split("."))
