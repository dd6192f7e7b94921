"""Executors for tests on real processes: plain functions, as a user would write them."""

from __future__ import annotations

import time
from typing import Any


def add(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"sum": sum(value for value in inputs.values() if isinstance(value, int))}


def slow_add(inputs: dict[str, Any]) -> dict[str, Any]:
    time.sleep(float(inputs.get("seconds", 0.02)))
    return {"sum": inputs["a"] + inputs["b"]}


def nothing(inputs: dict[str, Any]) -> dict[str, Any]:
    return {}


def fail(inputs: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(inputs.get("message", "as asked"))
