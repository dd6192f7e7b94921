"""Converts the values of flow8 documents: inputs, filters, and durations and numbers as Go writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.values.paths import Path
from orchestrator.convert.cel import CelTranslator, convert_expression, convert_text
from orchestrator.convert.json_logic import Rule, convert_data
from orchestrator.convert.key_spelling import Fields
from orchestrator.convert.notes import AS_TEXT, LEFT_OUT, CannotConvert, Notes

_LOOKS_LIKE_CODE = re.compile(r"\{\{|\b(?:kv|input)\s*[.\[]|\btimestamp\s*\.")


# ---- inputs


def convert_value(value: Any, path: Path, notes: Notes) -> Rule:
    """Convert a value of an input mapping. A text that reads `kv`, `input` or the time is an expression."""
    return convert_data(value, path, notes, _convert_text)


def _convert_text(text: str, path: Path, notes: Notes) -> Rule:
    if not _LOOKS_LIKE_CODE.search(text):
        return text
    translator = CelTranslator()
    try:
        rule = convert_text(text, translator) if "{{" in text else convert_expression(text, translator)
    except CannotConvert as reason:
        notes.add_lost(path, f"this looks like an expression, but cannot be converted: {reason}", AS_TEXT)
        return {LITERAL: text}
    _note_changes(translator, path, notes)
    return rule


def _note_changes(translator: CelTranslator, path: Path, notes: Notes) -> None:
    for change in translator.changes:
        notes.add_changed(path, change)


# ---- filters


def convert_filters(group: Any, path: Path, inputs: Mapping[str, Rule], notes: Notes) -> dict[str, Any]:
    """Convert a group of filters. A list is a group in which every filter must pass."""
    fields = Fields({"filters": group} if isinstance(group, list) else group, path)
    operator, where = fields.take("operator")
    if not isinstance(operator, str) or operator.upper() not in ("AND", "OR"):
        if operator is not None:
            notes.add_lost(where, "is neither AND nor OR", "AND is used")
        operator = "AND"
    listed, where = fields.take("filters")
    where = path if isinstance(group, list) else where
    _note_unread(fields, notes)
    parts = listed if isinstance(listed, list) else []
    return {
        "operator": operator.upper(),
        "filters": [_convert_filter(part, (*where, n), inputs, notes) for n, part in enumerate(parts)],
    }


def _convert_filter(part: Any, path: Path, inputs: Mapping[str, Rule], notes: Notes) -> dict[str, Any]:
    fields = Fields({"expression": part} if isinstance(part, str) else part, path)
    if fields.has("filters"):
        return convert_filters(part, path, inputs, notes)
    expression, where = fields.take("expression")
    value, _ = fields.take("value")
    _note_unread(fields, notes)
    compared = {} if value is None else {"value": convert_data(value, path, notes, lambda text, *_: text)}
    translator = CelTranslator(inputs)
    text = expression if isinstance(expression, str) else ""
    try:
        rule = convert_text(text, translator) if "{{" in text else convert_expression(text, translator)
        if not compared and isinstance(rule, str | list):
            raise CannotConvert("it is not a condition")
    except CannotConvert as reason:
        message = f"this filter cannot be converted: {reason}"
        notes.add_lost(
            where, message, "replaced with false: the step does not run until you write the filter by hand"
        )
        return {"expression": False, "x-expression": expression}
    _note_changes(translator, where, notes)
    return {"expression": rule, **compared}


def _note_unread(fields: Fields, notes: Notes) -> None:
    for _, value, path in fields.unread():
        if value is not None:
            notes.add_lost(path, "has no equivalent", LEFT_OUT)


# ---- durations and numbers of Go

_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_UNIT = "(?:ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"(?:[0-9]{{1,15}}(?:\.[0-9]{{1,15}})?{_UNIT})+|0")
_PART = re.compile(rf"([0-9.]+)({_UNIT})")
_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def convert_duration(value: Any) -> str | None:
    """Convert a duration of Go, which is nanoseconds or a text such as "5m0s". Return None for 0."""
    value = normalize_number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        ns = Decimal(value)
    elif isinstance(value, str) and len(value) < 100 and _DURATION.fullmatch(value):
        ns = sum((Decimal(number) * _NS[unit] for number, unit in _PART.findall(value)), Decimal(0))
    else:
        raise CannotConvert('is not a duration: write nanoseconds, or a text such as "5m0s"')
    if ns < 0:
        raise CannotConvert("a duration cannot be negative")
    ms = int((ns / 10**6).to_integral_value(ROUND_CEILING))
    if not ms:
        return None
    unit = next(unit for unit, size in _UNITS_MS.items() if ms % size == 0)
    return f"{ms // _UNITS_MS[unit]}{unit}"


def normalize_number(value: Any) -> Any:
    """Return 3 for 3.0, because JSON does not distinguish integers from other numbers."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def object_id(value: Any) -> str | None:
    """Return the id of a document, which is plain or an object as MongoDB exports it."""
    if isinstance(value, dict):
        value = value.get("$oid")
    return str(value) if isinstance(value, str | int) and value else None
