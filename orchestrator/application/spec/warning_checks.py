"""Warnings about a valid spec: it is accepted, but probably does not do what the author intended.

References warns about doubtful paths; flow_checks.py about the order in which steps run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL, is_expression
from orchestrator.application.spec.flow_checks import check_flow
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.report import Report
from orchestrator.application.values.paths import Path


def check_warnings(loaded: LoadedSpec, report: Report, has_deadline: bool = False) -> None:
    """Report the warnings of a valid spec and of its inline child workflows.

    `has_deadline`: a timeout of a workflow or step around this one ends it.
    """
    spec, document = loaded.spec, loaded.document
    key = "flow" if "flow" in document else "steps"
    has_deadline = has_deadline or document.get("timeout") is not None
    for n, step in enumerate(spec.steps):
        if step.max_attempts > 1 and step.attempts_on == "any" and not step.branch:
            message = (
                f"step {step.id!r} runs {step.max_attempts} times even if it succeeds: no branch ends it"
            )
            report.warn((key, n, "max_attempts"), "repeats_on_success", message)
        if step.child is not None and step.child.loaded is not None:
            inner = report.inside((key, n, "workflow"))
            check_warnings(
                step.child.loaded, inner, has_deadline or document[key][n].get("timeout") is not None
            )
    check_flow(loaded, key, report, has_deadline)
    _warn_of_races(loaded, key, report)
    if spec.sources:
        _warn_of_unused_sources(loaded, document[key], report)


_MAX_RACE_PAIRS = 100_000  # pairs of steps to compare; further ones are not checked


def _warn_of_races(loaded: LoadedSpec, key: str, report: Report) -> None:
    """Warn where an input reads a state key that an unrelated step writes: their order is not defined."""
    spec = loaded.spec
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
    related = loaded.graph.related(all_pairs)
    for (n, input_key, name), pairs in reads.items():
        racing = next((pair for pair in pairs if pair not in related), None)
        if racing is not None:
            message = (
                f"step {racing[1]!r} reads state.{name}, which step {racing[0]!r} writes, "
                "and neither waits for the other"
            )
            report.warn((key, n, "input", input_key), "state_read_race", message)


def _warn_of_unused_sources(loaded: LoadedSpec, steps: Sequence[Mapping[str, Any]], report: Report) -> None:
    spec = loaded.spec
    called = [raw.get("source") for raw in steps]
    used = {source.get("base") if isinstance(source, dict) else source for source in called}
    definitions = [*spec.sources.values(), *(step.source for step in spec.steps)]
    for definition in definitions:
        used |= _find_names_below("sources", definition)
    for name in spec.sources:
        if name not in used:
            path: Path = ("sources", name)
            report.warn(path, "unused_source", f"no step and no other source uses {name!r}")


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
