"""The secrets of a worker. They are read again for every step, from the first of these that has the name:

    ORCHESTRATOR_SECRETS_PROVIDER   package.module:function, called with the name; returns a text, or None
    ORCHESTRATOR_SECRETS_DIR        a folder with a file of that name, as containers have them
    ORCHESTRATOR_SECRET_<NAME>      a variable; the name in capitals, with _ for - and .

An empty value counts as missing. A secret that exists but cannot be read is a failure, and the next place is
not tried. No error contains any part of a value, and no value is cached.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from orchestrator.application.errors import SecretNotFound, SecretUnavailable
from orchestrator.application.values.secret_refs import SECRET_NAME_RULE, is_secret_name

PROVIDER_VARIABLE = "ORCHESTRATOR_SECRETS_PROVIDER"
FOLDER_VARIABLE = "ORCHESTRATOR_SECRETS_DIR"
SECRET_PREFIX = "ORCHESTRATOR_SECRET_"
MAX_SECRET_BYTES = 65_536

ReadFrom = Callable[[str], str | None]


def read_secret(name: str, environment: Mapping[str, str]) -> str:
    """The value of a secret; SecretNotFound if no place has it, SecretUnavailable if the provider raised."""
    if not is_secret_name(name):
        raise SecretNotFound(name, SECRET_NAME_RULE)
    searched: list[str] = []
    for place, read in _places(name, environment):
        try:
            value = read(name)
        except _Unreadable as problem:
            raise SecretNotFound(name, f"{place} {problem}") from None
        if value:
            _check_encoding(name, place, value)
            return value
        searched.append(place)
    raise SecretNotFound(name, f"searched in {', '.join(searched)}")


def variable_of(name: str) -> str:
    return SECRET_PREFIX + name.upper().replace("-", "_").replace(".", "_")


class _Unreadable(Exception):
    """The secret cannot be read. The message continues a sentence that begins with the place."""


def _places(name: str, environment: Mapping[str, str]) -> Iterator[tuple[str, ReadFrom]]:
    """Each place that may have the secret: its description, and the function that reads from it."""
    if provider := environment.get(PROVIDER_VARIABLE):
        place = f"{PROVIDER_VARIABLE} ({provider})"
        yield place, lambda name: _read_from_provider(name, provider, place)
    if folder := environment.get(FOLDER_VARIABLE):
        yield f"{FOLDER_VARIABLE} ({folder})", lambda name: _read_from_file(name, folder)
    yield variable_of(name), lambda name: environment.get(variable_of(name))


def _read_from_provider(name: str, provider: str, place: str) -> str | None:
    function = _load_function(provider)
    try:
        value = function(name)
    except Exception as error:
        raise SecretUnavailable(name, place, error) from None  # its message may contain the secret
    if value is not None and not isinstance(value, str):
        raise _Unreadable(f"returned {type(value).__name__} instead of a text")
    return value


def _load_function(provider: str) -> Callable[[str], Any]:
    module, _, name = provider.partition(":")
    try:
        function = getattr(import_module(module), name)
    except Exception as error:  # a module may raise anything
        raise _Unreadable(
            f"cannot be loaded ({type(error).__name__}): write package.module:function"
        ) from None
    if not callable(function):
        raise _Unreadable("is not a function")
    checked: Callable[[str], Any] = function
    return checked


def _read_from_file(name: str, folder: str) -> str | None:
    """Read a file. It may be a link, as in the volumes of containers, but not to outside of the folder."""
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))
    if not os.path.lexists(os.path.join(root, name)):
        return None
    if os.path.commonpath([root, path]) != root:
        raise _Unreadable("has a link of that name to a file outside of the folder")
    if not os.path.isfile(path):
        raise _Unreadable("has an entry of that name that is not a file")
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise _Unreadable(f"has a file of that name that cannot be read: {error.strerror}") from None
    if len(content) > MAX_SECRET_BYTES:
        raise _Unreadable(f"has a file of that name with more than {MAX_SECRET_BYTES:,} bytes")
    text = content.decode(errors="surrogateescape")
    return text.removesuffix("\n").removesuffix("\r")


def _check_encoding(name: str, place: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:  # files and variables may hold bytes that are not text
        raise SecretNotFound(name, f"{place} has a value that is not UTF-8") from None
