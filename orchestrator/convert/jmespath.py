"""Translates a JMESPath over the result of an executor to `var`, `vars` and a few operators.

    a.b[0]                          var         a[*].b  a[1:3]  a[?b=='x'].c        vars
    {x: a, y: b}  [a, b]            data        a[*].{x: b, y: c}                   map
    length(a)  a | [0]  a == `1`    operators   a[?b != 'x']  a[?b && c]            filter
    max_by(a, &b)  min_by(a, &b)    reduce      sort_by(a, &b)[0]                   reduce

Everything else has no equivalent: CannotConvert.
"""

from __future__ import annotations

import re
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.expressions.jsonpath import BadPath
from orchestrator.application.expressions.jsonpath import parse as parse_jsonpath
from orchestrator.convert.jmespath_steps import (
    NO_EQUIVALENT,
    Each,
    Field,
    Flatten,
    Hash,
    Index,
    Items,
    Slice,
    Step,
    Tree,
    Values,
    Where,
    split_path,
)
from orchestrator.convert.json_logic import (
    Rule,
    access_key,
    equal,
    flatten_operation,
    is_segment,
    kind_of,
    operation,
    require_valid,
    unequal,
)
from orchestrator.convert.libraries import MissingLibrary
from orchestrator.convert.notes import CannotConvert

RESULT: Rule = {"var": "result"}
ITEM: Rule = {"var": ""}
NO_SORT_BY = "sort_by has no equivalent, except with [0] or [-1]: return a sorted list from the executor"
_PROJECTIONS = (Each, Values, Slice, Where, Flatten)
_CONDITIONS = frozenset({"comparator", "or_expression", "and_expression", "not_expression"})
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_FLATTENED = "[] becomes [*]: nested lists stay nested, and values that are not lists are left out"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def convert_path(text: str, base: Rule = RESULT) -> tuple[Rule, list[str]]:
    """Translate a JMESPath over `base`. Return the expression and the differences in meaning."""
    translation = _Translation()
    return require_valid(translation.translate(_parse(text), base)), translation.changes


def _parse(text: str) -> Tree:
    try:
        from orchestrator.convert.jmespath_parser import parse
    except ImportError as error:
        raise MissingLibrary("a JMESPath", "jmespath") from error
    return parse(text)


