"""From the name in a spec to the function that does the work.

An executor is found, in this order: in a mapping given in code; as a public function of one of the named
modules; among those that every worker has (`webhook`); as an entry point of the group
`orchestrator.executors`; and last through a module's own `execute(fn, inputs)`. Names that a module merely
imported are not its executors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property, partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from orchestrator.application.errors import ExecutorNotFound, OrchestratorError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Executor = Callable[..., Any]
"""Called with its inputs, and with what else it names: `application/calling.py`."""

ENTRY_POINTS = "orchestrator.executors"
BUILT_IN = frozenset({"echo", "env", "file", "http", "process", "python", "sleep", "transform", "webhook"})
"""Each is a function of the file of its name in `executors/`."""
OUR_EXECUTORS = "orchestrator_executors"


class BadExecutors(OrchestratorError):
    """A module that was named for its executors cannot be used."""


class Executors:
    """All executors a worker knows."""

    def __init__(self, modules: Iterable[str] = (), mapping: Mapping[str, Executor] | None = None) -> None:
        self._functions: dict[str, Executor] = {}
        self._catch_all: Callable[..., Any] | None = None
        self._caught: dict[str, Executor] = {}
        for name in modules:
            self._add(_imported(name))
        self._functions.update(mapping or {})

    def find(self, fn: str) -> Executor:
        if fn in self._functions:
            return self._functions[fn]
        if fn in BUILT_IN:
            return self._functions.setdefault(fn, _built_in(fn))
        if fn in self._installed:
            return self._functions.setdefault(fn, self._installed[fn].load())
        if self._catch_all is not None:
            return self._caught.setdefault(fn, partial(self._catch_all, fn))
        close = get_close_matches(fn, self.names, n=1)
        raise ExecutorNotFound(fn, self.names, f"; did you mean {close[0]!r}?" if close else "")

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """Read only when a name is found nowhere else: it means looking at every installed package."""
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=ENTRY_POINTS)}

    @property
    def names(self) -> list[str]:
        return sorted({*self._functions, *self._installed})

    def _add(self, module: ModuleType) -> None:
        for name, value in public_functions(module).items():
            if name == "execute":
                self._catch_all = self._catch_all or value
            else:
                self._functions.setdefault(name, value)


def public_functions(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The functions that a module defines, or lists in `__all__`."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        named = {name: getattr(module, name) for name in listed}
        return {name: value for name, value in named.items() if callable(value)}
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module.__name__ and name[0] != "_"
    }


def _built_in(fn: str) -> Executor:
    """From the folder beside our own package, under a name of its own: a user's folder of executors may well
    have the same name as ours."""
    if OUR_EXECUTORS not in sys.modules:
        path = Path(__file__).parents[2] / "executors"
        spec = spec_from_file_location(
            OUR_EXECUTORS, path / "__init__.py", submodule_search_locations=[str(path)]
        )
        assert spec is not None, path
        sys.modules[OUR_EXECUTORS] = module_from_spec(spec)
    return public_functions(import_module(f"{OUR_EXECUTORS}.{fn}"))[fn]


def _imported(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise BadExecutors(
            f"the executors module {name!r} cannot be imported: {error}"
            " (is it installed, or in the directory the worker was started in?)"
        ) from error
    except Exception as error:
        raise BadExecutors(
            f"the executors module {name!r} fails when it is imported: {type(error).__name__}: {error}"
        ) from error
