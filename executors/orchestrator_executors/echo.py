"""Returns its inputs: the executor `echo`, for trying out a document and for values that need a step."""

from __future__ import annotations

from typing import Any

__all__ = ["echo"]


def echo(inputs: dict[str, Any]) -> dict[str, Any]:
    """The inputs, as they are."""
    return dict(inputs)
