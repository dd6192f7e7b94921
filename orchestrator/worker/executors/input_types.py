"""Reads the input keys of an executor from a TypedDict, the annotation of its first parameter.

    class Payment(TypedDict):
        amount: float
        currency: NotRequired[Literal["EUR", "USD"]]

    def charge(inputs: Payment): ...

Only the literal values in a document are checked, and only against types that JSON has. Any other annotation
accepts every value.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.values.json_types import describe_value
from orchestrator.application.values.paths import Path
from orchestrator.application.values.secret_refs import SECRET

_TYPE_NAMES = (
    ((str,), "a string"),
    ((int,), "a whole number"),
    ((float,), "a number"),
    ((bool,), "true or false"),
    ((None, type(None)), "nothing"),
    ((Any, object), "anything"),
)
_LISTS = (list, Sequence, Collection, Iterable)
_MAPPINGS = (dict, Mapping)
_UNIONS = (Union, types.UnionType)
_QUALIFIERS = (Annotated, NotRequired, Required)


@dataclass(frozen=True, slots=True)
class InputKey:
    """One key of the inputs; `annotation` is the Python annotation without NotRequired and the like."""

    name: str
    annotation: Any
    is_required: bool

    @property
    def type(self) -> str:
        return describe_type(self.annotation)


@dataclass(frozen=True, slots=True)
class InputProblem:
    """One problem with a value: its path, the message, and a hint. The executor is the message's subject."""

    path: Path
    message: str
    hint: str | None = None


def is_typed_dict(annotation: Any) -> bool:
    """Whether it is a TypedDict of typing or of typing_extensions, which has its own class."""
    return (
        isinstance(annotation, type)
        and issubclass(annotation, dict)
        and hasattr(annotation, "__required_keys__")
    )


def read_input_keys(annotation: Any) -> tuple[InputKey, ...] | None:
    """The keys of a TypedDict, in their order in the source; None for anything else.

    `__required_keys__` ignores a NotRequired inside a string annotation, and in a module that imports
    annotations from __future__ all annotations are strings. So this function reads the qualifiers itself.
    """
    annotation = _strip_qualifiers(annotation)[0]
    if not is_typed_dict(annotation):
        return None
    try:
        hints = get_type_hints(annotation, include_extras=True)
    except Exception:  # a name that exists only for type checkers
        return None
    keys = []
    for name, hint in hints.items():
        value_type, is_required = _strip_qualifiers(hint)
        if is_required is None:
            is_required = name in annotation.__required_keys__
        keys.append(InputKey(name, value_type, is_required))
    return tuple(keys)


def describe_type(annotation: Any) -> str:
    """A type in plain English; a type that JSON does not have, by its Python name."""
    annotation, _ = _strip_qualifiers(annotation)
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if _is_one_of(origin, _UNIONS):
        return " or ".join(dict.fromkeys(map(describe_type, args)))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if _is_one_of(origin, _LISTS):
        return f"a list (each {describe_type(args[0])})" if args else "a list"
    if is_typed_dict(annotation) or _is_one_of(origin, _MAPPINGS):
        return "a mapping"
    names = [name for classes, name in _TYPE_NAMES if _is_one_of(annotation, classes)]
    return names[0] if names else str(getattr(annotation, "__name__", annotation))


def find_problems(value: Any, annotation: Any, path: Path = ()) -> Iterator[InputProblem]:
    """The problems of a literal value, compared with an annotation."""
    annotation, _ = _strip_qualifiers(annotation)
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if is_expression(value):
        return  # its value is known only at run time
    if _is_quoted(value):
        yield from find_problems(value[LITERAL], annotation, (*path, LITERAL))
    elif _is_one_of(origin, _UNIONS):
        yield from _find_union_problems(value, annotation, path)
    elif not _has_kind(value, annotation):
        kind_of_value = _describe_value(value, origin is Literal)
        yield InputProblem(path, f"expects {describe_type(annotation)} here, not {kind_of_value}")
    elif isinstance(value, dict):
        keys = read_input_keys(annotation)
        if keys is not None:
            yield from find_key_problems(value, keys, path)
        elif _is_one_of(origin, _MAPPINGS) and args:
            for name, item in value.items():
                yield from find_problems(item, args[-1], (*path, name))
    elif isinstance(value, list) and _is_one_of(origin, _LISTS) and args:
        for n, item in enumerate(value):
            yield from find_problems(item, args[0], (*path, n))


def find_key_problems(
    values: Mapping[str, Any], keys: Sequence[InputKey], path: Path = ()
) -> Iterator[InputProblem]:
    """Find unknown keys, missing keys, and values of a wrong type."""
    known = {key.name: key for key in keys}
    for name, value in values.items():
        if name in known:
            yield from find_problems(value, known[name].annotation, (*path, name))
        else:
            yield InputProblem((*path, name), f"accepts no key {name!r} here", _suggest(name, list(known)))
    for key in keys:
        if key.is_required and key.name not in values:
            yield InputProblem(path, f"requires the key {key.name!r} here, {key.type}")


def _find_union_problems(value: Any, annotation: Any, path: Path) -> Iterator[InputProblem]:
    """No problem if the value fits one member. If only one member has the kind of the value, its problems."""
    found = {member: [*find_problems(value, member, path)] for member in get_args(annotation)}
    if not all(found.values()):
        return
    candidates = [member for member in found if _has_kind(value, member)]
    if len(candidates) == 1:
        yield from found[candidates[0]]
    else:
        yield InputProblem(path, f"expects {describe_type(annotation)} here, not {_describe_value(value)}")


def _suggest(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it accepts: {', '.join(known) or 'none'}"


def _has_kind(value: Any, annotation: Any) -> bool:
    """Whether a value has the outer kind of a type, whatever it contains; an unknown type accepts any
    value."""
    annotation, _ = _strip_qualifiers(annotation)
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if origin is Literal and _is_secret(value):
        return any(isinstance(one, str) for one in args)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in args)
    if _is_secret(value):
        value = ""
    if is_typed_dict(annotation) or _is_one_of(origin, _MAPPINGS):
        return isinstance(value, dict)
    if _is_one_of(origin, _LISTS):
        return isinstance(value, list)
    if _is_one_of(origin, (None, type(None))):
        return value is None
    if _is_one_of(origin, (int, float)):
        return isinstance(value, int | origin) and not isinstance(value, bool)
    if _is_one_of(origin, (str, bool)):
        return isinstance(value, origin)
    return True


def _strip_qualifiers(annotation: Any) -> tuple[Any, bool | None]:
    """The type without Annotated, Required and NotRequired, and whether its key is required, if stated."""
    required = None
    while get_origin(annotation) in _QUALIFIERS:
        if get_origin(annotation) is not Annotated:
            required = get_origin(annotation) is Required
        annotation = get_args(annotation)[0]
    return annotation, required


def _is_one_of(origin: Any, classes: Iterable[Any]) -> bool:
    """Compares by identity: an annotation can be any object, and may not be comparable or hashable."""
    return any(origin is one for one in classes)


def _is_quoted(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and LITERAL in value


def _is_secret(value: Any) -> bool:
    """Whether it is a secret reference, which the worker replaces by a string."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(SECRET), str)


def _describe_value(value: Any, is_choice: bool = False) -> str:
    if _is_secret(value):
        return "a secret, which is a string"
    return repr(value) if is_choice and isinstance(value, str) and len(value) < 40 else describe_value(value)
