"""From the name in a spec to the function that does the work.

An executor is found, in this order: in a mapping given in code; as a public function of one of the named
modules; among those that every worker has (`webhook`); as an entry point of the group
`orchestrator.executors`; and last through a module's own `execute(fn, inputs)`. Where two have the same name
the first one counts. Names that a module merely imported are not its executors.

The work-horse of every step imports this; `catalogue.py` lists all that is found, for people.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property, partial
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from orchestrator.application.errors import ExecutorNotFound, OrchestratorError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Executor = Callable[..., Any]
"""Called with its inputs, and with what else it names: `invocation/parameters.py`."""

ENTRY_POINTS = "orchestrator.executors"
BUILT_IN = frozenset({"echo", "env", "file", "http", "process", "python", "sleep", "transform", "webhook"})
"""Each is a function of the module of its name in `executors/orchestrator_executors/`."""
BUILT_IN_PACKAGE = "orchestrator_executors"


class BadExecutors(OrchestratorError):
    """A module that was named for its executors cannot be used, or an executor not be loaded."""


class Executors:
    """All executors a worker knows."""

    def __init__(self, modules: Iterable[str] = (), mapping: Mapping[str, Executor] | None = None) -> None:
        self._functions: dict[str, Executor] = {}
        self._catch_all: Executor | None = None
        self._caught: dict[str, Executor] = {}
        for name in modules:
            self._add(load_module_functions(name))
        self._functions.update(mapping or {})

    def find(self, fn: str) -> Executor:
        if fn in self._functions:
            return self._functions[fn]
        if fn in BUILT_IN:
            return self._functions.setdefault(fn, load_built_in(fn))
        if fn in self._installed:
            return self._functions.setdefault(fn, load_entry_point(self._installed[fn]))
        if self._catch_all is not None:
            return self._caught.setdefault(fn, partial(self._catch_all, fn))
        close = get_close_matches(fn, self.names, n=1) or get_close_matches(fn, BUILT_IN, n=1, cutoff=0.75)
        raise ExecutorNotFound(fn, self.names, f"; did you mean {close[0]!r}?" if close else "")

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """Read only when a name is found nowhere else: it means looking at every installed package."""
        return {point.name: point for point in reversed(installed_entry_points())}

    @property
    def names(self) -> list[str]:
        return sorted({*self._functions, *self._installed})

    def _add(self, functions: Mapping[str, Executor]) -> None:
        for name, value in functions.items():
            if name == "execute":
                self._catch_all = self._catch_all or value
            else:
                self._functions.setdefault(name, value)


def public_functions(module: ModuleType) -> dict[str, Executor]:
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


def load_module_functions(module: str) -> dict[str, Executor]:
    """The executors of a module that was named by somebody."""
    try:
        return public_functions(import_module(module))
    except ImportError as error:
        raise BadExecutors(
            f"the executors module {module!r} cannot be imported: {error}"
            " (is it installed, or in the directory the worker was started in?)"
        ) from error
    except (Exception, SystemExit) as error:
        raise BadExecutors(
            f"the executors module {module!r} fails when it is imported: {_reason(error)}"
        ) from error


def load_built_in(fn: str) -> Executor:
    try:
        return public_functions(import_module(f"{BUILT_IN_PACKAGE}.{fn}"))[fn]
    except Exception as error:
        raise BadExecutors(f"the built-in executor {fn!r} cannot be loaded: {_reason(error)}") from error


def prepare_built_ins() -> None:
    """Load what every worker has once, before it forks or has threads; one may have more to do than that."""
    for fn in sorted(BUILT_IN):
        with suppress(BadExecutors):  # who calls it is told
            load_built_in(fn)
            getattr(sys.modules[f"{BUILT_IN_PACKAGE}.{fn}"], "prepare", lambda: None)()


def installed_entry_points() -> list[EntryPoint]:
    """The executors that installed packages bring along, those of the first directory of sys.path first."""
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINTS))


def load_entry_point(point: EntryPoint) -> Executor:
    try:
        found = point.load()
    except (Exception, SystemExit) as error:
        raise BadExecutors(
            f"the executor {point.name!r} of {describe_origin(point)} cannot be loaded: {_reason(error)}"
        ) from error
    if not callable(found):
        kind = type(found).__name__
        raise BadExecutors(
            f"the executor {point.name!r} of {describe_origin(point)} is no function:"
            f" {point.value!r} is of type {kind}; write MODULE:FUNCTION"
        )
    executor: Executor = found
    return executor


def describe_origin(point: EntryPoint) -> str:
    """The package that brings it, and its version."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
