"""The workflows and the executors of a test, in every form in which users may pass them."""

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
from orchestrator.invocation.executors import Executors, public_functions
from orchestrator.testing.errors import WorkflowTestError

SUFFIXES = (".yaml", ".yml", ".json")


@runtime_checkable
class DocumentBuilder(Protocol):
    """Builds a document."""

    def to_dict(self) -> dict[str, Any]: ...


Document = str | Path | Mapping[str, Any] | LoadedSpec | DocumentBuilder
"""A path, a text in YAML or JSON, a mapping, a loaded spec, or a builder."""

Function = Callable[..., Any]
ModuleOrName = str | ModuleType
ExecutorsArgument = ModuleOrName | Iterable[ModuleOrName] | Mapping[str, Function] | Function | None
"""Modules or their names, functions by name, one function `(fn, inputs)` for all names, or none."""


def spec_of(document: Document) -> LoadedSpec:
    """The checked spec of a document; InvalidSpec lists all problems, with file and line if it is a file."""
    if isinstance(document, LoadedSpec):
        return document
    if isinstance(document, str | Path):
        return _load_text(document)
    if isinstance(document, Mapping):
        return check_spec(dict(document))
    if isinstance(document, DocumentBuilder):
        return check_spec(document.to_dict())
    forms = "a path, a text, a mapping, a loaded spec or a builder"
    raise WorkflowTestError(f"a {type(document).__name__} is not a workflow: pass {forms}")


def _load_text(document: str | Path) -> LoadedSpec:
    """Load a spec from a path or a text. A text of one line that ends in a suffix of files is a path."""
    if isinstance(document, str) and ("\n" in document or not document.endswith(SUFFIXES)):
        return load_spec(document)
    path = Path(document)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise WorkflowTestError(
            f"{path} cannot be read: {reason} (the current directory is {Path.cwd()})"
        ) from error
    return load_spec(text, str(path))


def steps_of(specs: Iterable[LoadedSpec]) -> Iterator[StepSpec]:
    """Every step of these specs and of their inline children; a webhook counts as a step."""
    for loaded in specs:
        if loaded.spec.webhook is not None:
            yield WEBHOOK_STEP
        for step in loaded.spec.steps:
            yield step
            if step.child is not None and step.child.loaded is not None:
                yield from steps_of([step.child.loaded])


class ExecutorSet:
    """The executors of a test. They are found as a worker finds them."""

    def __init__(self, executors: ExecutorsArgument = None) -> None:
        self._functions: dict[str, Function] = {}
        self._catch_all: Function | None = None
        self._from_modules: Executors | None = None
        if isinstance(executors, Mapping):
            self._functions = dict(executors)
        elif callable(executors):
            self._catch_all = executors
        elif executors is not None:
            self._add_modules(_list_modules(executors))

    def find(self, fn: str) -> Function | None:
        """The executor of this name, or None."""
        if fn in self._functions:
            return self._functions[fn]
        if self._from_modules is not None:
            with suppress(ExecutorNotFound):
                return self._from_modules.find(fn)
        return None if self._catch_all is None else partial(self._catch_all, fn)

    def _add_modules(self, modules: list[ModuleOrName]) -> None:
        names = [name for name in modules if isinstance(name, str)]
        for module in modules:
            if isinstance(module, ModuleType):
                self._functions = public_functions(module) | self._functions
        self._catch_all = self._functions.pop("execute", None)
        self._from_modules = Executors(names) if names else None


def _list_modules(modules: ModuleOrName | Iterable[ModuleOrName]) -> list[ModuleOrName]:
    """The modules or names as a list. A text may have several names, separated by commas."""
    if isinstance(modules, str):
        return [name.strip() for name in modules.split(",") if name.strip()]
    return [modules] if isinstance(modules, ModuleType) else list(modules)
