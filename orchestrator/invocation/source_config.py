"""The configuration of a source as its worker makes it: from what the job carries, from secrets, and from the
environment. The work-horse of every step imports this: expressions are loaded only for a configuration that
has some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orchestrator.application.errors import BadConfiguration, ExpressionError, VariableRefused
from orchestrator.application.values.secret_refs import ReadSecret, fill_secrets

ENV_ALLOWLIST_VARIABLE = "ORCHESTRATOR_ENV_VARIABLES"
"""Names and patterns of the variables that specs may read here; not set, they may read none."""

Variables = Mapping[str, Mapping[str, str | None]]
"""By source, what the environment has; null for what is not set."""


def read_variables(source: Mapping[str, Any] | None, environment: Mapping[str, str]) -> Variables:
    """What the configuration of a source reads of the environment; VariableRefused if it must not."""
    if source is None or not source.get("sources"):
        return {}
    allowed = _allowed(environment)
    for variable in (one for variables in source["sources"].values() for one in variables):
        if not _fits(variable, allowed):
            raise VariableRefused(variable, ENV_ALLOWLIST_VARIABLE)
    return {
        name: {variable: environment.get(variable) for variable in variables}
        for name, variables in source["sources"].items()
    }


def readable_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """All that specs may read of an environment, by whatever executor."""
    allowed = _allowed(environment)
    return {name: value for name, value in environment.items() if _fits(name, allowed)} if allowed else {}


def _allowed(environment: Mapping[str, str]) -> list[str]:
    written = environment.get(ENV_ALLOWLIST_VARIABLE)
    return [one.strip() for one in written.split(",") if one.strip()] if written else []


def _fits(variable: str, patterns: Iterable[str]) -> bool:
    """`*` stands for any characters, everything else for itself."""
    return any(
        re.fullmatch(".*".join(map(re.escape, one.split("*"))), variable, re.DOTALL) is not None
        for one in patterns
    )


def build_configuration(
    source: Mapping[str, Any] | None, variables: Variables, read: ReadSecret
) -> dict[str, Any]:
    """What the source of a step means on a worker that has these variables and secrets."""
    if source is None:
        return {}
    configuration = fill_secrets(source["configuration"], source.get("secrets", ()), read)
    if "sources" not in source:
        return configuration
    from orchestrator.application.expressions.evaluation import resolve

    data, values = {"sources": _Named(variables)}, {}
    for key, value in configuration.items():
        try:
            values[key] = resolve(value, data)
        except ExpressionError:
            raise BadConfiguration(key) from None  # what it says may hold what was read
    return values


class _Named(dict[str, Any]):
    """Sources by name; a name may contain dots, and then the longest that fits a path is meant."""

    def descend(self, parts: Sequence[str]) -> tuple[Any, Sequence[str]] | None:
        for end in range(len(parts), 0, -1):
            name = ".".join(parts[:end])
            if name in self:
                return self[name], parts[end:]
        return None
