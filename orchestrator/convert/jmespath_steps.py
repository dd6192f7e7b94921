"""Splits a parsed JMESPath into a start and steps, which is closer to our paths than the tree of jmespath."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.convert.notes import CannotConvert

Tree = dict[str, Any]
"""An expression as jmespath parses it: a type, children, and often a value."""


@dataclass(frozen=True, slots=True)
class Field:
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    index: int


@dataclass(frozen=True, slots=True)
class Slice:
    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class Each:
    """[*]"""


@dataclass(frozen=True, slots=True)
class Values:
    """.*"""


@dataclass(frozen=True, slots=True)
class Flatten:
    """[]"""


@dataclass(frozen=True, slots=True)
class Where:
    """[?condition]"""

    condition: Tree


@dataclass(frozen=True, slots=True)
class Hash:
    """{key: value}"""

    pairs: tuple[tuple[str, Tree], ...]


@dataclass(frozen=True, slots=True)
class Items:
    """[item, item]"""

    items: tuple[Tree, ...]


Step = Field | Index | Slice | Each | Values | Flatten | Where | Hash | Items


NO_EQUIVALENT = "this combination of projections has no equivalent"
_PROJECTIONS = frozenset({"projection", "value_projection", "filter_projection"})


def split_path(tree: Tree) -> tuple[Tree | None, tuple[Step, ...]]:
    """Split a path into its start and its steps. A start of None is the current value.

    A tree that is not a path is its own start and has no steps. A projection in parentheses, such as
    `(a[*].b)[0]`, is the start too: the next step applies to its whole result.
    """
    match tree:
        case {"type": "identity" | "current"}:
            return None, ()
        case {"type": "subexpression", "children": [{"type": kind}, *_]} if kind in _PROJECTIONS:
            raise CannotConvert(NO_EQUIVALENT)  # a key of a list
        case {"type": "subexpression" | "index_expression", "children": [left, *rest]}:
            start, steps = _split_left(left)
            for part in rest:
                steps += _steps_after(part)
            return start, steps
        case {"type": "projection", "children": [{"type": "flatten", "children": [left]}, right]}:
            start, steps = split_path(left)
            return start, (*steps, Flatten(), *_steps_after(right))
        case {"type": str(kind), "children": [left, right, *condition]} if kind in _PROJECTIONS:
            start, steps = _split_left(left)
            return start, (*steps, *_projection(kind, steps, condition), *_steps_after(right))
    step = _single_step(tree)
    return (tree, ()) if step is None else (None, (step,))


def _split_left(tree: Tree) -> tuple[Tree | None, tuple[Step, ...]]:
    return (tree, ()) if tree["type"] in _PROJECTIONS else split_path(tree)


def _projection(kind: str, steps: tuple[Step, ...], condition: list[Tree]) -> tuple[Step, ...]:
    if condition:
        return (Where(condition[0]),)
    if kind == "value_projection":
        return (Values(),)
    return () if steps and isinstance(steps[-1], Slice) else (Each(),)  # a slice projects by itself


def _steps_after(tree: Tree) -> tuple[Step, ...]:
    """Return the steps of the part of a path that follows a dot or a projection."""
    start, steps = split_path(tree)
    if start is None:
        return steps
    if start["type"] == "function_expression":
        raise CannotConvert(f"the function {start['value']} after a dot is not supported")
    raise CannotConvert(NO_EQUIVALENT)


def _single_step(tree: Tree) -> Step | None:
    match tree:
        case {"type": "field", "value": name}:
            return Field(name)
        case {"type": "index", "value": index}:
            return Index(index)
        case {"type": "slice", "children": [start, stop, None | 1]}:
            return Slice(start, stop)
        case {"type": "slice"}:
            raise CannotConvert("a slice with a step is not supported")
        case {"type": "multi_select_dict", "children": pairs}:
            return Hash(tuple((pair["value"], pair["children"][0]) for pair in pairs))
        case {"type": "multi_select_list", "children": items}:
            return Items(tuple(items))
    return None
