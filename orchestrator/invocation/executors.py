"""Finds the executor function for a name in a spec, for every kind of worker.

A name is looked up in this order: in a mapping passed in code; as a public function of one of the named
modules; among the built-in executors; as an entry point of the group `orchestrator.executors`; and last as an
argument of a module's own `execute(fn, inputs)`. If several have the same name, the first one is called. A
function that a module only imports is not an executor of that module. An object whose class has the attribute
`__executors__`, such as a function with @step, offers the executors in it, by their own names.

Every work-horse imports this module. `catalogue.py` lists all executors for users.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property, partial
from importlib import import_module
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from orchestrator.application.errors import ExecutorNotFound, OrchestratorError
from orchestrator.invocation.invoke import ExecutorFunctions

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Executor = Callable[..., Any]
"""Called with the inputs and with the parameters that it requests; see `invocation/parameters.py`."""

ENTRY_POINTS = "orchestrator.executors"
BUILT_IN = frozenset({"echo", "env", "file", "http", "process", "python", "sleep", "transform", "webhook"})
"""Each is the function of the same name in its module in `executors/orchestrator_executors/`."""
BUILT_IN_PACKAGE = "orchestrator_executors"


class BadExecutors(OrchestratorError):
    """An executors module cannot be used, or an executor cannot be loaded."""


class Executors:
    """All executors of a worker, found by name."""

    def __init__(
        self,
        modules: Iterable[str] = (),
        mapping: Mapping[str, Executor] | None = None,
        advice: str = "",
    ) -> None:
        """`advice` ends the error for a name that is unknown and similar to no other."""
        self._mapping = mapping if mapping is not None else {}
        self._advice = advice
        self._functions: dict[str, Executor] = {}
        self._catch_all: Executor | None = None
        self._catch_all_by_name: dict[str, Executor] = {}
        for name in modules:
            self._add(load_module_functions(name))

    def find(self, fn: str) -> Executor:
        if fn in self._mapping:
            return self._mapping[fn]
        if fn in self._functions:
            return self._functions[fn]
        if fn in BUILT_IN:
            return self._functions.setdefault(fn, load_built_in(fn))
        if fn in self._installed:
            return self._functions.setdefault(fn, load_entry_point(self._installed[fn]))
        if self._catch_all is not None:
            return self._catch_all_by_name.setdefault(fn, partial(self._catch_all, fn))
        close = get_close_matches(fn, self.names, n=1) or get_close_matches(fn, BUILT_IN, n=1, cutoff=0.75)
        raise ExecutorNotFound(fn, self.names, f"; did you mean {close[0]!r}?" if close else self._advice)

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        """Read only when no other source has the name, since it reads the metadata of every package."""
        return {point.name: point for point in reversed(installed_entry_points())}

    @property
    def names(self) -> list[str]:
        return sorted({*self._mapping, *self._functions, *self._installed})

    @property
    def has_catch_all(self) -> bool:
        """Whether it has a function for every name."""
        return self._catch_all is not None

    def _add(self, functions: Mapping[str, Executor]) -> None:
        for name, value in functions.items():
            if name == "execute":
                self._catch_all = self._catch_all or value
            else:
                self._functions.setdefault(name, value)


ExecutorSource = ExecutorFunctions | str | Sequence[str] | Executors
"""The executors of one process: functions, or the names of one or several modules that define them."""

_ADVICE = (
    f", and the built-in {', '.join(sorted(BUILT_IN))}; add a function of this name to the executors, or a"
    " module that defines it"
)


def resolve_executors(source: ExecutorSource) -> Callable[..., Any] | Executors:
    """The executors of one process, by name; their modules are imported. A function for all names is returned
    as it is."""
    if isinstance(source, Executors) or callable(source):
        return source
    if isinstance(source, Mapping):
        return Executors(mapping=source, advice=_ADVICE)
    return Executors([source] if isinstance(source, str) else source, advice=_ADVICE)


def find_executor(executors: Callable[..., Any] | Executors, fn: str) -> tuple[Executor, tuple[str, ...]]:
    """The executor of a name, and the arguments that it takes before its inputs."""
    if isinstance(executors, Executors):
        return executors.find(fn), ()
    return executors, (fn,)


def public_functions(module: ModuleType) -> dict[str, Executor]:
    """The functions that a module defines, or lists in `__all__`, and the executors of its decorated ones."""
    listed = getattr(module, "__all__", None)
    names = vars(module) if listed is None else {name: getattr(module, name) for name in listed}
    found: dict[str, Executor] = {}
    for name, value in names.items():
        if _offers_executors(value):
            continue
        if callable(value) if listed is not None else _is_own_function(name, value, module):
            found[name] = value
    for name, value in vars(module).items():
        is_own = getattr(value, "__module__", None) == module.__name__
        if _offers_executors(value) and (is_own or (listed is not None and name in listed)):
            found |= value.__executors__
    return found


def _is_own_function(name: str, value: object, module: ModuleType) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == module.__name__ and name[0] != "_"


def _offers_executors(value: object) -> bool:
    """By its type: an object may have any attribute."""
    return hasattr(type(value), "__executors__")


def load_module_functions(module: str) -> dict[str, Executor]:
    """Import a module and return its executors."""
    try:
        return public_functions(import_module(module))
    except ImportError as error:
        raise BadExecutors(
            f"the executors module {module!r} cannot be imported: {error}"
            " (is it installed, or in the directory that the process was started in?)"
        ) from error
    except (Exception, SystemExit) as error:
        raise BadExecutors(
            f"the executors module {module!r} fails when it is imported: {_describe(error)}"
        ) from error


def load_built_in(fn: str) -> Executor:
    try:
        return public_functions(import_module(f"{BUILT_IN_PACKAGE}.{fn}"))[fn]
    except Exception as error:
        raise BadExecutors(f"the built-in executor {fn!r} cannot be loaded: {_describe(error)}") from error


def prepare_built_ins() -> None:
    """Load the built-in executors, and call `prepare` of those that have one, before the worker forks or
    starts threads."""
    for fn in sorted(BUILT_IN):
        with suppress(BadExecutors):  # a step that calls it fails with the reason
            load_built_in(fn)
            getattr(sys.modules[f"{BUILT_IN_PACKAGE}.{fn}"], "prepare", lambda: None)()


def installed_entry_points() -> list[EntryPoint]:
    """The entry points of installed packages, in the order of sys.path."""
    from importlib.metadata import entry_points

    return list(entry_points(group=ENTRY_POINTS))


def load_entry_point(point: EntryPoint) -> Executor:
    try:
        executor = point.load()
    except (Exception, SystemExit) as error:
        raise BadExecutors(
            f"the executor {point.name!r} of {describe_origin(point)} cannot be loaded: {_describe(error)}"
        ) from error
    if not callable(executor):
        kind = type(executor).__name__
        raise BadExecutors(
            f"the executor {point.name!r} of {describe_origin(point)} is not a function:"
            f" {point.value!r} is of type {kind}; write MODULE:FUNCTION"
        )
    return cast(Executor, executor)


def describe_origin(point: EntryPoint) -> str:
    """The name and version of the package that has the entry point."""
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
