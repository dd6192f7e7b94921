"""Jinja's templates as expressions of ours: text, values, filters and `{% if %}`.

A template that is a single value keeps the kind of that value; one that mixes text and values is a `cat`.
Nothing is rendered or evaluated here. What has no equal is CannotConvert: loops, macros, calls, assignments.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from orchestrator.convert.expression_parser import (
    JINJA,
    Call,
    Filter,
    Syntax,
    Test,
    Token,
    parse,
    read_tokens,
)
from orchestrator.convert.jinja_filters import FILTERS
from orchestrator.convert.json_logic import Rule, concatenate, operation, require_valid, unequal
from orchestrator.convert.notes import CannotConvert
from orchestrator.convert.translation import Translator

MAX_BLOCKS = 20

Root = Callable[[str, list[Any]], tuple[Rule, list[Any]]]


def is_template(text: str) -> bool:
    return "{{" in text or "{%" in text or "{#" in text


class JinjaTranslator(Translator):
    """`root` says what the variables of a template mean where it stands."""

    def __init__(self, root: Root) -> None:
        super().__init__()
        self._root = root

    def root(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        return self._root(name, keys)

    def translate_special(self, node: Call | Filter | Test) -> Rule:
        match node:
            case Filter():
                return self._filtered(node)
            case Test():
                return self._tested(node)
        raise CannotConvert("a call of a function or method has no equal")

    def _filtered(self, node: Filter) -> Rule:
        of = self.rule(node.of)
        if node.name == "map" and not node.args and list(node.named) == ["attribute"]:
            attribute = self.rule(node.named["attribute"])
            if isinstance(attribute, str):
                return operation("map", of, {"var": attribute})
        known = FILTERS.get(node.name)
        if known is None:
            raise CannotConvert(f"the filter {node.name} has no equal")
        args = [self.rule(arg) for arg in node.args]
        if node.named or not known.min_args <= len(args) <= known.max_args:
            raise CannotConvert(f"the filter {node.name} with these arguments has no equal")
        if known.change:
            self.changes.append(known.change)
        return known.build(of, *args)

    def _tested(self, node: Test) -> Rule:
        is_there = unequal(self.rule(node.of), None)
        if node.name not in ("none", "defined", "undefined"):
            raise CannotConvert(f"the test `is {node.name}` has no equal")
        if (node.name == "defined") is not node.is_negated:
            return is_there
        return {"===": is_there["!=="]}


def convert_template(text: str, translator: Translator, syntax: Syntax = JINJA) -> Rule:
    """The expression that a template means; CannotConvert says why there is none."""
    return require_valid(_Reader(text, translator, syntax).read())


class _Reader:
    """A template, read once from left to right."""

    def __init__(self, text: str, translator: Translator, syntax: Syntax) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        self._text = text.removesuffix("\n")  # as Jinja does
        self._translator, self._syntax = translator, syntax
        self._at, self._depth, self._is_trimming = 0, 0, False

    def read(self) -> Rule:
        return self._body(frozenset())[0]

    def _body(self, ends: frozenset[str]) -> tuple[Rule, list[Token]]:
        """What stands before one of these tags, and the words of that tag; or before the end of the text."""
        parts: list[Rule] = []
        while mark := _MARK.search(self._text, self._at):
            parts.append(self._literal(mark.start(), is_trimmed=mark[0].endswith("-")))
            self._at = mark.end()
            if mark[0].startswith("{#"):
                self._comment()
            elif mark[0].startswith("{{"):
                parts.append(self._value(self._words("{{")))
            else:
                words = self._words("{%")
                tag = words[0].text if words else ""
                if tag in ends:
                    return concatenate(*parts), words
                parts.append(self._block(tag, words[1:]))
        parts.append(self._literal(len(self._text), is_trimmed=False))
        self._at = len(self._text)
        return concatenate(*parts), []

    def _literal(self, end: int, *, is_trimmed: bool) -> str:
        text = self._text[self._at : end]
        if self._is_trimming:
            text = text.lstrip()
        self._is_trimming = False
        return text.rstrip() if is_trimmed else text

    def _words(self, mark: str) -> list[Token]:
        words, at = read_tokens(self._text, self._at, _ENDS[mark])
        end = _ENDS[mark].match(self._text, at)
        self._close(end)
        return words

    def _comment(self) -> None:
        self._close(_ENDS["{#"].search(self._text, self._at))

    def _close(self, end: re.Match[str] | None) -> None:
        if end is None:
            raise CannotConvert("a comment or block is not closed")
        self._at, self._is_trimming = end.end(), end[1] == "-"

    def _value(self, words: list[Token]) -> Rule:
        if not words:
            raise CannotConvert("an expression is empty")
        return self._translator.rule(parse(words, self._syntax))

    def _block(self, tag: str, words: list[Token]) -> Rule:
        if tag == "if":
            return self._choice(words)
        if tag == "raw" and not words:
            start = self._at
            end = _RAW_END.search(self._text, self._at)
            self._close(end)
            return self._text[start : end.start() if end else start]
        raise CannotConvert(f"{{% {tag} %}} has no equal")

    def _choice(self, words: list[Token]) -> Rule:
        self._depth += 1
        if self._depth > MAX_BLOCKS:
            raise CannotConvert(f"blocks are nested more than {MAX_BLOCKS} levels deep")
        ways: list[Rule] = [self._value(words)]
        body, end = self._body(_IN_IF)
        ways.append(body)
        while end and end[0].text == "elif":
            ways.append(self._value(end[1:]))
            body, end = self._body(_IN_IF)
            ways.append(body)
        otherwise: Rule = ""
        if end and end[0].text == "else":
            otherwise, end = self._body(frozenset({"endif"}))
        if not end or end[0].text != "endif":
            raise CannotConvert("{% if %} is not closed")
        self._depth -= 1
        return operation("if", *ways, otherwise)


_IN_IF = frozenset({"elif", "else", "endif"})
_MARK = re.compile(r"\{\{[-+]?|\{%[-+]?|\{#[-+]?")
_ENDS = {
    "{{": re.compile(r"([-+]?)\}\}"),
    "{%": re.compile(r"([-+]?)%\}"),
    "{#": re.compile(r"([-+]?)#\}"),
}
_RAW_END = re.compile(r"\{%[-+]?\s*endraw\s*([-+]?)%\}")
