"""Checks that need more than the type of one key: expressions, targets, keys that exclude each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from orchestrator.application.expressions.evaluation import SecretPolicy, is_expression
from orchestrator.application.spec.expression_checks import EXAMPLE, ExpressionChecks
from orchestrator.application.spec.graph import Graph
from orchestrator.application.spec.model import KvScope, StepSpec
from orchestrator.application.spec.references import RESULT, STEP, Scope
from orchestrator.application.spec.report import Report
from orchestrator.application.spec.step_models import KINDS, PlainStepModel, StepModel
from orchestrator.application.values.json_types import describe_value
from orchestrator.application.values.paths import Path

# Steps ------------------------------------------------------------------------------------------------------


def check_kind(raw: Mapping[str, Any], path: Path, report: Report) -> None:
    """Check that a step is of exactly one kind, and has no key that its kind does not allow."""
    token = next((key for key in ("op", "fn", "type") if raw.get(key) is not None), None)
    others = [key for key in ("source", *KINDS) if raw.get(key) is not None]
    kinds = others if token is None else [token, *others]
    if len(kinds) > 1:
        message = f"a step can have only one of {', '.join(kinds[:-1])} and {kinds[-1]}"
        report.add(path, "many_kinds", message)
    elif not kinds:
        message = "a step needs an op or fn: the name of its executor"
        report.add(path, "no_token", message)
    elif len(others) == 1 and others[0] != "source":
        for key in raw:
            if key in FORBIDDEN_KEYS[others[0]]:
                hint = "write it inside wait" if (others[0], key) == ("wait", "timeout") else None
                message = f"{key!r} is not a key of a {others[0]} step, which runs no job"
                report.add((*path, key), "unknown_key", message, hint)


_JOB_KEYS = frozenset({"concurrency", "heartbeat", "isolation", "loop", "map", "timeout"})
FORBIDDEN_KEYS: dict[str, frozenset[str]] = {
    "wait": _JOB_KEYS,
    "delay": _JOB_KEYS,
    "switch": _JOB_KEYS,
    "workflow": frozenset({"heartbeat", "isolation", "loop", "map"}),
}


class StepChecks:
    """Checks the expressions of steps, and the steps that their branches name."""

    def __init__(
        self, graph: Graph, step_ids: Sequence[str], report: Report, expressions: ExpressionChecks
    ) -> None:
        self._graph, self._step_ids, self._report, self._expressions = graph, step_ids, report, expressions

    def check(self, step_id: str, raw: Mapping[str, Any], model: PlainStepModel, path: Path) -> None:
        if raw.get("input"):
            has_job = not isinstance(model, StepModel) or model.kind == "task"
            secrets: SecretPolicy = "whole" if has_job else "nowhere"
            scope = STEP if raw.get("map") is None else Scope(_item_roots(raw))
            self._expressions.check_values(raw["input"], (*path, "input"), scope, secrets)
        if raw.get("branch"):
            self._check_branches(raw["branch"], (*path, "branch"), step_id)
        if isinstance(model, StepModel):
            self._check_rare_keys(step_id, raw, path)

    def _check_rare_keys(self, step_id: str, raw: Mapping[str, Any], path: Path) -> None:
        expressions = self._expressions
        if raw.get("when") is not None:
            expressions.check_condition(raw["when"], (*path, "when"), STEP)
        self._check_filters(raw.get("filters"), (*path, "filters"))
        expressions.check_paths(raw.get("required"), (*path, "required"), STEP)
        for keys, expected in _RULES.items():
            self._check_rule(_get(raw, *keys), (*path, *keys), expected)
        output_scope = RESULT if raw.get("map") is None else Scope(RESULT.roots | _item_roots(raw))
        expressions.check_values(raw.get("output"), (*path, "output"), output_scope)
        expressions.check_values(raw.get("kv_add"), (*path, "kv_add"), _fresh_scope(step_id))
        undone = Scope(output_of=step_id)
        keys = ("compensate", "input")
        expressions.check_values(_get(raw, *keys), (*path, *keys), undone, "whole")
        self._check_source(raw.get("source"), (*path, "source"))

    def _check_rule(self, rule: Any, path: Path, expected: str) -> None:
        if isinstance(rule, dict):
            self._expressions.check_rule(rule, path, STEP)
        elif isinstance(rule, list) and path[-2:] == ("map", "over"):
            self._expressions.check_value(rule, path, STEP)
        elif rule is not None and expected:
            message = f"must be {expected}, not {describe_value(rule)}"
            self._report.add(path, "bad_type", message, EXAMPLE)

    def _check_source(self, source: Any, path: Path) -> None:
        """Check the form of the configuration of a source; Sources checks what it reads."""
        form = ExpressionChecks(self._report)
        form.check_values(_get(source, "configuration"), (*path, "configuration"), STEP, "anywhere")
        override, path = _get(source, "override"), (*path, "override")
        if isinstance(_get(override, "configuration"), dict):
            override, path = override["configuration"], (*path, "configuration")
        form.check_values(override, path, STEP, "anywhere")

    def _check_filters(self, group: Any, path: Path) -> None:
        if not isinstance(group, dict):
            return
        if group.get("expression") is not None:
            self._expressions.check_condition(group["expression"], (*path, "expression"), STEP)
        self._expressions.check_value(group.get("value"), (*path, "value"), STEP)
        filters = group.get("filters")
        for n, part in enumerate(filters if isinstance(filters, list) else ()):
            self._check_filters(part, (*path, "filters", n))

    def _check_branches(self, branches: Any, path: Path, step_id: str) -> None:
        scope = _fresh_scope(step_id)
        actions: list[Any] = []
        is_loop = False
        for n, branch in enumerate(branches if isinstance(branches, list) else ()):
            if not isinstance(branch, dict):
                continue
            if "condition" in branch:
                self._expressions.check_condition(branch["condition"], (*path, n, "condition"), scope)
            if "result_expr" in branch:
                self._expressions.check_value(branch["result_expr"], (*path, n, "result_expr"), scope)
            action = branch.get("action")
            actions.append(action)
            if isinstance(action, dict) and "set" in action:
                is_loop = True
                self._check_targets(action["set"], (*path, n, "action", "set"))
        if is_loop and "complete" not in actions and "halt" not in actions:
            message = "a step with a set branch needs a complete or halt branch too"
            self._report.add(path, "loop_without_exit", message)

    def _check_targets(self, targets: Any, path: Path) -> None:
        if isinstance(targets, list):
            for n, target in enumerate(targets):
                self._check_target(target, (*path, n))
        else:
            self._check_target(targets, path)

    def _check_target(self, target: Any, path: Path) -> None:
        if is_expression(target):
            self._expressions.check_value(target, path, STEP)
        elif not isinstance(target, str):
            message = f"must be a step, a list of steps or an expression, not {describe_value(target)}"
            self._report.add(path, "bad_type", message)
        elif self._graph.find_target(target) is None:
            name = target.removeprefix("steps.").removesuffix(".status")
            hint = self._report.suggest(name, self._step_ids)
            self._report.add(path, "unknown_target", f"there is no step {name!r}", hint)


_RULES: dict[tuple[str, ...], str] = {  # keys that take an expression; "": the model checks other values
    ("join",): "",
    ("map", "over"): "a list, or an expression that gives one",
    ("switch", "on"): "an expression",
    ("concurrency", "key"): "",
}


def _fresh_scope(step_id: str) -> Scope:
    """Return the scope of a place that sees the fresh output of a step."""
    return Scope(output_of=step_id, has_fresh_keys=True)


def _item_roots(raw: Mapping[str, Any]) -> frozenset[str]:
    """Return the roots that a step with map adds."""
    name = _get(raw, "map", "as")
    return frozenset({name if isinstance(name, str) else "item", "index"})


def _get(raw: Any, *keys: str) -> Any:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw


def check_step_spec(step: StepSpec, scopes: Sequence[KvScope] | None, path: Path, report: Report) -> None:
    """Check keys of a step against other parts of the document: kv.scopes, and the inputs of its child."""
    for key in step.kv_add:
        scope, _, name = key.partition(":")
        if name and scope in get_args(KvScope) and scopes is not None and scope not in scopes:
            report.add((*path, "kv_add", key), "bad_type", f"the scope {scope} is not in kv.scopes")
    if step.child is not None and step.child.loaded is not None:
        for name, declared in step.child.loaded.spec.inputs.items():
            if declared.required and not declared.has_default and name not in step.input:
                report.add((*path, "input"), "missing_input", f"the child needs the input {name!r}")


def check_join(step: StepSpec, path: Path, graph: Graph, report: Report) -> None:
    """Check that a numeric join does not exceed the number of parents."""
    parent_count = len(graph.parents[step.id])
    if isinstance(step.join, int) and step.join > parent_count:
        message = f"waits for {step.join} steps, but the step depends on {parent_count}"
        report.add((*path, "join"), "bad_policy", message)
