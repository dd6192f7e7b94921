"""Calls a function by its dotted name: the executor `python`.

    ORCHESTRATOR_PYTHON_MODULES   the modules whose functions may be called: shop.tasks, or shop.* for
                                  all below a package, separated by commas; unset, none

A function is one that its module defines: not what it imports, no method, nothing whose name begins with an
underscore. The standard library is never called, whatever the list says, and neither is a file that the
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

from .folders import is_under_root
from .settings import Refused, matches, merge_settings, read_allowlist, suggest

__all__ = ["python"]

MODULES_VARIABLE = "ORCHESTRATOR_PYTHON_MODULES"


class PythonInputs(TypedDict, total=False):
    """`function`: its dotted name; `arguments`: what it is given, by name."""

    function: str
    arguments: dict[str, Any]


def python(
    inputs: PythonInputs, configuration: dict[str, Any]
) -> dict[str, Any] | Coroutine[Any, Any, dict[str, Any]]:
    """Call `function` with `arguments`; what it returns is the output.

    Anything but a dictionary is the `result` of one. Of an async function it is a coroutine, for the
    caller to await.
    """
    settings = merge_settings(configuration, inputs, PythonInputs.__annotations__)
    name, arguments = settings.get("function"), settings.get("arguments", {})
    if not isinstance(name, str):
        raise Refused("'function' must be the dotted name of a function, such as shop.tasks.price")
    if not isinstance(arguments, dict):
        raise Refused("'arguments' must be a mapping of names to values")
    function = _function(name)
    try:
        signature(function).bind(**arguments)
    except TypeError as error:
        raise Refused(f"{name} cannot be called with these arguments: {error}") from None
    returned = function(**arguments)
    return _awaited(returned) if isinstance(returned, CoroutineType) else _output(returned)


async def _awaited(coroutine: Coroutine[Any, Any, Any]) -> dict[str, Any]:
    return _output(await coroutine)


def _output(returned: Any) -> dict[str, Any]:
    return returned if isinstance(returned, dict) else {"result": returned}


def _function(dotted: str) -> FunctionType:
    module_name, _, name = dotted.rpartition(".")
    parts = dotted.split(".")
    if not module_name or not all(part.isidentifier() for part in parts):
        raise Refused(f"{dotted!r} is not the dotted name of a function, such as shop.tasks.price")
    if any(part.startswith("_") for part in parts):
        raise Refused(f"{dotted} is private: a name that begins with '_' is not called")
    _check_allowed(module_name)
    module = _module(module_name)
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
        raise Refused(f"{message}; name the modules that it may call, such as {module}")
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise Refused(f"{module} belongs to Python itself, which is never called")
    if not matches(module, [one for one in patterns if not one.startswith("*")]):
        hint = "; a pattern begins with the name of a package" if "*" in patterns else ""
        raise Refused(f"{module} may not be called: name it in {MODULES_VARIABLE} if that is meant{hint}")


def _module(name: str) -> ModuleType:
    """Imported package by package, so that none is loaded from where a step could have written it."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        package = ".".join(parts[:end])
        found = find_spec(package)
        if found is None:
            raise ModuleNotFoundError(f"there is no module {package} on this worker")
        places = [found.origin, *(found.submodule_search_locations or ())]
        if any(place is not None and is_under_root(place) for place in places):
            raise Refused(f"{package} lies where the executor 'file' writes: it is never called")
        module = import_module(package)
    return module
