"""Kinds of values in the settings of the executor `http`: each is given back, or Refused by its name.

No refusal repeats a value, which may be a secret.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .network import Refused


def check_mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise Refused(f"{where} must be a mapping of names to values")
    return value


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{where} must be a text")
    return value


def scalar_to_text(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise Refused(f"{where} must be a text, a number or a boolean")


def check_encodable(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(f"{where} has half a character, which cannot be sent") from None
    return text


def read_number(settings: Mapping[str, Any], name: str, default: float, most: float) -> float:
    value = settings.get(name, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not 0 < value <= most:
        raise Refused(f"{name} must be a number of seconds above 0, at most {most:g}")
    return float(value)


def read_integer(settings: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    value = settings.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Refused(f"{name} must be a whole number from {least} to {most:,}")
    return value


def read_choice(settings: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    """The first is taken when nothing is said."""
    value = settings.get(name, choices[0])
    if value not in choices:
        raise Refused(f"{name} must be {' or '.join(one for one in choices if one)}")
    return str(value)
