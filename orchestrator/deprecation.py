"""Keeps old public names for one release. Each gives a DeprecationWarning with the new name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")


def renamed_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """Make a module's `__getattr__` from old name -> new name, or `package:name` for a name that moved."""

    def __getattr__(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = renamed[name].rpartition(":")
        warnings.warn(
            f"{module}.{name} is deprecated; use {home or module}.{new}", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(home or module), new)

    return __getattr__


def renamed_attribute(old: str, new: str) -> Any:
    """Make a property for an attribute or method that has a new name."""

    def read(self: Any) -> Any:
        owner = type(self).__name__
        warnings.warn(f"{owner}.{old} is deprecated; use {owner}.{new}", DeprecationWarning, stacklevel=2)
        return getattr(self, new)

    return property(read)


def renamed_arguments(**renamed: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorate a function that has new names for keyword arguments: old name -> new name."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def accept_old_names(*args: Any, **kwargs: Any) -> _R:
            for old, new in renamed.items():
                if old in kwargs:
                    message = f"the argument {old} of {function.__name__}() is deprecated; use {new}"
                    warnings.warn(message, DeprecationWarning, stacklevel=2)
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return accept_old_names

    return decorate
