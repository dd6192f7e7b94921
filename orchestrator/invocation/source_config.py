"""The configuration of a source, built by the worker from the job, from secrets and from the environment.

The work-horse of every step imports this: the expression evaluator is loaded only for a configuration that
contains expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.application.errors import BadConfiguration, ExpressionError, VariableRefused
from orchestrator.application.values.secret_refs import ReadSecret, fill_secrets

ENV_ALLOWLIST_VARIABLE = "ORCHESTRATOR_ENV_VARIABLES"
"""Names and patterns of the variables that specs may read on this worker; they may read none by default."""

Variables = Mapping[str, Mapping[str, str | None]]
"""The variables of each source; None for a variable that is not set."""


def read_variables(source: Mapping[str, Any] | None, environment: Mapping[str, str]) -> Variables:
    """Read the variables of a source configuration; VariableRefused if one is not allowed."""
    if source is None or not source.get("sources"):
        return {}
    allowed = _allowed(environment)
    for variable in (one for variables in source["sources"].values() for one in variables):
        if not _matches(variable, allowed):
            raise VariableRefused(variable, ENV_ALLOWLIST_VARIABLE)
    return {
        name: {variable: environment.get(variable) for variable in variables}
        for name, variables in source["sources"].items()
    }


def readable_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """All variables of an environment that specs may read."""
    allowed = _allowed(environment)
    return {name: value for name, value in environment.items() if _matches(name, allowed)} if allowed else {}


def _allowed(environment: Mapping[str, str]) -> list[str]:
    allowlist = environment.get(ENV_ALLOWLIST_VARIABLE)
    return [one.strip() for one in allowlist.split(",") if one.strip()] if allowlist else []


def _matches(variable: str, patterns: Iterable[str]) -> bool:
    """Whether a variable matches a pattern: `*` matches any characters, everything else itself."""
    return any(
        re.fullmatch(".*".join(map(re.escape, one.split("*"))), variable, re.DOTALL) is not None
        for one in patterns
    )


def build_configuration(
    source: Mapping[str, Any] | None, variables: Variables, read: ReadSecret
) -> dict[str, Any]:
    """The configuration of a source with these variables and secrets filled in."""
    if source is None:
        return {}
    configuration = fill_secrets(source["configuration"], source.get("secrets", ()), read)
    if "sources" not in source:
        return configuration
    from orchestrator.application.expressions.evaluation import resolve

    data, values = {"sources": _SourcesByName(variables)}, {}
    for key, value in configuration.items():
        try:
            values[key] = resolve(value, data)
        except ExpressionError:
            raise BadConfiguration(key) from None  # its message may contain a value of the environment
    return values


class _SourcesByName(dict[str, Any]):
    """Sources by name. A name may contain dots: the longest name that begins the path is used."""

    def descend(self, parts: Sequence[str]) -> tuple[Any, Sequence[str]] | None:
        for end in range(len(parts), 0, -1):
            name = ".".join(parts[:end])
            if name in self:
                return self[name], parts[end:]
        return None
