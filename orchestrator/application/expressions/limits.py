"""The limits on the size of a value that an expression builds."""

from __future__ import annotations

from math import isfinite
from typing import Any

from orchestrator.application.expressions.functions import check_result_size

_MAX_RESULT_DEPTH = 200
_MAX_BITS = 1_024  # of an integer: about the range of a double
_CONTAINERS = (dict, list)


def json_size(value: Any) -> int:
    """Estimate the size of `value` as JSON, in bytes. ValueError as soon as it is too large or too deep."""
    total, level = 0, [value]
    for _ in range(_MAX_RESULT_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                total += len(item) + 2
            elif isinstance(item, _CONTAINERS):
                total += 2 * len(item) + 2
                check_result_size(total)
                below.extend(
                    item if isinstance(item, list) else (part for pair in item.items() for part in pair)
                )
            else:
                total += 4
        check_result_size(total)
        if not below:
            return total
        level = below
    raise ValueError(f"the result is more than {_MAX_RESULT_DEPTH} levels deep")


def check_scalar(result: Any) -> Any:
    """Return the result of an operator; ValueError if it is too large, or a number that is not finite."""
    if isinstance(result, str):
        check_result_size(len(result))
    elif isinstance(result, float) and not isfinite(result):
        raise ValueError("the result is not a finite number")
    elif isinstance(result, int) and result.bit_length() > _MAX_BITS:
        raise ValueError("the result is too large a number")
    return result
