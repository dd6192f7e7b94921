"""Parses a Jinja template with jinja2. Only the syntax tree is read; nothing is rendered or evaluated.

A template can be hostile, and the parser of jinja2 recurses. Therefore the tokens are checked first: the
number of tokens in an expression, the depth of brackets and blocks, and the length of numbers are limited.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, TemplateSyntaxError, nodes

from orchestrator.application.values.document_limits import not_json_reason
from orchestrator.convert.expression_tree import (
    Binary,
    Body,
    Choice,
    Filter,
    ForBlock,
    IfBlock,
    Items,
    Literal,
    Member,
    Name,
    Node,
    Pairs,
    Test,
    Unary,
)
from orchestrator.convert.notes import CannotConvert

MAX_TOKENS = 300
MAX_DEPTH = 30
MAX_BLOCKS = 20
MAX_DIGITS = 300

_ENVIRONMENT = Environment(autoescape=False)  # it never renders


def parse_template(text: str) -> Body:
    """Parse a template. CannotConvert: it is too large, not valid, or has blocks without an equivalent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # jinja2 decodes '\q', which Python deprecates
            _check_tokens(text)
            template = _ENVIRONMENT.parse(text)
    except TemplateSyntaxError as error:
        raise CannotConvert(_explain(error, text)) from None
    except RecursionError:
        raise CannotConvert("it is nested too deeply") from None
    return _convert_body(template.body)


def _explain(error: TemplateSyntaxError, text: str) -> str:
    message = (error.message or "syntax error").rstrip(".")
    line = f" in line {error.lineno}" if "\n" in text.strip() else ""
    return f"not valid Jinja{line}: {message[:1].lower()}{message[1:]}"


# ---- limits


def _check_tokens(text: str) -> None:
    check = _TokenCheck()
    for _, kind, value in _ENVIRONMENT.lex(text):
        check.add(kind, value)
    if check.is_raw:
        raise CannotConvert("{% raw %} is not closed")


_OPENING = frozenset("([{")
_CLOSING = frozenset(")]}")
_UNARY = frozenset({"not", "-", "+"})
_TAGS = frozenset({"if", "elif", "else", "endif", "for", "endfor"})


class _TokenCheck:
    """Counts tokens, open brackets, unary operators in a row, and open blocks."""

    def __init__(self) -> None:
        self.is_raw = False
        self._tokens = self._brackets = self._unary = self._blocks = 0
        self._is_tag_next = False

    def add(self, kind: str, value: str) -> None:
        match kind:
            case "variable_begin" | "block_begin":
                self._tokens = self._brackets = self._unary = 0
                self._is_tag_next = kind == "block_begin"
            case "raw_begin" | "raw_end":
                self.is_raw = kind == "raw_begin"
            case "name" if self._is_tag_next:
                self._is_tag_next = False
                self._add_tag(value)
            case "name" | "operator" | "string" | "integer" | "float":
                self._add_token(kind, value)

    def _add_tag(self, tag: str) -> None:
        if tag not in _TAGS:
            raise CannotConvert(f"{{% {tag} %}} has no equivalent")
        self._blocks += (tag in ("if", "for")) - (tag in ("endif", "endfor"))
        if self._blocks > MAX_BLOCKS:
            raise CannotConvert(f"blocks are nested more than {MAX_BLOCKS} levels deep")

    def _add_token(self, kind: str, value: str) -> None:
        self._tokens += 1
        if self._tokens > MAX_TOKENS:
            raise CannotConvert(f"an expression of more than {MAX_TOKENS} tokens is too long")
        if kind in ("integer", "float") and len(value) > MAX_DIGITS:
            raise CannotConvert(f"a number of more than {MAX_DIGITS} digits is not JSON")
        if kind == "operator":
            self._brackets += (value in _OPENING) - (value in _CLOSING)
        self._unary = self._unary + 1 if kind != "string" and value in _UNARY else 0
        if self._brackets + self._unary > MAX_DEPTH:
            raise CannotConvert(f"it is nested more than {MAX_DEPTH} levels deep")


# ---- the tree of jinja2 as a tree of ours


