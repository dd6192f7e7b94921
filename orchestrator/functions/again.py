"""Again: what a step in loop() returns to be called once more."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

from orchestrator.functions.annotations import make_union

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Again(Generic[T_co]):
    """Call the step again with this value, as `last`."""

    value: T_co


def split_again(annotation: Any) -> tuple[Any, bool]:
    """An annotation without Again, and whether it had one: `Draft | Again[Draft]` is a Draft."""
    is_union = get_origin(annotation) in (Union, types.UnionType)
    members = get_args(annotation) if is_union else (annotation,)
    others = tuple(one for one in members if not _is_again(one))
    if len(others) == len(members):
        return annotation, False
    values = tuple(get_args(one)[0] if get_args(one) else Any for one in members if _is_again(one))
    return make_union(others or values), True


def _is_again(annotation: Any) -> bool:
    return annotation is Again or get_origin(annotation) is Again
