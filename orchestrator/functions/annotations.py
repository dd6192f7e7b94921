"""Reads type annotations: which fields a value has, which JSON it is, and how pydantic converts it.

The result of a step is its output if its annotation is a mapping: a TypedDict, a dataclass, a pydantic model,
a dict, None, or a union of these. Any other result is wrapped: {"result": value}. A function without an
annotation must return a mapping.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import AfterValidator, BaseModel, PlainSerializer, TypeAdapter, WrapValidator
from pydantic.errors import PydanticUserError

from orchestrator.builder.expressions import spec_error

UNKNOWN: Any = Any
"""The annotation of a value that can be anything."""

_LISTS = (list, tuple, set, frozenset, Sequence, Collection, Iterable, AbstractSet)
_MAPPINGS = (dict, Mapping)
_UNIONS = (Union, types.UnionType)
_QUALIFIERS = (Annotated, Required, NotRequired)
_NONE = (None, type(None))


class Field(NamedTuple):
    """One field of a mapping: its key in JSON, and its annotation."""

    key: str
    annotation: Any
    is_required: bool


class NoSuchField(Exception):
    """A type has no field of this name. `known` lists the fields that it has; it is empty for other types."""

    def __init__(self, message: str, known: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.known = tuple(known)


# ---- the shape of a type


def strip(annotation: Any) -> Any:
    """The type without Annotated, Required and NotRequired, and without None in a union."""
    while get_origin(annotation) in _QUALIFIERS:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) not in _UNIONS:
        return annotation
    members = tuple(one for one in get_args(annotation) if not _is_one_of(one, _NONE))
    return strip(members[0]) if len(members) == 1 else make_union(members)


def make_union(members: tuple[Any, ...]) -> Any:
    """The union of types; of one type, the type itself."""
    return Union[members]  # noqa: UP007


def is_unknown(annotation: Any) -> bool:
    return _is_one_of(strip(annotation), (Any, object))


def is_none(annotation: Any) -> bool:
    return _is_one_of(annotation, _NONE)


def is_mapping(annotation: Any) -> bool:
    """Whether each value of the type is a JSON object or null, and so can be the output of a step."""
    annotation = strip(annotation)
    if get_origin(annotation) in _UNIONS:
        return all(map(is_mapping, get_args(annotation)))
    origin = get_origin(annotation) or annotation
    if is_unknown(annotation) or is_none(annotation) or _is_one_of(origin, _MAPPINGS):
        return True
    return isinstance(origin, type) and (_is_typed_dict(origin) or _is_dataclass(origin) or _is_model(origin))


def fields_of(annotation: Any) -> dict[str, Field] | None:
    """The fields of a TypedDict, a dataclass, a model or a union of them; None for any other type."""
    annotation = strip(annotation)
    if get_origin(annotation) in _UNIONS:
        found = [fields_of(member) for member in get_args(annotation)]
        return None if None in found else _merge_fields([one for one in found if one is not None])
    if not isinstance(annotation, type):
        return None
    if _is_typed_dict(annotation):
        return {one.key: one for one in _typed_dict_fields(annotation)}
    if _is_model(annotation):
        return {
            name: Field(field.serialization_alias or name, field.annotation, field.is_required())
            for name, field in annotation.model_fields.items()
        }
    if _is_dataclass(annotation):
        hints = get_type_hints(annotation, include_extras=True)
        return {
            one.name: Field(one.name, hints[one.name], _has_no_default(one))
            for one in dataclasses.fields(annotation)
        }
    return None


def find_child(annotation: Any, key: str | int) -> tuple[str | int, Any]:
    """The key in JSON and the type of a field or an item; NoSuchField if the type has no such thing."""
    annotation = strip(annotation)
    if is_unknown(annotation):
        return key, UNKNOWN
    fields = fields_of(annotation)
    if fields is not None:
        if key not in fields:
            raise NoSuchField(f"{describe(annotation)} has no field {key!r}", fields)
        field = fields[str(key)]
        return field.key, field.annotation
    if get_origin(annotation) in _UNIONS:
        return key, UNKNOWN
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if _is_one_of(origin, _MAPPINGS):
        return key, args[1] if len(args) == 2 else UNKNOWN
    if _is_one_of(origin, _LISTS):
        if not isinstance(key, int):
            raise NoSuchField(f"{describe(annotation)} is a list, which has no field {key!r}")
        return key, item_of(annotation)
    raise NoSuchField(f"{describe(annotation)} has no field {key!r}")


def item_of(annotation: Any) -> Any:
    """The type of the items of a list."""
    annotation = strip(annotation)
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    return args[0] if args and _is_one_of(origin, _LISTS) else UNKNOWN


def describe(annotation: Any) -> str:
    """A type as its source writes it."""
    if is_none(annotation):
        return "None"
    if get_origin(annotation) is not None or not isinstance(annotation, type):
        return str(annotation).replace("typing.", "")
    return annotation.__name__


# ---- JSON


def adapter_of(annotation: Any) -> TypeAdapter[Any]:
    """The converter of a type; InvalidSpec if pydantic does not know the type."""
    try:
        return _cached_adapter(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return _make_adapter(annotation)


def _make_adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(_supported(annotation, frozenset()))
    except PydanticUserError as error:
        message = f"the type {describe(annotation)} cannot be read from JSON: {error.message}"
        raise spec_error("bad_type", message) from None


_cached_adapter = lru_cache(maxsize=1024)(_make_adapter)


def json_types(annotation: Any) -> frozenset[str]:
    """The JSON types of the values of a type: string, integer, ..., null. Empty if they can be anything."""
    schema = adapter_of(annotation).json_schema(mode="serialization")
    return _schema_types(schema, schema.get("$defs", {}))


def _schema_types(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> frozenset[str]:
    if "$ref" in schema:
        return _schema_types(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if isinstance(schema.get("type"), str):
        return frozenset({schema["type"]})
    members = [_schema_types(one, definitions) for one in schema.get("anyOf", schema.get("oneOf", ()))]
    return frozenset[str]().union(*members) if all(members) else frozenset()


# ---- TypedDict


def _typed_dict_fields(annotation: Any) -> Iterable[Field]:
    """`__required_keys__` ignores a NotRequired inside a string annotation, so this reads the qualifiers."""
    for name, hint in get_type_hints(annotation, include_extras=True).items():
        is_required = name in annotation.__required_keys__
        while get_origin(hint) in _QUALIFIERS:
            if get_origin(hint) is not Annotated:
                is_required = get_origin(hint) is Required
            hint = get_args(hint)[0]
        yield Field(name, hint, is_required)


def _supported(annotation: Any, seen: frozenset[Any]) -> Any:
    """The type as pydantic takes it: before Python 3.12 it rejects the TypedDict of typing."""
    if sys.version_info >= (3, 12):
        return annotation
    origin, args = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and origin is None:
        return _supported_class(annotation, seen)
    if origin is None or origin is Literal or origin is Callable:
        return annotation
    if origin is Annotated:
        return Annotated[(_supported(args[0], seen), *annotation.__metadata__)]
    converted = tuple(_supported(one, seen) for one in args)
    if all(new is old for new, old in zip(converted, args, strict=True)):
        return annotation
    return make_union(converted) if origin in _UNIONS else origin[converted]


def _supported_class(annotation: Any, seen: frozenset[Any]) -> Any:
    is_of_typing = _is_typed_dict(annotation) and type(annotation).__module__ == "typing"
    if not is_of_typing and (not _is_dataclass(annotation) or _is_model(annotation)):
        return annotation
    if annotation in seen:
        return dict[str, Any] if is_of_typing else annotation
    fields = (fields_of(annotation) or {}).values()
    converted = [_supported(one.annotation, seen | {annotation}) for one in fields]
    if not is_of_typing and all(new is one.annotation for new, one in zip(converted, fields, strict=True)):
        return annotation
    pairs = zip(fields, converted, strict=True)
    shape = _make_typed_dict(annotation.__name__, {one.key: (new, one.is_required) for one, new in pairs})
    return shape if is_of_typing else _as_dataclass(annotation, shape)


def _make_typed_dict(name: str, fields: Mapping[str, tuple[Any, bool]]) -> Any:
    from typing_extensions import TypedDict

    hints = {
        key: Required[one] if is_required else NotRequired[one] for key, (one, is_required) in fields.items()
    }
    return TypedDict(name, hints)  # type: ignore[operator]


def _as_dataclass(annotation: Any, shape: Any) -> Any:
    """A dataclass with the converted types of its fields."""

    def keep_instance(value: Any, convert: Callable[[Any], Any]) -> Any:
        return value if isinstance(value, annotation) else convert(value)

    def read_fields(value: Any) -> dict[str, Any]:
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}

    return Annotated[
        shape,
        AfterValidator(lambda fields: annotation(**fields)),
        WrapValidator(keep_instance),
        PlainSerializer(read_fields, return_type=shape),
    ]


# ---- helpers


def _merge_fields(unions: Sequence[dict[str, Field]]) -> dict[str, Field]:
    """The fields of any member; the type of a field that differs between them is unknown."""
    merged: dict[str, Field] = {}
    for fields in unions:
        for name, field in fields.items():
            known = merged.setdefault(name, field)
            if known.annotation != field.annotation:
                merged[name] = Field(field.key, UNKNOWN, False)
    return merged


def _is_typed_dict(annotation: Any) -> bool:
    """Whether it is a TypedDict of typing or of typing_extensions, which has its own class."""
    return (
        isinstance(annotation, type)
        and issubclass(annotation, dict)
        and hasattr(annotation, "__required_keys__")
    )


def _is_dataclass(annotation: type) -> bool:
    return dataclasses.is_dataclass(annotation)


def _is_model(annotation: type) -> TypeGuard[type[BaseModel]]:
    return issubclass(annotation, BaseModel)


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_one_of(annotation: Any, classes: Iterable[Any]) -> bool:
    """Compares by identity: an annotation can be any object, and may not be comparable or hashable."""
    return any(annotation is one for one in classes)
