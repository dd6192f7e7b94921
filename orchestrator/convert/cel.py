"""flow8's expressions, which look like CEL: comparison and logic over `input`, `kv` and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.convert.expression_parser import (
    CEL,
    Call,
    Filter,
    Literal,
    Member,
    Name,
    Test,
    parse,
    read_tokens,
)
from orchestrator.convert.json_logic import Rule, is_segment, operation, require_valid, unequal
from orchestrator.convert.notes import CannotConvert
from orchestrator.convert.translation import Translator

_SCOPES = ("global", "flow_group")
_AREAS = (*_SCOPES, "flow", "local")  # names of the store itself
_METHODS = {"contains": "str.contains", "startsWith": "str.starts_with", "endsWith": "str.ends_with"}
_METHODS |= {"matches": "str.matches"}
_IN_UTC = "the hour is that of UTC here"


class CelTranslator(Translator):
    """`mapped` are the inputs of the flowlet whose filter this is: `input` means them before the play's."""

    def __init__(self, mapped: Mapping[str, Rule] | None = None) -> None:
        super().__init__()
        self._mapped = mapped or {}

    def root(self, name: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
        if name == "input":
            if keys and keys[0] in self._mapped:
                return self._of_this_step(keys[0]), keys[1:]
            return {"var": "input"}, keys
        if name == "kv" and keys and isinstance(keys[0], str):
            return _kept(keys[0], keys[1:])
        raise CannotConvert(f"there is no variable {name} here")

    def _of_this_step(self, key: str) -> Rule:
        rule = self._mapped[key]
        if rule != {"var": f"input.{key}"}:
            self.changes.append(f"input.{key} is taken for what the input mapping of this step says")
        return rule

    def translate_special(self, node: Call | Filter | Test) -> Rule:
        if isinstance(node, Call) and node.named:
            raise CannotConvert("named arguments have no equal")
        match node:
            case Call(Name("len" | "size"), (of,)):
                return operation("list.length", self.rule(of))
            case Call(Name("has"), (of,)):
                return unequal(self.rule(of), None)
            case Call(Member(of, Literal("size")), ()):
                return operation("list.length", self.rule(of))
            case Call(Member(Name("timestamp"), Literal("now")), ()):
                return {"time.now": []}
            case Call(Member(of, Literal(str(method))), (arg,)) if method in _METHODS:
                return operation(_METHODS[method], self.rule(of), self.rule(arg))
        raise CannotConvert("this call of a function has no equal")

    def _reference(self, node: Name | Member) -> Rule:
        match node:
            case Member(Call(Member(Name("timestamp"), Literal("now")), ()), Literal("hour")):
                self.changes.append(_IN_UTC)
                return {"time.hour": []}
        return super()._reference(node)


def _kept(key: str, keys: list[Any]) -> tuple[Rule, list[Any]]:
    """A value of the key-value store: `kv.get`, or a path when it is looked into."""
    scope, _, name = key.partition(":")
    if not keys:
        return {"kv.get": key}, []
    path = f"kv.{scope}.{name}" if scope in _SCOPES and name else f"kv.{key}"
    is_path = is_segment(name if scope in _SCOPES and name else key) and key not in _AREAS
    return ({"var": path} if is_path else {"kv.get": key}), keys


def convert_expression(text: str, translator: CelTranslator) -> Rule:
    """The expression of ours; CannotConvert says why there is none."""
    tokens, _ = read_tokens(text)
    if not tokens:
        raise CannotConvert("the expression is empty")
    return require_valid(translator.rule(parse(tokens, CEL)))
