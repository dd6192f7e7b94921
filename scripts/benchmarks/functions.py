"""The functions of the steps. They do almost nothing, so that only the overhead is measured."""

from __future__ import annotations

from typing import Any


def inc(inputs: dict[str, Any]) -> dict[str, int]:
    return {"n": inputs["n"] + 1}


def total(inputs: dict[str, Any]) -> dict[str, int]:
    return {"n": sum(one["n"] for one in inputs["all"])}


def job(n: int) -> dict[str, int]:
    """The same function as an RQ job."""
    return {"n": n + 1}
