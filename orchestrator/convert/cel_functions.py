"""The functions of CEL that have an equivalent here: conversions, and the parts of the present time."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.convert.json_logic import Rule, operation

NOW: Rule = {"time.now": []}
"""The time as a text such as 2026-03-02T10:30:00.000Z."""


def to_integer(of: Rule) -> Rule:
    """int(): the number without its fraction. `%` rounds down here, so it is applied to a positive number."""
    number = operation("+", of)
    size = operation("num.abs", number)
    whole = {"-": [size, {"%": [size, 1]}]}
    return {"if": [{"<": [number, 0]}, {"-": whole}, whole]}


def to_text(of: Rule) -> Rule:
    """string(): a string stays as it is, and any other value is written as JSON."""
    return {"cat": [{"if": [{"===": [{"cat": [of]}, of]}, of, {"json.dumps": [of]}]}]}


@dataclass(frozen=True, slots=True)
class TimePart:
    """A part of the present time. `change` describes what differs."""

    rule: Rule
    change: str


def _digits(start: int, count: int) -> Rule:
    return {"+": {"substr": [NOW, start, count]}}


def _part(name: str, rule: Rule, extra: str = "") -> TimePart:
    return TimePart(rule, f"the {name} is in UTC here{extra}")


_HOUR = _part("hour", {"time.hour": []})
_MINUTE, _SECOND, _YEAR = (
    _part("minute", _digits(14, 2)),
    _part("second", _digits(17, 2)),
    _part("year", _digits(0, 4)),
)
_WEEKDAY = {"%": [{"time.weekday": []}, 7]}
_FROM_SUNDAY = ", and Sunday is 0"

GETTERS = {
    "getHours": _HOUR,
    "getMinutes": _MINUTE,
    "getSeconds": _SECOND,
    "getMilliseconds": _part("millisecond", _digits(20, 3)),
    "getFullYear": _YEAR,
    "getMonth": _part("month", {"-": [_digits(5, 2), 1]}, ", and January is 0"),
    "getDate": _part("day", _digits(8, 2)),
    "getDayOfMonth": _part("day", {"-": [_digits(8, 2), 1]}, ", and the first is 0"),
    "getDayOfWeek": _part("weekday", _WEEKDAY, _FROM_SUNDAY),
}
"""The methods of a timestamp in CEL."""

PROPERTIES = {
    "hour": _HOUR,
    "minute": _MINUTE,
    "second": _SECOND,
    "year": _YEAR,
    "month": _part("month", _digits(5, 2), ", and January is 1"),
    "day": _part("day", _digits(8, 2)),
    "weekday": _part("weekday", _WEEKDAY, _FROM_SUNDAY),
}
"""The parts of timestamp.now() as flow8 writes them."""