def _convert_body(statements: Sequence[nodes.Node]) -> Body:
    parts: list[Node | IfBlock | ForBlock] = []
    for statement in statements:
        match statement:
            case nodes.Output(nodes=outputs):
                parts += map(_convert, outputs)
            case nodes.If(test=test, body=body, elif_=branches, else_=otherwise):
                ifs = ((test, body), *((branch.test, branch.body) for branch in branches))
                converted = tuple((_convert(condition), _convert_body(inner)) for condition, inner in ifs)
                parts.append(IfBlock(converted, _convert_body(otherwise)))
            case nodes.For():
                parts.append(_convert_loop(statement))
            case _:
                raise CannotConvert(f"{type(statement).__name__} has no equivalent")
    return tuple(parts)


def _convert_loop(loop: nodes.For) -> ForBlock:
    if not isinstance(loop.target, nodes.Name):
        raise CannotConvert("a loop with several variables has no equivalent: loop over a list of mappings")
    if loop.recursive:
        raise CannotConvert("a recursive loop has no equivalent: render it in an executor")
    condition = None if loop.test is None else _convert(loop.test)
    body, otherwise = _convert_body(loop.body), _convert_body(loop.else_)
    return ForBlock(loop.target.name, _convert(loop.iter), condition, body, otherwise)


_COMPARISONS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "lteq": "<=",
    "gt": ">",
    "gteq": ">=",
    "in": "in",
    "notin": "not in",
}


def _convert(node: nodes.Node) -> Node:
    match node:
        case nodes.TemplateData(data=text):
            return Literal(text)
        case nodes.Const(value=value):
            return _literal(value)
        case nodes.Name(name=name):
            return Name(name)
        case nodes.Getattr(node=of, attr=attribute):
            return Member(_convert(of), Literal(attribute))
        case nodes.Getitem(arg=nodes.Slice()):
            raise CannotConvert("a slice is not supported")
        case nodes.Getitem(node=of, arg=key):
            return Member(_convert(of), _convert(key))
        case nodes.Filter() if node.node is not None:
            return _convert_filter(node, node.node)
        case nodes.Test(node=of, name=name):
            return Test(_convert(of), name, is_negated=False)
        case nodes.Not(node=nodes.Test(node=of, name=name)):
            return Test(_convert(of), name, is_negated=True)
        case nodes.Call():
            raise CannotConvert("a function or method call has no equivalent")
        case nodes.List(items=items) | nodes.Tuple(items=items):
            return Items(tuple(map(_convert, items)))
        case nodes.Dict(items=pairs):
            return Pairs(tuple((_convert(pair.key), _convert(pair.value)) for pair in pairs))
    return _convert_operation(node)


def _convert_operation(node: nodes.Node) -> Node:
    match node:
        case nodes.UnaryExpr(operator=operator, node=of):
            return Unary(operator, _convert(of))
        case nodes.BinExpr(operator=operator, left=left, right=right):
            return Binary(operator, _convert(left), _convert(right))
        case nodes.Compare(expr=left, ops=[operand]):
            return Binary(_COMPARISONS[operand.op], _convert(left), _convert(operand.expr))
        case nodes.Compare():
            raise CannotConvert("chained comparisons are not supported: write and between them")
        case nodes.Concat(nodes=[first, *rest]):
            joined = _convert(first)
            for part in rest:
                joined = Binary("~", joined, _convert(part))
            return joined
        case nodes.CondExpr(test=test, expr1=then, expr2=otherwise):
            return Choice(
                _convert(test), _convert(then), Literal("") if otherwise is None else _convert(otherwise)
            )
    raise CannotConvert(f"{type(node).__name__} has no equivalent")


def _literal(value: Any) -> Literal:
    if reason := not_json_reason(value):
        raise CannotConvert(reason)
    return Literal(value)


def _convert_filter(node: nodes.Filter, of: nodes.Expr) -> Filter:
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise CannotConvert(f"the filter {node.name} with these arguments has no equivalent")
    named = {str(pair.key): _convert(pair.value) for pair in node.kwargs}
    return Filter(_convert(of), node.name, tuple(map(_convert, node.args)), named)
