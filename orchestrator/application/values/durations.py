"""Durations as users write them: whole seconds, or "500ms", "30s", "5m", "24h", "7d"."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

MAX_DURATION_S = 3650 * 86_400
DURATION_PATTERN = r"([0-9]{1,12})(ms|s|m|h|d)"

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WRITTEN = re.compile(DURATION_PATTERN)


def parse_duration(value: Any) -> float:
    """The seconds a user meant; ValueError, in words for that user, when it is no duration."""
    return parse_ms(value) / 1_000


def parse_ms(value: Any) -> int:
    """The same in milliseconds."""
    return _text_ms(value) if isinstance(value, str) else _ms(value)


def _ms(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        ms = value * 1_000
    elif isinstance(value, str) and (written := _WRITTEN.fullmatch(value)):
        ms = int(written[1]) * _UNITS_MS[written[2]]
    else:
        raise ValueError('must be whole seconds, or a text such as "500ms", "30s", "5m", "24h", "7d"')
    if not 0 <= ms <= MAX_DURATION_S * 1_000:
        raise ValueError(f"must be between 0 and {MAX_DURATION_S // 86_400}d")
    return ms


_text_ms = lru_cache(maxsize=256)(_ms)  # the same few texts stand in thousands of steps
