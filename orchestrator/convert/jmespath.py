"""JMESPath over the result of an executor, as `var`, `vars` and a few operators.

    a.b[0]                          var         a[*].b  a[1:3]  a[?b=='x'].c        vars
    {x: a, y: b}  [a, b]            data        a[*].{x: b, y: c}                   map
    length(a)  a | [0]  a == `1`    operators   a[?b != 'x']  a[?b && c]            filter

The tree of a path is a base and the steps from there. What has no equal is CannotConvert.
"""

from __future__ import annotations

import re
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.expressions.jsonpath import BadPath
from orchestrator.application.expressions.jsonpath import parse as parse_jsonpath
from orchestrator.convert.jmespath_parser import (
    Call,
    Compare,
    Current,
    Each,
    Field,
    Flatten,
    Hash,
    Index,
    Items,
    Literal,
    Logic,
    Node,
    Not,
    Path,
    Pipe,
    Slice,
    Step,
    Values,
    Where,
    parse,
)
from orchestrator.convert.json_logic import (
    Rule,
    access_key,
    equal,
    flatten_operation,
    is_segment,
    operation,
    require_valid,
    unequal,
)
from orchestrator.convert.notes import CannotConvert

RESULT: Rule = {"var": "result"}
ITEM: Rule = {"var": ""}
_PROJECTIONS = (Each, Values, Slice, Where, Flatten)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def convert_path(text: str, base: Rule = RESULT) -> tuple[Rule, list[str]]:
    """The expression over the result that a JMESPath means, and what is different about it."""
    reader = _Translation()
    return require_valid(reader.rule(parse(text), base)), reader.changes


class _Translation:
    def __init__(self) -> None:
        self.changes: list[str] = []

    def rule(self, node: Node, base: Rule) -> Rule:
        """What a node means, seen from the value `base`."""
        match node:
            case Current():
                return base
            case Literal(value):
                return {LITERAL: value} if isinstance(value, dict | list) else value
            case Path(inner, steps):
                return self._path(steps, self.rule(inner, base))
            case Pipe(left, Path(Current(), (Field("fromjson"),))):
                self.changes.append(
                    "fromjson is jq's, and gives null in flowtoy; here the text is read as JSON"
                )
                return operation("json.parse", self.rule(left, base))
            case Pipe(left, right):
                return self.rule(right, self.rule(left, base))
            case Compare(operator, left, right):
                return _compared(operator, self.rule(left, base), self.rule(right, base))
            case Logic(operator, left, right):
                return flatten_operation(operator, self._condition(left, base), self._condition(right, base))
            case Not(of):
                return operation("!", self._condition(of, base))
            case Call(name, args):
                return _called(name, [self.rule(arg, base) for arg in args])

    def _condition(self, node: Node, base: Rule) -> Rule:
        if not isinstance(node, Compare | Logic | Not):
            self.changes.append("the number 0 counts as false here")
        return self.rule(node, base)

    # Paths

    def _path(self, steps: tuple[Step, ...], base: Rule) -> Rule:
        if steps and isinstance(steps[-1], Hash | Items):
            return self._selection(steps[:-1], steps[-1], base)
        first = next((n for n, step in enumerate(steps) if isinstance(step, _PROJECTIONS)), None)
        if first is None:
            return self._single(steps, base)
        text = self._jsonpath(steps, first, base)
        if text is not None:
            return {"vars": text}
        return self._filtered(steps, first, base)

    def _single(self, steps: tuple[Step, ...], base: Rule) -> Rule:
        """A path that leads to one value."""
        rule = base
        for n, step in enumerate(steps):
            if not isinstance(step, Field | Index):
                raise CannotConvert("a selection in the middle of a path has no equal")
            key = step.name if isinstance(step, Field) else step.index
            is_plain = is_segment(key) if isinstance(key, str) else key >= 0
            if not is_plain and (text := _written(rule, steps[n:])) is not None:
                return {"list.first": {"vars": text}}
            rule = access_key(rule, key)
        return rule

    def _jsonpath(self, steps: tuple[Step, ...], first: int, base: Rule) -> str | None:
        """The path of `vars`, which makes one flat list: only a flattening may follow a projection."""
        if any(isinstance(step, _PROJECTIONS[:-1]) for step in steps[first + 1 :]):
            return None
        text = _written(base, steps)
        if text is not None and any(isinstance(step, Flatten) for step in steps):
            self.changes.append("[] is [*] here: lists inside of lists stay, what is no list is left out")
        return text

    def _filtered(self, steps: tuple[Step, ...], first: int, base: Rule) -> Rule:
        """A condition that a path of ours cannot say, as an operator."""
        where = steps[first]
        if not isinstance(where, Where):
            raise CannotConvert("this way through lists has no equal")
        condition = self._condition(where.condition, ITEM)
        kept = operation("filter", self._path(steps[:first], base), condition)
        rest = steps[first + 1 :]
        if not rest:
            return kept
        self.changes.append("an item without the value gives null here")
        return operation("map", kept, self._single(rest, ITEM))

    def _selection(self, steps: tuple[Step, ...], chosen: Hash | Items, base: Rule) -> Rule:
        rule = self._path(steps, base)
        is_many = any(isinstance(step, _PROJECTIONS) for step in steps)
        inner = ITEM if is_many else rule
        if isinstance(chosen, Items):
            selected: Rule = [self.rule(item, inner) for item in chosen.items]
        else:
            selected = {key: self.rule(value, inner) for key, value in chosen.pairs}
            if is_expression(selected) or LITERAL in selected:
                raise CannotConvert("a mapping with this single key would be taken for an expression")
        return operation("map", rule, selected) if is_many else selected


