"""Redacts a dead letter before it is shown. Sending its event again sends the original."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.application.records.record_view import RecordView
from orchestrator.application.redaction.by_key import redact_text
from orchestrator.application.values.dispatch_tokens import dispatch_id


def redact_letter(reason: str, fields: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Redact the secrets in a reason and in the fields of its event. Of the token of a dispatch the public
    part is shown."""
    values = {name: _parse(text) for name, text in fields.items() if name != "token"}
    view = RecordView((), [*values.values()])
    shown = dict(fields)
    for name, value in values.items():
        if isinstance(value, str):
            shown[name] = view.text(redact_text(fields[name]))
        elif (redacted := view(value)) != value:
            shown[name] = json.dumps(redacted, ensure_ascii=False)
    if "token" in shown:
        shown["token"] = dispatch_id(shown["token"])
    return view.text(redact_text(reason)), shown


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
