"""Detects whose document this is, by its shape.

    detect_dialect            for `convert`: the document is known to be foreign
    find_foreign_dialect      for every other command: a document of ours must stay as it is

A document of runfox is valid here as it is, so it is never foreign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.application.errors import OrchestratorError
from orchestrator.application.expressions.evaluation import is_expression
from orchestrator.application.values.paths import Path, render_path
from orchestrator.convert.flow8 import looks_like_flow8
from orchestrator.convert.jinja import is_template
from orchestrator.convert.runfox import looks_like_runfox


class UnknownDialect(OrchestratorError):
    """The dialect of the document cannot be detected, or the requested dialect does not exist."""


class AmbiguousDocument(OrchestratorError):
    """The document has parts of two languages, which cannot both be meant."""


def detect_dialect(data: dict[str, Any], text: str) -> str | None:
    """Return the dialect of a foreign document, or None."""
    if looks_like_flow8(data):
        return "flow8"
    if isinstance(data.get("flow"), list):
        return "flowtoy"
    if looks_like_runfox(data):
        return "runfox"
    return "flowtoy" if is_template(text) else None


def find_foreign_dialect(data: Any, is_valid: bool) -> str | None:
    """Return the dialect that a document must be converted from, or None if it is one of ours.

    `is_valid`: it is a valid document of ours. AmbiguousDocument names the parts of both languages.
    """
    if not isinstance(data, dict):
        return None
    if looks_like_flow8(data):
        if isinstance(data.get("flow"), list) or looks_like_runfox(data):
            raise AmbiguousDocument("has flowlets of flow8, and steps of another language: keep one of them")
        return "flow8"
    flow = data.get("flow")
    if not isinstance(flow, list) or "steps" in data:
        return None
    calls_sources = any(isinstance(step, dict) and step.get("source") is not None for step in flow)
    is_theirs = _is_of_flowtoy if calls_sources or not is_valid else _is_only_of_flowtoy
    theirs, ours = _find_first(data, is_theirs), _find_first(flow, _is_ours, ("flow",))
    if theirs is None or (ours is not None and is_valid):
        return None
    if ours is not None:
        places = f"{render_path(theirs)} is of flowtoy, and {render_path(ours)} is an expression of ours"
        raise AmbiguousDocument(f"{places}: write one of the two languages")
    return "flowtoy"


def _find_first(value: Any, is_wanted: Callable[[Any, Path], bool], path: Path = ()) -> Path | None:
    return next((found for item, found in _walk(value, path) if is_wanted(item, found)), None)


def _walk(value: Any, path: Path) -> Iterator[tuple[Any, Path]]:
    """Yield every value of a document, in its order."""
    todo = [(value, path)]
    while todo:
        item, at = todo.pop()
        yield item, at
        inner = list(item.items()) if isinstance(item, dict) else []
        inner = list(enumerate(item)) if isinstance(item, list) else inner
        todo.extend((one, (*at, key)) for key, one in reversed(inner))


def _is_of_flowtoy(value: Any, path: Path) -> bool:
    """Whether a value can only be of flowtoy: a template, a source of type rest, or an input of one value."""
    if isinstance(value, str):
        is_source = path[-1] == "type" and "output" not in path
        return is_template(value) or (value == "rest" and (is_source or path[-1] == "source"))
    is_input = len(path) == 3 and path[0] == "flow" and path[2] == "input"
    return is_input and value is not None and not isinstance(value, dict)


def _is_only_of_flowtoy(value: Any, path: Path) -> bool:
    """The same for a valid flow whose steps call no sources: its templates are short references, or quoted.

    A source calls a provider of flowtoy, which may wrap its results, and a conversion unwraps them.
    """
    return _is_of_flowtoy(value, path) and not (isinstance(value, str) and is_template(value))


def _is_ours(value: Any, path: Path) -> bool:
    return is_expression(value) and not {"var", "vars", "kv.get"}.isdisjoint(value)
