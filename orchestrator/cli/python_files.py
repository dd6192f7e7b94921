"""Reads workflow functions from Python files: `app.py:order`, or `app.py` if it has one workflow.

The file is imported as a module, as a worker with --executors imports it. Only files that the command names
are imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from orchestrator.application.spec.model import LoadedSpec
    from orchestrator.functions import WorkflowFunction

_NAME = re.compile(r"(?P<file>.+\.py)(?::(?P<workflow>\w+))?")


def is_python_name(name: str) -> bool:
    """Whether a name of the command line means a workflow in a Python file."""
    return _NAME.fullmatch(name) is not None


def load_python_spec(name: str) -> LoadedSpec:
    """The checked spec of a workflow function; InvalidSpec has its problems."""
    workflow = _find_workflow(name)
    with _explain_errors(name):
        return workflow.load()


def read_python_text(name: str) -> str:
    """The document of a workflow function as YAML."""
    workflow = _find_workflow(name)
    with _explain_errors(name):
        return workflow.to_yaml()


@dataclass(frozen=True, slots=True)
class ExecutorModules:
    """The modules with the steps of workflow functions, and the folders that they are imported from."""

    names: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def find_executor_modules(names: Iterable[str]) -> ExecutorModules:
    """The modules that the workflows in these files need; other files are passed over."""
    modules, folders = dict[str, None](), dict[str, None]()
    for name in filter(is_python_name, names):
        file, _ = _split(name)
        folder, module = _find_module(file)
        modules |= dict.fromkeys([module, *_find_workflow(name).modules])
        folders[str(folder)] = None
    return ExecutorModules(tuple(modules), tuple(folders))


def _find_workflow(name: str) -> WorkflowFunction[Any, Any]:
    from orchestrator.functions import WorkflowFunction

    file, wanted = _split(name)
    module = _import(file)
    found = {key: one for key, one in vars(module).items() if isinstance(one, WorkflowFunction)}
    own = {key: one for key, one in found.items() if one.__module__ == module.__name__} or found
    if wanted is not None and wanted in found:
        return found[wanted]
    listed = ", ".join(f"{file}:{key}" for key in own) or "none"
    if wanted is not None:
        close = get_close_matches(wanted, own, n=1)
        hint = f"did you mean {file}:{close[0]}?" if close else f"its workflows are: {listed}"
        raise click.UsageError(f"{file} has no workflow {wanted!r}; {hint}")
    if len(own) != 1:
        problem = "has no function with @workflow" if not own else "has several workflows: name one of them"
        raise click.UsageError(f"{file} {problem}" + (f": {listed}" if own else ""))
    return next(iter(own.values()))


def _split(name: str) -> tuple[str, str | None]:
    match = _NAME.fullmatch(name)
    assert match is not None, "is_python_name() was asked before"
    return match["file"], match["workflow"]


def _import(file: str) -> ModuleType:
    folder, name = _find_module(file)
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    with redirect_stdout(sys.stderr), _explain_errors(file):  # a module may print while it is imported
        module = import_module(name)
    if Path(module.__file__ or "").resolve() != Path(file).resolve():
        raise click.UsageError(
            f"{file} cannot be imported: another module is called {name!r} ({module.__file__})"
        )
    return module


def _find_module(file: str) -> tuple[Path, str]:
    """The folder to import a file from, and the name of its module. A file in a package has a dotted name."""
    path = Path(file).resolve()
    if not path.is_file():
        raise click.UsageError(f"cannot read {file!r}: No such file")
    folder, parts = path.parent, [path.stem]
    while (folder / "__init__.py").exists():
        folder, parts = folder.parent, [folder.name, *parts]
    if not all(part.isidentifier() for part in parts):
        raise click.UsageError(f"{file!r} cannot be imported: its name must be a Python name, such as app.py")
    return folder, ".".join(parts)


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    """Report an exception of the user's code as a message with its place."""
    from orchestrator.application.errors import OrchestratorError
    from orchestrator.functions.errors import find_location

    try:
        yield
    except (OrchestratorError, click.ClickException):
        raise
    except (Exception, SystemExit) as error:
        found = find_location(error.__traceback__)
        place = f"{found.file}:{found.line}: " if found is not None else ""
        raise click.UsageError(f"{name} fails: {place}{type(error).__name__}: {error}") from error
