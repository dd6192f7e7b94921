"""Which failures are tried again, and which would only happen again.

A failure names the type that was raised (`type`), and where that says more, that type and its bases with
their modules (`types`). Whoever knows that it must not be tried again writes why: `not_retried`. A worker
does, and so does the document, by `retry.non_retryable`.
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
"""Kinds of failure that would only happen again."""

RETRYABLE_KINDS = ("child_failed", "exception", "lost", "rejected", "timeout")
"""The kinds that a document may say not to try again."""


def is_retryable(error: Mapping[str, Any]) -> bool:
    return error["kind"] not in NON_RETRYABLE_KINDS and not error.get("not_retried")


def find_matching_name(error: Mapping[str, Any], names: Iterable[str]) -> str | None:
    """The first of these names that a failure answers to: its kind, or a type that it is of."""
    types = error.get("types")
    known = [error.get("type"), *(types if isinstance(types, list) else ())]
    return next((name for name in names if name == error["kind"] or matches_any_type(name, known)), None)


def matches_any_type(name: str, types: Iterable[Any]) -> bool:
    """Whether one of the types is meant by a name: by its last word, or by all of them."""
    return any(name in (one, str(one).rpartition(".")[2]) for one in types)


def type_name(raised: type[BaseException]) -> str:
    """A type of exception with its module, unless it is a built-in one."""
    module = "" if raised.__module__ == "builtins" else f"{raised.__module__}."
    return f"{module}{raised.__qualname__}"
