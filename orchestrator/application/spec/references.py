"""Checks what the paths of expressions read: roots, inputs, steps, and the fields of each.

A path that can never have a value is a problem: `inputs.a`, `steps.a.outputs.x`, a step that does not exist.
A path that may be meant is a warning: undeclared inputs are accepted, and executors return what they like.

These checks are for new documents. A document that is stored already is loaded without them, so that what
was accepted once still runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from orchestrator.application.expressions.dotted_path import split_path
from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.expressions.json_logic import SCOPED_OPERATORS
from orchestrator.application.expressions.jsonpath import BadPath, parse
from orchestrator.application.spec.graph import Graph
from orchestrator.application.spec.misspelling import MisspeltOperators, is_one_edit_away
from orchestrator.application.spec.model import StepSpec
from orchestrator.application.spec.report import Report
from orchestrator.application.values.paths import Path

ROOTS = ("input", "state", "steps", "flows", "kv", "ctx")
"""The roots that expressions can read everywhere."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What expressions can read at one place of a document, besides ROOTS.

    `output_of` is the step whose output is the root `output`; with `has_fresh_keys` its keys are roots too.
    `is_step`: the place belongs to a step, so that `ctx.step` and `ctx.loop` exist.
    """

    roots: frozenset[str] = frozenset()
    is_step: bool = True
    output_of: str | None = None
    has_fresh_keys: bool = False


STEP = Scope()
RESULT = Scope(frozenset({"result"}))
DOCUMENT = Scope(is_step=False)

_CTX: dict[str, tuple[str, ...]] = {
    "workflow": ("id", "name", "execution_id", "group", "started_at"),
    "step": ("id", "run_id", "attempt"),
    "loop": ("iteration", "value"),
    "status": (),
    "error": (),
    "now": (),
}
_OF_STEPS = ("step", "loop")
_ELSEWHERE = {
    "item": "the input and the output of a step with map",
    "index": "the input and the output of a step with map",
    "result": "the output of a step",
    "output": "the condition and the result_expr of a branch, kv_add and compensate",
    "sources": "the configuration of a source",
}
_ITEM_ROOTS = {"reduce": frozenset({"accumulator", "current"})}
_TOLERANT = frozenset({"any.default", "!", "!!", "if", "?:", "and", "or", "missing", "missing_some"})
"""Operators whose arguments may well be absent."""
_FAILURE_KEYS = frozenset({"ok", "error"})
_MAX_NAMES_IN_MESSAGE = 12

Names = tuple[str, ...]


class References:
    """The names that the expressions of one workflow can use.

    `steps` are the steps of `graph`, and `inputs` the declared inputs; None if the document declares none.
    """

    def __init__(
        self,
        steps: Sequence[StepSpec],
        graph: Graph,
        step_ids: Sequence[str],
        inputs: Collection[str] | None,
        report: Report,
    ) -> None:
        self._steps = {step.id: step for step in steps}
        self._graph, self._step_ids, self._inputs, self._report = graph, step_ids, inputs, report
        self._outputs: dict[str, frozenset[str] | None] = {}
        self._misspelt = MisspeltOperators(ROOTS)
        self._base: Path = ()
        self._at: list[str | int] = []  # the path from the base to the value that is checked now

    def check(self, value: Any, path: Path, scope: Scope) -> None:
        """Check every path that the expressions in a value read."""
        if isinstance(value, dict | list):
            self._base = path
            self._walk(value, scope)

    def check_path(self, text: str, path: Path, scope: Scope) -> None:
        """Check a path that stands outside of an expression, as those of `required` do."""
        self._base = path
        self._check_names(split_path(text), scope, is_tolerant=False)

    # ---- finding the paths

    def _walk(self, value: Any, scope: Scope, body_of: str = "", is_tolerant: bool = False) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    self._enter(index, item, scope, body_of, is_tolerant)
        elif is_expression(value):
            self._walk_expression(value, scope, body_of, is_tolerant)
        elif not (len(value) == 1 and LITERAL in value):
            self._check_operator(value)
            for key, item in value.items():
                if isinstance(item, dict | list):
                    self._enter(key, item, scope, body_of)

    def _enter(
        self, key: str | int, item: Any, scope: Scope, body_of: str, is_tolerant: bool = False
    ) -> None:
        self._at.append(key)
        self._walk(item, scope, body_of, is_tolerant)
        self._at.pop()

    def _walk_expression(self, rule: dict[str, Any], scope: Scope, body_of: str, is_tolerant: bool) -> None:
        [(operator, argument)] = rule.items()
        self._at.append(operator)
        is_list = isinstance(argument, list)
        args = argument if is_list else [argument]
        is_tolerant = operator in _TOLERANT or (operator == "var" and (is_tolerant or len(args) > 1))
        for where, names in _find_reads(operator, args):
            at = where if is_list else ()
            self._at.extend(at)
            if body_of:
                self._check_item_path(names, body_of)
            else:
                self._check_names(names, scope, is_tolerant)
            del self._at[len(self._at) - len(at) :]
        for index, item in enumerate(args):
            if isinstance(item, dict | list):
                body = operator if operator in SCOPED_OPERATORS and index == 1 else body_of
                if is_list:
                    self._enter(index, item, scope, body, is_tolerant)
                else:
                    self._walk(item, scope, body, is_tolerant)
        self._at.pop()

    # ---- one path

    def _check_names(self, names: Names, scope: Scope, is_tolerant: bool) -> None:
        if not names:
            return
        match names[0]:
            case "input" if len(names) > 1:
                self._check_input(names, is_tolerant)
            case "steps" if len(names) > 1:
                self._check_step(names)
            case "flows" if len(names) > 1:
                self._check_flow(names)
            case "ctx" if len(names) > 1:
                self._check_ctx(names, scope)
            case "output" if scope.output_of is not None:
                self._check_output(scope.output_of, names, 1)
            case root if root not in ROOTS and root not in scope.roots:
                self._check_root(names, scope)

    def _check_root(self, names: Names, scope: Scope) -> None:
        root = names[0]
        if scope.has_fresh_keys:
            self._check_fresh_key(names, scope)
        elif root in _ELSEWHERE:
            self._add("unknown_root", f"{root!r} can only be read in {_ELSEWHERE[root]}")
        else:
            known = [*ROOTS, *sorted(scope.roots)]
            hint = self._meant(names, 0, known) or self._meant_below_a_root(names)
            hint = hint or f"a path begins with {', '.join(known[:-1])} or {known[-1]}"
            self._add("unknown_root", f"{root!r} is not a root of expressions here", hint)

    def _check_fresh_key(self, names: Names, scope: Scope) -> None:
        """A name that is no root is a key of the fresh output, if the step has such a key."""
        assert scope.output_of is not None, "only the output of a step is fresh"
        keys = self._output_keys(scope.output_of)
        if keys is not None:
            if names[0] not in keys:
                hint = self._meant(names, 0, keys if len(names) == 1 else keys.union(ROOTS))
                self._warn("unknown_output", self._no_such_key(scope.output_of, names[0]), hint)
        elif meant := [root for root in ("input", "steps", "flows") if self._is_misspelt_root(names, root)]:
            message = f"{names[0]!r} is no root, so it is read from the output of the step"
            self._warn("doubtful_path", message, self._meant(names, 0, meant))

    def _is_misspelt_root(self, names: Names, root: str) -> bool:
        return is_one_edit_away(names[0], root) and self._reads_the_execution((root, *names[1:]))

    def _check_input(self, names: Names, is_tolerant: bool) -> None:
        if self._inputs is None or names[1] in self._inputs:
            return
        hint = self._meant(names, 1, self._inputs)
        if hint or not is_tolerant:
            message = f"the document declares its inputs, and {names[1]!r} is not one of them"
            self._warn("undeclared_input", message, hint or "add it to inputs")

    def _check_step(self, names: Names) -> None:
        found = self._find_step(names, 1)
        if found is None:
            return
        step_id, at = found
        if len(names) == at or names[at] == "output":
            self._check_output(step_id, names, at + 1)
            return
        name = names[at]
        hint = self._meant(names, at, ["output"]) or f"did you mean 'steps.{step_id}.output.{name}'?"
        if name in ("status", "error"):
            hint = f"did you mean 'ctx.{name}.{step_id}'?"
        self._add("unknown_field", f"a step has the field 'output' here, and no {name!r}", hint)

    def _check_flow(self, names: Names) -> None:
        found = self._find_step(names, 1)
        if found is not None:
            self._check_output(found[0], names, found[1])

    def _check_ctx(self, names: Names, scope: Scope) -> None:
        name, fields = names[1], _CTX.get(names[1])
        hint: str | None
        if fields is None:
            hint = self._meant(names, 1, list(_CTX)) or f"it has {', '.join(_CTX)}"
            self._add("unknown_field", f"ctx has no field {name!r}", hint)
        elif name in _OF_STEPS and not scope.is_step:
            self._add("unknown_field", f"ctx.{name} can only be read in a step")
        elif name in ("status", "error"):
            if len(names) > 2:
                self._find_step(names, 2)
        elif len(names) > 2 and names[2] not in fields:
            hint = self._meant(names, 2, fields)
            self._add("unknown_field", f"ctx.{name} has no field {names[2]!r}", hint)

    def _check_output(self, step_id: str, names: Names, at: int) -> None:
        """Check the key of an output, if the document says which keys the output has."""
        keys = self._output_keys(step_id)
        if keys is not None and len(names) > at and names[at] not in keys:
            hint = self._meant(names, at, keys)
            self._warn("unknown_output", self._no_such_key(step_id, names[at]), hint)

    def _check_item_path(self, names: Names, operator: str) -> None:
        """Check a path in the body of a scoped operator such as map, where paths begin at the item."""
        if not names:
            return
        roots = _ITEM_ROOTS.get(operator)
        if roots is not None and names[0] not in roots:
            message = f"inside {operator!r} a path begins with {' or '.join(sorted(roots))}"
            self._add("unknown_root", message, self._meant(names, 0, roots))
        elif roots is None and self._reads_the_execution(names):
            message = f"inside {operator!r} a path begins at the item, so this is read from the item"
            self._warn("doubtful_path", message, f"compute it outside of {operator!r}")

    def _reads_the_execution(self, names: Names) -> bool:
        """Whether a path leads to a declared input or to the output of a step."""
        root, *rest = names
        if root == "input":
            return bool(rest) and rest[0] in (self._inputs or ())
        found = self._graph.find_step(rest) if root in ("steps", "flows") else None
        return found is not None and (root == "flows" or found[1][:1] == ["output"])

    # ---- steps and their outputs

    def _find_step(self, names: Names, at: int) -> tuple[str, int] | None:
        """Return the step at this place of a path, and the place after it; report one that does not exist."""
        found = self._graph.find_step(names[at:])
        if found is None:
            hint = self._meant(names, at, self._step_ids)
            self._add("unknown_dependency", f"there is no step {names[at]!r}", hint)
            return None
        return found[0], len(names) - len(found[1])

    def _output_keys(self, step_id: str) -> frozenset[str] | None:
        if step_id not in self._outputs:
            keys = _declared_keys(self._steps[step_id])
            self._outputs[step_id] = None if keys is None else _FAILURE_KEYS.union(keys)
        return self._outputs[step_id]

    def _no_such_key(self, step_id: str, key: str) -> str:
        known = list(islice(_declared_keys(self._steps[step_id]) or (), _MAX_NAMES_IN_MESSAGE + 1))
        if len(known) > _MAX_NAMES_IN_MESSAGE:
            known[-1] = "..."
        return f"the output of step {step_id!r} has {', '.join(known) or 'no keys'}, and not {key!r}"

    # ---- operators

    def _check_operator(self, value: Mapping[str, Any]) -> None:
        """Warn about data with one key that looks like a misspelt operator."""
        if len(value) == 1:
            [(key, argument)] = value.items()
            meant = self._misspelt.find(key, argument)
            if meant is not None:
                message = f"{key!r} is not an operator, so this mapping is data"
                hint = f"did you mean {meant!r}? Write data as {{$literal: ...}}"
                self._warn("doubtful_operator", message, hint if meant else "write data as {$literal: ...}")

    # ---- reporting

    def _add(self, code: str, message: str, hint: str | None = None) -> None:
        self._report.add((*self._base, *self._at), code, message, hint)

    def _warn(self, code: str, message: str, hint: str | None = None) -> None:
        self._report.warn((*self._base, *self._at), code, message, hint)

    def _meant(self, names: Names, at: int, known: Collection[str]) -> str | None:
        """Return a hint with the path that was probably meant: the same, with a similar name at one place."""
        similar = self._report.find_similar(names[at], known)
        return similar and f"did you mean {'.'.join((*names[:at], similar, *names[at + 1 :]))!r}?"

    def _meant_below_a_root(self, names: Names) -> str | None:
        """Return a hint for a path that begins with the name of an input or of a step."""
        if names[0] in (self._inputs or ()):
            return f"did you mean {'.'.join(('input', *names))!r}?"
        if self._graph.find_step(names) is not None:
            return f"did you mean {'.'.join(('steps', *names))!r}?"
        return None


def _declared_keys(step: StepSpec) -> Iterable[str] | None:
    """Return the keys of an output that the document determines; None if an executor or a signal does."""
    if step.has_branch_output:
        return None
    if step.map is not None:
        return ("items", "count", "errors")
    if step.output is not None:
        return step.output
    if step.kind == "switch":
        return ("branch",)
    if step.kind == "delay":
        return ()
    if step.child is not None and step.child.loaded is not None:
        return chain(step.child.loaded.spec.outputs, ("halted", "result"))
    return None


def _find_reads(operator: str, args: Sequence[Any]) -> Iterator[tuple[Path, Names]]:
    """Yield each constant path that an operator reads: where it stands in the arguments, and its names."""
    if operator == "var":
        if args and isinstance(args[0], str | int) and not isinstance(args[0], bool):
            yield (0,), split_path(str(args[0]))
    elif operator == "vars":
        if args and isinstance(args[0], str):
            try:
                yield (0,), parse(args[0]).names
            except BadPath:
                return  # the check of the expression itself reports it
    elif operator in ("missing", "missing_some"):
        for index, arg in enumerate(args):
            if isinstance(arg, str):
                yield (index,), split_path(arg)
            for inner, path in enumerate(arg if isinstance(arg, list) else ()):
                if isinstance(path, str):
                    yield (index, inner), split_path(path)
