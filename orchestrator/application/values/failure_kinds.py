"""Which failures are retried, and which are not because a retry would fail in the same way.

A failure has the name of the exception's type (`type`), and where that adds something, the names of the type
and its base classes with their modules (`types`). `not_retried` holds the reason why a failure must not be
retried. A worker sets it, or the engine does because of `retry.non_retryable` in the document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NON_RETRYABLE_KINDS = frozenset(
    {
        "expression",
        "bad_output",
        "branch_target",
        "no_branch",
        "loop_limit",
        "declared",
        "refused",
        "payload_missing",
    }
)
"""Kinds of failure that would repeat on every retry."""

RETRYABLE_KINDS = ("child_failed", "exception", "lost", "rejected", "timeout")
"""Kinds of failure that a document may list in `retry.non_retryable`."""


def is_retryable(error: Mapping[str, Any]) -> bool:
    return error["kind"] not in NON_RETRYABLE_KINDS and not error.get("not_retried")


def find_matching_name(error: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """Return the first of these names that is the kind of the failure, or one of its types; else None."""
    types = error.get("types")
    all_types = [error.get("type"), *(types if isinstance(types, list) else ())]
    return next((name for name in names if name == error["kind"] or matches_any_type(name, all_types)), None)


def matches_any_type(name: str, types: Iterable[Any]) -> bool:
    """Whether a name equals one of these dotted type names, or the last part of one."""
    return any(name in (one, str(one).rpartition(".")[2]) for one in types)


def type_name(raised: type[BaseException]) -> str:
    """Return the name of an exception type, with its module unless it is a built-in type."""
    module = "" if raised.__module__ == "builtins" else f"{raised.__module__}."
    return f"{module}{raised.__qualname__}"
