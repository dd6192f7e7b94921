"""What a call of an executor brought: its output as JSON text, or why it cannot be one."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.application.events import failure
from orchestrator.raised import Hide, said


def checked(output: Any, max_bytes: int, hide: Hide) -> tuple[str | None, dict[str, Any] | None]:
    """An output as JSON text, or why it cannot be one."""
    try:
        text = json.dumps(output, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        size = len(text.encode())
    except Exception as error:  # an object may raise whatever it likes when it is looked at
        return None, failure(
            "bad_output", f"the output is not JSON: {said(error, hide)}", type(error).__name__
        )
    if size > max_bytes:
        message = f"the output has {size:,} bytes; limits.max_output_bytes allows {max_bytes:,}"
        return None, failure("bad_output", f"{message}: pass large data by reference")
    return text, None
