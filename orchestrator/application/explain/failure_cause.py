"""The cause of a failure. Executions that failed for the same cause are counted and handled together.

Two failures have the same cause if workflow, step, kind, exception type and message are the same. What
differs from one execution to the next is taken out of the message: ids, times and numbers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

from orchestrator.application.values.unit_id import step_of

MAX_MESSAGE_CHARS = 200
ID_LENGTH = 10

_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_HEX = r"0[xX][0-9a-fA-F]+|(?<![0-9A-Za-z])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{8,}(?![0-9A-Za-z])"
_NUMBER = r"\d+(?:[.,]\d+)*"
_VARIABLE_PARTS = re.compile(f"(?P<id>{_UUID})|(?P<time>{_TIME})|(?P<hex>{_HEX})|(?P<n>{_NUMBER})")
_PLACEHOLDERS = {"id": "<id>", "hex": "<id>", "time": "<time>", "n": "<n>"}


@dataclass(frozen=True)
class FailureCause:
    """A cause. `step` is empty if the execution as a whole failed, such as by its timeout."""

    workflow: str | None
    step: str
    kind: str
    type: str | None
    message: str

    @cached_property
    def id(self) -> str:
        """A short name of the cause, the same in every process."""
        text = json.dumps(astuple(self), ensure_ascii=False)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:ID_LENGTH]

    @property
    def text(self) -> str:
        """The type or the kind, and the message."""
        name = self.type or self.kind
        return f"{name}: {self.message}" if self.message else name


def find_cause(
    workflow: str | None, step: str | None, error: Mapping[str, Any], execution_id: str
) -> FailureCause:
    """Find the cause of a failure. The error must be redacted already: the cause is shown. An item of a map
    counts for its step."""
    exception = error.get("type")
    return FailureCause(
        workflow,
        step_of(step or ""),
        str(error.get("kind") or "unknown"),
        None if exception is None else str(exception),
        normalize_message(str(error.get("message") or ""), execution_id),
    )


def normalize_message(message: str, execution_id: str = "") -> str:
    """Return the first line of a message with placeholders for the execution id, other ids, times and
    numbers."""
    line = message.strip().partition("\n")[0][: 4 * MAX_MESSAGE_CHARS]
    parts = line.split(execution_id) if execution_id else [line]
    return "<execution>".join(_VARIABLE_PARTS.sub(_placeholder, part) for part in parts)[:MAX_MESSAGE_CHARS]


def _placeholder(match: re.Match[str]) -> str:
    return _PLACEHOLDERS[str(match.lastgroup)]
