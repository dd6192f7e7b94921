"""The output of an executor as JSON text, or the failure why it cannot be encoded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from orchestrator.application.records.events import make_failure
from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.invocation.exceptions import RedactText, format_message, format_type_name

Offload = Callable[[str], tuple[str | None, dict[str, Any] | None]]
"""Stores the large parts of a JSON text: returns the text with references to them, or a failure."""

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_output(
    output: Any,
    max_bytes: int,
    redact: RedactText,
    secrets: ValueRedactor,
    offload: Offload,
    is_fatal: Callable[[BaseException], bool],
) -> tuple[str | None, dict[str, Any] | None]:
    """Encode an output as JSON text without these secrets; the second item is the failure, if any.

    A MemoryError says nothing about the output, so it is raised.
    """
    try:
        text = _encode(output)
        if secrets and secrets.redact_text(text) != text:
            text = _encode(secrets.redact_value(json.loads(text)))
        size = len(text) if text.isascii() else len(text.encode())  # half a surrogate pair raises
    except BaseException as error:  # an object may run its own code and raise anything while it is encoded
        if is_fatal(error) or issubclass(type(error), MemoryError):
            raise
        message = f"the output is not JSON: {format_message(error, redact)}"
        return None, make_failure("bad_output", message, format_type_name(error, redact))
    return (text, None) if size <= max_bytes else offload(text)
