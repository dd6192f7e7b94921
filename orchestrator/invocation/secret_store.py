"""Where a worker finds secrets. Whoever has one first gives it, and is asked again for every step:

    ORCHESTRATOR_SECRETS_PROVIDER   package.module:function, called with the name; a text, or None for nothing
    ORCHESTRATOR_SECRETS_DIR        a folder with a file of that name, as containers have them
    ORCHESTRATOR_SECRET_<NAME>      a variable; the name in capitals, with _ for - and .

What is empty is not there. One that is there and cannot be read is a failure, and nobody else is asked. No
error holds any part of a value, and nothing is kept.
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


def read_secret(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The value of a secret; SecretNotFound if nobody has it, SecretUnavailable if the provider failed."""
    if not is_secret_name(name):
        raise SecretNotFound(name, SECRET_NAME_RULE)
    looked_for: list[str] = []
    for where, ask in _asked(name, environment):
        try:
            value = ask(name)
        except _Unreadable as fault:
            raise SecretNotFound(name, f"{where} {fault}") from None
        if value:
            _check_text(name, where, value)
            return value
        looked_for.append(where)
    raise SecretNotFound(name, f"looked for in {', '.join(looked_for)}")


def variable_of(name: str) -> str:
    return SECRET_PREFIX + name.upper().replace("-", "_").replace(".", "_")


class _Unreadable(Exception):
    """In words that follow where it was looked for."""


def _asked(name: str, environment: Mapping[str, str]) -> Iterator[tuple[str, ReadFrom]]:
    """Who is asked, in words, and how."""
    if provider := environment.get(PROVIDER_VARIABLE):
        where = f"{PROVIDER_VARIABLE} ({provider})"
        yield where, lambda name: _from_provider(name, provider, where)
    if folder := environment.get(FOLDER_VARIABLE):
        yield f"{FOLDER_VARIABLE} ({folder})", lambda name: _from_file(name, folder)
    yield variable_of(name), lambda name: environment.get(variable_of(name))


def _from_provider(name: str, provider: str, where: str) -> str | None:
    function = _function(provider)
    try:
        value = function(name)
    except Exception as error:
        raise SecretUnavailable(name, where, error) from None  # what it says may hold anything
    if value is not None and not isinstance(value, str):
        raise _Unreadable(f"gave {type(value).__name__}, and no text")
    return value


def _function(provider: str) -> Callable[[str], Any]:
    module, _, name = provider.partition(":")
    try:
        function = getattr(import_module(module), name)
    except Exception as error:  # a module may raise whatever it likes
        raise _Unreadable(
            f"cannot be loaded, write package.module:function: {type(error).__name__}"
        ) from None
    if not callable(function):
        raise _Unreadable("is no function")
    found: Callable[[str], Any] = function
    return found


def _from_file(name: str, folder: str) -> str | None:
    """The file may be a link, as in the volumes of containers, but leads nowhere outside of the folder."""
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))
    if not os.path.lexists(os.path.join(root, name)):
        return None
    if os.path.commonpath([root, path]) != root:
        raise _Unreadable("has a link of that name that leads out of it")
    if not os.path.isfile(path):
        raise _Unreadable("has something of that name that is no file")
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise _Unreadable(f"has such a file that cannot be read: {error.strerror}") from None
    if len(content) > MAX_SECRET_BYTES:
        raise _Unreadable(f"has such a file of more than {MAX_SECRET_BYTES:,} bytes")
    text = content.decode(errors="surrogateescape")
    return text.removesuffix("\n").removesuffix("\r")


def _check_text(name: str, where: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes that are none, as files and variables may have them
        raise SecretNotFound(name, f"{where} has one that is not UTF-8") from None
