"""What may be rehearsed, and by whom: documents and executors in all the forms in which users have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.errors import ExecutorNotFound
from orchestrator.application.spec.model import WEBHOOK_STEP, LoadedSpec, StepSpec
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.testing.errors import WorkflowTestError
from orchestrator.worker.executors.lookup import Executors, public_functions

SUFFIXES = (".yaml", ".yml", ".json")


@runtime_checkable
class DocumentBuilder(Protocol):
    """Whatever can say its document."""

    def to_dict(self) -> dict[str, Any]: ...


Document = str | Path | Mapping[str, Any] | LoadedSpec | DocumentBuilder
"""A path, a text in YAML or JSON, the data itself, a spec that was loaded, or a builder of one."""

Function = Callable[..., Any]
ModuleOrName = str | ModuleType
ExecutorsArgument = ModuleOrName | Iterable[ModuleOrName] | Mapping[str, Function] | Function | None
"""Modules or their names, functions by their names, one function `(fn, inputs)` for all, or nobody."""


def spec_of(document: Document) -> LoadedSpec:
    """The checked spec; InvalidSpec with all that is wrong with it, by file and line if it is in a file."""
    if isinstance(document, LoadedSpec):
        return document
    if isinstance(document, str | Path):
        return _spec_in(document)
    if isinstance(document, Mapping):
        return check_spec(dict(document))
    if isinstance(document, DocumentBuilder):
        return check_spec(document.to_dict())
    forms = "a path, a text, a mapping, a loaded spec or a builder"
    raise WorkflowTestError(f"a {type(document).__name__} is no workflow: give {forms}")


def _spec_in(document: str | Path) -> LoadedSpec:
    """A text of one line that ends as files do is a path."""
    if isinstance(document, str) and ("\n" in document or not document.endswith(SUFFIXES)):
        return load_spec(document)
    path = Path(document)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkflowTestError(
            f"{path} cannot be read: {reason} (from the directory {Path.cwd()})"
        ) from error
    return load_spec(text, str(path))


def steps_of(specs: Iterable[LoadedSpec]) -> Iterator[StepSpec]:
    """Every step of these specs and of the children that are written in them; a webhook counts as one."""
    for loaded in specs:
        if loaded.spec.webhook is not None:
            yield WEBHOOK_STEP
        for step in loaded.spec.steps:
            yield step
            if step.child is not None and step.child.loaded is not None:
                yield from steps_of([step.child.loaded])


class ExecutorSet:
    """The executors that a rehearsal has, found as a worker finds them."""

    def __init__(self, given: ExecutorsArgument = None) -> None:
        self._functions: dict[str, Function] = {}
        self._catch_all: Function | None = None
        self._named: Executors | None = None
        if isinstance(given, Mapping):
            self._functions = dict(given)
        elif callable(given):
            self._catch_all = given
        elif given is not None:
            self._take_in(_listed(given))

    def find(self, fn: str) -> Function | None:
        """None when nobody answers to this name."""
        if fn in self._functions:
            return self._functions[fn]
        if self._named is not None:
            with suppress(ExecutorNotFound):
                return self._named.find(fn)
        return None if self._catch_all is None else partial(self._catch_all, fn)

    def _take_in(self, modules: list[ModuleOrName]) -> None:
        names = [name for name in modules if isinstance(name, str)]
        for module in modules:
            if isinstance(module, ModuleType):
                self._functions = public_functions(module) | self._functions
        self._catch_all = self._functions.pop("execute", None)
        self._named = Executors(names) if names else None


def _listed(given: ModuleOrName | Iterable[ModuleOrName]) -> list[ModuleOrName]:
    """Names may stand in one text, separated by commas, as for a worker."""
    if isinstance(given, str):
        return [name.strip() for name in given.split(",") if name.strip()]
    return [given] if isinstance(given, ModuleType) else list(given)
