"""JSON Logic, evaluated within limits.

`evaluate` is loaded on first use: a worker imports this package for each step and rarely evaluates anything.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.application.expressions.evaluation import evaluate

__all__ = ["evaluate"]


def __getattr__(name: str) -> Any:
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.evaluation").evaluate
