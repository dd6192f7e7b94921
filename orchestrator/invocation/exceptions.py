"""An exception of an executor as a failure that can be stored: message, types, traceback, and the reason why
the step is not retried, if there is one.

    class Rejected(Exception):
        non_retryable = True  # or "NonRetryable" in the name of the class, or of a base

ORCHESTRATOR_NON_RETRYABLE of the worker lists other types, separated by commas: ValueError,package.Rejected.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.application.records.events import make_failure
from orchestrator.application.values.failure_kinds import matches_any_type, type_name

NON_RETRYABLE_VARIABLE = "ORCHESTRATOR_NON_RETRYABLE"
MAX_TRACEBACK_CHARS = 2_000
MAX_MESSAGE_CHARS = 10_000
MAX_TRACEBACK_LINE_CHARS = 200
"""The maximum length of a traceback line: a long message must not push the raising line out of the text."""
MAX_NAME_CHARS = 200
MAX_TYPES = 10

RedactText = Callable[[str], str]
"""Removes the secrets of a step from a text."""


def describe_exception(
    error: BaseException, redact: RedactText = str, non_retryable: Sequence[str] = (), hint: str = ""
) -> dict[str, Any]:
    """The failure for an exception; the types in `non_retryable` are not retried. `hint` is added to the
    message.

    Reading an exception may run its own code, which may raise or exit.
    """
    try:
        details = _details(error, redact, non_retryable)
    except BaseException:
        details = {}
    message, type_ = format_message(error, redact), format_type_name(error, redact)
    return make_failure("exception", f"{message}: {hint}" if hint else message, type_, **details)


def format_message(error: BaseException, redact: RedactText) -> str:
    """The message of an exception, or its type if it has none. Secrets are removed before it is cut."""
    try:
        return _storable(redact(str(error))[:MAX_MESSAGE_CHARS]) or format_type_name(error, redact)
    except BaseException:
        return format_type_name(error, redact)


def format_type_name(error: BaseException, redact: RedactText) -> str:
    """The name of its type, read without the metaclass, which could return anything."""
    return _name(redact(type.__dict__["__name__"].__get__(type(error))))


def _details(error: BaseException, redact: RedactText, non_retryable: Sequence[str]) -> dict[str, Any]:
    details: dict[str, Any] = {}
    types = _types(error)
    if types != [type(error).__name__]:
        details["types"] = [_name(redact(one)) for one in types]
    reason = _find_reason_not_to_retry(error, types, non_retryable)
    if reason is not None:
        details["not_retried"] = _name(redact(reason))
    details["traceback"] = _traceback_tail(error, redact)
    return details


def _types(error: BaseException) -> list[str]:
    """The names of its type and of the bases, without those that all exceptions have."""
    common = (Exception, BaseException, object)
    return [type_name(one) for one in type(error).__mro__ if one not in common][:MAX_TYPES]


def _find_reason_not_to_retry(
    error: BaseException, types: list[str], non_retryable: Sequence[str]
) -> str | None:
    for one in type(error).__mro__:
        if "nonretryable" in one.__name__.replace("_", "").lower():
            return f"it is a {one.__name__}"
    try:
        if getattr(error, "non_retryable", False):
            return "its attribute non_retryable is set"
    except BaseException:  # an attribute that cannot be read counts as not set
        return None
    found = next((name for name in non_retryable if matches_any_type(name, types)), None)
    return None if found is None else f"{NON_RETRYABLE_VARIABLE} of its worker names {found}"


def _traceback_tail(error: BaseException, redact: RedactText) -> str:
    """The end of its traceback, with its causes. Redacted before it is cut, or half a secret could remain."""
    try:
        lines = redact("".join(traceback.format_exception(error))).splitlines()
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
    """Replace characters that cannot be stored, such as half a surrogate pair."""
    return text.encode(errors="replace").decode()
