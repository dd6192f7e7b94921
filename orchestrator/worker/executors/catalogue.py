"""Every executor that a worker would find here, and those that it would not: hidden ones and broken ones.

It loads them all, which a worker does not: `lookup.py` finds the one that a step needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

from orchestrator.worker.executors.lookup import (
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
"""The whole name of a variable of the environment; ORCHESTRATOR_SECRET_<NAME> is a pattern of names."""


@dataclass(frozen=True)
class CatalogueEntry:
    """An executor: what it is called, where it comes from, and why it is not called if it is not.

    `where` is the module, or the package and its version; `hidden_by` is where the one comes from that is
    called instead.
    """

    name: str
    kind: ExecutorKind
    where: str
    executor: Executor | None = None
    problem: str | None = None
    hidden_by: str | None = None

    @property
    def origin(self) -> str:
        """Where it comes from, in words."""
        return f"{self.where}, for every other name" if self.kind == "catch-all" else self.where

    @cached_property
    def signature(self) -> Signature | None:
        if self.executor is None:
            return None
        return Signature(self.executor, 2 if self.kind == "catch-all" else 1)

    @property
    def module_doc(self) -> str:
        """What the module of a built-in says about it: which variables of the environment it heeds."""
        module = sys.modules.get(getattr(self.executor, "__module__", ""))
        return (module.__doc__ or "").strip() if self.kind == "built-in" and module else ""

    def settings(self, environment: Mapping[str, str]) -> dict[str, bool]:
        """The variables that a built-in heeds, and whether they are set here; never what they hold."""
        return {name: name in environment for name in dict.fromkeys(_VARIABLE.findall(self.module_doc))}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """`entries` in the order in which a name is looked for; `broken` are the modules that cannot be used."""

    entries: tuple[CatalogueEntry, ...]
    broken: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, modules: Iterable[str] = ()) -> Catalogue:
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
            _tried(CatalogueEntry(name, "built-in", "built-in"), partial(load_built_in, name))
            for name in sorted(BUILT_IN)
        )
        found += (
            _tried(
                CatalogueEntry(one.name, "entry point", describe_origin(one)), partial(load_entry_point, one)
            )
            for one in installed_entry_points()
        )
        return cls((*_ordered(found), *_ordered(catch_alls)), broken)

    @property
    def problems(self) -> list[str]:
        """What somebody should repair. A built-in that is not there may be left out on purpose."""
        faulty = (one.problem for one in self.entries if one.problem and one.kind == "entry point")
        return [*self.broken.values(), *faulty]

    def find(self, fn: str) -> CatalogueEntry | None:
        """The one that a step with this name would call; it may be one that cannot be loaded."""
        answers = (one for one in self.entries if one.name == fn or one.kind == "catch-all")
        return next(answers, None)  # the catch-alls come last, and what is hidden behind what hides it

    @property
    def names(self) -> list[str]:
        return sorted({one.name for one in self.entries if one.kind != "catch-all"})


def _tried(entry: CatalogueEntry, load: Callable[[], Executor]) -> CatalogueEntry:
    try:
        return replace(entry, executor=load())
    except BadExecutors as error:
        return replace(entry, problem=str(error))


def _ordered(entries: Iterable[CatalogueEntry]) -> Iterator[CatalogueEntry]:
    """The first of a name hides those behind it, even if it cannot be loaded."""
    first: dict[str, CatalogueEntry] = {}
    for entry in entries:
        winner = first.setdefault(entry.name, entry)
        yield entry if winner is entry else replace(entry, hidden_by=winner.origin)
