"""How much of a repeated test runs: a part by default, everything with `scripts/test --full`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

IS_FULL = os.environ.get("ORCHESTRATOR_TEST_FULL") == "1"


def count(usual: int, full: int) -> int:
    """How many seeds, steps or examples to try."""
    return full if IS_FULL else usual


def sample(values: Sequence[T], usual: int) -> list[T]:
    """All values with --full, otherwise this many of them, spread evenly and always the same."""
    if IS_FULL or usual >= len(values):
        return list(values)
    return [values[position * len(values) // usual] for position in range(usual)]
