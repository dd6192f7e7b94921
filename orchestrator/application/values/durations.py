"""Durations as users write them: whole seconds, or "500ms", "30s", "5m", "24h", "7d"."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

MAX_DURATION_S = 3650 * 86_400
DURATION_PATTERN = r"([0-9]{1,12})(ms|s|m|h|d)"

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(DURATION_PATTERN)


def parse_duration(value: Any) -> float:
    """Return a duration in seconds. A ValueError has a message for the user."""
    return parse_ms(value) / 1_000


def parse_ms(value: Any) -> int:
    """Return a duration in milliseconds. A ValueError has a message for the user."""
    return _parse_text(value) if isinstance(value, str) else _parse(value)


def _parse(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        ms = value * 1_000
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value)):
        ms = int(match[1]) * _UNITS_MS[match[2]]
    else:
        raise ValueError('must be whole seconds, or a string such as "500ms", "30s", "5m", "24h", "7d"')
    if not 0 <= ms <= MAX_DURATION_S * 1_000:
        raise ValueError(f"must be between 0 and {MAX_DURATION_S // 86_400}d")
    return ms


_parse_text = lru_cache(maxsize=256)(_parse)  # thousands of steps repeat the same few texts
