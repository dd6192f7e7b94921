"""Checks that need more than the type of one key: expressions, targets, keys that exclude each other.

Also the warnings: documents that are valid, but probably do not do what the author intended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from orchestrator.application.errors import Problem
from orchestrator.application.expressions.evaluation import (
    LITERAL,
    SecretPolicy,
    check,
    check_condition,
    is_expression,
)
from orchestrator.application.spec.filter_models import FilterModel
from orchestrator.application.spec.graph import Graph
from orchestrator.application.spec.model import KvScope, StepSpec, WorkflowSpec
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


_JOB_KEYS = frozenset({"concurrency", "heartbeat", "loop", "map", "timeout"})
FORBIDDEN_KEYS: dict[str, frozenset[str]] = {
    "wait": _JOB_KEYS,
    "delay": _JOB_KEYS,
    "switch": _JOB_KEYS,
    "workflow": frozenset({"heartbeat", "loop", "map"}),
}


def check_step(
    raw: Mapping[str, Any], model: PlainStepModel, path: Path, graph: Graph, report: Report
) -> None:
    """Check the expressions of a step, and the steps that its branches name."""
    if raw.get("input"):
        check_values(raw["input"], (*path, "input"), report, "whole" if _has_job(model) else "nowhere")
    if raw.get("branch"):
        _check_branches(raw["branch"], (*path, "branch"), graph, report)
    if isinstance(model, StepModel):
        _check_rare_keys(raw, model, path, report)


def _has_job(model: PlainStepModel) -> bool:
    return not isinstance(model, StepModel) or model.kind == "task"


def _check_rare_keys(raw: Mapping[str, Any], model: StepModel, path: Path, report: Report) -> None:
    if raw.get("when") is not None:
        report.extend(check_condition(raw["when"], report.full_path((*path, "when"))))
    if model.filters is not None:
        _check_filters(model.filters, (*path, "filters"), report)
    for keys, expected in _RULES.items():
        rule = _get(raw, *keys)
        if isinstance(rule, dict):
            check_rule(rule, (*path, *keys), report)
        elif isinstance(rule, list) and keys == ("map", "over"):
            report.extend(check(rule, report.full_path((*path, *keys))))
        elif rule is not None and expected:
            message = f"must be {expected}, not {describe_value(rule)}"
            report.add((*path, *keys), "bad_type", message, _EXAMPLE)
    for keys, secrets in _VALUES.items():
        values = _get(raw, *keys)
        if keys == ("source", "override") and isinstance(_get(values, "configuration"), dict):
            keys, values = (*keys, "configuration"), values["configuration"]
        check_values(values, (*path, *keys), report, secrets)


_EXAMPLE = 'such as {"var": "steps.a.output.x"}'
_RULES: dict[tuple[str, ...], str] = {  # keys that take an expression; "": the model checks other values
    ("join",): "",
    ("map", "over"): "a list, or an expression that gives one",
    ("switch", "on"): "an expression",
    ("concurrency", "key"): "",
}
_VALUES: dict[tuple[str, ...], SecretPolicy] = {
    ("output",): "nowhere",
    ("kv_add",): "nowhere",
    ("compensate", "input"): "whole",
    ("source", "configuration"): "anywhere",
    ("source", "override"): "anywhere",
}


def _get(raw: Any, *keys: str) -> Any:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def check_values(values: Any, path: Path, report: Report, secrets: SecretPolicy = "nowhere") -> None:
    """Check the values of a mapping such as `input`.

    The mapping itself is not an expression: {max: 3} is an input named max.
    """
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict | list):
            report.extend(check(value, report.full_path((*path, key)), secrets))


def check_rule(rule: dict[str, Any], path: Path, report: Report) -> None:
    """Check a mapping that must be an expression."""
    if len(rule) == 1:
        report.extend(check_condition(rule, report.full_path(path)))
    else:
        report.add(path, "bad_type", "must be an expression: a mapping with one operator", _EXAMPLE)


def _check_filters(group: FilterModel, path: Path, report: Report) -> None:
    if group.filters is None:
        report.extend(check_condition(group.expression, report.full_path((*path, "expression"))))
        report.extend(check(group.value, report.full_path((*path, "value"))))
    for n, part in enumerate(group.filters or ()):
        _check_filters(part, (*path, "filters", n), report)


def _check_branches(branches: Any, path: Path, graph: Graph, report: Report) -> None:
    actions: list[Any] = []
    is_loop = False
    for n, branch in enumerate(branches if isinstance(branches, list) else ()):
        if not isinstance(branch, dict):
            continue
        if "condition" in branch:
            report.extend(check_condition(branch["condition"], report.full_path((*path, n, "condition"))))
        if "result_expr" in branch:
            report.extend(check(branch["result_expr"], report.full_path((*path, n, "result_expr"))))
        action = branch.get("action")
        actions.append(action)
        if isinstance(action, dict) and "set" in action:
            is_loop = True
            _check_targets(action["set"], (*path, n, "action", "set"), graph, report)
    if is_loop and "complete" not in actions and "halt" not in actions:
        report.add(path, "loop_without_exit", "a step with a set branch needs a complete or halt branch too")


def _check_targets(targets: Any, path: Path, graph: Graph, report: Report) -> None:
    if isinstance(targets, list):
        for n, target in enumerate(targets):
            _check_target(target, (*path, n), graph, report)
    else:
        _check_target(targets, path, graph, report)


def _check_target(target: Any, path: Path, graph: Graph, report: Report) -> None:
    if is_expression(target):
        report.extend(check(target, report.full_path(path)))
    elif not isinstance(target, str):
        message = f"must be a step, a list of steps or an expression, not {describe_value(target)}"
        report.add(path, "bad_type", message)
    elif graph.find_target(target) is None:
        name = target.removeprefix("steps.").removesuffix(".status")
        report.add(path, "unknown_target", f"there is no step {name!r}", report.suggest(name, graph.order))


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


# Warnings ---------------------------------------------------------------------------------------------------


def find_warnings(
    spec: WorkflowSpec, graph: Graph, document: Mapping[str, Any], report: Report
) -> Iterator[Problem]:
    """Yield the warnings of a valid spec and of its inline child workflows."""
    key = "flow" if "flow" in document else "steps"
    for n, step in enumerate(spec.steps):
        if step.max_attempts > 1 and step.attempts_on == "any" and not step.branch:
            message = (
                f"step {step.id!r} runs {step.max_attempts} times even if it succeeds: no branch ends it"
            )
            yield Problem(report.full_path((key, n, "max_attempts")), "repeats_on_success", message)
        if step.child is not None and step.child.loaded is not None:
            child = step.child.loaded
            inner = report.inside((key, n, "workflow"))
            yield from find_warnings(child.spec, child.graph, child.document, inner)
    yield from _find_races(spec, graph, key, report)
    if spec.sources:
        yield from _find_unused_sources(spec, document[key], report)


_MAX_RACE_PAIRS = 100_000  # pairs of steps to compare; further ones are not checked


def _find_races(spec: WorkflowSpec, graph: Graph, key: str, report: Report) -> Iterator[Problem]:
    """Warn where an input reads a state key that an unrelated step writes: their order is not defined."""
    writers: dict[str, list[str]] = {}
    for step in spec.steps:
        if step.output and not step.skip_output_mapping:
            for name in step.output:
                writers.setdefault(name, []).append(step.id)
    if not writers:
        return
    reads: dict[tuple[int, str, str], list[tuple[str, str]]] = {}
    all_pairs: set[tuple[str, str]] = set()
    for n, step in enumerate(spec.steps):
        for input_key, value in step.input.items():
            for name in sorted(_find_names_below("state", value) & writers.keys()):
                pairs = [(writer, step.id) for writer in writers[name] if writer != step.id]
                if len(all_pairs) + len(pairs) <= _MAX_RACE_PAIRS:
                    all_pairs.update(pairs)
                    reads[n, input_key, name] = pairs
    related = graph.related(all_pairs)
    for (n, input_key, name), pairs in reads.items():
        racing = next((pair for pair in pairs if pair not in related), None)
        if racing is not None:
            message = (
                f"step {racing[1]!r} reads state.{name}, which step {racing[0]!r} writes, "
                "and neither waits for the other"
            )
            yield Problem(report.full_path((key, n, "input", input_key)), "state_read_race", message)


def _find_unused_sources(
    spec: WorkflowSpec, steps: Sequence[Mapping[str, Any]], report: Report
) -> Iterator[Problem]:
    called = [raw.get("source") for raw in steps]
    used = {source.get("base") if isinstance(source, dict) else source for source in called}
    definitions = [*spec.sources.values(), *(step.source for step in spec.steps)]
    for definition in definitions:
        used |= _find_names_below("sources", definition)
    for name in spec.sources:
        if name not in used:
            message = f"no step and no other source uses {name!r}"
            yield Problem(report.full_path(("sources", name)), "unused_source", message)


_FIRST_NAME = re.compile(r"""\$?\.?(\w+)(?:\.|\[['"])([\w-]+)""")


def _find_names_below(root: str, value: Any) -> set[str]:
    """Return the keys of `root` that the expressions in a value read by a constant path."""
    names: set[str] = set()
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo.extend(value)
        elif isinstance(value, dict) and LITERAL not in value:
            todo.extend(value.values())
            if is_expression(value) and ("var" in value or "vars" in value):
                [argument] = value.values()
                path = argument[0] if isinstance(argument, list) and argument else argument
                match = _FIRST_NAME.match(path) if isinstance(path, str) else None
                if match and match[1] == root:
                    names.add(match[2])
    return names
