"""The operators: JSON Logic as json-logic-qubit computes it, corrected, and those that the language adds.

The library's operators come from a private copy of its module, so nobody else's rules change; this is the
only module that loads it. Operators that evaluate their arguments themselves, or read the data, get the scope
of the rule, whose walk is in expressions.py.

Corrected: `var` never raises, counts from the end or reaches into a text; `<` and its kin are false for what
cannot be compared; `reduce` evaluates its initial value; `count` of one list is its length; 0, "", [], false
and null keep their value as items of scoped operators; `method` is gone; `log` returns its argument, and the
data may listen to it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from math import inf
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from orchestrator.application.expressions import functions as operators
from orchestrator.application.expressions.dotted_path import ABSENT, find, look_up, split, to_plain_dicts
from orchestrator.application.expressions.jsonpath import MAX_WORK, Meter, parse
from orchestrator.application.expressions.limits import check_scalar, json_size
from orchestrator.application.values.payload_refs import is_reference, opaque_reference_error


class WorkBudget(Meter):
    """One call of evaluate(): the data it started with, and the work it may still do."""

    __slots__ = ("root",)

    def __init__(self, root: Any) -> None:
        super().__init__(MAX_WORK)
        self.root = root

    def charge_for(self, value: Any) -> Any:
        """Charge for a list or object that an expression made. Sharing its parts is cheap, so without this
        a few operators could make a value that takes forever to compare or to serialise."""
        if isinstance(value, dict | list):
            self.spend(json_size(value) // 32)
        return value


class Scope(Protocol):
    """The data that a rule sees, and how to evaluate a part of the rule on it (`evaluation.py`)."""

    data: Any

    @property
    def evaluation(self) -> WorkBudget: ...

    def at(self, item: Any) -> Scope: ...

    def run(self, rule: Any) -> Any: ...


def _private_copy(name: str) -> ModuleType:
    found = find_spec(name)
    spec = spec_from_file_location(f"{__name__}.{name}", found.origin) if found and found.origin else None
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not installed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_library: Any = _private_copy("json_logic")
_less_than = _library._less_than


def _less(a: Any, b: Any, c: Any = _library._no_argument) -> bool:
    try:
        return bool(_less_than(a, b, c))
    except (TypeError, ValueError):
        return False


# The functions of the copy find one another by these names: `>=` asks _less_than, `if` asks jsonLogic, ...
_library._less_than = _less
_library._var = lambda scope, path: _var_in(scope, path, None)
_library.jsonLogic = lambda rule, scope: scope.run(rule)


def _cat(*args: Any) -> str:
    parts, size = [], 0
    for arg in args:
        parts.append(_library._concatenate(arg))
        size += len(parts[-1])
        operators.check_result_size(size)
    return "".join(parts)


def _merge(*args: Any) -> Any:
    operators.check_result_size(sum(len(arg) if isinstance(arg, list) else 1 for arg in args))
    return _library._merge(*args)


def _multiply(*args: Any) -> Any:
    product = 1
    for arg in args:
        product = check_scalar(_library._multiply(product, arg))
    return product


def _count(*args: Any) -> int:
    return len(args[0]) if len(args) == 1 and isinstance(args[0], list) else int(_library._count(*args))


def _var_in(scope: Scope, path: Any, default: Any) -> Any:
    if path is None:
        return scope.data
    return find(scope.data, split(str(path)), default) if isinstance(path, str | int | float) else default


def _var(scope: Scope, path: Any = None, default: Any = None) -> Any:
    if isinstance(path, str):
        return look_up(scope.data, path, default)
    return to_plain_dicts(_var_in(scope, path, default))


def _vars(scope: Scope, path: Any) -> Any:
    matches = parse(operators.text(path)).find(scope.data, scope.evaluation)
    return scope.evaluation.charge_for([to_plain_dicts(match) for match in matches])


def _items(scope: Scope, rule: Any) -> list[Any]:
    items = scope.run(rule)
    if is_reference(items):
        raise opaque_reference_error(items, "the list")
    return items if isinstance(items, list) else []


def _map(scope: Scope, items: Any, body: Any) -> Any:
    return scope.evaluation.charge_for([scope.at(item).run(body) for item in _items(scope, items)])


def _filter(scope: Scope, items: Any, body: Any) -> list[Any]:
    return [item for item in _items(scope, items) if scope.at(item).run(body)]


def _all(scope: Scope, items: Any, body: Any) -> bool:
    found = _items(scope, items)
    return bool(found) and all(scope.at(item).run(body) for item in found)


def _reduce(scope: Scope, items: Any, body: Any, initial: Any = None) -> Any:
    accumulator = scope.run(initial)
    for item in _items(scope, items):
        accumulator = scope.at({"accumulator": accumulator, "current": item}).run(body)
    return accumulator


def _first_default(scope: Scope, *rules: Any) -> Any:
    values = (scope.run(rule) for rule in rules)
    return next((value for value in values if value is not None), None)


def _now(scope: Scope, _: None = None) -> Any:
    return find(scope.evaluation.root, ("ctx", "now"), None)


def _moment(scope: Scope, time: Any) -> datetime:
    return operators.parse_time(_now(scope) if time is ABSENT else time)


@runtime_checkable
class LogListener(Protocol):
    """Data that wants to know what is logged."""

    def record_log(self, value: Any) -> None: ...


def _log(scope: Scope, value: Any = None) -> Any:
    root = scope.evaluation.root
    if isinstance(root, LogListener):
        root.record_log(value)
    return value


def _kv_get(scope: Scope, key: Any, default: Any = None) -> Any:
    forced, _, name = operators.text(key).partition(":")
    is_forced = forced in ("global", "flow_group") and bool(name)
    for area in [forced] if is_forced else ["local", "flow", "global"]:
        found = find(scope.evaluation.root, ("kv", area, name if is_forced else key), ABSENT)
        if found is not ABSENT:
            return to_plain_dicts(found)
    return default


_FORMS: dict[str, Callable[..., Any]] = {  # choose themselves which arguments to evaluate, and on what
    **_library._logical_operations,
    "map": _map,
    "filter": _filter,
    "reduce": _reduce,
    "all": _all,
    "some": lambda scope, items, body: bool(_filter(scope, items, body)),
    "none": lambda scope, items, body: not _filter(scope, items, body),
    "any.default": _first_default,
}
_READERS: dict[str, Callable[..., Any]] = {  # read the data
    "var": _var,
    "vars": _vars,
    "missing": _library._missing,
    "missing_some": _library._missing_some,
    "time.now": _now,
    "time.hour": lambda scope, time=ABSENT: _moment(scope, time).hour,
    "time.weekday": lambda scope, time=ABSENT: _moment(scope, time).isoweekday(),
    "kv.get": _kv_get,
    "log": _log,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: one for name, one in _library._common_operations.items() if name not in ("method", "log")},
    "<": _less,
    "cat": _cat,
    "merge": _merge,
    "*": _multiply,
    "count": _count,
    **operators.FUNCTIONS,
}
DATA_OPERATORS = frozenset(_READERS) - {"log"}
SCOPED_OPERATORS = frozenset({"map", "filter", "reduce", "all", "some", "none"})


def _described(role: str, function: Callable[..., Any]) -> tuple[str, Callable[..., Any], int, float]:
    """With the least and the most arguments it takes, the scope not counted."""
    wanted = list(signature(function).parameters.values())[role != "function" :]
    is_open = any(p.kind is Parameter.VAR_POSITIONAL for p in wanted)
    least = sum(p.default is Parameter.empty for p in wanted) - is_open
    return role, function, least, inf if is_open else len(wanted)


OPERATOR_TABLE = {
    operator: _described(role, function)
    for role, functions in (("form", _FORMS), ("reader", _READERS), ("function", _FUNCTIONS))
    for operator, function in functions.items()
}
