"""Translates the tree of an expression to JSON Logic: the part that Jinja and CEL have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.convert.expression_tree import (
    Binary,
    Call,
    Choice,
    Filter,
    Items,
    Literal,
    Member,
    Name,
    Node,
    Pairs,
    Test,
    Unary,
)
from orchestrator.convert.json_logic import (
    Rule,
    access_key,
    concatenate,
    equal,
    flatten_operation,
    kind_of,
    operation,
    unequal,
)
from orchestrator.convert.notes import CannotConvert

AMBIGUOUS_PLUS = "+ adds numbers here, and the types of these values are unknown; to join strings, write cat"


class Translator(ABC):
    """`changes` collects the differences in meaning, as messages for notes."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def translate(self, node: Node) -> Rule:
        match node:
            case Literal(value):
                return value
            case Name() | Member():
                return self._translate_reference(node)
            case Unary(operator, of):
                return self._translate_unary(operator, self.translate(of))
            case Binary(operator, left, right):
                return self._translate_binary(operator, self.translate(left), self.translate(right))
            case Choice(condition, then, otherwise):
                return operation(
                    "if", self.translate(condition), self.translate(then), self.translate(otherwise)
                )
            case Items(items):
                return [self.translate(item) for item in items]
            case Pairs(pairs):
                return _build_mapping([(self.translate(key), self.translate(value)) for key, value in pairs])
            case Call() | Filter() | Test():
                return self.translate_special(node)

    # What each language defines

    @abstractmethod
    def resolve_variable(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        """Return what a variable and the first of these keys mean, and the remaining keys."""

    @abstractmethod
    def translate_special(self, node: Call | Filter | Test) -> Rule: ...

    # Shared

    def _translate_reference(self, node: Name | Member) -> Rule:
        keys: list[Any] = []
        base: Node = node
        while isinstance(base, Member):
            keys.append(self._translate_key(base.key))
            base = base.of
        keys.reverse()
        if isinstance(base, Name):
            rule, keys = self.resolve_variable(base.name, keys)
        else:
            rule = self.translate(base)
        for key in keys:
            rule = access_key(rule, key)
        return rule

    def _translate_key(self, node: Node) -> Any:
        key = self.translate(node)
        if isinstance(key, str | int):
            return key
        raise CannotConvert("a computed index is not supported")

    def _translate_unary(self, operator: str, of: Rule) -> Rule:
        if operator in ("not", "!"):
            return operation("!", of)
        if isinstance(of, int | float) and not isinstance(of, bool):
            return -of if operator == "-" else of
        return operation("-", of) if operator == "-" else operation("+", of)

    def _translate_binary(self, operator: str, left: Rule, right: Rule) -> Rule:
        match operator:
            case "and" | "&&":
                return flatten_operation("and", left, right)
            case "or" | "||":
                return flatten_operation("or", left, right)
            case "==":
                return equal(left, right)
            case "!=":
                return unequal(left, right)
            case "not in":
                return operation("!", operation("in", left, right))
            case "<" | "<=" | ">" | ">=" | "in":
                return operation(operator, left, right)
            case "~":
                return as_string(concatenate(left, right))
            case "+":
                return self._translate_sum(left, right)
            case "-" | "*" | "/" | "%":
                if "string" in (kind_of(left), kind_of(right)):
                    raise CannotConvert(f"{operator} of a string has no equivalent")
                return operation(operator, left, right)
        raise CannotConvert(f"the operator {operator} has no equivalent")

    def _translate_sum(self, left: Rule, right: Rule) -> Rule:
        kinds = {kind_of(left), kind_of(right)}
        if "string" in kinds:
            return concatenate(left, right)
        if "list" in kinds:
            return operation("merge", left, right)
        if "number" not in kinds:
            self.changes.append(AMBIGUOUS_PLUS)
        return flatten_operation("+", left, right)


def _build_mapping(pairs: list[tuple[Rule, Rule]]) -> Rule:
    if not all(isinstance(key, str) for key, _ in pairs):
        raise CannotConvert("the keys of a mapping must be strings")
    mapping = dict(pairs)
    if not is_expression(mapping) and list(mapping) != [LITERAL]:
        return mapping
    raise CannotConvert("a mapping with this single key would be read as an expression")


def as_string(rule: Rule) -> Rule:
    """Return a rule that always gives a string, also when it has a single part."""
    is_string = isinstance(rule, str) or (isinstance(rule, dict) and "cat" in rule)
    return rule if is_string else operation("cat", rule)
