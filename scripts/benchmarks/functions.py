"""What the steps of the benchmark do: next to nothing, so that what is measured is the way there and back."""

from __future__ import annotations

from typing import Any


def inc(inputs: dict[str, Any]) -> dict[str, int]:
    return {"n": inputs["n"] + 1}


def total(inputs: dict[str, Any]) -> dict[str, int]:
    return {"n": sum(one["n"] for one in inputs["all"])}


def job(n: int) -> dict[str, int]:
    """The same as a job of RQ."""
    return {"n": n + 1}