def _written(base: Rule, steps: tuple[Step, ...]) -> str | None:
    """The path of `vars` that these steps from `base` are; None if it has no such form."""
    path = base.get("var") if isinstance(base, dict) else None
    if not isinstance(path, str):
        return None
    parts = [f"[{name}]" if name.isdecimal() else _field(name) for name in path.split(".") if name]
    for step in steps:
        match step:
            case Field(name):
                parts.append(_field(name))
            case Index(index):
                parts.append(f"[{index}]")
            case Each() | Flatten():
                parts.append("[*]")
            case Values():
                parts.append(".*")
            case Slice(start, stop):
                parts.append(f"[{'' if start is None else start}:{'' if stop is None else stop}]")
            case Where(condition):
                terms = _terms(condition)
                if terms is None:
                    return None
                parts.append(f"[?({' & '.join(terms)})]")
            case _:
                return None
    text = "".join(parts).removeprefix(".")
    try:
        parse_jsonpath(text)
    except BadPath:
        return None
    return text


def _field(name: str) -> str:
    return f".{name}" if _NAME.fullmatch(name) else f"[{_literal(name)}]"


def _terms(condition: Node) -> list[str] | None:
    """A condition as the terms of a filter of ours: fields compared with literals, joined by and."""
    match condition:
        case Logic("and", left, right):
            before, after = _terms(left), _terms(right)
            return None if before is None or after is None else [*before, *after]
        case Compare(operator, Path(Current(), steps), Literal(value)) if steps:
            names = [step.name for step in steps if isinstance(step, Field)]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_exact = operator == "==" and isinstance(value, str | bool)
            if len(names) < len(steps) or not (is_exact or (is_number and operator != "!=")):
                return None
            return [f"@{''.join(map(_field, names))} {operator} {_literal(value)}"]
    return None


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    return str(value).lower()


def _compared(operator: str, left: Rule, right: Rule) -> Rule:
    if operator in ("==", "!="):
        return equal(left, right) if operator == "==" else unequal(left, right)
    return operation(operator, left, right)


_FUNCTIONS = {  # with the number of their arguments
    "abs": ("num.abs", 1),
    "ends_with": ("str.ends_with", 2),
    "keys": ("obj.keys", 1),
    "length": ("list.length", 1),
    "sort": ("list.sort", 1),
    "starts_with": ("str.starts_with", 2),
    "values": ("obj.values", 1),
}


def _called(name: str, args: list[Rule]) -> Rule:
    if name == "join" and len(args) == 2:
        return operation("str.join", args[1], args[0])
    if name == "contains" and len(args) == 2:
        return operation("in", args[1], args[0])
    if name == "not_null" and args:
        return operation("any.default", *args)
    operator, count = _FUNCTIONS.get(name, ("", -1))
    if len(args) != count:
        raise CannotConvert(f"the function {name} with these arguments has no equal")
    return operation(operator, *args)
