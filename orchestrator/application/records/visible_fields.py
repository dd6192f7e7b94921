"""The fields of a record as people may see them, as JSON texts: without secrets, and without large values.

The names are those of the fields of its Redis hash: `status`, `inputs`, `step:<id>`, `item:<step>:<n>`,
`state:<key>`, and so on. Secrets are found as `show` finds them, see RecordView: by their keys, and then
by their values wherever else they occur. What does not differ from its default is left out: a step that was
never touched, a field that is null, an empty list of signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from orchestrator.application.records.status import StepStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.redaction.by_key import (
    REDACTED,
    collect_secrets,
    has_secret_key,
    is_secret_key,
    redact_by_key,
)
from orchestrator.application.redaction.by_value import REDACT_NOTHING, ValueRedactor
from orchestrator.application.values.dispatch_tokens import dispatch_id, has_secret

MAX_VALUE_BYTES = 16 * 1024
"""A larger value is left out: an output, an error, a key of the state, the inputs of one attempt."""

OMITTED = "$omitted"
"""In the place of a value that is left out: {"$omitted": how many bytes it has}."""

USER_FIELDS = frozenset({"inputs", "outcome", "error", "signals", "ending"})
"""The fields of a record that are values of its user, besides the state."""

USER_PARTS = ("output", "error", "reason", "value", "loop_value")
"""The fields of a unit that are values of its user."""

STATE_PREFIX = "state:"

Encode = Callable[[Any], str]
"""Writes a value as JSON without spaces."""

_SHORT = MAX_VALUE_BYTES // 4
"""A text with fewer characters has at most MAX_VALUE_BYTES."""
UNTOUCHED = StepRecord()


class _Absent:
    """Stands for a field that a record does not have."""


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class VisibleFields:
    """Shows the fields of one record. `secrets` are the secrets of each field that has a key which names one;
    they change with the record: `update` returns another object then."""

    names: tuple[str, ...]
    encode: Encode
    secrets: Mapping[str, frozenset[str]]
    redactor: ValueRedactor = REDACT_NOTHING

    @classmethod
    def of(cls, names: tuple[str, ...], encode: Encode, parts: Mapping[str, Any]) -> VisibleFields:
        """Shows the fields of a record that has these parts."""
        return cls(names, encode, {}).update(parts)

    def update(self, parts: Mapping[str, Any]) -> VisibleFields:
        """What shows the record after these fields have changed; itself if their secrets are the same."""
        found = {name: self._find_secrets(name, value) for name, value in parts.items()}
        changed = {name: secrets for name, secrets in found.items() if secrets != self.secrets.get(name)}
        if not changed:
            return self
        merged = {**self.secrets, **changed}
        secrets = {name: one for name, one in merged.items() if one is not None}
        known, new = frozenset().union(*self.secrets.values()), frozenset().union(*secrets.values())
        redactor = self.redactor if known == new else ValueRedactor(new)
        return VisibleFields(self.names, self.encode, secrets, redactor)

    @property
    def secret_count(self) -> int:
        return len(frozenset().union(*self.secrets.values())) if self.secrets else 0

    def _find_secrets(self, name: str, value: Any) -> frozenset[str] | None:
        """The secrets of a field; None if no key in it names one."""
        found: Any
        if isinstance(value, StepRecord):
            found = [one for one in (value.output, value.error, value.value, value.loop_value) if one]
        elif name.startswith(STATE_PREFIX):
            found = None if value is ABSENT else {name[len(STATE_PREFIX) :]: value}
        else:
            found = value if name in USER_FIELDS else None
        if not found or not has_secret_key(found, self.names):
            return None
        return frozenset(collect_secrets(found, self.names))

    # ---- one field

    def show(self, name: str, value: Any, text: str | None = None) -> str | None:
        """A field as JSON; None if it is not shown. `text` is its JSON, if that is known."""
        if isinstance(value, StepRecord):
            return self._show_unit(name, value, text)
        if value is ABSENT:
            return None
        is_marked = name in self.secrets
        if name.startswith(STATE_PREFIX):
            key = name[len(STATE_PREFIX) :]
            if self.redactor and self.redactor.redact_text(key) != key:
                return None  # two such keys would have the same name
            if is_marked and value is not None and is_secret_key(key, self.names):
                return self.encode(REDACTED)
            return self.show_value(value, text, is_marked)
        if name in USER_FIELDS:
            return self.show_value(value, text, is_marked)
        if name == "webhook":
            value = {**value, "headers": dict.fromkeys(value["headers"], REDACTED)}
        return _limit(self.encode(hide_token_secret(value) if name == "parent" else value))

    def _show_unit(self, name: str, unit: StepRecord, text: str | None) -> str | None:
        if unit.status is StepStatus.READY and unit == UNTOUCHED:
            return None
        text = self.encode(unit.as_dict()) if text is None else text
        if unit.token is not None and has_secret(unit.token):
            text = text.replace(f'"token":"{unit.token}"', f'"token":"{dispatch_id(unit.token)}"')
            if unit.token in text:
                return self._redact_unit(unit)
        is_plain = len(text) <= _SHORT and name not in self.secrets and unit.unknown is None
        return text if is_plain and not self.redactor.may_change_json(text) else self._redact_unit(unit)

    def _redact_unit(self, unit: StepRecord) -> str:
        user_parts = USER_PARTS if unit.unknown is None else (*USER_PARTS, *unit.unknown)
        stored = hide_token_secret(unit.as_dict())
        return write_object(
            (key, self.show_value(value, None, True) if key in user_parts else self.encode(value))
            for key, value in stored.items()
        )

    def show_value(self, value: Any, text: str | None = None, may_have_secret_key: bool = True) -> str:
        """A value as JSON, redacted and within the size limit."""
        text = self.encode(value) if text is None else text
        if may_have_secret_key or self.redactor.may_change_json(text):
            text = self.encode(self.redactor.redact_value(redact_by_key(value, self.names)))
        return _limit(text)


def write_object(fields_: Iterable[tuple[str, str]]) -> str:
    """A JSON object of names and JSON texts."""
    return f"{{{','.join([f'{encode_basestring(name)}:{text}' for name, text in fields_])}}}"


def _limit(text: str) -> str:
    if len(text) <= _SHORT or (size := len(text.encode())) <= MAX_VALUE_BYTES:
        return text
    return f'{{"{OMITTED}":{size}}}'


def hide_token_secret(dispatch: dict[str, Any]) -> dict[str, Any]:
    """The fields of a dispatch with the public part of its token."""
    token = dispatch.get("token")
    return dispatch if token is None else {**dispatch, "token": dispatch_id(token)}
