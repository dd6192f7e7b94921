"""How large a value may be that an expression builds."""

from __future__ import annotations

from math import isfinite
from typing import Any

from orchestrator.application.expressions.functions import check_result_size

_MAX_RESULT_DEPTH = 200
_MAX_BITS = 1_024  # of an integer: about the range of a double
_CONTAINERS = (dict, list)


def json_size(value: Any) -> int:
    """About the bytes of `value` as JSON; too many or too deep is a ValueError, before all are counted."""
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
    """A scalar that an operator made; a ValueError if it is none that JSON and we can hold."""
    if isinstance(result, str):
        check_result_size(len(result))
    elif isinstance(result, float) and not isfinite(result):
        raise ValueError("the result is not a finite number")
    elif isinstance(result, int) and result.bit_length() > _MAX_BITS:
        raise ValueError("the result is too large a number")
    return result
