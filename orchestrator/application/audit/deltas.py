"""Checks whether the deltas of a history lead to the record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.application.audit.findings import Finding
from orchestrator.application.records.delta import DeltaMark, fold
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_parts import visible_fields
from orchestrator.application.records.visible_fields import Encode


def check_deltas(
    record: WorkflowRecord, deltas: Sequence[Mapping[str, Any]], encode: Encode
) -> Iterator[Finding]:
    """Compare the record with its folded deltas, if its last commit left one."""
    mark = DeltaMark.parse(record.delta)
    if mark.version != record.version or not mark.version or mark.omitted:
        return
    if not deltas or deltas[-1].get("version") != mark.version:
        yield Finding("delta", "", f"the delta of version {mark.version} is not in the history")
        return
    expected = {name: json.loads(text) for name, text in visible_fields(record, encode).items()}
    try:
        folded = fold(deltas)
    except (AttributeError, TypeError, ValueError):
        yield Finding("unreadable_entry", "", "a delta in the history is not valid")
        return
    for name in sorted({*expected, *folded}):
        if (name in expected, expected.get(name)) != (name in folded, folded.get(name)):
            yield Finding("delta", name, "the deltas in the history lead to another value")
