"""The limits of a document: its size, its depth, and JSON values only."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import Problem


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    max_bytes: int = 16 * 1024 * 1024
    max_nodes: int = 1_000_000
    max_depth: int = 50


DEFAULT_LIMITS = DocumentLimits()
MAX_PROBLEMS = 1_000
TOO_MANY_PROBLEMS = Problem(
    "", "too_big", f"there are more than {MAX_PROBLEMS} problems; these are the first"
)


def too_many_nodes_message(limits: DocumentLimits) -> str:
    return f"the document has more than {limits.max_nodes} nodes, aliases expanded"


def too_deep_message(limits: DocumentLimits) -> str:
    return f"the document is nested deeper than {limits.max_depth} levels"


def duplicate_key_message(key: str) -> str:
    return f"the key {key!r} is written twice"


def not_json_reason(value: Any) -> str | None:
    """Return why a scalar is not JSON, or None if it is."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        is_unicode = value.isascii() or not _SURROGATE.search(value)
        return None if is_unicode else "a string that is not valid Unicode is not JSON"
    if isinstance(value, int):
        is_short = value.bit_length() <= _MAX_INT_BITS
        return None if is_short else "most JSON parsers cannot read a number this long"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value} is not JSON"
    return f"a value of type {type(value).__name__} is not JSON"


_MAX_INT_BITS = 1024  # the range of a float; json.dumps() rejects much longer numbers
_SURROGATE = re.compile("[\ud800-\udfff]")
