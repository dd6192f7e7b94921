"""The limits on the size of a value that an expression builds, and the work that a value takes."""

from __future__ import annotations

from math import isfinite
from typing import Any

from orchestrator.application.expressions.functions import MAX_RESULT_BYTES, check_result_size
from orchestrator.application.expressions.meter import Meter

_MAX_RESULT_DEPTH = 200
_MAX_BITS = 1_024  # of an integer: about the range of a double

NODES_PER_UNIT = 8
BYTES_PER_UNIT = 128
CHARS_PER_UNIT = 4_096
"""How many values are visited, bytes of JSON written, and characters copied for one unit of work."""


def measure(
    value: Any, meter: Meter, max_bytes: int = MAX_RESULT_BYTES, max_depth: int = _MAX_RESULT_DEPTH
) -> int:
    """Estimate the size of a value as JSON, in bytes, and spend what it takes to visit and to write it.

    The estimate is within a factor of six. It stops as soon as it exceeds `max_bytes`. ValueError for a value
    that is too deep.
    """
    size, paid, level = 0, 0, [value]
    for _ in range(max_depth):
        if len(level) >= NODES_PER_UNIT:
            meter.spend(len(level) // NODES_PER_UNIT)
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                size += len(item) + 2
            elif kind is list:
                size += 2 * len(item) + 2
                if size > max_bytes:
                    return size
                below += item
            elif kind is dict:
                size += 4 * len(item) + 2 + sum(map(len, item))
                if size > max_bytes:
                    return size
                below += item.values()
            else:
                size += 2 + (item.bit_length() >> 2) if kind is int else 4
        if size > max_bytes:
            return size
        if size >= BYTES_PER_UNIT:
            meter.spend(size // BYTES_PER_UNIT - paid)
            paid = size // BYTES_PER_UNIT
        if not below:
            return size
        level = below
    raise ValueError(f"the result is more than {max_depth} levels deep")


def charge_for(value: Any, meter: Meter) -> Any:
    """Spend what a value takes that an expression has built, and return it. ValueError if it is too large.

    Its parts are shared, not copied, so without this charge a few operators could cheaply build a value that
    takes very long to compare or to serialise.
    """
    if isinstance(value, dict | list):
        check_result_size(measure(value, meter))
    elif isinstance(value, str):
        meter.spend(len(value) // CHARS_PER_UNIT)
    return value


def check_scalar(result: Any) -> Any:
    """Return the result of an operator; ValueError if it is too large, or a number that is not finite."""
    if isinstance(result, str):
        check_result_size(len(result))
    elif isinstance(result, float) and not isfinite(result):
        raise ValueError("the result is not a finite number")
    elif isinstance(result, int) and result.bit_length() > _MAX_BITS:
        raise ValueError("the result is too large a number")
    return result
