"""Old public names. Each still imports for one release, with a DeprecationWarning that gives the new name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def renamed_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` for its old names: old name -> new name, or `package:name` if it has moved."""

    def __getattr__(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, _, new = renamed[name].rpartition(":")
        warnings.warn(
            f"{module}.{name} is deprecated; use {home or module}.{new}", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(home or module), new)

    return __getattr__
