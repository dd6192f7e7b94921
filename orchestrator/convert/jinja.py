"""Translates Jinja templates to expressions: text, values, filters, `{% if %}` and `{% for %}`.

A template that is a single value keeps the type of that value; one that mixes text and values is a `cat`. A
loop joins the texts of its items, and its body reads nothing but the item, as in every `map`. Nothing is
rendered or evaluated. Macros, calls and assignments have no equivalent: CannotConvert.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.convert.expression_tree import (
    Body,
    Call,
    Filter,
    ForBlock,
    IfBlock,
    Literal,
    Member,
    Name,
    Node,
    Test,
    Unary,
)
from orchestrator.convert.jinja_filters import FILTERS
from orchestrator.convert.json_logic import Rule, concatenate, kind_of, operation, require_valid, unequal
from orchestrator.convert.libraries import MissingLibrary
from orchestrator.convert.notes import CannotConvert
from orchestrator.convert.translation import Translator, as_string

ResolveVariable = Callable[[str, list[Any]], tuple[Rule, list[Any]]]


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


class JinjaTranslator(Translator):
    """Translates the expressions of a template. `resolve_variable` gives the meaning of its variables."""

    def __init__(self, resolve_variable: ResolveVariable) -> None:
        super().__init__()
        self._resolve_variable = resolve_variable
        self._loop_variables: list[str] = []

    def resolve_variable(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        if not self._loop_variables:
            return self._resolve_variable(name, keys)
        if name == self._loop_variables[-1]:
            return {"var": ""}, keys
        if name == "loop":
            raise CannotConvert("loop has no equivalent: to put text between items, write the filter join")
        raise CannotConvert(
            f"{name} cannot be read inside of a loop here, only {self._loop_variables[-1]}:"
            " write it before or after the loop"
        )

    @contextmanager
    def in_loop(self, variable: str) -> Iterator[None]:
        """Translate what reads the item of a loop."""
        self._loop_variables.append(variable)
        yield
        self._loop_variables.pop()

    def translate_special(self, node: Call | Filter | Test) -> Rule:
        match node:
            case Filter():
                return self._translate_filter(node)
            case Test():
                return self._translate_test(node)
        raise CannotConvert("a function or method call has no equivalent")

    def _translate_filter(self, node: Filter) -> Rule:
        of = self.translate(node.of)
        if node.name == "map" and not node.args and list(node.named) == ["attribute"]:
            attribute = self.translate(node.named["attribute"])
            if isinstance(attribute, str):
                return operation("map", of, {"var": attribute})
        known = FILTERS.get(node.name)
        if known is None:
            raise CannotConvert(f"the filter {node.name} has no equivalent")
        args = [self.translate(arg) for arg in node.args]
        if node.named or not known.min_args <= len(args) <= known.max_args:
            raise CannotConvert(f"the filter {node.name} with these arguments has no equivalent")
        if known.change:
            self.changes.append(known.change)
        return known.build(of, *args)

    def _translate_test(self, node: Test) -> Rule:
        is_not_null = unequal(self.translate(node.of), None)
        if node.name not in ("none", "defined", "undefined"):
            raise CannotConvert(f"the test `is {node.name}` has no equivalent")
        if (node.name == "defined") is not node.is_negated:
            return is_not_null
        return {"===": is_not_null["!=="]}


def convert_template(text: str, translator: JinjaTranslator) -> Rule:
    """Translate a template to an expression. CannotConvert gives the reason if that is not possible."""
    return require_valid(_translate_body(_parse(text), translator))


def _parse(text: str) -> Body:
    if not is_template(text):  # most texts, which need no library
        return (Literal(re.sub(r"\r\n?", "\n", text).removesuffix("\n")),)  # as Jinja does
    try:
        from orchestrator.convert.jinja_parser import parse_template
    except ImportError as error:
        raise MissingLibrary("a Jinja template", "jinja2") from error
    return parse_template(text)


def _translate_body(body: Body, translator: JinjaTranslator) -> Rule:
    return concatenate(*(_translate_part(part, translator) for part in body))


def _translate_part(part: Node | IfBlock | ForBlock, translator: JinjaTranslator) -> Rule:
    if isinstance(part, Node):
        return translator.translate(part)
    if isinstance(part, ForBlock):
        return _translate_loop(part, translator)
    ways: list[Rule] = []
    for condition, body in part.branches:
        ways += (translator.translate(condition), _translate_body(body, translator))
    return operation("if", *ways, _translate_body(part.otherwise, translator))


def _translate_loop(loop: ForBlock, translator: JinjaTranslator) -> Rule:
    """Translate a loop to a `str.join` of a `map`."""
    items = translator.translate(loop.items)
    if kind_of(items) in ("string", "number"):
        raise CannotConvert(f"a loop over a {kind_of(items)} has no equivalent: loop over a list")
    body, separator = _split_separator(loop.body)
    with translator.in_loop(loop.variable):
        if loop.condition is not None:
            items = operation("filter", items, translator.translate(loop.condition))
        text = as_string(_translate_body(body, translator))
    mapped = operation("map", items, text)
    joined = operation("str.join", mapped, *([separator] if separator else []))
    if not loop.otherwise:
        return joined
    return operation("if", items, joined, _translate_body(loop.otherwise, translator))


def _split_separator(body: Body) -> tuple[Body, str]:
    """Split the text between two items from a body: `{% if not loop.last %}, {% endif %}`."""
    match body:
        case (*parts, IfBlock(((condition, (Literal(str(text)),)),), ())) if condition == _IS_NOT_LAST:
            return tuple(parts), text
    return body, ""


_IS_NOT_LAST = Unary("not", Member(Name("loop"), Literal("last")))
