"""Deltas: what one commit changed in a record, as one entry of the history. Folded, they give the record.

    {"what": "delta", "version": "3-9f2c51aa", "at": "...",
     "set": {"step:a": {...}, "state:n": 1},   the fields that changed, as people may see them
     "drop": ["item:b:0"],                     the fields that are gone
     "jobs": [{"step": "b", "run_id": 0, "attempt": 1, "inputs": {...}}],
     "results": [{"step": "a", "run_id": 0, "attempt": 1, "error": {...}}]}

`jobs` are the dispatches of the commit with their inputs. `results` are results that the record does not
keep, because the same commit retried or reset the step. A `snapshot` has every field: folding starts there.
It is written for a new execution, and after a commit that left no delta.

    fold(deltas[:n]) == visible_fields(the record after commit n)            see record_parts.py

The record's field `delta` says which version the last delta led to, how many bytes all of them have, and how
many were left out. From MAX_DELTA_BYTES on, none is written: one entry with `omitted` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import StartEvent, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.record_parts import changed_parts, parts_of
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.records.visible_fields import Encode, VisibleFields, write_object
from orchestrator.application.redaction.by_key import has_secret_key

MAX_DELTA_BYTES = 1024 * 1024
"""How many bytes the deltas of one execution may have."""

MAX_SECRETS = 100
"""An execution with more secrets gets no more deltas: each new secret is searched for in the whole record."""

DELTA = "delta"


class DeltaMark(NamedTuple):
    """The field `delta` of a record, written as `<version> <bytes> <omitted>`."""

    version: str = ""
    size: int = 0
    omitted: int = 0

    @classmethod
    def parse(cls, text: str | None) -> DeltaMark:
        """The mark in this field. A text that is not one counts as none: the next delta is a snapshot."""
        try:
            version, size, omitted = (text or "").split(" ")
            return cls(version, int(size), int(omitted))
        except ValueError:
            return _NO_MARK

    def __str__(self) -> str:
        return f"{self.version} {self.size} {self.omitted}"


_NO_MARK = DeltaMark()


@dataclass(frozen=True, slots=True)
class Delta:
    """The delta of one commit: its entry as JSON, "" for none; the field `delta`, and what shows the record
    after the commit."""

    text: str
    mark: str
    visible: VisibleFields | None = None

    def note_in(self, record: WorkflowRecord) -> None:
        """Keep in a record what its next delta needs, after this one was committed."""
        record.delta, record.visible = self.mark, self.visible


def build_delta(
    record: WorkflowRecord,
    changes: Changes,
    version: str,
    encode: Encode,
    texts: Mapping[str, str] | None = None,
    *,
    creates: bool = False,
) -> Delta:
    """The delta of a commit that leads to this version. `texts` are fields of the record as JSON, as far as
    the caller has them."""
    mark = DeltaMark.parse(None if creates else record.delta)
    if mark.omitted:
        return Delta("", str(DeltaMark(version, mark.size, mark.omitted + 1)))
    changed = changed_parts(changes)
    known: Mapping[str, str] = texts or {}
    members = [("what", f'"{DELTA}"'), ("version", encode(version)), ("at", encode(iso(changes.at_ms)))]
    if not mark.version or mark.version != record.version:
        changed = {**parts_of(record), **changed}
        visible = VisibleFields.of(record.spec.redact, encode, changed)
        shown = {name: visible.show(name, value, known.get(name)) for name, value in changed.items()}
        shown = {name: text for name, text in shown.items() if text is not None}
        members.append(("snapshot", "true"))
    else:
        before = record.visible or VisibleFields.of(record.spec.redact, encode, parts_of(record))
        visible = before.update(changed)
        shown = {name: visible.show(name, value, known.get(name)) for name, value in changed.items()}
        if visible.redactor is not before.redactor:
            shown |= _shown_otherwise(record, before, visible, changed)
    members += _change_members(shown, encode)
    members += _attempt_members(changes, visible)
    text = write_object(members)
    size = mark.size + len(text.encode())
    if size > MAX_DELTA_BYTES or visible.secret_count > MAX_SECRETS:
        members[3:] = [("omitted", str(len(text)))]
        return Delta(write_object(members), str(DeltaMark(version, mark.size, 1)))
    return Delta(text, str(DeltaMark(version, size)), visible)


def _shown_otherwise(
    record: WorkflowRecord, before: VisibleFields, after: VisibleFields, changed: Mapping[str, Any]
) -> dict[str, str | None]:
    """The other fields that are shown differently, because the record has other secrets now."""
    others = {name: value for name, value in parts_of(record).items() if name not in changed}
    shown = {name: (before.show(name, value), after.show(name, value)) for name, value in others.items()}
    return {name: now for name, (was, now) in shown.items() if was != now}


def _change_members(shown: Mapping[str, str | None], encode: Encode) -> Iterable[tuple[str, str]]:
    present = [(name, text) for name, text in shown.items() if text is not None]
    if present:
        yield "set", write_object(present)
    if len(present) < len(shown):
        yield "drop", encode([name for name, text in shown.items() if text is None])


# ---- attempts


def _attempt_members(changes: Changes, visible: VisibleFields) -> Iterable[tuple[str, str]]:
    jobs = [
        _write_attempt(job.step_id, job.run_id, job.attempt, visible, inputs=job.inputs)
        for job in changes.jobs
    ]
    for event in changes.outgoing_events:
        if isinstance(event, StartEvent) and (parent := event.parent) is not None:
            jobs.append(
                _write_attempt(parent.step_id, parent.run_id, parent.attempt, visible, inputs=event.inputs)
            )
    if jobs:
        yield "jobs", f"[{','.join(jobs)}]"
    results = [_write_result(unit, step, changes, visible) for unit, step in changes.recorded_results]
    if any(results):
        yield "results", f"[{','.join(filter(None, results))}]"


def _write_result(unit: str, result: StepRecord, changes: Changes, visible: VisibleFields) -> str:
    """The result of an attempt as JSON; "" if the record has it after the commit."""
    now = changes.steps.get(unit) or changes.items.get(unit)
    if now is not None and now.run_id == result.run_id:
        return ""
    output, error = result.output, result.error
    if now is not None and now.round == result.round:
        error = error or now.error
        output = now.loop_value if now.iteration > result.iteration else output
    values = {"output": output, "error": error}
    given = {name: value for name, value in values.items() if value is not None}
    return _write_attempt(unit, result.run_id, result.attempt, visible, **given)


def _write_attempt(unit: str, run_id: int, attempt: int, visible: VisibleFields, **values: Any) -> str:
    members = [("step", visible.encode(unit)), ("run_id", str(run_id)), ("attempt", str(attempt))]
    for name, value in values.items():
        members.append((name, visible.show_value(value, None, has_secret_key(value, visible.names))))
    return write_object(members)


# ---- folding


def fold(deltas: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The visible fields of the record after these deltas, of which the first must be a snapshot."""
    fields: dict[str, Any] = {}
    for delta in deltas:
        if delta.get("snapshot"):
            fields.clear()
        fields.update(delta.get("set", {}))
        for name in delta.get("drop", ()):
            fields.pop(name, None)
    return fields
