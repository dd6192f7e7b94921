"""Redacts the values of an execution before they are shown: the values under keys that name secrets, and the
same values wherever else they occur, such as in the text of an error."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from orchestrator.application.redaction.by_key import collect_secrets, redact_by_key
from orchestrator.application.redaction.by_value import ValueRedactor

if TYPE_CHECKING:
    from orchestrator.application.records.record import WorkflowRecord


class RecordView:
    """Redacts the secrets found in `values`: those under the usual names of secrets, and under `names`."""

    def __init__(self, names: Collection[str], values: Iterable[Any]) -> None:
        self._names = names
        self._redactor = ValueRedactor(collect_secrets(list(values), names))

    @property
    def has_secrets(self) -> bool:
        """Whether there are secrets to redact wherever they occur, and not only under their names."""
        return bool(self._redactor)

    def __call__(self, value: Any) -> Any:
        return self._redactor.redact_value(redact_by_key(value, self._names))

    def text(self, text: str) -> str:
        return self._redactor.redact_text(text)


def make_record_view(record: WorkflowRecord, also: Collection[str] = ()) -> RecordView:
    """Build the view for this execution; `also` are names of secrets that its spec does not list."""
    values: list[Any] = [
        record.inputs,
        record.state,
        record.outcome,
        record.error,
        record.ending,
        record.signals,
    ]
    for _, unit in record.units():
        values += (unit.output, unit.error, unit.value, unit.loop_value)
    return RecordView((*record.spec.redact, *also), (value for value in values if value is not None))