class _Translation:
    """`changes` collects the differences in meaning, as messages for notes."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self._is_in_key = False

    def translate(self, tree: Tree, base: Rule) -> Rule:
        """Translate an expression whose current value is `base`."""
        match tree:
            case {"type": "literal", "value": value}:
                return {LITERAL: value} if isinstance(value, dict | list) else value
            case {"type": "pipe", "children": [left, {"type": "field", "value": "fromjson"}]}:
                self.changes.append(
                    "fromjson is a jq function and gives null in flowtoy; here the string is parsed as JSON"
                )
                return operation("json.parse", self.translate(left, base))
            case {"type": "pipe", "children": [{"value": "sort_by"} as call, right]}:
                return self._translate_picked(call, split_path(right), base)
            case {"type": "pipe", "children": [left, right]}:
                return self.translate(right, self.translate(left, base))
            case {"type": "comparator", "value": operator, "children": [left, right]}:
                return _compare(
                    _COMPARISONS[operator], self.translate(left, base), self.translate(right, base)
                )
            case {"type": "or_expression" | "and_expression" as kind, "children": [left, right]}:
                operator = kind.removesuffix("_expression")
                return flatten_operation(
                    operator, self._translate_condition(left, base), self._translate_condition(right, base)
                )
            case {"type": "not_expression", "children": [of]}:
                return self._negate(of, base)
            case {"type": "function_expression", "value": "max_by" | "min_by" as name, "children": args}:
                return self._translate_extreme(args, base, is_largest=name == "max_by", is_first=True)
            case {"type": "function_expression", "value": "sort_by"}:
                raise CannotConvert(NO_SORT_BY)
            case {"type": "function_expression", "value": name, "children": args}:
                return _call(name, [self.translate(arg, base) for arg in args])
            case {"type": "expref"}:
                raise CannotConvert("a reference with & has no equivalent")
        start, steps = split_path(tree)
        if start is tree:
            raise CannotConvert(f"the JMESPath node {tree['type']} has no equivalent")
        if start is not None and start.get("value") == "sort_by":
            return self._translate_picked(start, (None, steps), base)
        return self._translate_path(steps, base if start is None else self.translate(start, base))

    def _translate_picked(self, call: Tree, path: tuple[Tree | None, tuple[Step, ...]], base: Rule) -> Rule:
        """Translate `sort_by(list, &key)[0]` and `[-1]`: the first smallest and the last largest item."""
        match path:
            case None, (Index(0 | -1 as index), *rest):
                extreme = self._translate_extreme(
                    call["children"], base, is_largest=index == -1, is_first=index == 0
                )
                return self._translate_path(tuple(rest), extreme)
        raise CannotConvert(NO_SORT_BY)

    def _translate_extreme(self, args: list[Tree], base: Rule, *, is_largest: bool, is_first: bool) -> Rule:
        """Translate `max_by` and `min_by` to a `reduce`. As in JMESPath, all keys must be numbers or strings:
        sorting anything else is an error."""
        match args:
            case [items, {"type": "expref", "children": [key]}]:
                pass
            case _:
                raise CannotConvert("max_by, min_by and sort_by take a list and a key such as &age")
        if self._is_in_key:  # each level would double the size of the expression
            raise CannotConvert("max_by, min_by and sort_by inside of a key have no equivalent")
        self._is_in_key = True
        new, best = self.translate(key, {"var": "current"}), self.translate(key, {"var": "accumulator"})
        self._is_in_key = False
        pick = "list.last" if is_largest else "list.first"
        winner = {pick: {"list.sort": [[best, new]]}}
        is_better = {"===": [winner, new]}
        if is_first:
            is_better = {"and": [is_better, {"!==": [new, best]}]}
        is_chosen = {"if": [{"===": [{"var": "accumulator"}, None]}, {"list.sort": [[new]]}, is_better]}
        chosen = {"if": [is_chosen, {"var": "current"}, {"var": "accumulator"}]}
        return {"reduce": [self.translate(items, base), chosen, None]}

    def _negate(self, of: Tree, base: Rule) -> Rule:
        match of:
            case {
                "type": "not_expression",
                "children": [{"type": "not_expression", "children": [inner]}],
            }:  # !!!a is !a
                return self._negate(inner, base)
        return operation("!", self._translate_condition(of, base))

    def _translate_condition(self, tree: Tree, base: Rule) -> Rule:
        if tree["type"] not in _CONDITIONS:
            self.changes.append("the number 0 counts as false here")
        return self.translate(tree, base)

    # Paths

    def _translate_path(self, steps: tuple[Step, ...], base: Rule) -> Rule:
        if steps and isinstance(steps[-1], Hash | Items):
            return self._translate_selection(steps[:-1], steps[-1], base)
        first = next((n for n, step in enumerate(steps) if isinstance(step, _PROJECTIONS)), None)
        if first is None:
            return self._translate_single(steps, base)
        text = self._translate_to_jsonpath(steps, first, base)
        if text is not None:
            return {"vars": text}
        return self._translate_filter(steps, first, base)

    def _translate_single(self, steps: tuple[Step, ...], base: Rule) -> Rule:
        """Translate a path that leads to one value."""
        rule = base
        for n, step in enumerate(steps):
            if not isinstance(step, Field | Index):
                raise CannotConvert("a selection in the middle of a path has no equivalent")
            key = step.name if isinstance(step, Field) else step.index
            if _may_be_null(rule):
                return {"list.first": {"map": [[rule], self._translate_single(steps[n:], ITEM)]}}
            is_plain = is_segment(key) if isinstance(key, str) else key >= 0
            if not is_plain and (text := _write_jsonpath(rule, steps[n:])) is not None:
                return {"list.first": {"vars": text}}
            rule = access_key(rule, key)
        return rule

    def _translate_to_jsonpath(self, steps: tuple[Step, ...], first: int, base: Rule) -> str | None:
        """Write the steps as a path of `vars`. It makes one flat list, so only [] may follow a projection."""
        if any(isinstance(step, _PROJECTIONS[:-1]) for step in steps[first + 1 :]):
            return None
        text = _write_jsonpath(base, steps)
        if text is not None and any(isinstance(step, Flatten) for step in steps):
            self.changes.append(_FLATTENED)
        return text

    def _translate_filter(self, steps: tuple[Step, ...], first: int, base: Rule) -> Rule:
        """Translate a condition that a path of ours cannot express to the operator `filter`."""
        where = steps[first]
        if not isinstance(where, Where):
            raise CannotConvert(NO_EQUIVALENT)
        condition = self._translate_condition(where.condition, ITEM)
        kept = operation("filter", self._translate_path(steps[:first], base), condition)
        rest = steps[first + 1 :]
        if not rest:
            return kept
        self.changes.append("an item without this value gives null here")
        return operation("map", kept, self._translate_single(rest, ITEM))

    def _translate_selection(self, steps: tuple[Step, ...], chosen: Hash | Items, base: Rule) -> Rule:
        rule = self._translate_path(steps, base)
        is_many = any(isinstance(step, _PROJECTIONS) for step in steps)
        is_nullable = not is_many and _may_be_null(rule)
        inner = ITEM if is_many or is_nullable else rule
        if isinstance(chosen, Items):
            selected: Rule = [self.translate(item, inner) for item in chosen.items]
        else:
            selected = {key: self.translate(value, inner) for key, value in chosen.pairs}
            if is_expression(selected) or LITERAL in selected:
                raise CannotConvert("a mapping with this single key would be read as an expression")
        if is_nullable:
            return {"list.first": {"map": [{"filter": [[rule], unequal(ITEM, None)]}, selected]}}
        return operation("map", rule, selected) if is_many else selected


def _may_be_null(rule: Rule) -> bool:
    """Whether a computed value may be null, of which an operator cannot read a key."""
    return isinstance(rule, dict) and kind_of(rule) is None and list(rule) not in (["var"], [LITERAL])


def _write_jsonpath(base: Rule, steps: tuple[Step, ...]) -> str | None:
    """Write the steps from `base` as a path of `vars`, or return None if that is not possible."""
    path = base.get("var") if isinstance(base, dict) else None
    if not isinstance(path, str):
        return None
    parts = [f"[{name}]" if name.isdecimal() else _write_field(name) for name in path.split(".") if name]
    for step in steps:
        match step:
            case Field(name):
                parts.append(_write_field(name))
            case Index(index):
                parts.append(f"[{index}]")
            case Each() | Flatten():
                parts.append("[*]")
            case Values():
                parts.append(".*")
            case Slice(start, stop):
                parts.append(f"[{'' if start is None else start}:{'' if stop is None else stop}]")
            case Where(condition):
                terms = _write_terms(condition)
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


def _write_field(name: str) -> str:
    return f".{name}" if _NAME.fullmatch(name) else f"[{_write_literal(name)}]"


def _write_terms(condition: Tree) -> list[str] | None:
    """Write a condition as terms of a filter in `vars`: fields compared with literals, joined by and."""
    match condition:
        case {"type": "and_expression", "children": [left, right]}:
            before, after = _write_terms(left), _write_terms(right)
            return None if before is None or after is None else [*before, *after]
        case {"type": "comparator", "value": kind, "children": [path, {"type": "literal", "value": value}]}:
            start, steps = split_path(path)
            names = [step.name for step in steps if isinstance(step, Field)]
            operator = _COMPARISONS[kind]
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_exact = operator == "==" and isinstance(value, str | bool)
            if start is not None or not steps or len(names) < len(steps):
                return None
            if not (is_exact or (is_number and operator != "!=")):
                return None
            return [f"@{''.join(map(_write_field, names))} {operator} {_write_literal(value)}"]
    return None


def _write_literal(value: Any) -> str:
    if isinstance(value, str):
        return "'{}'".format(value.replace("\\", "\\\\").replace("'", "\\'"))
    return str(value).lower()


def _compare(operator: str, left: Rule, right: Rule) -> Rule:
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


def _call(name: str, args: list[Rule]) -> Rule:
    if name == "join" and len(args) == 2:
        return operation("str.join", args[1], args[0])
    if name == "contains" and len(args) == 2:
        return operation("in", args[1], args[0])
    if name == "not_null" and args:
        return operation("any.default", *args)
    operator, count = _FUNCTIONS.get(name, ("", -1))
    if len(args) != count:
        raise CannotConvert(f"the function {name} with these arguments has no equivalent")
    return operation(operator, *args)
