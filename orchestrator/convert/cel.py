"""Translates the expressions of flow8, which look like CEL: logic over `input`, `kv` and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.convert.cel_functions import GETTERS, PROPERTIES, TimePart, to_integer, to_text
from orchestrator.convert.cel_parser import parse, read_tokens
from orchestrator.convert.expression_tree import Call, Filter, Literal, Member, Name, Node, Test
from orchestrator.convert.json_logic import Rule, concatenate, is_segment, operation, require_valid, unequal
from orchestrator.convert.notes import CannotConvert
from orchestrator.convert.translation import Translator

_SCOPES = ("global", "flow_group")
_STORE_NAMES = (*_SCOPES, "flow", "local")  # a path that starts with one of these means the scope, not a key
_METHODS = {"contains": "str.contains", "startsWith": "str.starts_with", "endsWith": "str.ends_with"}
_METHODS |= {"matches": "str.matches"}
_NO_CALL = "this function call has no equivalent: compute it in an executor, and read its output"
_MACROS = frozenset({"exists", "exists_one", "all", "map", "filter"})


class CelTranslator(Translator):
    """`input` means the `step_inputs` of the flowlet that has the filter, and then the inputs of the play."""

    def __init__(self, step_inputs: Mapping[str, Rule] | None = None) -> None:
        super().__init__()
        self._step_inputs = step_inputs or {}
        self._items: list[str] = []

    def resolve_variable(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        if self._items:
            return self._resolve_in_macro(name, keys)
        if name == "input":
            if keys and keys[0] in self._step_inputs:
                return self._read_step_input(keys[0]), keys[1:]
            return {"var": "input"}, keys
        if name == "kv" and keys and isinstance(keys[0], str):
            return _read_store(keys[0], keys[1:])
        raise CannotConvert(f"the variable {name} does not exist here")

    def _resolve_in_macro(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        """Return what a variable means inside of a macro, where a path begins at the item."""
        if name == self._items[-1]:
            return {"var": ""}, keys
        if name == "kv" and keys and isinstance(keys[0], str):
            return {"kv.get": keys[0]}, keys[1:]
        raise CannotConvert(
            f"{name} cannot be read inside of a macro here, only {self._items[-1]} and kv:"
            " write the comparison with it outside, or pass the list to an executor"
        )

    def _read_step_input(self, key: str) -> Rule:
        rule = self._step_inputs[key]
        if rule != {"var": f"input.{key}"}:
            self.changes.append(f"input.{key} is read from the input mapping of this step")
        return rule

    def translate_special(self, node: Call | Filter | Test) -> Rule:
        match node:
            case Call(Name("len" | "size"), (of,)) | Call(Member(of, Literal("size")), ()):
                return operation("list.length", self.translate(of))
            case Call(Name("has"), (of,)):
                return unequal(self.translate(of), None)
            case Call(Name("int"), (of,)):
                return to_integer(self.translate(of))
            case Call(Name("double"), (of,)):
                return operation("+", self.translate(of))
            case Call(Name("string"), (of,)):
                return to_text(self.translate(of))
            case Call(Member(Name("timestamp"), Literal("now")), ()):
                return {"time.now": []}
            case Call(Member(of, Literal(str(part))), args) if part in GETTERS and _is_now(of):
                return self._read_time(GETTERS[part], args)
            case Call(Member(of, Literal(str(macro))), (Name(variable), *bodies)) if macro in _MACROS:
                return self._translate_macro(macro, self.translate(of), variable, bodies)
            case Call(Member(of, Literal(str(method))), (arg,)) if method in _METHODS:
                return operation(_METHODS[method], self.translate(of), self.translate(arg))
        raise CannotConvert(_NO_CALL)

    def _translate_macro(self, macro: str, items: Rule, variable: str, bodies: list[Node]) -> Rule:
        self._items.append(variable)
        rules = [self.translate(body) for body in bodies]
        self._items.pop()
        match macro, rules:
            case "exists", [condition]:
                return operation("some", items, condition)
            case "all", [condition]:  # `all` of an empty list is false here, and true in CEL
                is_list = unequal(items, None)
                return {"and": [is_list, operation("none", items, operation("!", condition))]}
            case "exists_one", [condition]:
                return {"===": [{"list.length": operation("filter", items, condition)}, 1]}
            case "filter" | "map", [body]:
                return operation(macro, items, body)
            case "map", [condition, body]:
                return operation("map", operation("filter", items, condition), body)
        raise CannotConvert(f"{macro} takes a variable and an expression")

    def _translate_reference(self, node: Name | Member) -> Rule:
        match node:
            case Member(of, Literal(str(part))) if part in PROPERTIES and _is_now(of):
                return self._read_time(PROPERTIES[part], ())
        return super()._translate_reference(node)

    def _read_time(self, part: TimePart, args: tuple[Node, ...]) -> Rule:
        if args:
            raise CannotConvert("a time zone has no equivalent: times are in UTC here; convert the bounds")
        self.changes.append(part.change)
        return part.rule


def _is_now(node: Node) -> bool:
    return node == Call(Member(Name("timestamp"), Literal("now")), ())


def _read_store(key: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
    """Read a value of the key-value store: `kv.get`, or a path if further keys follow."""
    scope, _, name = key.partition(":")
    if not keys:
        return {"kv.get": key}, []
    path = f"kv.{scope}.{name}" if scope in _SCOPES and name else f"kv.{key}"
    is_path = is_segment(name if scope in _SCOPES and name else key) and key not in _STORE_NAMES
    return ({"var": path} if is_path else {"kv.get": key}), keys


def convert_expression(text: str, translator: CelTranslator) -> Rule:
    """Translate an expression. CannotConvert gives the reason if that is not possible."""
    tokens, _ = read_tokens(text)
    if not tokens:
        raise CannotConvert("the expression is empty")
    return require_valid(translator.translate(parse(tokens)))


def convert_text(text: str, translator: CelTranslator) -> Rule:
    """Translate a text with expressions in `{{ }}`."""
    if "{%" in text or "{#" in text:
        raise CannotConvert("only {{ }} has an equivalent in a text")
    parts: list[Rule] = []
    at = 0
    while (start := text.find("{{", at)) >= 0:
        tokens, end = read_tokens(text, start + 2, "}}")
        if not tokens:
            raise CannotConvert("an expression is empty")
        parts += (text[at:start], translator.translate(parse(tokens)))
        at = end + 2
    return require_valid(concatenate(*parts, text[at:]))
