"""From the tree of an expression to JSON Logic: what Jinja and CEL have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.convert.expression_parser import (
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

AMBIGUOUS_PLUS = "+ adds numbers here, and nothing shows whether these are numbers; for texts write cat"


class Translator(ABC):
    """`changes` gathers what means something else now, in words for notes."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def rule(self, node: Node) -> Rule:
        match node:
            case Literal(value):
                return value
            case Name() | Member():
                return self._reference(node)
            case Unary(operator, of):
                return self._unary(operator, self.rule(of))
            case Binary(operator, left, right):
                return self._binary(operator, self.rule(left), self.rule(right))
            case Choice(condition, then, otherwise):
                return operation("if", self.rule(condition), self.rule(then), self.rule(otherwise))
            case Items(items):
                return [self.rule(item) for item in items]
            case Pairs(pairs):
                return self._mapping([(self.rule(key), self.rule(value)) for key, value in pairs])
            case Call() | Filter() | Test():
                return self.translate_special(node)

    # What a language has of its own

    @abstractmethod
    def root(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        """The value that a variable and the first of these keys mean, and the keys that are left."""

    @abstractmethod
    def translate_special(self, node: Call | Filter | Test) -> Rule: ...

    # Shared

    def _reference(self, node: Name | Member) -> Rule:
        keys: list[Any] = []
        base: Node = node
        while isinstance(base, Member):
            keys.append(self._key(base.key))
            base = base.of
        keys.reverse()
        rule, left = self.root(base.name, keys) if isinstance(base, Name) else (self.rule(base), keys)
        for key in left:
            rule = access_key(rule, key)
        return rule

    def _key(self, node: Node) -> Any:
        key = self.rule(node)
        if isinstance(key, str | int):
            return key
        raise CannotConvert("an index that is computed is not supported")

    def _unary(self, operator: str, of: Rule) -> Rule:
        if operator in ("not", "!"):
            return operation("!", of)
        if isinstance(of, int | float) and not isinstance(of, bool):
            return -of if operator == "-" else of
        return operation("-", of) if operator == "-" else operation("+", of)

    def _binary(self, operator: str, left: Rule, right: Rule) -> Rule:
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
                return _text(concatenate(left, right))
            case "+":
                return self._sum(left, right)
            case "-" | "*" | "/" | "%":
                if "text" in (kind_of(left), kind_of(right)):
                    raise CannotConvert(f"{operator} of a text has no equal")
                return operation(operator, left, right)
        raise CannotConvert(f"the operator {operator} has no equal")

    def _sum(self, left: Rule, right: Rule) -> Rule:
        kinds = {kind_of(left), kind_of(right)}
        if "text" in kinds:
            return concatenate(left, right)
        if "list" in kinds:
            return operation("merge", left, right)
        if "number" not in kinds:
            self.changes.append(AMBIGUOUS_PLUS)
        return flatten_operation("+", left, right)

    def _mapping(self, pairs: list[tuple[Rule, Rule]]) -> Rule:
        if not all(isinstance(key, str) for key, _ in pairs):
            raise CannotConvert("the keys of a mapping must be texts")
        mapping = dict(pairs)
        if not is_expression(mapping) and list(mapping) != [LITERAL]:
            return mapping
        raise CannotConvert("a mapping with this single key would be taken for an expression")


def _text(rule: Rule) -> Rule:
    """Always a text, also of a single part."""
    is_text = isinstance(rule, str) or (isinstance(rule, dict) and "cat" in rule)
    return rule if is_text else operation("cat", rule)
