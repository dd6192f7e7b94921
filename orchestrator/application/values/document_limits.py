"""The limits of a document: its size, its depth, and JSON values only."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from orchestrator.application.errors import Problem


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """The limits of a new document. `max_steps` counts the steps of inline children too."""

    max_bytes: int = 8 * 1024 * 1024
    max_nodes: int = 500_000
    max_depth: int = 50
    max_steps: int = 12_000


DEFAULT_LIMITS = DocumentLimits()
DATA_LIMITS = DocumentLimits(max_bytes=16 * 1024 * 1024, max_nodes=1_000_000, max_steps=100_000)
"""The limits of inputs, and of documents that are stored: earlier releases accepted more."""
TOO_BIG_HINT = (
    "split it into workflows that are registered by name and started as children, write a map instead of"
    " many similar steps, and pass data as inputs"
)
MAX_PROBLEMS = 1_000
TOO_MANY_PROBLEMS = Problem(
    "", "too_big", f"there are more than {MAX_PROBLEMS} problems; these are the first"
)


def too_many_nodes_message(limits: DocumentLimits) -> str:
    return f"the document has more than {limits.max_nodes:,} nodes, aliases expanded"


def too_many_bytes_message(limits: DocumentLimits) -> str:
    return f"the text has more than {limits.max_bytes:,} bytes"


def too_many_steps_message(steps: int, limits: DocumentLimits) -> str:
    return f"the document has {steps:,} steps, inline children included; the limit is {limits.max_steps:,}"


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
