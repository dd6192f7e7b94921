"""Checks the values in the settings of the executor `http`: returns the value, or raises Refused.

A message names the setting but never contains the value, which may be a secret.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .settings import Refused


def check_mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise Refused(f"{where} must be a mapping of names to values")
    return value


def check_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{where} must be a string")
    return value


def scalar_to_text(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise Refused(f"{where} must be a string, a number or a boolean")


def read_seconds(settings: Mapping[str, Any], name: str, default: float, max_s: float) -> float:
    value = settings.get(name, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not 0 < value <= max_s:
        raise Refused(f"{name} must be a number of seconds above 0, at most {max_s:g}")
    return float(value)


def read_integer(settings: Mapping[str, Any], name: str, default: int, max_value: int) -> int:
    value = settings.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= max_value:
        raise Refused(f"{name} must be a whole number from 0 to {max_value:,}")
    return value


def read_choice(settings: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    """One of these values; the first is the default."""
    value = settings.get(name, choices[0])
    if value not in choices:
        raise Refused(f"{name} must be {' or '.join(one for one in choices if one)}")
    return str(value)
