"""The values of a workflow function while it is read: references that know their annotated type.

    Result           a path: an input, the result of a step, a field of it
    UnwrappedItems   the list of results of a map whose step returns no mapping
    Choice           the result of the branch of a switch that runs

A field that the type does not have is an error at once. Everything else is as for references of the builder.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Self

from orchestrator.builder import op
from orchestrator.builder.errors import suggest
from orchestrator.builder.expressions import (
    Expr,
    MissingValue,
    Origin,
    Reference,
    operation,
    scoped_operation,
    spec_error,
)
from orchestrator.functions.annotations import NoSuchField, find_child, is_mapping

WRAPPED = "result"
"""The key of a result that is not a mapping."""


class StepOrigin(Origin):
    """The step whose result a value is read from."""

    def __init__(self, step_id: str, owner: object) -> None:
        super().__init__(f"the step {step_id!r}", owner)
        self.step_id = step_id


class Typed:
    """What all values with an annotated type have in common."""

    __slots__ = ()
    _annotation: Any

    def _find_child(self, key: str | int) -> tuple[str | int, Any]:
        """The key of a field or an item in JSON, and its type."""
        try:
            return find_child(self._annotation, key)
        except NoSuchField as error:
            hint = suggest(str(key), error.known) or _suggest_operator(key, error.known)
            raise spec_error("unknown_field", str(error), hint) from None

    def _select(self, key: str | int) -> Expr:
        """The value of a field or an item."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"write [{name!r}] for a key that starts with an underscore")
        return self._select(name)

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int) and key < 0:
            raise ValueError("an index cannot be negative here: write op.last()")
        if not isinstance(key, str | int) or isinstance(key, bool):
            raise TypeError(f"a value is read by a key or an index, not by {key!r}")
        return self._select(key)

    def __str__(self) -> NoReturn:
        raise MissingValue("text", "a reference has no text before the workflow runs")


class Result(Typed, Reference):
    """A path with a type."""

    __slots__ = ("_annotation",)

    def __init__(self, keys: Sequence[str | int], origins: frozenset[Origin], annotation: Any) -> None:
        super().__init__(keys, origins)
        object.__setattr__(self, "_annotation", annotation)

    def _select(self, key: str | int) -> Result:
        name, annotation = self._find_child(key)
        return Result(Reference.__getitem__(self, name)._keys, self._origins, annotation)


class UnwrappedItems(Typed, Expr):
    """The values in a list of {"result": value}."""

    __slots__ = ("_annotation", "_items")
    _items: Result

    def __init__(self, items: Result, annotation: Any) -> None:
        unwrapped = scoped_operation("map", items, lambda item: item[WRAPPED])
        super().__init__(unwrapped._rule, items._origins)
        object.__setattr__(self, "_items", items)
        object.__setattr__(self, "_annotation", annotation)

    def _select(self, key: str | int) -> Result:
        index, annotation = self._find_child(key)
        keys = (*self._items._keys, index, WRAPPED)
        return Result(keys, self._origins, annotation)


class Choice(Typed, Expr):
    """The first of several values that is not null. `origins` are all steps of the switch."""

    __slots__ = ("_alternatives", "_annotation")
    _alternatives: tuple[Expr, ...]

    def __init__(self, alternatives: Sequence[Expr], origins: Iterable[Origin]) -> None:
        rule = operation("any.default", *alternatives)._rule if alternatives else None
        super().__init__(rule, frozenset(origins))
        object.__setattr__(self, "_alternatives", tuple(alternatives))
        object.__setattr__(self, "_annotation", None)

    def _select(self, key: str | int) -> Self:
        children = [one[key] for one in self._alternatives if isinstance(one, Typed)]
        return type(self)(children, self._origins)


def make_result(
    keys: Sequence[str | int], origins: frozenset[Origin], annotation: Any, *, is_wrapped: bool | None = None
) -> Result:
    """The result of a step with this annotation, at this path; unwrapped if it is not a mapping."""
    if is_wrapped is None:
        is_wrapped = not is_mapping(annotation)
    return Result((*keys, WRAPPED) if is_wrapped else keys, origins, annotation)


def make_items(keys: Sequence[str | int], origins: frozenset[Origin], item: Any) -> Expr:
    """The results of a map over a step with this annotation, at this path."""
    if is_mapping(item):
        return Result((*keys, "items"), origins, list[item])
    return UnwrappedItems(Result((*keys, "items"), origins, list[Any]), list[item])


def find_steps(value: Expr) -> set[str]:
    """The steps that a value is read from."""
    return {origin.step_id for origin in value._origins if isinstance(origin, StepOrigin)}


def _suggest_operator(key: str | int, fields: Sequence[str]) -> str | None:
    """For a method of a text or a list: the operator that does the same."""
    if not fields and isinstance(key, str) and callable(getattr(op, key, None)):
        return f"write op.{key}()"
    return f"it has: {', '.join(fields)}" if fields else None
