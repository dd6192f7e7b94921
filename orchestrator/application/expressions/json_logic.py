"""The table of operators: those of json-logic-qubit with corrections, and those that the language adds.

The library's operators come from a private copy of its module, so that patching them does not affect other
users of the library in the process. No other module loads it. Operators that evaluate their own arguments, or
read the data, get the Scope of the rule; evaluation.py implements it.

Corrections: `var` never raises, takes no negative index and does not index strings; `<` and the other
comparisons are false for values that cannot be compared; `reduce` evaluates its initial value; `count` of one
list is its length; 0, "", [], false and null keep their value as items of scoped operators; `method` is
removed; `log` returns its argument, and passes it to the data if that is a LogListener.
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
from orchestrator.application.expressions.dotted_path import ABSENT, find, look_up, split_path, to_plain_dicts
from orchestrator.application.expressions.jsonpath import parse
from orchestrator.application.expressions.limits import charge_for, check_scalar
from orchestrator.application.expressions.meter import Meter
from orchestrator.application.expressions.safe_regex import compile_pattern
from orchestrator.application.values.payload_refs import is_payload_reference, opaque_reference_error

MAX_COMPILE_WORK = 2_000
"""What it takes to compile the most complicated pattern."""


class EvaluationState:
    """One call of evaluate(): its data, and the meter of what it spends."""

    __slots__ = ("_compiled", "meter", "root", "spend")

    def __init__(self, root: Any, meter: Meter) -> None:
        self.root, self.meter, self.spend = root, meter, meter.spend
        self._compiled: set[str] = set()

    def spend_on_compiling(self, source: str, work: int) -> None:
        """Spend on a path or a pattern that this call uses for the first time.

        The caches of compiled paths and patterns do not count, so that every evaluation has the same cost."""
        if source not in self._compiled:
            self.spend(work)
            self._compiled.add(source)


class Scope(Protocol):
    """The data that a rule can read, and the evaluation of its parts; evaluation.py implements it."""

    data: Any

    @property
    def evaluation(self) -> EvaluationState: ...

    def for_item(self, item: Any) -> Scope: ...

    def run(self, rule: Any) -> Any: ...


def _load_private_copy(name: str) -> ModuleType:
    installed = find_spec(name)
    origin = installed.origin if installed else None
    spec = spec_from_file_location(f"{__name__}.{name}", origin) if origin else None
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is not installed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_library: Any = _load_private_copy("json_logic")
_less_than, _to_numeric = _library._less_than, _library._to_numeric


def _less(a: Any, b: Any, c: Any = _library._no_argument) -> bool:
    try:
        return bool(_less_than(a, b, c))
    except (TypeError, ValueError):
        return False


# The functions of the copy call one another by these names: `>=` calls _less_than, `if` calls jsonLogic, ...
_library._less_than = _less
_library._var = lambda scope, path: _find_var(scope, path, None)
_library.jsonLogic = lambda rule, scope: scope.run(rule)


def _cat(*args: Any) -> str:
    parts, size = [], 0
    for arg in args:
        part = arg if type(arg) is str else str(arg)
        size += len(part)
        if size > operators.MAX_RESULT_BYTES:
            break
        parts.append(part)
    operators.check_result_size(size)
    return "".join(parts)


def _merge(*args: Any) -> Any:
    operators.check_result_size(sum(len(arg) if isinstance(arg, list) else 1 for arg in args))
    return _library._merge(*args)


def _multiply(*args: Any) -> Any:
    product = 1
    for arg in args:
        product = check_scalar(_to_numeric(product * _to_numeric(arg)))
    return product


def _count(*args: Any) -> int:
    return len(args[0]) if len(args) == 1 and isinstance(args[0], list) else int(_library._count(*args))


def _find_var(scope: Scope, path: Any, default: Any) -> Any:
    if path is None:
        return scope.data
    return (
        find(scope.data, split_path(str(path)), default) if isinstance(path, str | int | float) else default
    )


def _var(scope: Scope, path: Any = None, default: Any = None) -> Any:
    meter = scope.evaluation.meter
    if isinstance(path, str):
        meter.spend(len(path) // 64)
        return look_up(scope.data, path, default, meter)
    return to_plain_dicts(_find_var(scope, path, default), meter)


def _vars(scope: Scope, path: Any) -> Any:
    source, meter = operators.require_string(path), scope.evaluation.meter
    scope.evaluation.spend_on_compiling(source, len(source))
    matches = parse(source).find(scope.data, meter)
    return charge_for([to_plain_dicts(match, meter) for match in matches], meter)


def _matches(scope: Scope, subject: Any, pattern: Any) -> bool:
    source, meter = operators.require_string(pattern), scope.evaluation.meter
    operators.check_subject(subject)
    scope.evaluation.spend_on_compiling(source, MAX_COMPILE_WORK)
    return compile_pattern(source).is_found_in(subject, meter)


def _evaluate_list(scope: Scope, rule: Any) -> list[Any]:
    """Evaluate the list of a scoped operator, and spend on visiting all its items."""
    items = scope.run(rule)
    if is_payload_reference(items):
        raise opaque_reference_error(items, "the list")
    if not isinstance(items, list):
        return []
    scope.evaluation.spend(len(items) // 2)
    return items


def _map(scope: Scope, items: Any, body: Any) -> Any:
    values = [scope.for_item(item).run(body) for item in _evaluate_list(scope, items)]
    return charge_for(values, scope.evaluation.meter)


def _filter(scope: Scope, items: Any, body: Any) -> list[Any]:
    return [item for item in _evaluate_list(scope, items) if scope.for_item(item).run(body)]


def _all(scope: Scope, items: Any, body: Any) -> bool:
    values = _evaluate_list(scope, items)
    return bool(values) and all(scope.for_item(value).run(body) for value in values)


def _reduce(scope: Scope, items: Any, body: Any, initial: Any = None) -> Any:
    accumulator, values = scope.run(initial), _evaluate_list(scope, items)
    scope.evaluation.spend(len(values) // 2)
    for item in values:
        accumulator = scope.for_item({"accumulator": accumulator, "current": item}).run(body)
    return accumulator


def _first_not_null(scope: Scope, *rules: Any) -> Any:
    values = (scope.run(rule) for rule in rules)
    return next((value for value in values if value is not None), None)


def _now(scope: Scope, _: None = None) -> Any:
    return find(scope.evaluation.root, ("ctx", "now"), None)


def _time_or_now(scope: Scope, time: Any) -> datetime:
    return operators.parse_time(_now(scope) if time is ABSENT else time)


@runtime_checkable
class LogListener(Protocol):
    """Data that records the values that the `log` operator logs."""

    def record_log(self, value: Any) -> None: ...


def _log(scope: Scope, value: Any = None) -> Any:
    root = scope.evaluation.root
    if isinstance(root, LogListener):
        root.record_log(value)
    return value


def _kv_get(scope: Scope, key: Any, default: Any = None) -> Any:
    forced, _, name = operators.require_string(key).partition(":")
    is_forced = forced in ("global", "flow_group") and bool(name)
    for area in [forced] if is_forced else ["local", "flow", "global"]:
        found = find(scope.evaluation.root, ("kv", area, name if is_forced else key), ABSENT)
        if found is not ABSENT:
            return to_plain_dicts(found, scope.evaluation.meter)
    return default


_FORMS: dict[str, Callable[..., Any]] = {  # evaluate their arguments themselves
    **_library._logical_operations,
    "map": _map,
    "filter": _filter,
    "reduce": _reduce,
    "all": _all,
    "some": lambda scope, items, body: bool(_filter(scope, items, body)),
    "none": lambda scope, items, body: not _filter(scope, items, body),
    "any.default": _first_not_null,
}
_READERS: dict[str, Callable[..., Any]] = {  # read the data, or spend while they work
    "var": _var,
    "vars": _vars,
    "missing": _library._missing,
    "missing_some": _library._missing_some,
    "str.matches": _matches,
    "time.now": _now,
    "time.hour": lambda scope, time=ABSENT: _time_or_now(scope, time).hour,
    "time.weekday": lambda scope, time=ABSENT: _time_or_now(scope, time).isoweekday(),
    "kv.get": _kv_get,
    "log": _log,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: f for name, f in _library._common_operations.items() if name not in ("method", "log")},
    "<": _less,
    "cat": _cat,
    "merge": _merge,
    "*": _multiply,
    "count": _count,
    **operators.FUNCTIONS,
}
DATA_OPERATORS = frozenset(_READERS) - {"log", "str.matches"}
SCOPED_OPERATORS = frozenset({"map", "filter", "reduce", "all", "some", "none"})


def _table_entry(role: str, function: Callable[..., Any]) -> tuple[str, Callable[..., Any], int, float]:
    """Return role, function, and how many arguments it takes at least and at most, without the scope."""
    parameters = list(signature(function).parameters.values())[role != "function" :]
    is_variadic = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    min_args = sum(p.default is Parameter.empty for p in parameters) - is_variadic
    return role, function, min_args, inf if is_variadic else len(parameters)


OPERATOR_TABLE = {
    operator: _table_entry(role, function)
    for role, functions in (("form", _FORMS), ("reader", _READERS), ("function", _FUNCTIONS))
    for operator, function in functions.items()
}
