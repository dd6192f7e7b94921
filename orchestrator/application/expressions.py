"""Expressions: JSON Logic as json-logic-qubit computes it, with corrections, limits and dotted operators.

An object whose only key is an operator is an expression; any other object or list is data, searched for
expressions; {"$literal": x} is x. The library's operators come from a private copy of its module, so nobody
else's rules change; this is the only module that loads it. The walk over a rule is ours: operators are the
names of one flat table, and paths go through keys and indexes alone, so no attribute of anything is in reach.

Corrected: `var` never raises, counts from the end or reaches into a text; `<` and its kin are false for what
cannot be compared; `reduce` evaluates its initial value; `count` of one list is its length; 0, "", [], false
and null keep their value as items of scoped operators; `method` is gone; `log` returns its argument.

Bounded: the nesting and nodes of a rule at submit (check); while evaluating, the work of one call (Meter) and
the size of everything built. Whatever fails is an ExpressionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import Parameter, signature
from math import inf, isfinite
from types import ModuleType
from typing import Any, Literal

from orchestrator.application import operators
from orchestrator.application.errors import ExpressionError, Problem
from orchestrator.application.jsonpath import MAX_WORK, BadPath, Descends, Meter, descends, parse
from orchestrator.application.operators import MAX_RESULT_BYTES, BadPattern, compile_pattern, kind

__all__ = [
    "MAX_DEPTH",
    "MAX_NODES",
    "MAX_RESULT_BYTES",
    "MAX_WORK",
    "OPERATORS",
    "READERS",
    "SCOPED",
    "Descends",
    "Reference",
    "check",
    "check_condition",
    "evaluate",
    "is_constant",
    "is_expression",
    "plain",
    "references",
    "resolve",
]

MAX_DEPTH = 50
MAX_NODES = 2_000
_MAX_RESULT_DEPTH = 200
_MAX_BITS = 1_024  # of an integer: about the range of a double

LITERAL = "$literal"
_ABSENT = object()
_CONTAINERS = (dict, list)
_SIZED = (dict, list, str)
_FAILURES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def evaluate(rule: Any, data: Any = None) -> Any:
    """The value of `rule`: an expression, or data that holds some. `data` may be a lazy Mapping."""
    try:
        if type(rule) is dict and len(rule) == 1 and type(rule.get("var")) is str:
            return _look_up(data, rule["var"])  # the most frequent rule by far needs none of the machinery
        if not isinstance(rule, _CONTAINERS):
            return rule
        return _search(rule, _Scope(data, _Evaluation(data)))
    except _FAILURES as error:
        raise ExpressionError(str(error)) from error


resolve = evaluate  # the inputs of a step and the outputs of a workflow are data that may hold expressions


def is_expression(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in OPERATORS


def is_constant(value: Any) -> bool:
    """Whether a value holds no expression, and so is its own value."""
    return _Evaluation(None).is_constant(value)


def plain(value: Any, reach: int = 2) -> Any:
    """Lazy mappings as dicts. They lie in one another or in the uppermost `reach` dicts, never in lists."""
    if type(value) is dict:
        if reach <= 0:
            return value
        made = {key: plain(item, reach - 1) for key, item in value.items()}
        return made if any(made[key] is not item for key, item in value.items()) else value
    if isinstance(value, Mapping):
        return {key: plain(item, reach) for key, item in value.items()}
    return value


# Looking into the data


def _look_up(data: Any, path: str, default: Any = None) -> Any:
    parts = _split(path)
    value = _find(data, parts, default)
    if type(value) in _SCALARS or (type(value) is dict and len(parts) >= 2):
        return value
    return plain(value, 2 - len(parts))


def _find(value: Any, parts: tuple[str, ...], default: Any) -> Any:
    for position, part in enumerate(parts):
        if type(value) is dict:
            value = value.get(part, _ABSENT)
        elif type(value) is list:
            index = int(part) if part.isdecimal() and len(part) < 10 else len(value)
            value = value[index] if index < len(value) else _ABSENT
        elif descends(type(value)):
            descended = value.descend(list(parts[position:]))
            return default if descended is None else _find(descended[0], tuple(descended[1]), default)
        else:
            value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
        if value is _ABSENT:
            return default
    return value


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")) if path else ()


_SCALARS = frozenset({str, int, float, bool, type(None), list})


# Evaluating


class _Evaluation(Meter):
    """One call of evaluate(): what it may still do, and what it knows of its rule."""

    __slots__ = ("_compiled", "_constant", "root")

    def __init__(self, root: Any) -> None:
        super().__init__(MAX_WORK)
        self.root = root
        self._constant: dict[int, bool] = {}
        self._compiled: set[str] = set()

    def compiles(self, pattern: Any) -> int:
        """The work of a pattern: much if it is new, whatever a cache may know, so that all runs are alike."""
        is_new = isinstance(pattern, str) and pattern not in self._compiled
        if is_new:
            self._compiled.add(pattern)
        return 2_000 if is_new else 20

    def is_constant(self, rule: Any) -> bool:
        """Whether this part of the rule holds no expression, and so is its own value, however often asked."""
        if not isinstance(rule, _CONTAINERS):
            return not isinstance(rule, float) or isfinite(rule)
        if id(rule) not in self._constant:
            quoted = len(rule) == 1 and isinstance(rule, dict) and LITERAL in rule
            inner = rule.values() if isinstance(rule, dict) else rule
            is_data = not quoted and not is_expression(rule)
            self._constant[id(rule)] = is_data and all(self.is_constant(item) for item in inner)
        return self._constant[id(rule)]

    def built(self, value: Any) -> Any:
        """Every list and object made inside of an expression passes here: sharing its parts is cheap, and so
        a few operators could make one that takes for ever to compare or write down."""
        if isinstance(value, _CONTAINERS):
            self.spend(weight(value) // 32)
        return value


class _Scope:
    """What a rule sees: the whole data, or an item of a scoped operator, whatever its value."""

    __slots__ = ("data", "evaluation")

    def __init__(self, data: Any, evaluation: _Evaluation) -> None:
        self.data, self.evaluation = data, evaluation

    def at(self, item: Any) -> _Scope:
        return _Scope(item, self.evaluation)


def weight(value: Any) -> int:
    """About the bytes of `value` as JSON; too many or too deep is a ValueError, before all are counted."""
    total, level = 0, [value]
    for _ in range(_MAX_RESULT_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                total += len(item) + 2
            elif isinstance(item, _CONTAINERS):
                total += 2 * len(item) + 2
                operators.bounded(total)
                below.extend(
                    item if isinstance(item, list) else (part for pair in item.items() for part in pair)
                )
            else:
                total += 4
        operators.bounded(total)
        if not below:
            return total
        level = below
    raise ValueError(f"the result is more than {_MAX_RESULT_DEPTH} levels deep")


def _search(value: Any, scope: _Scope) -> Any:
    """Data outside of any expression: searched, not measured."""
    if isinstance(value, list):
        return [_search(item, scope) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (LITERAL in value or is_expression(value)):
        return _run(value, scope)
    return {key: _search(item, scope) for key, item in value.items()}


def _run(rule: Any, scope: _Scope) -> Any:
    if not isinstance(rule, _CONTAINERS):
        if isinstance(rule, float) and not isfinite(rule):
            raise ExpressionError(f"{rule} is not a JSON number")
        return rule
    if isinstance(rule, dict) and len(rule) == 1:
        [(operator, given)] = rule.items()
        if operator in OPERATORS:
            scope.evaluation.spend(1)
            if operator == "var" and isinstance(given, str):
                return _look_up(scope.data, given)
            return _apply(operator, given if isinstance(given, list) else [given], scope)
        if operator == LITERAL:
            return given
    if scope.evaluation.is_constant(rule):
        return rule
    if isinstance(rule, list):
        return scope.evaluation.built([_run(item, scope) for item in rule])
    return scope.evaluation.built({key: _run(item, scope) for key, item in rule.items()})


def _apply(operator: str, given: list[Any], scope: _Scope) -> Any:
    role, function, least, most = _TABLE[operator]
    if not least <= len(given) <= most:
        wanted = least if least == most else f"at least {least}" if most == inf else f"{least} to {most}"
        raise ExpressionError(f"{operator} takes {wanted} arguments, got {len(given)}")
    try:
        scope.evaluation.spend(len(given) // 2)
        if role == "form":
            return function(scope, *given)
        args = [_run(item, scope) for item in given]
        scope.evaluation.spend(_reads(operator, args, scope.evaluation))
        if role == "reader":
            return function(scope, *args)
        return scope.evaluation.built(_sane(function(*args)))
    except _FAILURES as error:
        raise ExpressionError(f"{operator}: {error}") from error


def _reads(operator: str, args: list[Any], evaluation: _Evaluation) -> int:
    """How much work it is for `operator` to look at its arguments."""
    sized = [arg for arg in args if isinstance(arg, _SIZED)]
    if not sized:
        return 0
    if operator == "str.matches":
        return evaluation.compiles(sized[-1]) + sum(map(len, sized)) * len(sized[-1]) // 32
    if operator in _WRITES or (operator in _COMPARES and len(sized) == len(args)):
        return sum(len(arg) if isinstance(arg, str) else weight(arg) for arg in sized) // 16
    return sum(map(len, sized)) // (2 if operator in _LOOPS else 64)


def _sane(result: Any) -> Any:
    if isinstance(result, str):
        operators.bounded(len(result))
    elif isinstance(result, float) and not isfinite(result):
        raise ValueError("the result is not a finite number")
    elif isinstance(result, int) and result.bit_length() > _MAX_BITS:
        raise ValueError("the result is too large a number")
    return result


# The library, corrected


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
_library.jsonLogic = _run


def _cat(*args: Any) -> str:
    parts, size = [], 0
    for arg in args:
        parts.append(_library._concatenate(arg))
        size += len(parts[-1])
        operators.bounded(size)
    return "".join(parts)


def _merge(*args: Any) -> Any:
    operators.bounded(sum(len(arg) if isinstance(arg, list) else 1 for arg in args))
    return _library._merge(*args)


def _multiply(*args: Any) -> Any:
    product = 1
    for arg in args:
        product = _sane(_library._multiply(product, arg))
    return product


def _count(*args: Any) -> int:
    return len(args[0]) if len(args) == 1 and isinstance(args[0], list) else int(_library._count(*args))


def _var_in(scope: _Scope, path: Any, default: Any) -> Any:
    if path is None:
        return scope.data
    return _find(scope.data, _split(str(path)), default) if isinstance(path, str | int | float) else default


def _var(scope: _Scope, path: Any = None, default: Any = None) -> Any:
    if isinstance(path, str):
        return _look_up(scope.data, path, default)
    return plain(_var_in(scope, path, default))


def _vars(scope: _Scope, path: Any) -> Any:
    matches = parse(operators.text(path)).find(scope.data, scope.evaluation)
    return scope.evaluation.built([plain(match) for match in matches])


def _items(scope: _Scope, rule: Any) -> list[Any]:
    items = _run(rule, scope)
    return items if isinstance(items, list) else []


def _map(scope: _Scope, items: Any, body: Any) -> Any:
    return scope.evaluation.built([_run(body, scope.at(item)) for item in _items(scope, items)])


def _filter(scope: _Scope, items: Any, body: Any) -> list[Any]:
    return [item for item in _items(scope, items) if _run(body, scope.at(item))]


def _all(scope: _Scope, items: Any, body: Any) -> bool:
    found = _items(scope, items)
    return bool(found) and all(_run(body, scope.at(item)) for item in found)


def _reduce(scope: _Scope, items: Any, body: Any, initial: Any = None) -> Any:
    accumulator = _run(initial, scope)
    for item in _items(scope, items):
        accumulator = _run(body, scope.at({"accumulator": accumulator, "current": item}))
    return accumulator


def _first_default(scope: _Scope, *rules: Any) -> Any:
    values = (_run(rule, scope) for rule in rules)
    return next((value for value in values if value is not None), None)


def _now(scope: _Scope, _: None = None) -> Any:
    return _find(scope.evaluation.root, ("ctx", "now"), None)


def _moment(scope: _Scope, time: Any) -> datetime:
    return operators.moment(_now(scope) if time is _ABSENT else time)


def _kv_get(scope: _Scope, key: Any, default: Any = None) -> Any:
    forced, _, name = operators.text(key).partition(":")
    is_forced = forced in ("global", "flow_group") and bool(name)
    for area in [forced] if is_forced else ["local", "flow", "global"]:
        found = _find(scope.evaluation.root, ("kv", area, name if is_forced else key), _ABSENT)
        if found is not _ABSENT:
            return plain(found)
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
    "time.hour": lambda scope, time=_ABSENT: _moment(scope, time).hour,
    "time.weekday": lambda scope, time=_ABSENT: _moment(scope, time).isoweekday(),
    "kv.get": _kv_get,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: function for name, function in _library._common_operations.items() if name != "method"},
    "<": _less,
    "cat": _cat,
    "merge": _merge,
    "*": _multiply,
    "count": _count,
    "log": lambda value: value,
    **operators.FUNCTIONS,
}
_COMPARES = frozenset({"==", "!=", "===", "!==", "<", "<=", ">", ">=", "in"})
_WRITES = frozenset({"cat", "json.dumps", "list.unique"})
_LOOPS = frozenset({"missing", "missing_some", "list.sort", "str.join"})  # in Python, not in C

OPERATORS: frozenset[str] = frozenset({*_FORMS, *_READERS, *_FUNCTIONS})
READERS: frozenset[str] = frozenset(_READERS)
SCOPED = frozenset({"map", "filter", "reduce", "all", "some", "none"})
"""Their second argument is evaluated on each item, and sees nothing else."""


def _described(role: str, function: Callable[..., Any]) -> tuple[str, Callable[..., Any], int, float]:
    """With the least and the most arguments it takes, the scope not counted."""
    wanted = list(signature(function).parameters.values())[role != "function" :]
    is_open = any(p.kind is Parameter.VAR_POSITIONAL for p in wanted)
    least = sum(p.default is Parameter.empty for p in wanted) - is_open
    return role, function, least, inf if is_open else len(wanted)


_TABLE = {
    operator: _described(role, function)
    for role, functions in (("form", _FORMS), ("reader", _READERS), ("function", _FUNCTIONS))
    for operator, function in functions.items()
}


# Looking at a rule without evaluating it


@dataclass(frozen=True, slots=True)
class Reference:
    """A path into `steps` or `flows`: the segments after that root."""

    segments: tuple[str, ...]
    has_default: bool
    whole: bool  # the reference is the whole value, not a part of it


def references(value: Any) -> Iterator[Reference]:
    """Each path into `steps` or `flows` that is known before anything runs."""
    yield from _references(value, whole=True)


def _references(value: Any, *, whole: bool = False) -> Iterator[Reference]:
    inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if isinstance(value, dict) and LITERAL in value and len(value) == 1:
        return
    if is_expression(value):
        [(operator, given)] = value.items()
        inner = given if isinstance(given, list) else [given]
        if operator in ("var", "vars") and inner and isinstance(inner[0], str):
            root, *segments = _names(operator, inner[0]) or ("",)
            if root in ("steps", "flows") and segments:
                yield Reference(tuple(segments), operator == "var" and len(inner) > 1, whole)
        if operator in SCOPED:
            inner = inner[:1] + inner[2:]  # the body sees items, not roots
    for item in inner:
        yield from _references(item)


def _names(operator: str, path: str) -> tuple[str, ...]:
    try:
        return _split(path) if operator == "var" else parse(path).names
    except BadPath:
        return ()


def check(value: Any, path: str) -> list[Problem]:
    """What is wrong with a value that may hold expressions, before anything is evaluated."""
    return list(_problems(value, path, 0, "data"))


def check_condition(value: Any, path: str) -> list[Problem]:
    """As check(); and a condition is an expression or a plain true, false, number or null."""
    is_one = isinstance(value, dict) and len(value) == 1  # a misspelt operator, if it is none
    if isinstance(value, str | list) or (isinstance(value, dict) and not is_one):
        hint = 'write an expression, such as {"==": [{"var": "input.x"}, 1]}'
        return [
            Problem(path, "bad_type", f"a condition cannot be {kind(value)}: it would never change", hint)
        ]
    return list(_problems(value, path, 0, "argument"))


_Place = Literal["data", "argument", "quoted"]


def _problems(value: Any, path: str, depth: int, place: _Place) -> Iterator[Problem]:
    if depth >= MAX_DEPTH and isinstance(value, _CONTAINERS):
        yield Problem(path, "too_deep", f"nested more than {MAX_DEPTH} levels deep")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, f"{path}[{index}]", depth + 1, place)
    elif not isinstance(value, dict):
        if not _is_json(value):
            yield Problem(path, "not_json", f"{value!r:.50} is not a JSON value")
    elif strange := [key for key in value if not _is_json(key) or not isinstance(key, str)]:
        yield Problem(path, "not_json", f"the key {strange[0]!r:.50} is not a text")
    elif place != "quoted" and is_expression(value):
        yield from _problems_of_expression(value, path, depth, place)
    else:
        if place != "quoted" and len(value) == 1:
            [key] = value
            if key != LITERAL and place == "argument":
                yield _unknown_operator(key, path)
            place = "quoted" if key == LITERAL else "data"
        for key, item in value.items():
            yield from _problems(item, _join(path, key), depth + 1, "quoted" if place == "quoted" else "data")


def _problems_of_expression(rule: dict[str, Any], path: str, depth: int, place: _Place) -> Iterator[Problem]:
    if (place == "data" or depth == 0) and _is_big(rule):
        yield Problem(path, "too_big", f"the expression has more than {MAX_NODES:,} nodes")
        return
    [(operator, given)] = rule.items()
    path = _join(path, operator)
    args = given if isinstance(given, list) else [given]
    try:
        if operator == "vars" and args and not is_expression(args[0]):
            parse(operators.text(args[0]))
        if operator == "str.matches" and len(args) == 2 and isinstance(args[1], str):
            compile_pattern(args[1])
    except (BadPath, TypeError) as error:
        yield Problem(path, "bad_path", str(error))
    except BadPattern as error:
        yield Problem(path, "bad_type", str(error))
    for index, item in enumerate(args):
        inner = f"{path}[{index}]" if isinstance(given, list) else path
        yield from _problems(item, inner, depth + 1, "argument")


def _unknown_operator(name: str, path: str) -> Problem:
    if name == "method":
        return Problem(path, "unknown_operator", "the operator 'method' is not available")
    likely = get_close_matches(name, OPERATORS, n=1)
    hint = f"did you mean {likely[0]!r}?" if likely else 'data is written {"$literal": ...} here'
    return Problem(path, "unknown_operator", f"{name!r} is not an operator", hint)


def _is_json(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def _is_big(rule: Any) -> bool:
    count, left = 0, [rule]
    while left and count <= MAX_NODES:
        value = left.pop()
        count += 1
        if isinstance(value, _CONTAINERS):
            left.extend(value if isinstance(value, list) else value.values())
    return count > MAX_NODES


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
