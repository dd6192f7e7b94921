"""The configuration of a source as its worker makes it, from what the job carries and the environment.

What comes from the environment goes to the executor and nowhere else. The work-horse of every step imports
this: expressions are loaded only for a configuration that has some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.application.errors import BadConfiguration, ExpressionError

SHORTEST_SECRET = 4
"""A text that is shorter is in too many words by chance."""


class Configuration:
    """What an executor is set up with, and the values of the environment that were read for it."""

    def __init__(self, values: dict[str, Any], read: Iterable[str] = ()) -> None:
        self.values = values
        secrets = {secret for one in read if len(one) >= SHORTEST_SECRET for secret in (one, repr(one)[1:-1])}
        self._secrets = sorted(secrets, key=len, reverse=True)

    def hide(self, text: str) -> str:
        """The text without what was read from the environment."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def configure(source: Mapping[str, Any] | None, environment: Mapping[str, str]) -> Configuration:
    """What the source of a step means where this environment is; a variable that is not set is null."""
    if source is None:
        return Configuration({})
    if "sources" not in source:
        return Configuration(source["configuration"])
    from orchestrator.application.expressions import resolve

    found = {
        name: {variable: environment.get(variable) for variable in variables}
        for name, variables in source["sources"].items()
    }
    data, values = {"sources": _Named(found)}, {}
    for key, value in source["configuration"].items():
        try:
            values[key] = resolve(value, data)
        except ExpressionError:
            raise BadConfiguration(key) from None  # what it says may hold what was read
    return Configuration(values, (one for read in found.values() for one in read.values() if one is not None))


class _Named(dict[str, Any]):
    """Sources by name; a name may contain dots, and then the longest that fits a path is meant."""

    def descend(self, parts: list[str]) -> tuple[Any, list[str]] | None:
        for end in range(len(parts), 0, -1):
            name = ".".join(parts[:end])
            if name in self:
                return self[name], parts[end:]
        return None
