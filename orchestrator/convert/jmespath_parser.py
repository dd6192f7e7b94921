"""Reading a JMESPath: text to a tree. Nothing is evaluated."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from orchestrator.convert.notes import CannotConvert

MAX_TOKENS = 300
MAX_DEPTH = 20


# Steps of a path


@dataclass(frozen=True, slots=True)
class Field:
    name: str


@dataclass(frozen=True, slots=True)
class Index:
    index: int


@dataclass(frozen=True, slots=True)
class Slice:
    start: int | None
    stop: int | None


@dataclass(frozen=True, slots=True)
class Each:
    """[*]"""


@dataclass(frozen=True, slots=True)
class Values:
    """.*"""


@dataclass(frozen=True, slots=True)
class Flatten:
    """[]"""


@dataclass(frozen=True, slots=True)
class Where:
    condition: Node


@dataclass(frozen=True, slots=True)
class Hash:
    pairs: tuple[tuple[str, Node], ...]


@dataclass(frozen=True, slots=True)
class Items:
    items: tuple[Node, ...]


Step = Field | Index | Slice | Each | Values | Flatten | Where | Hash | Items


# Expressions


@dataclass(frozen=True, slots=True)
class Current:
    """@"""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Any


@dataclass(frozen=True, slots=True)
class Path:
    base: Node
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Pipe:
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Compare:
    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """and, or"""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Not:
    of: Node


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    args: tuple[Node, ...]


Node = Current | Literal | Path | Pipe | Compare | Logic | Not | Call


def parse(text: str) -> Node:
    """The tree of a whole path; CannotConvert says what is wrong with it."""
    parser = _Parser(_tokens(text))
    node = parser.expression()
    parser.expect("")
    return node


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*")
    |(?P<raw>'[^'\\]*(?:\\.[^'\\]*)*')
    |(?P<literal>`[^`\\]*(?:\\.[^`\\]*)*`)
    |(?P<number>-?[0-9]{1,15})
    |(?P<sign>\[\?|\[\]|\|\||&&|==|!=|<=|>=|[.*\[\]{}(),:|!<>@])""",
    re.VERBOSE | re.DOTALL,
)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or len(tokens) > MAX_TOKENS:
            raise CannotConvert(f"{text[at : at + 10]!r} cannot be read as a JMESPath")
        at = found.end()
        if found.lastgroup != "space":
            tokens.append((found.lastgroup or "", found[0]))
    return tokens


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else "end"

    @property
    def _text(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self, *signs: str) -> str:
        """The next token, if it is one of these signs."""
        if self._kind != "sign" or self._text not in signs:
            return ""
        self._at += 1
        return self._tokens[self._at - 1][1]

    def expect(self, sign: str) -> None:
        if not (self._take(sign) if sign else self._kind == "end"):
            raise CannotConvert(f"expected {sign or 'the end'}, found {self._text or 'the end'}")

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise CannotConvert(f"it is nested more than {MAX_DEPTH} levels deep")
        node = self._either()
        while self._take("|"):
            node = Pipe(node, self._either())
        self._depth -= 1
        return node

    def _either(self) -> Node:
        node = self._both()
        while self._take("||"):
            node = Logic("or", node, self._both())
        return node

    def _both(self) -> Node:
        node = self._comparison()
        while self._take("&&"):
            node = Logic("and", node, self._comparison())
        return node

    def _comparison(self) -> Node:
        node = self._path()
        if operator := self._take("==", "!=", "<=", ">=", "<", ">"):
            node = Compare(operator, node, self._path())
        return node

    def _path(self) -> Node:
        negations = 0
        while self._take("!"):
            negations += 1
        base, steps = self._primary()
        while (step := self._step()) is not None:
            steps.append(step)
        node: Node = Path(base, tuple(steps)) if steps else base
        for _ in range(negations and 2 - negations % 2):
            node = Not(node)
        return node

    def _primary(self) -> tuple[Node, list[Step]]:
        kind, text = self._kind, self._text
        if kind == "sign" and text in ("[", "[?", "[]", "{"):
            return Current(), [self._selected() if self._take("{") else self._bracketed()]
        if self._take("*"):
            return Current(), [Values()]
        if self._take("("):
            node = self.expression()
            self.expect(")")
            return node, []
        if self._take("@"):
            return Current(), []
        self._at += 1
        if kind == "name" and self._take("("):
            return Call(text, self._listed(")")), []
        if kind in ("name", "quoted"):
            return Current(), [Field(_name(kind, text))]
        if kind == "raw":
            return Literal(re.sub(r"\\([\\'])", r"\1", text[1:-1])), []
        if kind == "literal":
            return Literal(_json(text[1:-1].replace("\\`", "`"))), []
        raise CannotConvert(f"expected a value, found {text or 'the end'}")

    def _step(self) -> Step | None:
        if self._take("."):
            if self._take("*"):
                return Values()
            if self._take("{"):
                return self._selected()
            if self._take("["):
                return Items(self._listed("]"))
            kind, text = self._kind, self._text
            self._at += 1
            if kind not in ("name", "quoted") or self._text == "(":
                raise CannotConvert(f"a function or {text or 'the end'} after a dot is not supported")
            return Field(_name(kind, text))
        if self._kind == "sign" and self._text in ("[", "[?", "[]"):
            return self._bracketed()
        return None

    def _bracketed(self) -> Step:
        sign = self._take("[", "[?", "[]")
        if sign == "[]":
            return Flatten()
        if sign == "[?":
            condition = self.expression()
            self.expect("]")
            return Where(condition)
        if self._take("*"):
            self.expect("]")
            return Each()
        if self._kind != "number" and self._text != ":":
            return Items(self._listed("]"))
        start = self._number()
        if not self._take(":"):
            self.expect("]")
            return Index(start or 0)
        stop = self._number()
        if self._take(":") and self._number() not in (None, 1):
            raise CannotConvert("a slice with a step is not supported")
        self.expect("]")
        return Slice(start, stop)

    def _number(self) -> int | None:
        if self._kind != "number":
            return None
        self._at += 1
        return int(self._tokens[self._at - 1][1])

    def _listed(self, end: str) -> tuple[Node, ...]:
        items: list[Node] = []
        while not self._take(end):
            items.append(self.expression())
            if self._text != end:
                self.expect(",")
        return tuple(items)

    def _selected(self) -> Hash:
        pairs: list[tuple[str, Node]] = []
        while not self._take("}"):
            kind, text = self._kind, self._text
            self._at += 1
            if kind not in ("name", "quoted"):
                raise CannotConvert(f"expected a key, found {text or 'the end'}")
            self.expect(":")
            pairs.append((_name(kind, text), self.expression()))
            if self._text != "}":
                self.expect(",")
        return Hash(tuple(pairs))


def _name(kind: str, text: str) -> str:
    return str(_json(text)) if kind == "quoted" else text


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CannotConvert(f"{text[:20]!r} is not JSON") from None
