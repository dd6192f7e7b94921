"""The executor `echo`: returns its inputs, to try out a document or to give a value a step of its own."""

from __future__ import annotations

from typing import Any

__all__ = ["echo"]


def echo(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs unchanged."""
    return dict(inputs)
