"""A page with every name that the public packages export, with its signature and its docstring."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from orchestrator.client import AsyncClient, Client
from scripts.documentation.markdown import escape_prose

PACKAGES = (
    "orchestrator",
    "orchestrator.client",
    "orchestrator.backend",
    "orchestrator.builder",
    "orchestrator.testing",
    "orchestrator.web",
)
TWINS: Mapping[type, type] = {AsyncClient: Client}
"""A class whose methods are those of another one, as coroutines, and have their docstrings there."""

MAX_WIDTH = 96
INTRODUCTION = """\
# Python API

This page is generated from the docstrings. These packages and names are public: an old name stays for one
release. [Use it from Python](../python.md), [Workflows as Python functions](../functions.md),
[Workflows in Python](../builder.md), [Testing workflows](../testing.md) and [Backends](../backends.md) have
examples.
"""


class _Verbatim:
    """An annotation as it is written: inspect would put a text in quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def render_python() -> str:
    homes: dict[int, str] = {}
    packages = [import_module(name) for name in PACKAGES]
    return "\n".join([INTRODUCTION, *(_render_package(package, homes) for package in packages)])


def public_names(package: ModuleType) -> list[str]:
    return sorted(name for name in package.__all__ if not name.startswith("__"))


def members_of(owner: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that classes of this project define, the nearest definition first."""
    seen: set[str] = set()
    for one in owner.__mro__:
        if not one.__module__.startswith("orchestrator"):
            continue
        for name, value in vars(one).items():
            is_member = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
            if is_member and not name.startswith("_") and name not in seen:
                seen.add(name)
                if not _is_old_name(value):
                    yield name, value


def _is_old_name(value: Any) -> bool:
    """Whether this is a property that only gives a warning, and the value of the new name."""
    return isinstance(value, property) and getattr(value.fget, "__module__", "") == "orchestrator.deprecation"


def _render_package(package: ModuleType, homes: dict[int, str]) -> str:
    sections = [_render(package, name, homes) for name in public_names(package)]
    return "\n".join([f"## Package {package.__name__}\n", _doc(package), "", *sections])


def _render(package: ModuleType, name: str, homes: dict[int, str]) -> str:
    """The section of a name. `homes` has the heading of each value that has a section already."""
    value, heading = getattr(package, name), f"{package.__name__}.{name}"
    home = homes.setdefault(id(value), heading)
    lines = [f"### {heading}\n"]
    if home != heading:
        lines.append(f"The same as [{home}](#{home.replace('.', '').lower()}).")
    elif inspect.ismodule(value):
        names = ", ".join(f"`{one}`" for one in getattr(value, "__all__", ()))
        lines += [_doc(value), f"\n{names}" if names else ""]
    elif inspect.isclass(value):
        lines += [_code(f"class {name}", value), _doc(value), "", *_class_details(value)]
    elif callable(value):
        lines += [_code(f"def {name}", value), _doc(value)]
    else:
        lines.append(f"A value of type `{type(value).__name__}`.")
    return "\n".join([*lines, ""])


def _class_details(owner: type) -> Iterator[str]:
    if issubclass(owner, enum.Enum):
        yield ", ".join(f"`{one.name}`" for one in owner) + "\n"
        return
    if is_dataclass(owner):
        yield "Fields: " + ", ".join(f"`{one.name}`" for one in fields(owner) if one.name[0] != "_") + "\n"
    for name, value in members_of(owner):
        doc = _doc(value) or _doc(getattr(TWINS.get(owner), name, None))
        if isinstance(value, property):
            yield f"#### {owner.__name__}.{name}\n\nA property. {doc}\n"
        else:
            called = getattr(value, "__func__", value)
            is_async = inspect.iscoroutinefunction(called)
            yield f"#### {owner.__name__}.{name}\n"
            yield _code(f"{'async ' if is_async else ''}def {name}", called)
            yield doc + "\n"


def _code(start: str, value: Any) -> str:
    return f"```python\n{start}{_signature(value)}\n```\n"


def _signature(value: Any) -> str:
    """The signature, on one line if that is not too long."""
    try:
        signature = inspect.signature(value)
    except ValueError:
        return ""
    plain = signature.replace(
        parameters=[
            one.replace(annotation=_plain(one.annotation), default=_plain_default(one.default))
            for one in signature.parameters.values()
        ],
        return_annotation=_plain(signature.return_annotation),
    )
    text = str(plain)
    if len(text) <= MAX_WIDTH:
        return text
    arguments, _, result = text.rpartition(")")
    return "(\n" + "".join(f"    {one},\n" for one in _split(arguments[1:])) + ")" + result


def _plain(annotation: Any) -> Any:
    return _Verbatim(annotation) if isinstance(annotation, str) else annotation


def _plain_default(default: Any) -> Any:
    """A default that has no short text of its own, such as a function, by its name."""
    if default is inspect.Parameter.empty or " at 0x" not in repr(default):
        return default
    return _Verbatim(getattr(default, "__name__", "..."))


def _split(arguments: str) -> list[str]:
    """Split at the commas that are not inside brackets."""
    parts, depth = [""], 0
    for char in arguments:
        depth += (char in "([{") - (char in ")]}")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def _doc(value: Any) -> str:
    if value is None:
        return ""
    return escape_prose(inspect.getdoc(value) or "")
