"""What a call of an executor brought: its output as JSON text, or its failure in words that can be kept."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

from orchestrator.application.events import failure
from orchestrator.application.hiding import Hiding

SHOWN_OF_A_TRACEBACK = 2_000
SHOWN_OF_A_MESSAGE = 10_000

Hide = Callable[[str], str]
"""A text without the secrets that its step was given."""


def checked(
    output: Any, max_bytes: int, hide: Hide = str, secrets: Hiding | None = None
) -> tuple[str | None, dict[str, Any] | None]:
    """An output as JSON text without these secrets, or why it cannot be one."""
    try:
        text = _encode(output)
        if secrets and secrets.text(text) != text:
            text = _encode(secrets.value(json.loads(text)))
        size = len(text.encode())
    except Exception as error:  # an object may raise whatever it likes when it is looked at
        return None, failure(
            "bad_output", f"the output is not JSON: {_said(error, hide)}", type(error).__name__
        )
    if size > max_bytes:
        message = f"the output has {size:,} bytes; limits.max_output_bytes allows {max_bytes:,}"
        return None, failure("bad_output", f"{message}: pass large data by reference")
    return text, None


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def exception(error: BaseException, hide: Hide = str) -> dict[str, Any]:
    tail = hide("".join(traceback.format_tb(error.__traceback__)))[-SHOWN_OF_A_TRACEBACK:]
    kind = hide(type(error).__name__)
    return failure("exception", _said(error, hide), kind, traceback=_printable(tail))


def _said(error: BaseException, hide: Hide) -> str:
    """What an exception says, if it can; else what it is. Secrets go before the rest is cut."""
    try:
        return _printable(hide(str(error))[:SHOWN_OF_A_MESSAGE]) or type(error).__name__
    except Exception:
        return type(error).__name__


def _printable(text: str) -> str:
    """Whatever an exception says must be storable: half a surrogate pair is not."""
    return text.encode(errors="replace").decode()
