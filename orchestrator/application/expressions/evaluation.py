"""Expressions: JSON Logic with limits; its operators are in logic.py.

An object whose only key is an operator is an expression; any other object or list is data, searched for
expressions; {"$literal": x} is x. The walk over a rule is ours: operators are the names of one flat table,
and paths go through keys and indexes alone, so no attribute of anything is in reach.

Bounded: the nesting and nodes of a rule at submit (check); while evaluating, the work of one call (Meter) and
the size of everything built. Whatever fails is an ExpressionError.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any, Literal

from orchestrator.application.errors import ExpressionError, Problem
from orchestrator.application.expressions import functions as operators
from orchestrator.application.expressions.dotted_path import look_up, split
from orchestrator.application.expressions.functions import kind
from orchestrator.application.expressions.json_logic import OPERATOR_TABLE, SCOPED_OPERATORS, WorkBudget
from orchestrator.application.expressions.jsonpath import BadPath, parse
from orchestrator.application.expressions.limits import check_scalar, json_size
from orchestrator.application.expressions.safe_regex import BadPattern, compile_pattern
from orchestrator.application.values.payload_refs import is_reference as is_payload
from orchestrator.application.values.payload_refs import opaque_reference_error
from orchestrator.application.values.secret_refs import (
    SECRET,
    SECRET_NAME_RULE,
    SecretPath,
    is_reference,
    is_secret_name,
)

MAX_DEPTH = 50
MAX_NODES = 2_000

OPERATORS: frozenset[str] = frozenset(OPERATOR_TABLE)
LITERAL = "$literal"
_CONTAINERS = (dict, list)
_SIZED = (dict, list, str)
_FAILURES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def evaluate(rule: Any, data: Any = None) -> Any:
    """The value of `rule`: an expression, or data that holds some. `data` may be a lazy Mapping."""
    try:
        if type(rule) is dict and len(rule) == 1 and type(rule.get("var")) is str:
            return look_up(data, rule["var"])  # the most frequent rule by far needs none of the machinery
        if not isinstance(rule, _CONTAINERS):
            return rule
        return _search(rule, Scope(data, Evaluation(data)))
    except _FAILURES as error:
        raise ExpressionError(str(error)) from error


resolve = evaluate  # the inputs of a step and the outputs of a workflow are data that may hold expressions


def is_expression(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in OPERATORS


def is_constant(value: Any) -> bool:
    """Whether a value holds no expression, and so is its own value."""
    return Evaluation(None).is_constant(value)


# Evaluating


class Evaluation(WorkBudget):
    """One call of evaluate(): what it may still do, and what it knows of its rule."""

    __slots__ = ("_compiled", "_constant")

    def __init__(self, root: Any) -> None:
        super().__init__(root)
        self._constant: dict[int, bool] = {}
        self._compiled: set[str] = set()

    def pattern_cost(self, pattern: Any) -> int:
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


class Scope:
    """What a rule sees: the whole data, or an item of a scoped operator, whatever its value."""

    __slots__ = ("data", "evaluation")

    def __init__(self, data: Any, evaluation: Evaluation) -> None:
        self.data, self.evaluation = data, evaluation

    def at(self, item: Any) -> Scope:
        return Scope(item, self.evaluation)

    def run(self, rule: Any) -> Any:
        """The value of a rule, or of a part of one."""
        if not isinstance(rule, _CONTAINERS):
            if isinstance(rule, float) and not isfinite(rule):
                raise ExpressionError(f"{rule} is not a JSON number")
            return rule
        if isinstance(rule, dict) and len(rule) == 1:
            [(operator, given)] = rule.items()
            if operator in OPERATORS:
                self.evaluation.spend(1)
                if operator == "var" and isinstance(given, str):
                    return look_up(self.data, given)
                return self._apply(operator, given if isinstance(given, list) else [given])
            if operator == LITERAL:
                return given
        if self.evaluation.is_constant(rule):
            return rule
        if isinstance(rule, list):
            return self.evaluation.charge_for([self.run(item) for item in rule])
        return self.evaluation.charge_for({key: self.run(item) for key, item in rule.items()})

    def _apply(self, operator: str, given: list[Any]) -> Any:
        role, function, least, most = OPERATOR_TABLE[operator]
        if not least <= len(given) <= most:
            wanted = least if least == most else f"at least {least}" if most == inf else f"{least} to {most}"
            raise ExpressionError(f"{operator} takes {wanted} arguments, got {len(given)}")
        try:
            self.evaluation.spend(len(given) // 2)
            if role == "form":
                return function(self, *given)
            args = [self.run(item) for item in given]
            self.evaluation.spend(_reads(operator, args, self.evaluation))
            if role == "reader":
                return function(self, *args)
            return self.evaluation.charge_for(check_scalar(function(*args)))
        except _FAILURES as error:
            raise ExpressionError(f"{operator}: {error}") from error


def _search(value: Any, scope: Scope) -> Any:
    """Data outside of any expression: searched, not measured."""
    if isinstance(value, list):
        return [_search(item, scope) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and (LITERAL in value or is_expression(value)):
        return scope.run(value)
    return {key: _search(item, scope) for key, item in value.items()}


def _reads(operator: str, args: list[Any], evaluation: Evaluation) -> int:
    """How much work it is for `operator` to look at its arguments."""
    sized = [arg for arg in args if isinstance(arg, _SIZED)]
    if not sized:
        return 0
    if operator not in _TAKES_ANY:
        _check_open(operator, args)
    if operator == "str.matches":
        return evaluation.pattern_cost(sized[-1]) + sum(map(len, sized)) * len(sized[-1]) // 32
    if operator in _WRITES or (operator in _COMPARES and len(sized) == len(args)):
        return sum(len(arg) if isinstance(arg, str) else json_size(arg) for arg in sized) // 16
    return sum(map(len, sized)) // (2 if operator in _LOOPS else 64)


def _check_open(operator: str, args: list[Any]) -> None:
    """What can be said of a value that is kept by reference: it is not null, not empty, and no number."""
    found = next((arg for arg in args if is_payload(arg)), None)
    if found is not None and not (operator in _EQUALS and any(map(_is_short, args))):
        raise opaque_reference_error(found, "an argument")


def _is_short(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


_EQUALS = frozenset({"==", "!=", "===", "!=="})
_TAKES_ANY = frozenset({"!", "!!", "log"})
_COMPARES = frozenset({"==", "!=", "===", "!==", "<", "<=", ">", ">=", "in"})
_WRITES = frozenset({"cat", "json.dumps", "list.unique"})
_LOOPS = frozenset({"missing", "missing_some", "list.sort", "str.join"})  # in Python, not in C


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
        if operator in SCOPED_OPERATORS:
            inner = inner[:1] + inner[2:]  # the body sees items, not roots
    for item in inner:
        yield from _references(item)


def _names(operator: str, path: str) -> tuple[str, ...]:
    try:
        return split(path) if operator == "var" else parse(path).names
    except BadPath:
        return ()


def secret_paths(values: dict[str, Any]) -> Iterator[SecretPath]:
    """Where values refer to secrets; a mapping of names to values is no reference itself, as it is no
    expression."""
    todo: list[tuple[SecretPath, Any]] = [((key,), value) for key, value in values.items()]
    for place, value in todo:  # which grows
        if is_reference(value):
            yield place
        elif isinstance(value, list):
            todo += [((*place, index), item) for index, item in enumerate(value)]
        elif isinstance(value, dict) and not (len(value) == 1 and LITERAL in value):
            todo += [((*place, key), item) for key, item in value.items()]


SecretPolicy = Literal["nowhere", "whole", "anywhere"]
"""Whether a value may refer to secrets: as a part of its data, or also inside of its expressions."""


def check(value: Any, path: str, secrets: SecretPolicy = "nowhere") -> list[Problem]:
    """What is wrong with a value that may hold expressions, before anything is evaluated."""
    return list(_problems(value, path, 0, "data", secrets))


def check_condition(value: Any, path: str) -> list[Problem]:
    """As check(); and a condition is an expression or a plain true, false, number or null."""
    is_one = isinstance(value, dict) and len(value) == 1  # a misspelt operator, if it is none
    if isinstance(value, str | list) or (isinstance(value, dict) and not is_one):
        hint = 'write an expression, such as {"==": [{"var": "input.x"}, 1]}'
        return [
            Problem(path, "bad_type", f"a condition cannot be {kind(value)}: it would never change", hint)
        ]
    return list(_problems(value, path, 0, "argument", "nowhere"))


_Place = Literal["data", "argument", "quoted"]


def _problems(value: Any, path: str, depth: int, place: _Place, secrets: SecretPolicy) -> Iterator[Problem]:
    if depth >= MAX_DEPTH and isinstance(value, _CONTAINERS):
        yield Problem(path, "too_deep", f"nested more than {MAX_DEPTH} levels deep")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, f"{path}[{index}]", depth + 1, place, secrets)
    elif not isinstance(value, dict):
        if not _is_json(value):
            yield Problem(path, "not_json", f"{value!r:.50} is not a JSON value")
    elif strange := [key for key in value if not _is_json(key) or not isinstance(key, str)]:
        yield Problem(path, "not_json", f"the key {strange[0]!r:.50} is not a text")
    elif place != "quoted" and is_expression(value):
        yield from _problems_of_expression(value, path, depth, place, secrets)
    elif place != "quoted" and is_reference(value):
        yield from _problems_of_reference(value[SECRET], path, secrets)
    else:
        if place != "quoted" and len(value) == 1:
            [key] = value
            if key != LITERAL and place == "argument":
                yield _unknown_operator(key, path)
            place = "quoted" if key == LITERAL else "data"
        for key, item in value.items():
            inner: _Place = "quoted" if place == "quoted" else "data"
            yield from _problems(item, _join(path, key), depth + 1, inner, secrets)


def _problems_of_reference(name: Any, path: str, secrets: SecretPolicy) -> Iterator[Problem]:
    if secrets == "nowhere":
        yield Problem(path, "bad_secret", "a secret cannot stand here: only workers know it", _INSTEAD)
    elif not is_secret_name(name):
        yield Problem(
            _join(path, SECRET), "bad_id" if isinstance(name, str) else "bad_type", SECRET_NAME_RULE
        )


_INSTEAD = (
    "put it whole into the input of an executor, or into the configuration of a source; "
    'data that looks like one is written {"$literal": ...}'
)


def _problems_of_expression(
    rule: dict[str, Any], path: str, depth: int, place: _Place, secrets: SecretPolicy
) -> Iterator[Problem]:
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
    inside: SecretPolicy = "anywhere" if secrets == "anywhere" else "nowhere"
    for index, item in enumerate(args):
        inner = f"{path}[{index}]" if isinstance(given, list) else path
        yield from _problems(item, inner, depth + 1, "argument", inside)


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
