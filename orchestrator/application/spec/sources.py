"""The sources of a document: executors with a configuration, which steps can call.

A worker evaluates the configuration. It has its environment variables, and nothing of the execution. So the
expressions may read sources of type env only: `sources.<name>.<VARIABLE>`.
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
from orchestrator.application.values.secret_refs import is_secret_reference

ENV = "env"

Names = tuple[str, ...]

_HINT = "read sources.<name>.<VARIABLE> of a source of type env, or pass it to the executor as an input"


class Sources:
    """The sources of a document. `names` includes sources that are invalid."""

    def __init__(self, definitions: dict[str, dict[str, Any]], names: Iterable[str], report: Report) -> None:
        self.definitions, self._names, self._report = definitions, list(names), report
        self._variables = {
            name: variables
            for name, definition in definitions.items()
            if definition["type"] == ENV and (variables := self._read_variables(name)) is not None
        }
        for name, definition in definitions.items():
            self._check(definition["configuration"], ("sources", name, "configuration"))

    def resolve(self, model: StepSourceModel, raw: Any, path: Path) -> dict[str, Any] | None:
        """Return the definition of the source of a step: {type, configuration}.

        If the configuration has expressions, the definition also has `sources`: the variables that they may
        read, by source. If it refers to secrets, it also has `secrets`: the paths of the references.
        """
        if model.type is not None:
            configuration = model.configuration or {}
            self._check(configuration, (*path, "configuration"))
            return self._build_definition(model.type, configuration)
        base, override = model.base, model.override or {}
        change, where = override.get("configuration"), (*path, "override", "configuration")
        if change is None:  # without that key, the override itself is the change of the configuration
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
        source_type = override.get("type", definition["type"])
        return self._build_definition(source_type, merge_configuration(definition["configuration"], change))

    def _build_definition(self, source_type: str, configuration: dict[str, Any]) -> dict[str, Any]:
        definition: dict[str, Any] = {"type": source_type, "configuration": configuration}
        if paths := [list(path) for path in secret_paths(configuration)]:
            definition["secrets"] = paths
        if all(map(is_constant, configuration.values())):
            return definition
        read = [self._find_source(names) for _, _, names in _find_reads(configuration) if names]
        return {**definition, "sources": {found[0]: self._variables[found[0]] for found in read if found}}

    def _read_variables(self, name: str) -> list[str] | None:
        variables: Any = self.definitions[name]["configuration"].get("vars", [])
        if isinstance(variables, list) and all(isinstance(one, str) and one for one in variables):
            return list(variables)
        path = ("sources", name, "configuration", "vars")
        self._report.add(path, "bad_type", "must be a list of names of environment variables")
        return None

    # ---- checks

    def _check(self, configuration: dict[str, Any], path: Path) -> None:
        for where, operator, names in _find_reads(configuration):
            read_path = (*path, *where)
            if names is not None and names[:1] == ("sources",) and len(names) > 1:
                self._check_variable(names, read_path)
            else:
                data = _describe_read(operator, names)
                message = f"cannot read {data} here: a source is configured on the worker"
                self._report.add(read_path, "bad_path", message, _HINT)

    def _check_variable(self, names: Names, path: Path) -> None:
        found, report = self._find_source(names), self._report
        if found is None:
            self._check_source(names[1], path)
            return
        source, rest = found
        variables = self._variables[source]
        if rest and rest[0] not in variables:
            hint = report.suggest(rest[0], variables) or "add it to its vars"
            report.add(path, "bad_path", f"the source {source!r} has no variable {rest[0]!r}", hint)

    def _check_source(self, name: str, path: Path) -> None:
        """Check that a source exists and is of type env. An invalid source was reported before."""
        source_type = self.definitions[name]["type"] if name in self.definitions else ENV
        if name not in self._names:
            hint = self._report.suggest(name, list(self._variables)) or "define it under sources, of type env"
            self._report.add(path, "unknown_source", f"there is no source {name!r}", hint)
        elif source_type != ENV:
            message = f"the source {name!r} is of type {source_type}: only sources of type {ENV} can be read"
            self._report.add(path, "unknown_source", message)

    def _find_source(self, names: Names) -> tuple[str, Names] | None:
        """Return the source of type env at the start of a path, and the rest. Names may contain dots."""
        for end in range(len(names), 1, -1):
            name = ".".join(names[1:end])
            if name in self._variables:
                return name, names[end:]
        return None


def merge_configuration(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """Merge mappings key by key. Lists and scalars replace, and so do expressions and secret references."""
    merged = dict(base)
    for key, value in change.items():
        before = merged.get(key)
        are_mappings = _is_mapping(before) and _is_mapping(value)
        merged[key] = merge_configuration(before, value) if are_mappings else value  # type: ignore[arg-type]
    return merged


def _is_mapping(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return not (is_expression(value) or _is_literal(value) or is_secret_reference(value))


def _is_literal(value: dict[str, Any]) -> bool:
    return len(value) == 1 and LITERAL in value


def _find_reads(configuration: dict[str, Any]) -> Iterator[tuple[Path, str, Names | None]]:
    """Yield where the expressions of a configuration read data: the path of the expression, its operator, and
    the names at the start of the path that it reads. The names are None if that path is computed."""
    for key, value in configuration.items():
        yield from _find_reads_in(value, (key,), is_body=False)


def _find_reads_in(value: Any, path: Path, is_body: bool) -> Iterator[tuple[Path, str, Names | None]]:
    if isinstance(value, list):
        for n, item in enumerate(value):
            yield from _find_reads_in(item, (*path, n), is_body)
    elif isinstance(value, dict) and is_expression(value):
        [(operator, argument)] = value.items()
        path = (*path, operator)
        args = argument if isinstance(argument, list) else [argument]
        if operator in DATA_OPERATORS and not (is_body and operator in _ITEM_OPERATORS):
            with suppress(BadPath):  # an invalid path: the check of the expression reports it
                yield path, operator, _leading_names(operator, args[0] if args else None)
        for n, item in enumerate(args):
            is_body_arg = n == 1 and operator in SCOPED_OPERATORS
            where = (*path, n) if isinstance(argument, list) else path
            yield from _find_reads_in(item, where, is_body or is_body_arg)
    elif isinstance(value, dict) and not _is_literal(value):
        for key, item in value.items():
            yield from _find_reads_in(item, (*path, key), is_body)


_ITEM_OPERATORS = frozenset({"var", "vars", "missing", "missing_some"})
"""In the body of a scoped operator such as map, these read the item and not the data."""


def _describe_read(operator: str, names: Names | None) -> str:
    if operator not in ("var", "vars"):
        return f"what {operator} needs"
    if names is None:
        return "a computed path"
    if names == ("sources",):
        return "all sources at once"
    return repr(names[0]) if names else "all data"


def _leading_names(operator: str, path: Any) -> Names | None:
    if isinstance(path, dict | list) or operator not in ("var", "vars"):
        return None
    if operator == "vars":
        return parse(str(path)).names
    return () if path is None or path == "" else tuple(str(path).split("."))
