"""What the operators spend on reading their arguments, in units of work (meter.py).

The cost is spent before an operator is called, in proportion to what it does with its arguments at worst.
Operators that are not listed here take the same time whatever they are given; what they return is charged for
after they were called. The scoped operators, `vars` and `str.matches` spend on what they visit themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.application.expressions.limits import BYTES_PER_UNIT, CHARS_PER_UNIT, measure
from orchestrator.application.expressions.meter import Meter

CALL_COSTS = {
    **dict.fromkeys(("*", "cat", "log", "max", "merge", "min", "num.abs"), 2),
    "kv.get": 3,
    "num.round": 3,
    "time.add": 8,
    "time.hour": 4,
    "time.iso": 4,
    "time.now": 3,
    "time.weekday": 4,
}
"""What a call of an operator costs, whatever its arguments are; 1 for all others."""

_CONTAINERS = (dict, list)
_NO_LIMIT = 1 << 62

_Cost = Callable[[Sequence[Any], Meter], None]


def _scan(args: Sequence[Any], meter: Meter) -> None:
    """Each character or item is read."""
    meter.spend(sum(len(arg) // 32 for arg in args))


def _convert(args: Sequence[Any], meter: Meter) -> None:
    """A text becomes a number. Python converts no more than 4,300 digits."""
    for arg in args:
        meter.spend(min(len(arg), 5_000) // 64 + len(arg) // CHARS_PER_UNIT)


def _copy(args: Sequence[Any], meter: Meter) -> None:
    """A text is copied, or compared with another."""
    meter.spend(sum(len(arg) // CHARS_PER_UNIT for arg in args))


def _visit(args: Sequence[Any], meter: Meter, times: int = 2) -> None:
    """Everything in the arguments is visited to measure it, and then to compare it or to write it as text."""
    before = meter.spent
    meter.spend(sum(len(arg) for arg in args if isinstance(arg, str)) // BYTES_PER_UNIT)
    for arg in args:
        if isinstance(arg, _CONTAINERS):
            measure(arg, meter, _NO_LIMIT)
    meter.spend((times - 1) * (meter.spent - before))


def _compare(args: Sequence[Any], meter: Meter) -> None:
    """Lists and objects are compared item by item, or as a text with a text."""
    if not any(isinstance(arg, _CONTAINERS) for arg in args):
        _convert(args, meter)
    elif len(args) > 1:
        _visit(args, meter)


def _contains(args: Sequence[Any], meter: Meter) -> None:
    """The second argument is searched for the first; or the only one, for a number or null."""
    *_, haystack = args
    if len(args) == 2 and isinstance(haystack, str) and isinstance(args[0], str):
        meter.spend(search_cost(len(haystack), len(args[0])))
    elif len(args) == 2 and not isinstance(haystack, dict):
        _visit(args, meter)
    elif isinstance(haystack, list):
        meter.spend(len(haystack) // 16)


def _search(args: Sequence[Any], meter: Meter) -> None:
    """A text is searched for another one."""
    subject, *parts = args
    meter.spend(2 * search_cost(len(subject), len(parts[0]) if parts else 1))


def search_cost(chars: int, wanted: int) -> int:
    """The cost of a search in a text. Python compares short texts at every position."""
    tried = min(wanted, 100) if chars >= 2_500 else wanted
    return chars // 256 + min(chars, 30_000) * tried // 8_192


def _split(args: Sequence[Any], meter: Meter) -> None:
    _search(args, meter)
    meter.spend(len(args[0]) // 32)


def _look_up(args: Sequence[Any], meter: Meter) -> None:
    """The paths are looked up: the arguments, or the items of a list."""
    for arg in args:
        if isinstance(arg, list):
            meter.spend(len(arg))
            _visit([arg], meter)
        else:
            meter.spend(1 + len(arg) // 64)


def _loop(args: Sequence[Any], meter: Meter) -> None:
    """Each item is tested and then used."""
    _visit(args, meter)
    meter.spend(len(args[0]) // 2)


def _unique(args: Sequence[Any], meter: Meter) -> None:
    """Each item is written as JSON with sorted keys, if it is a list or an object."""
    _visit(args, meter, 3)
    meter.spend(sum(4 if isinstance(item, _CONTAINERS) else 1 for item in args[0]))


def _parse(args: Sequence[Any], meter: Meter) -> None:
    meter.spend(sum(len(arg) // 16 for arg in args))


def _log(args: Sequence[Any], meter: Meter) -> None:
    """The value is copied without its secrets, and written as JSON."""
    _visit(args, meter, 5)


ARGUMENT_COSTS: dict[str, _Cost] = {
    **dict.fromkeys(("==", "!=", "===", "!==", "<", "<=", ">", ">="), _compare),
    **dict.fromkeys(("+", "-", "*", "/", "%", "min", "max"), _convert),
    **dict.fromkeys(("merge", "obj.keys", "obj.values", "str.upper", "str.lower", "str.trim"), _scan),
    **dict.fromkeys(("time.hour", "time.weekday", "time.iso", "time.add"), _scan),
    **dict.fromkeys(("substr", "str.starts_with", "str.ends_with"), _copy),
    **dict.fromkeys(("cat", "json.dumps"), _visit),
    **dict.fromkeys(("missing", "missing_some"), _look_up),
    "in": _contains,
    "str.contains": _search,
    "str.replace": _search,
    "str.split": _split,
    "str.join": _loop,
    "list.sort": _loop,
    "list.unique": _unique,
    "json.parse": _parse,
    "log": _log,
}
