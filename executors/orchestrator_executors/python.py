"""The executor `python`: calls a function by its dotted name.

    ORCHESTRATOR_PYTHON_MODULES   the modules whose functions may be called: shop.tasks, or shop.* for all
                                  modules below a package, separated by commas; if unset, none

It calls only functions that the module itself defines: no imported functions, no methods, and no names that
begin with an underscore. It never calls the standard library, whatever the list says, nor a module that the
executor `file` can write.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from types import CoroutineType, FunctionType, ModuleType
from typing import Any, TypedDict

from .folders import ROOT_VARIABLE, is_under_root
from .settings import Refused, matches, merge_settings, read_allowlist, suggest

__all__ = ["python"]

MODULES_VARIABLE = "ORCHESTRATOR_PYTHON_MODULES"


class PythonInputs(TypedDict, total=False):
    """`function`: the dotted name; `arguments`: the keyword arguments."""

    function: str
    arguments: dict[str, Any]


def python(
    inputs: PythonInputs, configuration: dict[str, Any]
) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
    """Call `function` with `arguments` and return its result.

    A result that is not a dictionary becomes `{"result": ...}`. For an async function this returns a
    coroutine, which the caller awaits.
    """
    settings = merge_settings(configuration, inputs, PythonInputs.__annotations__)
    name, arguments = settings.get("function"), settings.get("arguments", {})
    if not isinstance(name, str):
        raise Refused("'function' must be the dotted name of a function, such as shop.tasks.price")
    if not isinstance(arguments, dict):
        raise Refused("'arguments' must be a mapping of names to values")
    function = _find_function(name)
    try:
        signature(function).bind(**arguments)
    except TypeError as error:
        raise Refused(f"{name} cannot be called with these arguments: {error}") from None
    returned = function(**arguments)
    return _await_output(returned) if isinstance(returned, CoroutineType) else _output(returned)


async def _await_output(coroutine: Coroutine[Any, Any, Any]) -> dict[str, Any]:
    return _output(await coroutine)


def _output(returned: Any) -> dict[str, Any]:
    return returned if isinstance(returned, dict) else {"result": returned}


def _find_function(dotted: str) -> FunctionType:
    module_name, _, name = dotted.rpartition(".")
    parts = dotted.split(".")
    if not module_name or not all(part.isidentifier() for part in parts):
        raise Refused(f"{dotted!r} is not the dotted name of a function, such as shop.tasks.price")
    if any(part.startswith("_") for part in parts):
        raise Refused(f"{dotted} is private: a name that begins with '_' is never called")
    _check_allowed(module_name)
    module = _import(module_name)
    functions = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, FunctionType) and value.__module__ == module_name and key[0] != "_"
    }
    if name not in functions:
        hint = suggest(name, functions) if functions else ""
        raise Refused(f"{module_name} defines no function {name!r}{hint}")
    return functions[name]


def _check_allowed(module: str) -> None:
    patterns = read_allowlist(MODULES_VARIABLE)
    if not patterns:
        message = f"this worker calls no functions: {MODULES_VARIABLE} is not set"
        raise Refused(f"{message}; set it to the modules that it may call, such as {module}")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise Refused(f"{module} is part of the standard library, which is never called")
    if not matches(module, [one for one in patterns if not one.startswith("*")]):
        hint = "; a pattern must begin with the name of a package" if "*" in patterns else ""
        raise Refused(f"{module} may not be called: add it to {MODULES_VARIABLE} to allow this{hint}")


def _import(name: str) -> ModuleType:
    """Import a module package by package, and reject one that lies in a folder which a step can write."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        package = ".".join(parts[:end])
        found = find_spec(package)
        if found is None:
            raise ModuleNotFoundError(f"there is no module {package} on this worker")
        paths = [found.origin, *(found.submodule_search_locations or ())]
        if any(path is not None and is_under_root(path) for path in paths):
            raise Refused(f"{package} is below {ROOT_VARIABLE}, where steps can write: it is never called")
        module = import_module(package)
    return module
