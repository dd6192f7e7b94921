"""The syntax tree of an expression in Jinja or CEL. Both parsers build it, and translation.py reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


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


@dataclass(frozen=True, slots=True)
class Filter:
    """of | name(args), only in Jinja."""

    of: Node
    name: str
    args: tuple[Node, ...]
    named: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Test:
    """of is name, only in Jinja."""

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


# ---- templates of Jinja


@dataclass(frozen=True, slots=True)
class IfBlock:
    """`{% if %}`: the condition and body of each branch, and the body of `{% else %}`."""

    branches: tuple[tuple[Node, Body], ...]
    otherwise: Body


@dataclass(frozen=True, slots=True)
class ForBlock:
    """`{% for %}`: a variable, the list, its condition if it has one, the body, and that of `{% else %}`."""

    variable: str
    items: Node
    condition: Node | None
    body: Body
    otherwise: Body


Body = tuple[Node | IfBlock | ForBlock, ...]
