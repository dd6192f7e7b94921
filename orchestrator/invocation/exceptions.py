"""What an executor raised, as a failure in words that can be kept: what it said, of which types it is, where
it came from, and why it is not tried again if it must not be.

    class Rejected(Exception):
        non_retryable = True  # or "NonRetryable" in the name of the class, or of a base

ORCHESTRATOR_NON_RETRYABLE of the worker names other types, separated by commas: ValueError,package.Rejected.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any

from orchestrator.application.records.events import failure
from orchestrator.application.values.failure_kinds import is_of, type_name

VARIABLE = "ORCHESTRATOR_NON_RETRYABLE"
SHOWN_OF_A_TRACEBACK = 2_000
SHOWN_OF_A_MESSAGE = 10_000
WIDEST = 200
"""How much of a line of a traceback is kept: a long message must not push out who raised it."""
LONGEST_NAME = 200
MOST_TYPES = 10

Hide = Callable[[str], str]
"""A text without the secrets that its step was given."""


def exception(error: BaseException, hide: Hide = str) -> dict[str, Any]:
    """The failure that an exception is. It may do whatever it likes when it is looked at: raise, or exit."""
    try:
        details = _details(error, hide)
    except BaseException:
        details = {}
    return failure("exception", said(error, hide), name_of(error, hide), **details)


def said(error: BaseException, hide: Hide) -> str:
    """What an exception says, if it can; else what it is. Secrets go before the rest is cut."""
    try:
        return _storable(hide(str(error))[:SHOWN_OF_A_MESSAGE]) or name_of(error, hide)
    except BaseException:
        return name_of(error, hide)


def name_of(error: BaseException, hide: Hide) -> str:
    """The name of its type, as Python has it: a metaclass could tell another, or none."""
    return _name(hide(type.__dict__["__name__"].__get__(type(error))))


def _details(error: BaseException, hide: Hide) -> dict[str, Any]:
    details: dict[str, Any] = {}
    types = _types(error)
    if types != [type(error).__name__]:
        details["types"] = [_name(hide(one)) for one in types]
    reason = _not_retried(error, types)
    if reason is not None:
        details["not_retried"] = _name(hide(reason))
    details["traceback"] = _tail(error, hide)
    return details


def _types(error: BaseException) -> list[str]:
    """Its type and the bases of that, but for those that all have."""
    everybody = (Exception, BaseException, object)
    return [type_name(one) for one in type(error).__mro__ if one not in everybody][:MOST_TYPES]


def _not_retried(error: BaseException, types: list[str]) -> str | None:
    for one in type(error).__mro__:
        if "nonretryable" in one.__name__.replace("_", "").lower():
            return f"it is a {one.__name__}"
    try:
        if getattr(error, "non_retryable", False):
            return "it says that it is non_retryable"
    except BaseException:  # whoever cannot say so has not said so
        return None
    names = (name.strip() for name in os.environ.get(VARIABLE, "").split(","))
    found = next((name for name in names if name and is_of(name, types)), None)
    return None if found is None else f"{VARIABLE} of its worker names {found}"


def _tail(error: BaseException, hide: Hide) -> str:
    """The end of its traceback, with what caused it; hidden before it is cut, or half a secret would stay."""
    try:
        lines = hide("".join(traceback.format_exception(error))).splitlines()
    except BaseException:
        return ""
    cut = (line if len(line) <= WIDEST else f"{line[:WIDEST]}..." for line in lines)
    return _storable("\n".join(cut)[-SHOWN_OF_A_TRACEBACK:])


def _name(text: str) -> str:
    return _storable(text[:LONGEST_NAME])


def _storable(text: str) -> str:
    """Whatever an exception says must be storable: half a surrogate pair is not."""
    return text.encode(errors="replace").decode()
