"""What a call of an executor brought: its output as JSON text, or its failure in words that can be kept."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

from orchestrator.application.events import failure

SHOWN_OF_A_TRACEBACK = 2_000
SHOWN_OF_A_MESSAGE = 10_000

Hide = Callable[[str], str]
"""A text without the secrets that its step was given."""


Stow = Callable[[str], tuple[str | None, dict[str, Any] | None]]
"""A JSON text that is too large, with references to what it has too much of; or why that cannot be."""


def checked(output: Any, max_bytes: int, hide: Hide, stow: Stow) -> tuple[str | None, dict[str, Any] | None]:
    """An output as JSON text, or why it cannot be one."""
    try:
        text = json.dumps(output, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except Exception as error:  # an object may raise whatever it likes when it is looked at
        return None, failure(
            "bad_output", f"the output is not JSON: {_said(error, hide)}", type(error).__name__
        )
    return (text, None) if size <= max_bytes else stow(text)


def exception(error: BaseException, hide: Hide = str) -> dict[str, Any]:
    tail = hide("".join(traceback.format_tb(error.__traceback__)))[-SHOWN_OF_A_TRACEBACK:]
    return failure("exception", _said(error, hide), type(error).__name__, traceback=_printable(tail))


def _said(error: BaseException, hide: Hide) -> str:
    """What an exception says, if it can; else what it is. Secrets go before the rest is cut."""
    try:
        return _printable(hide(str(error))[:SHOWN_OF_A_MESSAGE]) or type(error).__name__
    except Exception:
        return type(error).__name__


def _printable(text: str) -> str:
    """Whatever an exception says must be storable: half a surrogate pair is not."""
    return text.encode(errors="replace").decode()
