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
from orchestrator.application.values.failure_kinds import matches_any_type, type_name

NON_RETRYABLE_VARIABLE = "ORCHESTRATOR_NON_RETRYABLE"
MAX_TRACEBACK_CHARS = 2_000
MAX_MESSAGE_CHARS = 10_000
MAX_TRACEBACK_LINE_CHARS = 200
"""How much of a line of a traceback is kept: a long message must not push out who raised it."""
MAX_NAME_CHARS = 200
MAX_TYPES = 10

RedactText = Callable[[str], str]
"""A text without the secrets that its step was given."""


def describe_exception(error: BaseException, hide: RedactText = str) -> dict[str, Any]:
    """The failure that an exception is. It may do whatever it likes when it is looked at: raise, or exit."""
    try:
        details = _details(error, hide)
    except BaseException:
        details = {}
    return failure("exception", format_message(error, hide), format_type_name(error, hide), **details)


def format_message(error: BaseException, hide: RedactText) -> str:
    """What an exception says, if it can; else what it is. Secrets go before the rest is cut."""
    try:
        return _storable(hide(str(error))[:MAX_MESSAGE_CHARS]) or format_type_name(error, hide)
    except BaseException:
        return format_type_name(error, hide)


def format_type_name(error: BaseException, hide: RedactText) -> str:
    """The name of its type, as Python has it: a metaclass could tell another, or none."""
    return _name(hide(type.__dict__["__name__"].__get__(type(error))))


def _details(error: BaseException, hide: RedactText) -> dict[str, Any]:
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
    return [type_name(one) for one in type(error).__mro__ if one not in everybody][:MAX_TYPES]


def _not_retried(error: BaseException, types: list[str]) -> str | None:
    for one in type(error).__mro__:
        if "nonretryable" in one.__name__.replace("_", "").lower():
            return f"it is a {one.__name__}"
    try:
        if getattr(error, "non_retryable", False):
            return "it says that it is non_retryable"
    except BaseException:  # whoever cannot say so has not said so
        return None
    names = (name.strip() for name in os.environ.get(NON_RETRYABLE_VARIABLE, "").split(","))
    found = next((name for name in names if name and matches_any_type(name, types)), None)
    return None if found is None else f"{NON_RETRYABLE_VARIABLE} of its worker names {found}"


def _tail(error: BaseException, hide: RedactText) -> str:
    """The end of its traceback, with what caused it; hidden before it is cut, or half a secret would stay."""
    try:
        lines = hide("".join(traceback.format_exception(error))).splitlines()
    except BaseException:
        return ""
    cut = (
        line if len(line) <= MAX_TRACEBACK_LINE_CHARS else f"{line[:MAX_TRACEBACK_LINE_CHARS]}..."
        for line in lines
    )
    return _storable("\n".join(cut)[-MAX_TRACEBACK_CHARS:])


def _name(text: str) -> str:
    return _storable(text[:MAX_NAME_CHARS])


def _storable(text: str) -> str:
    """Whatever an exception says must be storable: half a surrogate pair is not."""
    return text.encode(errors="replace").decode()
