"""What an executor says its inputs are: a TypedDict as the annotation of its first parameter.

    class Payment(TypedDict):
        amount: float
        currency: NotRequired[Literal["EUR", "USD"]]

    def charge(inputs: Payment): ...

Only what is written out in a document is judged, and only by types that JSON has: whatever else an annotation
says passes.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.spec.report import kind
from orchestrator.application.values.paths import Path
from orchestrator.application.values.secret_refs import SECRET

_WORDS = (
    ((str,), "a text"),
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
    """One key of the inputs; `annotation` as Python has it."""

    name: str
    annotation: Any
    is_required: bool

    @property
    def type(self) -> str:
        return describe_type(self.annotation)


@dataclass(frozen=True, slots=True)
class InputProblem:
    """One thing that is wrong with a value: where in it, what its reader says, what was likely meant."""

    path: Path
    message: str
    hint: str | None = None


def is_typed_dict(annotation: Any) -> bool:
    """That of typing, and that of typing_extensions, which knows more and is another class."""
    return (
        isinstance(annotation, type)
        and issubclass(annotation, dict)
        and hasattr(annotation, "__required_keys__")
    )


def read_input_keys(annotation: Any) -> tuple[InputKey, ...] | None:
    """The keys of a TypedDict, in the order in which they are written; None for anything else.

    Python does not see a NotRequired in an annotation that is a text, as all are in a module that imports
    annotations from __future__: so it is looked for here.
    """
    annotation = _plain(annotation)[0]
    if not is_typed_dict(annotation):
        return None
    try:
        hints = get_type_hints(annotation, include_extras=True)
    except Exception:  # a name that exists for type checkers alone
        return None
    keys = []
    for name, hint in hints.items():
        plain, required = _plain(hint)
        if required is None:
            required = name in annotation.__required_keys__
        keys.append(InputKey(name, plain, required))
    return tuple(keys)


def describe_type(annotation: Any) -> str:
    """A type as one would say it; one that JSON does not have, as Python writes it."""
    annotation, _ = _plain(annotation)
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if _is_one_of(origin, _UNIONS):
        return " or ".join(dict.fromkeys(map(describe_type, args)))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if _is_one_of(origin, _LISTS):
        return f"a list (each {describe_type(args[0])})" if args else "a list"
    if is_typed_dict(annotation) or _is_one_of(origin, _MAPPINGS):
        return "a mapping"
    words = [said for classes, said in _WORDS if _is_one_of(annotation, classes)]
    return words[0] if words else str(getattr(annotation, "__name__", annotation))


def find_problems(value: Any, annotation: Any, path: Path = ()) -> Iterator[InputProblem]:
    """What is wrong with a value as it is written, if it is to be of this type."""
    annotation, _ = _plain(annotation)
    origin, args = get_origin(annotation) or annotation, get_args(annotation)
    if is_expression(value):
        return  # nobody knows before it runs
    if _is_quoted(value):
        yield from find_problems(value[LITERAL], annotation, (*path, LITERAL))
    elif _is_one_of(origin, _UNIONS):
        yield from _union_faults(value, annotation, path)
    elif not _has_kind(value, annotation):
        yield InputProblem(
            path, f"wants {describe_type(annotation)} here, not {_kind(value, origin is Literal)}"
        )
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
    """Keys that are not known, keys that are missing, and values of a wrong type."""
    known = {key.name: key for key in keys}
    for name, value in values.items():
        if name in known:
            yield from find_problems(value, known[name].annotation, (*path, name))
        else:
            yield InputProblem((*path, name), f"knows no key {name!r} here", _likely(name, list(known)))
    for key in keys:
        if key.is_required and key.name not in values:
            yield InputProblem(path, f"needs the key {key.name!r} here, {key.type}")


def _union_faults(value: Any, annotation: Any, path: Path) -> Iterator[InputProblem]:
    """None if the value suits one of the types. What only one of them can mean is held against that one."""
    found = {one: [*find_problems(value, one, path)] for one in get_args(annotation)}
    if not all(found.values()):
        return
    meant = [one for one in found if _has_kind(value, one)]
    if len(meant) == 1:
        yield from found[meant[0]]
    else:
        yield InputProblem(path, f"wants {describe_type(annotation)} here, not {_kind(value)}")


def _likely(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"it knows: {', '.join(known) or 'none'}"


def _has_kind(value: Any, annotation: Any) -> bool:
    """Whether a value may be of a type, whatever is inside of it; one that is not known is anything."""
    annotation, _ = _plain(annotation)
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


def _plain(annotation: Any) -> tuple[Any, bool | None]:
    """Without what is said about a type, and whether its key is required, if that is said."""
    required = None
    while get_origin(annotation) in _QUALIFIERS:
        if get_origin(annotation) is not Annotated:
            required = get_origin(annotation) is Required
        annotation = get_args(annotation)[0]
    return annotation, required


def _is_one_of(origin: Any, classes: Iterable[Any]) -> bool:
    """By identity: an annotation may be anything, and need not be comparable or hashable."""
    return any(origin is one for one in classes)


def _is_quoted(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and LITERAL in value


def _is_secret(value: Any) -> bool:
    """What stands for a text that the worker alone knows."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(SECRET), str)


def _kind(value: Any, is_chosen: bool = False) -> str:
    if _is_secret(value):
        return "a secret, which is a text"
    return repr(value) if is_chosen and isinstance(value, str) and len(value) < 40 else kind(value)
