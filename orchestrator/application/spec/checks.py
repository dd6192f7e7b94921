"""What can be wrong although every key has the right shape: expressions, targets, keys that exclude others.

And what is right, but probably not meant: the warnings.
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
from orchestrator.application.spec.report import Report, kind
from orchestrator.application.spec.step_models import KINDS, PlainStepModel, StepModel
from orchestrator.application.values.paths import Path

# Steps ------------------------------------------------------------------------------------------------------


def check_kind(raw: Mapping[str, Any], path: Path, report: Report) -> None:
    """Each step is one thing."""
    token = next((key for key in ("op", "fn", "type") if raw.get(key) is not None), None)
    others = [key for key in ("source", *KINDS) if raw.get(key) is not None]
    found = others if token is None else [token, *others]
    if len(found) > 1:
        message = f"a step is one thing: keep one of {', '.join(found[:-1])} and {found[-1]}"
        report.add(path, "many_kinds", message)
    elif not found:
        message = "a step needs an op or fn: the name of its executor"
        report.add(path, "no_token", message)
    elif len(others) == 1 and others[0] != "source":
        for key in raw:
            if key in FORBIDDEN_KEYS[others[0]]:
                hint = "write it inside of wait" if (others[0], key) == ("wait", "timeout") else None
                message = f"{key!r} is not a key of a {others[0]} step: it has no job"
                report.add((*path, key), "unknown_key", message, hint)


_OF_JOBS = frozenset({"concurrency", "heartbeat", "loop", "map", "timeout"})
FORBIDDEN_KEYS: dict[str, frozenset[str]] = {
    "wait": _OF_JOBS,
    "delay": _OF_JOBS,
    "switch": _OF_JOBS,
    "workflow": frozenset({"heartbeat", "loop", "map"}),
}


def check_step(
    raw: Mapping[str, Any], written: PlainStepModel, path: Path, graph: Graph, report: Report
) -> None:
    """The expressions of a step, and the steps it names."""
    if raw.get("input"):
        check_values(raw["input"], (*path, "input"), report, "whole" if _has_job(written) else "nowhere")
    if raw.get("branch"):
        _check_branches(raw["branch"], (*path, "branch"), graph, report)
    if isinstance(written, StepModel):
        _check_rarer(raw, written, path, report)


def _has_job(written: PlainStepModel) -> bool:
    return not isinstance(written, StepModel) or written.kind == "task"


def _check_rarer(raw: Mapping[str, Any], written: StepModel, path: Path, report: Report) -> None:
    if raw.get("when") is not None:
        report.extend(check_condition(raw["when"], report.text((*path, "when"))))
    if written.filters is not None:
        _check_filters(written.filters, (*path, "filters"), report)
    for keys, what in _RULES.items():
        rule = _part(raw, *keys)
        if isinstance(rule, dict):
            check_rule(rule, (*path, *keys), report)
        elif isinstance(rule, list) and keys == ("map", "over"):
            report.extend(check(rule, report.text((*path, *keys))))
        elif rule is not None and what:
            report.add((*path, *keys), "bad_type", f"must be {what}, not {kind(rule)}", _EXAMPLE)
    for keys, secrets in _VALUES.items():
        values = _part(raw, *keys)
        if keys == ("source", "override") and isinstance(_part(values, "configuration"), dict):
            keys, values = (*keys, "configuration"), values["configuration"]
        check_values(values, (*path, *keys), report, secrets)


_EXAMPLE = 'such as {"var": "steps.a.output.x"}'
_RULES: dict[tuple[str, ...], str] = {  # what else than an expression is refused here, if not elsewhere
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


def _part(raw: Any, *keys: str) -> Any:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


def check_values(values: Any, path: Path, report: Report, secrets: SecretPolicy = "nowhere") -> None:
    """Input and outputs hold expressions but are none themselves: {max: 3} is an input called max."""
    for key, value in values.items() if isinstance(values, dict) else ():
        if isinstance(value, dict | list):
            report.extend(check(value, report.text((*path, key)), secrets))


def check_rule(rule: dict[str, Any], path: Path, report: Report) -> None:
    """A mapping where only an expression makes sense."""
    if len(rule) == 1:
        report.extend(check_condition(rule, report.text(path)))
    else:
        report.add(path, "bad_type", "must be an expression: a mapping with one operator", _EXAMPLE)


def _check_filters(group: FilterModel, path: Path, report: Report) -> None:
    if group.filters is None:
        report.extend(check_condition(group.expression, report.text((*path, "expression"))))
        report.extend(check(group.value, report.text((*path, "value"))))
    for n, part in enumerate(group.filters or ()):
        _check_filters(part, (*path, "filters", n), report)


def _check_branches(branches: Any, path: Path, graph: Graph, report: Report) -> None:
    actions: list[Any] = []
    is_loop = False
    for n, branch in enumerate(branches if isinstance(branches, list) else ()):
        if not isinstance(branch, dict):
            continue
        if "condition" in branch:
            report.extend(check_condition(branch["condition"], report.text((*path, n, "condition"))))
        if "result_expr" in branch:
            report.extend(check(branch["result_expr"], report.text((*path, n, "result_expr"))))
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
        report.extend(check(target, report.text(path)))
    elif not isinstance(target, str):
        report.add(path, "bad_type", f"must be a step, a list of steps or an expression, not {kind(target)}")
    elif graph.find_target(target) is None:
        name = target.removeprefix("steps.").removesuffix(".status")
        report.add(path, "unknown_target", f"there is no step {name!r}", report.suggest(name, graph.order))


def check_step_spec(step: StepSpec, scopes: Sequence[KvScope] | None, path: Path, report: Report) -> None:
    """What a step says in one place and takes back in another."""
    for key in step.kv_add:
        scope, _, name = key.partition(":")
        if name and scope in get_args(KvScope) and scopes is not None and scope not in scopes:
            report.add((*path, "kv_add", key), "bad_type", f"the scope {scope} is not among kv.scopes")
    if step.child is not None and step.child.loaded is not None:
        for name, declared in step.child.loaded.spec.inputs.items():
            if declared.required and not declared.has_default and name not in step.input:
                report.add((*path, "input"), "bad_type", f"the child needs the input {name!r}")


def check_join(step: StepSpec, path: Path, graph: Graph, report: Report) -> None:
    above = len(graph.parents[step.id])
    if isinstance(step.join, int) and step.join > above:
        message = f"waits for {step.join} steps, but the step depends on {above}"
        report.add((*path, "join"), "bad_policy", message)


# Warnings ---------------------------------------------------------------------------------------------------


def find_warnings(
    spec: WorkflowSpec, graph: Graph, document: Mapping[str, Any], report: Report
) -> Iterator[Problem]:
    """What is accepted, but probably not meant, also in the children that are written inside."""
    key = "flow" if "flow" in document else "steps"
    for n, step in enumerate(spec.steps):
        if step.max_attempts > 1 and step.attempts_on == "any" and not step.branch:
            message = (
                f"step {step.id!r} runs {step.max_attempts} times even if it succeeds: no branch ends it"
            )
            yield Problem(report.text((key, n, "max_attempts")), "repeats_on_success", message)
        if step.child is not None and step.child.loaded is not None:
            child = step.child.loaded
            inner = report.inside((key, n, "workflow"))
            yield from find_warnings(child.spec, child.graph, child.document, inner)
    yield from _races(spec, graph, key, report)
    if spec.sources:
        yield from _unused(spec, document[key], report)


_MOST_SUSPECTS = 100_000


def _races(spec: WorkflowSpec, graph: Graph, key: str, report: Report) -> Iterator[Problem]:
    """Where an input reads what a step writes that is neither above nor below: who comes first is chance."""
    writers: dict[str, list[str]] = {}
    for step in spec.steps:
        if step.output and not step.skip_output_mapping:
            for name in step.output:
                writers.setdefault(name, []).append(step.id)
    if not writers:
        return
    reads: dict[tuple[int, str, str], list[tuple[str, str]]] = {}
    suspects: set[tuple[str, str]] = set()
    for n, step in enumerate(spec.steps):
        for given, value in step.input.items():
            for name in sorted(_names_below("state", value) & writers.keys()):
                pairs = [(writer, step.id) for writer in writers[name] if writer != step.id]
                if len(suspects) + len(pairs) <= _MOST_SUSPECTS:
                    suspects.update(pairs)
                    reads[n, given, name] = pairs
    related = graph.related(suspects)
    for (n, given, name), pairs in reads.items():
        racing = next((pair for pair in pairs if pair not in related), None)
        if racing is not None:
            message = (
                f"step {racing[1]!r} reads state.{name}, which step {racing[0]!r} writes, "
                "and neither waits for the other"
            )
            yield Problem(report.text((key, n, "input", given)), "state_read_race", message)


def _unused(spec: WorkflowSpec, steps: Sequence[Mapping[str, Any]], report: Report) -> Iterator[Problem]:
    called = [raw.get("source") for raw in steps]
    used = {source.get("base") if isinstance(source, dict) else source for source in called}
    definitions = [*spec.sources.values(), *(step.source for step in spec.steps)]
    for definition in definitions:
        used |= _names_below("sources", definition)
    for name in spec.sources:
        if name not in used:
            message = f"no step and no other source uses {name!r}"
            yield Problem(report.text(("sources", name)), "unused_source", message)


_FIRST_NAME = re.compile(r"""\$?\.?(\w+)(?:\.|\[['"])([\w-]+)""")


def _names_below(root: str, value: Any) -> set[str]:
    """The keys of a root of the context that expressions read, as far as they can be seen."""
    names: set[str] = set()
    todo = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, list):
            todo.extend(value)
        elif isinstance(value, dict) and LITERAL not in value:
            todo.extend(value.values())
            if is_expression(value) and ("var" in value or "vars" in value):
                [given] = value.values()
                path = given[0] if isinstance(given, list) and given else given
                found = _FIRST_NAME.match(path) if isinstance(path, str) else None
                if found and found[1] == root:
                    names.add(found[2])
    return names
