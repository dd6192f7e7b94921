"""Lists every executor that a worker would find here, including hidden ones and broken ones.

The catalogue loads all executors. A worker does not: `invocation/executors.py` loads only the one that a
step needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

from orchestrator.invocation.executors import (
    BUILT_IN,
    BadExecutors,
    Executor,
    describe_origin,
    installed_entry_points,
    load_built_in,
    load_entry_point,
    load_module_functions,
)
from orchestrator.worker.executors.signature import Signature

CATCH_ALL = "execute"
ExecutorKind = Literal["module", "built-in", "entry point", "catch-all"]

_VARIABLE = re.compile(r"\bORCHESTRATOR_[A-Z0-9_]*[A-Z0-9](?![A-Z0-9_]*[<*])")
"""The full name of an environment variable; not a pattern of names such as ORCHESTRATOR_SECRET_<NAME>."""


@dataclass(frozen=True)
class CatalogueEntry:
    """An executor: its name, its origin, and the problem that makes it unusable, if any.

    `where` is the module, or the package and its version. `hidden_by` is the origin of the executor with the
    same name that is called instead.
    """

    name: str
    kind: ExecutorKind
    where: str
    executor: Executor | None = None
    problem: str | None = None
    hidden_by: str | None = None

    @property
    def origin(self) -> str:
        """The origin as text."""
        return f"{self.where}, for every other name" if self.kind == "catch-all" else self.where

    @cached_property
    def signature(self) -> Signature | None:
        if self.executor is None:
            return None
        return Signature(self.executor, 2 if self.kind == "catch-all" else 1)

    @property
    def module_doc(self) -> str:
        """The docstring of a built-in's module, which describes the environment variables that it reads."""
        module = sys.modules.get(getattr(self.executor, "__module__", ""))
        return (module.__doc__ or "").strip() if self.kind == "built-in" and module else ""

    def settings(self, environment: Mapping[str, str]) -> dict[str, bool]:
        """The environment variables that a built-in reads, and whether they are set; never their values."""
        return {name: name in environment for name in dict.fromkeys(_VARIABLE.findall(self.module_doc))}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """`entries` are in lookup order; `broken_modules` maps modules that cannot be used to the reason."""

    entries: tuple[CatalogueEntry, ...]
    broken_modules: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, modules: Iterable[str] = ()) -> Catalogue:
        """Load the executors of these modules, the built-in ones and the installed ones."""
        found: list[CatalogueEntry] = []
        catch_alls: list[CatalogueEntry] = []
        broken: dict[str, str] = {}
        for module in dict.fromkeys(modules):
            try:
                functions = load_module_functions(module)
            except BadExecutors as error:
                broken[module] = str(error)
                continue
            for name, function in functions.items():
                if name == CATCH_ALL:
                    catch_alls.append(CatalogueEntry(name, "catch-all", module, function))
                else:
                    found.append(CatalogueEntry(name, "module", module, function))
        found += (
            _load(CatalogueEntry(name, "built-in", "built-in"), partial(load_built_in, name))
            for name in sorted(BUILT_IN)
        )
        found += (
            _load(
                CatalogueEntry(point.name, "entry point", describe_origin(point)),
                partial(load_entry_point, point),
            )
            for point in installed_entry_points()
        )
        return cls((*_mark_hidden(found), *_mark_hidden(catch_alls)), broken)

    @property
    def problems(self) -> list[str]:
        """The problems to repair. A missing built-in is not one: it may be left out on purpose."""
        broken_points = (one.problem for one in self.entries if one.problem and one.kind == "entry point")
        return [*self.broken_modules.values(), *broken_points]

    def find(self, fn: str) -> CatalogueEntry | None:
        """The executor that a step with this name would call, even if it cannot be loaded."""
        candidates = (one for one in self.entries if one.name == fn or one.kind == "catch-all")
        return next(candidates, None)  # catch-alls come last, and a hidden entry after the one that hides it

    @property
    def names(self) -> list[str]:
        return sorted({one.name for one in self.entries if one.kind != "catch-all"})


def _load(entry: CatalogueEntry, load: Callable[[], Executor]) -> CatalogueEntry:
    """The entry with its executor, or with the problem that prevents loading it."""
    try:
        return replace(entry, executor=load())
    except BadExecutors as error:
        return replace(entry, problem=str(error))


def _mark_hidden(entries: Iterable[CatalogueEntry]) -> Iterator[CatalogueEntry]:
    """Mark each entry that an earlier one with the same name hides, even if that one cannot be loaded."""
    first: dict[str, CatalogueEntry] = {}
    for entry in entries:
        winner = first.setdefault(entry.name, entry)
        yield entry if winner is entry else replace(entry, hidden_by=winner.origin)
