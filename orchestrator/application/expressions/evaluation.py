"""Evaluates and checks expressions: JSON Logic with limits. The operators are in json_logic.py.

An object whose only key is an operator is an expression. Any other object or list is data, which may contain
expressions; {"$literal": x} is x. This module walks over the rule itself: operators are the names in one flat
table, and paths follow keys and indexes only, so an expression cannot reach any attribute.

`check` limits the nesting and the number of nodes of a rule before it is accepted. Evaluation limits its work
(Meter) and the size of everything it builds. Every failure is an ExpressionError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf, isfinite
from typing import Any, Literal

from orchestrator.application.errors import ExpressionError, Problem
from orchestrator.application.expressions import functions as operators
from orchestrator.application.expressions.costs import ARGUMENT_COSTS, CALL_COSTS
from orchestrator.application.expressions.dotted_path import look_up, split_path
from orchestrator.application.expressions.json_logic import OPERATOR_TABLE, SCOPED_OPERATORS, EvaluationState
from orchestrator.application.expressions.jsonpath import BadPath, parse
from orchestrator.application.expressions.limits import charge_for, check_scalar
from orchestrator.application.expressions.meter import Meter
from orchestrator.application.expressions.safe_regex import BadPattern, compile_pattern
from orchestrator.application.values.json_types import describe_type
from orchestrator.application.values.payload_refs import is_payload_reference, opaque_reference_error
from orchestrator.application.values.secret_refs import (
    SECRET,
    SECRET_NAME_RULE,
    SecretPath,
    is_secret_name,
    is_secret_reference,
)

MAX_DEPTH = 50
MAX_NODES = 2_000

OPERATORS: frozenset[str] = frozenset(OPERATOR_TABLE)
LITERAL = "$literal"
_MAX_ERROR_LENGTH = 500
_UNLIMITED = 1 << 62
_CONTAINERS = (dict, list)
_SIZED = (dict, list, str)
_FAILURES = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def evaluate(rule: Any, data: Any = None, meter: Meter | None = None) -> Any:
    """Evaluate an expression, or every expression inside a value. `data` may be a lazy Mapping.

    Without a meter, this call may spend MAX_WORK."""
    try:
        if type(rule) is dict and len(rule) == 1 and type(path := rule.get("var")) is str:
            if meter is not None:
                meter.spend(1 + len(path) // 64)
            return look_up(data, path, None, meter)  # a shortcut for the most frequent rule
        if not isinstance(rule, _CONTAINERS) and not isinstance(rule, float):
            return rule
        return _search(rule, Scope(data, Evaluation(data, meter or Meter())))
    except _FAILURES as error:
        raise ExpressionError(_shorten(error)) from error


resolve = evaluate  # for data that may contain expressions: the inputs of a step, the outputs of a workflow


def resolve_all(values: Mapping[str, Any], data: Any, meter: Meter) -> dict[str, Any]:
    """Resolve the values of a mapping such as `input`. The mapping itself is not an expression."""
    if len(values) > 1:
        meter.spend(len(values) // 2)
    return {key: resolve(value, data, meter) for key, value in values.items()}


def is_expression(value: Any) -> bool:
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in OPERATORS


def is_constant(value: Any) -> bool:
    """Whether a value contains no expression."""
    return Evaluation(None, Meter(_UNLIMITED)).is_constant(value)


# Evaluating


class Evaluation(EvaluationState):
    """One call of evaluate(), with the facts about its rule that it has computed."""

    __slots__ = ("_constant",)

    def __init__(self, root: Any, meter: Meter) -> None:
        super().__init__(root, meter)
        self._constant: dict[int, bool] = {}

    def is_constant(self, rule: Any) -> bool:
        """Whether this part of the rule contains no expression. The answer is cached by identity."""
        if not isinstance(rule, _CONTAINERS):
            return not isinstance(rule, float) or isfinite(rule)
        if id(rule) not in self._constant:
            self.spend(1 + len(rule) // 4)
            is_literal = len(rule) == 1 and isinstance(rule, dict) and LITERAL in rule
            inner = rule.values() if isinstance(rule, dict) else rule
            is_data = not is_literal and not is_expression(rule)
            self._constant[id(rule)] = is_data and all(self.is_constant(item) for item in inner)
        return self._constant[id(rule)]


class Scope:
    """The data that a rule can read: all of it, or the current item of a scoped operator such as map."""

    __slots__ = ("data", "evaluation")

    def __init__(self, data: Any, evaluation: Evaluation) -> None:
        self.data, self.evaluation = data, evaluation

    def for_item(self, item: Any) -> Scope:
        return Scope(item, self.evaluation)

    def run(self, rule: Any) -> Any:
        """Evaluate a rule, or a part of one."""
        if not isinstance(rule, _CONTAINERS):
            if isinstance(rule, float) and not isfinite(rule):
                raise ExpressionError(f"{rule} is not a JSON number")
            return rule
        if isinstance(rule, dict) and len(rule) == 1:
            [(operator, argument)] = rule.items()
            if operator in OPERATORS:
                if operator == "var" and isinstance(argument, str):
                    self.evaluation.spend(1 + len(argument) // 64)
                    return look_up(self.data, argument, None, self.evaluation.meter)
                return self._apply(operator, argument if isinstance(argument, list) else [argument])
            if operator == LITERAL:
                return argument
        if self.evaluation.is_constant(rule):
            return rule
        self.evaluation.spend(2 + len(rule) // 2)
        if isinstance(rule, list):
            return charge_for([self.run(item) for item in rule], self.evaluation.meter)
        return charge_for({key: self.run(item) for key, item in rule.items()}, self.evaluation.meter)

    def _apply(self, operator: str, rules: list[Any]) -> Any:
        role, function, min_args, max_args = OPERATOR_TABLE[operator]
        if not min_args <= len(rules) <= max_args:
            raise _wrong_argument_count(operator, min_args, max_args, len(rules))
        try:
            self.evaluation.spend(CALL_COSTS.get(operator, 1) + len(rules) // 2)
            if role == "form":
                return function(self, *rules)
            args = [self.run(rule) for rule in rules]
            sized = [arg for arg in args if isinstance(arg, _SIZED)]
            if sized:
                self._spend_on_arguments(operator, args, sized)
            if role == "reader":
                return function(self, *args)
            return charge_for(check_scalar(function(*args)), self.evaluation.meter)
        except _FAILURES as error:
            raise ExpressionError(f"{operator}: {_shorten(error)}") from error

    def _spend_on_arguments(self, operator: str, args: list[Any], sized: list[Any]) -> None:
        self.evaluation.spend(1)
        if operator not in _TAKES_REFERENCES:
            _reject_references(operator, args)
        cost = ARGUMENT_COSTS.get(operator)
        if cost is not None:
            cost(sized, self.evaluation.meter)


def _wrong_argument_count(operator: str, min_args: int, max_args: float, count: int) -> ExpressionError:
    if min_args == max_args:
        expected = str(min_args)
    else:
        expected = f"at least {min_args}" if max_args == inf else f"{min_args} to {max_args}"
    return ExpressionError(f"{operator} takes {expected} arguments, got {count}")


def _shorten(error: Exception) -> str:
    """The text of an error. Those of Python may quote a whole value."""
    text = str(error)
    return text if len(text) <= _MAX_ERROR_LENGTH else f"{text[:_MAX_ERROR_LENGTH]}..."


def _search(value: Any, scope: Scope) -> Any:
    """Evaluate the expressions inside data. The data around them is copied, and has no size limit."""
    if isinstance(value, list):
        scope.evaluation.spend(1 + len(value) // 4)
        return [_search(item, scope) for item in value]
    if not isinstance(value, dict):
        return scope.run(value) if isinstance(value, float) else value  # infinity is not JSON
    if len(value) == 1 and (LITERAL in value or is_expression(value)):
        return scope.run(value)
    scope.evaluation.spend(1 + len(value) // 4)
    return {key: _search(item, scope) for key, item in value.items()}


def _reject_references(operator: str, args: list[Any]) -> None:
    """Raise ExpressionError for an argument that is stored by reference.

    It may only be compared with null, a boolean or a number: it is known to be none of these.
    """
    reference = next((arg for arg in args if is_payload_reference(arg)), None)
    if reference is not None and not (operator in _EQUALS and any(map(_is_small_scalar, args))):
        raise opaque_reference_error(reference, "an argument")


def _is_small_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


_EQUALS = frozenset({"==", "!=", "===", "!=="})
_TAKES_REFERENCES = frozenset({"!", "!!", "log"})


# Inspecting a rule without evaluating it


@dataclass(frozen=True, slots=True)
class Reference:
    """A path into `steps` or `flows`; `segments` are those after the root."""

    segments: tuple[str, ...]
    has_default: bool
    is_whole: bool  # the reference is the whole value, not a part of it


def find_references(value: Any) -> Iterator[Reference]:
    """Yield each path into `steps` or `flows` that is written as a constant."""
    yield from _find_references(value, is_whole=True)


def _find_references(value: Any, *, is_whole: bool = False) -> Iterator[Reference]:
    inner = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if isinstance(value, dict) and LITERAL in value and len(value) == 1:
        return
    if is_expression(value):
        [(operator, argument)] = value.items()
        inner = argument if isinstance(argument, list) else [argument]
        if operator in ("var", "vars") and inner and isinstance(inner[0], str):
            root, *segments = _leading_names(operator, inner[0]) or ("",)
            if root in ("steps", "flows") and segments:
                yield Reference(tuple(segments), operator == "var" and len(inner) > 1, is_whole)
        if operator in SCOPED_OPERATORS:
            inner = inner[:1] + inner[2:]  # the body reads items, not the roots of the data
    for item in inner:
        yield from _find_references(item)


def _leading_names(operator: str, path: str) -> tuple[str, ...]:
    try:
        return split_path(path) if operator == "var" else parse(path).names
    except BadPath:
        return ()


def secret_paths(values: dict[str, Any]) -> Iterator[SecretPath]:
    """Yield the path of each secret reference. `values` itself is never one: its keys are names of inputs."""
    todo: list[tuple[SecretPath, Any]] = [((key,), value) for key, value in values.items()]
    for path, value in todo:  # the list grows during the loop
        if is_secret_reference(value):
            yield path
        elif isinstance(value, list):
            todo += [((*path, index), item) for index, item in enumerate(value)]
        elif isinstance(value, dict) and not (len(value) == 1 and LITERAL in value):
            todo += [((*path, key), item) for key, item in value.items()]


SecretPolicy = Literal["nowhere", "whole", "anywhere"]
"""Whether a value may refer to secrets: not at all, in its data (`whole`), or also inside expressions."""


def check(value: Any, path: str, secrets: SecretPolicy = "nowhere") -> list[Problem]:
    """Return the problems of a value that may contain expressions, without evaluating it."""
    return list(_find_problems(value, path, 0, "data", secrets))


def check_condition(value: Any, path: str) -> list[Problem]:
    """Like check(), for a condition: it must be an expression, a boolean, a number or null."""
    has_one_key = isinstance(value, dict) and len(value) == 1  # an operator, perhaps a misspelt one
    if isinstance(value, str | list) or (isinstance(value, dict) and not has_one_key):
        hint = 'write an expression, such as {"==": [{"var": "input.x"}, 1]}'
        message = f"a condition cannot be {describe_type(value)}: it would never change"
        return [Problem(path, "bad_type", message, hint)]
    return list(_find_problems(value, path, 0, "argument", "nowhere"))


_Position = Literal["data", "argument", "quoted"]
"""Where a value stands: in data, as an argument of an operator, or inside $literal."""


def _find_problems(
    value: Any, path: str, depth: int, position: _Position, secrets: SecretPolicy
) -> Iterator[Problem]:
    if depth >= MAX_DEPTH and isinstance(value, _CONTAINERS):
        yield Problem(path, "too_deep", f"nested more than {MAX_DEPTH} levels deep")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _find_problems(item, f"{path}[{index}]", depth + 1, position, secrets)
    elif not isinstance(value, dict):
        if not _is_json(value):
            yield Problem(path, "not_json", f"{value!r:.50} is not a JSON value")
    elif bad_keys := [key for key in value if not _is_json(key) or not isinstance(key, str)]:
        yield Problem(path, "not_json", f"the key {bad_keys[0]!r:.50} is not a string")
    elif position != "quoted" and is_expression(value):
        yield from _expression_problems(value, path, depth, position, secrets)
    elif position != "quoted" and is_secret_reference(value):
        yield from _secret_problems(value[SECRET], path, secrets)
    else:
        if position != "quoted" and len(value) == 1:
            [key] = value
            if key != LITERAL and position == "argument":
                yield _unknown_operator(key, path)
            position = "quoted" if key == LITERAL else "data"
        for key, item in value.items():
            inner: _Position = "quoted" if position == "quoted" else "data"
            yield from _find_problems(item, _join(path, key), depth + 1, inner, secrets)


def _secret_problems(name: Any, path: str, secrets: SecretPolicy) -> Iterator[Problem]:
    if secrets == "nowhere":
        message = "a secret cannot be used here: only workers can read it"
        yield Problem(path, "bad_secret", message, _SECRET_HINT)
    elif not is_secret_name(name):
        code = "bad_id" if isinstance(name, str) else "bad_type"
        yield Problem(_join(path, SECRET), code, SECRET_NAME_RULE)


_SECRET_HINT = (
    "use it as a whole value in the input of an executor or in the configuration of a source; "
    'write data that looks like a secret as {"$literal": ...}'
)


def _expression_problems(
    rule: dict[str, Any], path: str, depth: int, position: _Position, secrets: SecretPolicy
) -> Iterator[Problem]:
    if (position == "data" or depth == 0) and _has_too_many_nodes(rule):
        yield Problem(path, "too_big", f"the expression has more than {MAX_NODES:,} nodes")
        return
    [(operator, argument)] = rule.items()
    path = _join(path, operator)
    args = argument if isinstance(argument, list) else [argument]
    try:
        if operator == "vars" and args and not is_expression(args[0]):
            parse(operators.require_string(args[0]))
        if operator == "str.matches" and len(args) == 2 and isinstance(args[1], str):
            compile_pattern(args[1])
    except (BadPath, TypeError) as error:
        yield Problem(path, "bad_path", str(error))
    except BadPattern as error:
        yield Problem(path, "bad_type", str(error))
    inner_secrets: SecretPolicy = "anywhere" if secrets == "anywhere" else "nowhere"
    for index, item in enumerate(args):
        inner_path = f"{path}[{index}]" if isinstance(argument, list) else path
        yield from _find_problems(item, inner_path, depth + 1, "argument", inner_secrets)


def _unknown_operator(name: str, path: str) -> Problem:
    if name == "method":
        return Problem(path, "unknown_operator", "the operator 'method' is not available")
    similar = get_close_matches(name, OPERATORS, n=1)
    hint = f"did you mean {similar[0]!r}?" if similar else 'write data as {"$literal": ...} here'
    return Problem(path, "unknown_operator", f"{name!r} is not an operator", hint)


def _is_json(value: Any) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    return value is None or isinstance(value, int) or (isinstance(value, float) and isfinite(value))


def _has_too_many_nodes(rule: Any) -> bool:
    count, left = 0, [rule]
    while left and count <= MAX_NODES:
        value = left.pop()
        count += 1
        if isinstance(value, _CONTAINERS):
            left.extend(value if isinstance(value, list) else value.values())
    return count > MAX_NODES


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
