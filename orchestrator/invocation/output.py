"""What a call of an executor brought: its output as JSON text, or why it cannot be one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from orchestrator.application.records.events import failure
from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.invocation.exceptions import RedactText, format_message, format_type_name

Offload = Callable[[str], tuple[str | None, dict[str, Any] | None]]
"""A JSON text that is too large, with references to what it has too much of; or why that cannot be."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_output(
    output: Any, max_bytes: int, hide: RedactText, secrets: ValueRedactor, offload: Offload
) -> tuple[str | None, dict[str, Any] | None]:
    """An output as JSON text without these secrets, or why it cannot be one."""
    try:
        text = _encode(output)
        if secrets and secrets.text(text) != text:
            text = _encode(secrets.value(json.loads(text)))
        size = len(text.encode())
    except BaseException as error:  # an object may raise whatever it likes when it is looked at
        message = f"the output is not JSON: {format_message(error, hide)}"
        return None, failure("bad_output", message, format_type_name(error, hide))
    return (text, None) if size <= max_bytes else offload(text)
