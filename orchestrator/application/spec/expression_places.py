"""Knows every place of a workflow document that takes expressions, and rewrites the texts there.

A document is never changed: the parts with a new text are copied, and all others are shared. Inline child
workflows are documents of their own, and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.values.paths import Path
from orchestrator.application.values.secret_refs import is_secret_reference

PlaceKind = Literal["value", "whole", "configuration"]
"""What a text means at a place: any value; `whole`: nothing, unless it is one reference; or a part of the
configuration of a source, which a worker evaluates."""

RewriteText = Callable[[str, Path, PlaceKind], Any]
"""Returns what replaces a text, or the text itself."""

_Walk = Callable[[Any, Path, RewriteText], Any]


def rewrite_texts(workflow: Mapping[str, Any], rewrite: RewriteText) -> Any:
    """Return a workflow with every text that stands where an expression may stand, or inside one, rewritten.

    What is quoted by $literal, and the names of secrets, are left as they are.
    """
    return _WORKFLOW(workflow, (), rewrite)


def _replace(value: Any, entries: Iterable[tuple[Any, Any, _Walk]], path: Path, rewrite: RewriteText) -> Any:
    """Return a mapping or list with the rewritten entries: (key, item, walk). It is copied if one differs."""
    changed = value
    for key, item, walk in entries:
        rewritten = walk(item, (*path, key), rewrite)
        if rewritten is not item:
            if changed is value:
                changed = value.copy()
            changed[key] = rewritten
    return changed


def _texts(kind: PlaceKind) -> _Walk:
    """Walk over a value that may be an expression, or contain some."""

    def walk(value: Any, path: Path, rewrite: RewriteText) -> Any:
        if isinstance(value, str):
            return rewrite(value, path, kind)
        if isinstance(value, list):
            return _replace(value, ((n, item, inner) for n, item in enumerate(value)), path, rewrite)
        if (
            not isinstance(value, dict)
            or is_secret_reference(value)
            or (len(value) == 1 and LITERAL in value)
        ):
            return value
        return _replace(value, ((key, item, inner) for key, item in value.items()), path, rewrite)

    inner = _VALUE if kind == "whole" else walk
    return walk


def _each(walk: _Walk, without: str = "") -> _Walk:
    """Walk over the values of a mapping. The mapping itself is not an expression."""

    def walk_each(value: Any, path: Path, rewrite: RewriteText) -> Any:
        if not isinstance(value, dict):
            return value
        entries = ((key, item, walk) for key, item in value.items() if key != without)
        return _replace(value, entries, path, rewrite)

    return walk_each


def _list_of(walk: _Walk) -> _Walk:
    def walk_list(value: Any, path: Path, rewrite: RewriteText) -> Any:
        if not isinstance(value, list):
            return value
        return _replace(value, ((n, item, walk) for n, item in enumerate(value)), path, rewrite)

    return walk_list


def _keys(**walks: _Walk) -> _Walk:
    """Walk over these keys of a mapping."""

    def walk_keys(value: Any, path: Path, rewrite: RewriteText) -> Any:
        if not isinstance(value, dict):
            return value
        entries = ((key, value[key], walk) for key, walk in walks.items() if key in value)
        return _replace(value, entries, path, rewrite)

    return walk_keys


def _filter(value: Any, path: Path, rewrite: RewriteText) -> Any:
    return _FILTER(value, path, rewrite)


def _override(value: Any, path: Path, rewrite: RewriteText) -> Any:
    """An override is a configuration, unless it has one."""
    has_configuration = isinstance(value, dict) and isinstance(value.get("configuration"), dict)
    return (_SOURCE if has_configuration else _SETTINGS)(value, path, rewrite)


_VALUE = _texts("value")
_WHOLE = _texts("whole")
_VALUES = _each(_VALUE)
_CONFIGURATION = _each(_texts("configuration"))
_SETTINGS = _each(_texts("configuration"), without="type")
_SOURCE = _keys(configuration=_CONFIGURATION)
_CONCURRENCY = _keys(key=_VALUE)
_FILTER = _keys(expression=_WHOLE, value=_VALUE, filters=_list_of(_filter))
_BRANCH = _keys(condition=_WHOLE, result_expr=_VALUE, action=_keys(set=_VALUE))
_STEP = _keys(
    input=_VALUES,
    when=_WHOLE,
    filters=_FILTER,
    join=_WHOLE,
    map=_keys(over=_WHOLE),
    switch=_keys(on=_VALUE),
    branch=_list_of(_BRANCH),
    output=_VALUES,
    kv_add=_VALUES,
    compensate=_keys(input=_VALUES),
    concurrency=_CONCURRENCY,
    source=_keys(configuration=_CONFIGURATION, override=_override),
)
_WORKFLOW = _keys(
    sources=_each(_SOURCE),
    steps=_list_of(_STEP),
    flow=_list_of(_STEP),
    outputs=_VALUES,
    concurrency=_CONCURRENCY,
)
