"""Reading expressions as people write them in Jinja and CEL: text to tokens to a tree. Nothing is evaluated.

One parser serves both, because they differ in little: the words and signs of their operators, how a choice
is written (`a if c else b`, or `c ? a : b`), and that Jinja has filters and tests. What is read may be only
so long and so deep: no text takes long, or exhausts the stack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.convert.notes import CannotConvert

MAX_TOKENS = 300
MAX_DEPTH = 30


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """of.key or of[key]."""

    of: Node
    key: Node


@dataclass(frozen=True, slots=True)
class Call:
    of: Node
    args: tuple[Node, ...]
    named: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Filter:
    """of | name(args)."""

    of: Node
    name: str
    args: tuple[Node, ...]
    named: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Test:
    """of is name."""

    of: Node
    name: str
    is_negated: bool


@dataclass(frozen=True, slots=True)
class Unary:
    operator: str
    of: Node


@dataclass(frozen=True, slots=True)
class Binary:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Choice:
    condition: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Items:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    pairs: tuple[tuple[Node, Node], ...]


Node = Literal | Name | Member | Call | Filter | Test | Unary | Binary | Choice | Items | Pairs


@dataclass(frozen=True, slots=True)
class Syntax:
    """What one language writes its own way; operators with how tightly they bind."""

    binary: Mapping[str, int]
    unary: Mapping[str, int]
    constants: Mapping[str, Any]
    has_filters: bool


COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in", "not in"})
_COMPARING = dict.fromkeys(COMPARISONS, 4)
_TIGHT = 9

JINJA = Syntax(
    binary={
        "or": 1,
        "and": 2,
        **_COMPARING,
        "+": 5,
        "-": 5,
        "~": 6,
        "*": 7,
        "/": 7,
        "//": 7,
        "%": 7,
        "**": 8,
    },
    unary={"not": 3, "-": _TIGHT, "+": _TIGHT},
    constants={"true": True, "True": True, "false": False, "False": False, "none": None, "None": None},
    has_filters=True,
)
CEL = Syntax(
    binary={"||": 1, "&&": 2, **_COMPARING, "+": 5, "-": 5, "*": 7, "/": 7, "%": 7},
    unary={"!": _TIGHT, "-": _TIGHT},
    constants={"true": True, "false": False, "null": None},
    has_filters=False,
)


# Tokens -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str


_END = Token("end", "the end")
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
    |(?P<text>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>==|!=|<=|>=|&&|\|\||//|\*\*|[-+*/%~<>=!?:.,|()\[\]{}])""",
    re.VERBOSE | re.DOTALL,
)


def read_tokens(text: str, start: int = 0, end: re.Pattern[str] | None = None) -> tuple[list[Token], int]:
    """The tokens up to `end`, outside of brackets and quotes, and where it begins; else up to the last."""
    tokens: list[Token] = []
    at, open_brackets = start, 0
    while at < len(text):
        if end is not None and open_brackets <= 0 and end.match(text, at):
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
            raise CannotConvert(f"an expression of more than {MAX_TOKENS} words is too long")
    if end is not None:
        raise CannotConvert("an expression is not closed")
    return tokens, at


_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")


