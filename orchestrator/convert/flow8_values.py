"""The values of flow8's documents: inputs, filters, and what Go writes its own way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.values.paths import Path
from orchestrator.convert.cel import CelTranslator, convert_expression
from orchestrator.convert.expression_parser import CEL
from orchestrator.convert.jinja import convert_template
from orchestrator.convert.json_logic import Rule, convert_data
from orchestrator.convert.key_spelling import Fields
from orchestrator.convert.notes import AS_TEXT, LEFT_OUT, CannotConvert, Notes

_LOOKS_LIKE_CODE = re.compile(r"\{\{|\b(?:kv|input)\s*[.\[]|\btimestamp\s*\.")


# Inputs -----------------------------------------------------------------------------------------------------


def convert_value(value: Any, path: Path, notes: Notes) -> Rule:
    """A value of an input mapping; a text that reads `kv`, `input` or the time is an expression."""
    return convert_data(value, path, notes, _text)


def _text(text: str, path: Path, notes: Notes) -> Rule:
    if not _LOOKS_LIKE_CODE.search(text):
        return text
    translator = CelTranslator()
    try:
        rule = (
            convert_template(text, translator, CEL) if "{{" in text else convert_expression(text, translator)
        )
    except CannotConvert as reason:
        notes.add_lost(path, f"this looks like an expression, but cannot be converted: {reason}", AS_TEXT)
        return {LITERAL: text}
    _tell(translator, path, notes)
    return rule


def _tell(translator: CelTranslator, path: Path, notes: Notes) -> None:
    for change in translator.changes:
        notes.add_changed(path, change)


# Filters ----------------------------------------------------------------------------------------------------


def convert_filters(group: Any, path: Path, inputs: Mapping[str, Rule], notes: Notes) -> dict[str, Any]:
    """A group of filters; a list is a group that all must pass."""
    fields = Fields({"filters": group} if isinstance(group, list) else group, path)
    operator, where = fields.take("operator")
    if not isinstance(operator, str) or operator.upper() not in ("AND", "OR"):
        if operator is not None:
            notes.add_lost(where, "is neither AND nor OR", "AND")
        operator = "AND"
    listed, where = fields.take("filters")
    where = path if isinstance(group, list) else where
    _tell_rest(fields, notes)
    parts = listed if isinstance(listed, list) else []
    return {
        "operator": operator.upper(),
        "filters": [_filter(part, (*where, n), inputs, notes) for n, part in enumerate(parts)],
    }


def _filter(part: Any, path: Path, inputs: Mapping[str, Rule], notes: Notes) -> dict[str, Any]:
    fields = Fields({"expression": part} if isinstance(part, str) else part, path)
    if fields.has("filters"):
        return convert_filters(part, path, inputs, notes)
    expression, where = fields.take("expression")
    value, _ = fields.take("value")
    _tell_rest(fields, notes)
    compared = {} if value is None else {"value": convert_data(value, path, notes, lambda text, *_: text)}
    translator = CelTranslator(inputs)
    try:
        rule = convert_expression(expression if isinstance(expression, str) else "", translator)
        if not compared and isinstance(rule, str | list):
            raise CannotConvert("it is no condition")
    except CannotConvert as reason:
        message = f"this filter cannot be converted: {reason}"
        notes.add_lost(where, message, "false, so that the step does not run until it is written by hand")
        return {"expression": False, "x-expression": expression}
    _tell(translator, where, notes)
    return {"expression": rule, **compared}


def _tell_rest(fields: Fields, notes: Notes) -> None:
    for _, value, path in fields.rest():
        if value is not None:
            notes.add_lost(path, "has no equal", LEFT_OUT)


# Go ---------------------------------------------------------------------------------------------------------

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
_OURS_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def duration(value: Any) -> str | None:
    """A duration of ours for one of Go: nanoseconds, or a text such as "5m0s"; None for 0."""
    value = normalize_number(value)
    if isinstance(value, int) and not isinstance(value, bool):
        ns = Decimal(value)
    elif isinstance(value, str) and len(value) < 100 and _DURATION.fullmatch(value):
        ns = sum((Decimal(number) * _NS[unit] for number, unit in _PART.findall(value)), Decimal(0))
    else:
        raise CannotConvert('is no duration: nanoseconds, or a text such as "5m0s"')
    if ns < 0:
        raise CannotConvert("a duration cannot be negative")
    ms = int((ns / 10**6).to_integral_value(ROUND_CEILING))
    if not ms:
        return None
    unit = next(unit for unit, size in _OURS_MS.items() if ms % size == 0)
    return f"{ms // _OURS_MS[unit]}{unit}"


def normalize_number(value: Any) -> Any:
    """3 for 3.0: JSON does not tell whole numbers from others."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def object_id(value: Any) -> str | None:
    """The id of a document, plain or as MongoDB exports it."""
    if isinstance(value, dict):
        value = value.get("$oid")
    return str(value) if isinstance(value, str | int) and value else None
