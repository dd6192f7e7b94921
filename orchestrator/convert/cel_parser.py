"""Parses the expressions of flow8, which look like CEL: text to tokens to a tree. Nothing is evaluated.

The number of tokens and the depth are limited, so that no text takes long or exhausts the stack.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.convert.expression_tree import (
    Binary,
    Call,
    Choice,
    Items,
    Literal,
    Member,
    Name,
    Node,
    Pairs,
    Unary,
)
from orchestrator.convert.notes import CannotConvert

MAX_TOKENS = 300
MAX_DEPTH = 30
MAX_DIGITS = 300

_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_PRECEDENCE = {"||": 1, "&&": 2, **dict.fromkeys(_COMPARISONS, 3), "+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
_UNARY = frozenset({"!", "-"})
_CONSTANTS = {"true": True, "false": False, "null": None}


# ---- tokens


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str


_END = Token("end", "the end")
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<string>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||[-+*/%<>=!?:.,|()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")


def read_tokens(text: str, start: int = 0, end: str | None = None) -> tuple[list[Token], int]:
    """Return the tokens from `start` and the index where they stop.

    They stop at `end`, outside of brackets and quotes, or at the end of the text if `end` is None.
    """
    tokens: list[Token] = []
    at, open_brackets = start, 0
    while at < len(text):
        if end is not None and open_brackets <= 0 and text.startswith(end, at):
            return tokens, at
        found = _TOKEN.match(text, at)
        if found is None:
            raise CannotConvert(f"{text[at : at + 10]!r} cannot be read as an expression")
        at = found.end()
        if found.lastgroup == "space":
            continue
        token = Token(found.lastgroup or "", found[0])
        open_brackets += (token.text in _OPENING) - (token.text in _CLOSING)
        tokens.append(token)
        if len(tokens) > MAX_TOKENS:
            raise CannotConvert(f"an expression of more than {MAX_TOKENS} tokens is too long")
    if end is not None:
        raise CannotConvert("an expression is not closed")
    return tokens, at


def _unquote(text: str) -> str:
    """Return the string between the quotes, with its escapes resolved."""
    return re.sub(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", _resolve_escape, text[1:-1], flags=re.DOTALL)


def _resolve_escape(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        character = chr(int(escape[1:], 16))
        if "\ud800" <= character <= "\udfff":
            raise CannotConvert("half of a surrogate pair is not a string")
        return character
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape, escape if escape in "\\'\"" else found[0])


def _parse_number(text: str) -> int | float:
    if text.isdecimal():
        if len(text) > MAX_DIGITS:
            raise CannotConvert(f"a number of more than {MAX_DIGITS} digits is not JSON")
        return int(text)
    value = float(text)
    if value - value != 0:
        raise CannotConvert(f"{text} is not a JSON number")
    return value


# ---- the parser


def parse(tokens: list[Token]) -> Node:
    """Parse a whole expression. CannotConvert gives the reason if it is not valid."""
    parser = _Parser(tokens)
    node = parser.parse_expression()
    parser.expect("the end")
    return node


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _is_next(self, text: str) -> bool:
        return self._next.kind != "string" and self._next.text == text

    def _take(self, text: str) -> bool:
        is_taken = self._is_next(text)
        self._at += is_taken
        return is_taken

    def _take_name(self) -> str:
        token = self._next
        self._at += 1
        if token.kind != "name":
            raise CannotConvert(f"expected a name, found {token.text}")
        return token.text

    def expect(self, text: str) -> None:
        if not self._take(text):
            raise CannotConvert(f"expected {text}, found {self._next.text}")

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CannotConvert(f"it is nested more than {MAX_DEPTH} levels deep")

    def parse_expression(self) -> Node:
        self._enter()
        node = self._parse_operation(0)
        if self._take("?"):
            then = self.parse_expression()
            self.expect(":")
            node = Choice(node, then, self.parse_expression())
        self._depth -= 1
        return node

    def _parse_operation(self, min_precedence: int) -> Node:
        left = self._parse_unary()
        is_compared = False
        while (operator := self._peek_operator()) and _PRECEDENCE[operator] > min_precedence:
            self._at += 1
            if operator in _COMPARISONS:
                if is_compared:
                    raise CannotConvert("chained comparisons are not supported: write && between them")
                is_compared = True
            left = Binary(operator, left, self._parse_operation(_PRECEDENCE[operator]))
        return left

    def _peek_operator(self) -> str | None:
        is_operator = self._next.kind != "string" and self._next.text in _PRECEDENCE
        return self._next.text if is_operator else None

    def _parse_unary(self) -> Node:
        if self._next.kind != "sign" or self._next.text not in _UNARY:
            return self._parse_members(self._parse_primary())
        self._enter()
        operator = self._next.text
        self._at += 1
        node = Unary(operator, self._parse_unary())
        self._depth -= 1
        return node

    def _parse_primary(self) -> Node:
        token = self._next
        self._at += 1
        if token.kind == "number":
            return Literal(_parse_number(token.text))
        if token.kind == "string":
            text = _unquote(token.text)
            while self._next.kind == "string":
                text += _unquote(self._next.text)
                self._at += 1
            return Literal(text)
        if token.kind == "name":
            return Literal(_CONSTANTS[token.text]) if token.text in _CONSTANTS else Name(token.text)
        if token.text == "(":
            items = self._parse_items(")")
            return items[0] if len(items) == 1 and self._tokens[self._at - 2].text != "," else Items(items)
        if token.text == "[":
            return Items(self._parse_items("]"))
        if token.text == "{":
            return self._parse_pairs()
        raise CannotConvert(f"expected a value, found {token.text}")

    def _parse_items(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._take(end):
            items.append(self.parse_expression())
            if not self._is_next(end):
                self.expect(",")
        return tuple(items)

    def _parse_pairs(self) -> Pairs:
        pairs: list[tuple[Node, Node]] = []
        while not self._take("}"):
            key = self.parse_expression()
            self.expect(":")
            pairs.append((key, self.parse_expression()))
            if not self._is_next("}"):
                self.expect(",")
        return Pairs(tuple(pairs))

    def _parse_members(self, node: Node) -> Node:
        while True:
            if self._take("."):
                is_index = self._next.kind == "number" and self._next.text.isdecimal()
                key = Literal(_parse_number(self._next.text)) if is_index else Literal(self._take_name())
                self._at += is_index
                node = Member(node, key)
            elif self._take("["):
                index = self.parse_expression()
                if self._is_next(":"):
                    raise CannotConvert("a slice is not supported")
                self.expect("]")
                node = Member(node, index)
            elif self._take("("):
                node = Call(node, self._parse_items(")"))
            else:
                return node