def unquoted(text: str) -> str:
    """The text between quotes, escapes resolved."""
    return re.sub(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", _escaped, text[1:-1], flags=re.DOTALL)


def _escaped(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) > 1:
        character = chr(int(escape[1:], 16))
        if "\ud800" <= character <= "\udfff":
            raise CannotConvert("half of a surrogate pair is not a text")
        return character
    return {"n": "\n", "t": "\t", "r": "\r"}.get(escape, escape if escape in "\\'\"" else found[0])


# The parser -------------------------------------------------------------------------------------------------


def parse(tokens: list[Token], syntax: Syntax) -> Node:
    """The tree of a whole expression; CannotConvert says what is wrong with it."""
    parser = _Parser(tokens, syntax)
    node = parser.expression()
    parser.expect("the end")
    return node


class _Parser:
    def __init__(self, tokens: list[Token], syntax: Syntax) -> None:
        self._tokens, self._at, self._syntax, self._depth = tokens, 0, syntax, 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _is_next(self, *texts: str) -> bool:
        return self._next.kind != "text" and self._next.text in texts

    def _take(self, text: str) -> bool:
        taken = self._is_next(text)
        self._at += taken
        return taken

    def _word(self) -> str:
        token = self._next
        self._at += 1
        if token.kind != "name":
            raise CannotConvert(f"expected a name, found {token.text}")
        return token.text

    def expect(self, text: str) -> None:
        if not self._take(text):
            raise CannotConvert(f"expected {text}, found {self._next.text}")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CannotConvert(f"it is nested more than {MAX_DEPTH} levels deep")
        node = self._operation(0)
        if self._syntax.has_filters and self._take("if"):
            condition = self._operation(0)
            otherwise = self.expression() if self._take("else") else Literal("")
            node = Choice(condition, node, otherwise)
        elif not self._syntax.has_filters and self._take("?"):
            then = self.expression()
            self.expect(":")
            node = Choice(node, then, self.expression())
        self._depth -= 1
        return node

    def _operation(self, least: int) -> Node:
        left = self._unary()
        compared = False
        while (operator := self._operator()) and self._syntax.binary[operator] > least:
            self._at += 1 + (operator == "not in")
            if operator in COMPARISONS:
                if compared:
                    raise CannotConvert("comparisons in a row are not supported: write and between them")
                compared = True
            left = Binary(operator, left, self._operation(self._syntax.binary[operator]))
        return left

    def _operator(self) -> str | None:
        text = self._next.text
        if self._next.kind == "text":
            return None
        if text == "not" and self._tokens[self._at + 1 : self._at + 2] == [Token("name", "in")]:
            text = "not in"
        return text if text in self._syntax.binary else None

    def _unary(self, *, with_filters: bool = True) -> Node:
        node: Node
        if self._next.kind in ("name", "sign") and self._next.text in self._syntax.unary:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise CannotConvert(f"it is nested more than {MAX_DEPTH} levels deep")
            operator = self._next.text
            self._at += 1
            power = self._syntax.unary[operator]
            inner = self._unary(with_filters=False) if power == _TIGHT else self._operation(power)
            node = Unary(operator, inner)
            self._depth -= 1
        else:
            node = self._members(self._primary())
        return self._filters(node) if with_filters and self._syntax.has_filters else node

    def _primary(self) -> Node:
        token = self._next
        self._at += 1
        if token.kind == "number":
            return Literal(_number(token.text))
        if token.kind == "text":
            text = unquoted(token.text)
            while self._next.kind == "text":
                text += unquoted(self._next.text)
                self._at += 1
            return Literal(text)
        if token.kind == "name":
            constants = self._syntax.constants
            return Literal(constants[token.text]) if token.text in constants else Name(token.text)
        if token.text == "(":
            items = self._items(")")
            return items[0] if len(items) == 1 and self._tokens[self._at - 2].text != "," else Items(items)
        if token.text == "[":
            return Items(self._items("]"))
        if token.text == "{":
            return self._pairs()
        raise CannotConvert(f"expected a value, found {token.text}")

    def _items(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._take(end):
            items.append(self.expression())
            if not self._is_next(end):
                self.expect(",")
        return tuple(items)

    def _pairs(self) -> Pairs:
        pairs: list[tuple[Node, Node]] = []
        while not self._take("}"):
            key = self.expression()
            self.expect(":")
            pairs.append((key, self.expression()))
            if not self._is_next("}"):
                self.expect(",")
        return Pairs(tuple(pairs))

    def _members(self, node: Node) -> Node:
        while True:
            if self._take("."):
                is_index = self._next.kind == "number" and self._next.text.isdecimal()
                key = Literal(int(self._next.text)) if is_index else Literal(self._word())
                self._at += is_index
                node = Member(node, key)
            elif self._take("["):
                key_node = self.expression()
                if self._is_next(":"):
                    raise CannotConvert("a slice is not supported")
                self.expect("]")
                node = Member(node, key_node)
            elif self._take("("):
                args, named = self._arguments()
                node = Call(node, args, named)
            else:
                return node

    def _arguments(self) -> tuple[tuple[Node, ...], dict[str, Node]]:
        args: list[Node] = []
        named: dict[str, Node] = {}
        while not self._take(")"):
            if self._next.kind == "name" and self._tokens[self._at + 1 : self._at + 2] == [
                Token("sign", "=")
            ]:
                name = self._word()
                self.expect("=")
                named[name] = self.expression()
            else:
                args.append(self.expression())
            if not self._is_next(")"):
                self.expect(",")
        return tuple(args), named

    def _filters(self, node: Node) -> Node:
        while True:
            if self._take("|"):
                name = self._word()
                args, named = self._arguments() if self._take("(") else ((), {})
                node = Filter(node, name, args, named)
            elif self._take("is"):
                is_negated = self._take("not")
                node = Test(node, self._word(), is_negated)
            else:
                return node


def _number(text: str) -> int | float:
    if text.isdecimal():
        if len(text) > 300:
            raise CannotConvert("a number this long is not JSON")
        return int(text)
    value = float(text)
    if value - value != 0:
        raise CannotConvert(f"{text} is not a JSON number")
    return value
