"""What a call of an executor brought: its output as JSON text, or why it cannot be one."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.application.events import failure
from orchestrator.application.hiding import Hiding
from orchestrator.raised import Hide, said

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


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
            "bad_output", f"the output is not JSON: {said(error, hide)}", type(error).__name__
        )
    if size > max_bytes:
        message = f"the output has {size:,} bytes; limits.max_output_bytes allows {max_bytes:,}"
        return None, failure("bad_output", f"{message}: pass large data by reference")
    return text, None
