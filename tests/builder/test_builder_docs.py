"""Every block of the page on the builder runs, and its result matches the block that follows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator import Backend, Workflow
from orchestrator.application.expressions.evaluation import OPERATORS
from orchestrator.builder import WorkflowBuilder, op
from orchestrator.builder import __all__ as public_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "builder.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Example(NamedTuple):
    code: str
    line: int
    shown: dict[str, str]  # the blocks that follow it, by their language


def _read() -> tuple[str, list[Example]]:
    executors: str | None = None
    examples: list[Example] = []
    for found in BLOCK.finditer(PAGE):
        language, text = found[1], found[2]
        if language != "python":
            assert language not in examples[-1].shown
            examples[-1].shown[language] = text
        elif executors is None:
            executors = text
        else:
            examples.append(Example(text, PAGE.count("\n", 0, found.start()) + 1, {}))
    assert executors is not None
    return executors, examples


EXECUTORS, EXAMPLES = _read()


def _executors() -> dict[str, Callable[[dict[str, Any]], Any]]:
    names: dict[str, Any] = {}
    exec(compile(EXECUTORS, "builder.md", "exec"), names)
    return {name: value for name, value in names.items() if callable(value)}


def _run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "builder.md", "exec"), names)
    return names


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"line {example.line}")
def test_an_example_does_what_the_page_says(example: Example) -> None:
    shown = dict(example.shown)

    if "text" in shown:
        with pytest.raises(Exception) as raised:  # noqa: PT011
            _run(example.code)
        assert f"{raised.type.__name__}: {raised.value}\n" == shown.pop("text")
        assert not shown
        return

    flow = _run(example.code)["flow"]
    if "yaml" in shown:
        assert flow.to_yaml() == shown.pop("yaml")
    if "json" in shown:
        _compare_the_end(flow, json.loads(shown.pop("json")))
    assert not shown


def _compare_the_end(flow: WorkflowBuilder, shown: dict[str, Any]) -> None:
    minutes = count(
        1_800_000_000_000, 60_000
    )  # each reading of the clock is a minute later, so no test waits
    backend = Backend(_executors(), poll_interval=0.001, clock=lambda: next(minutes))
    workflow = Workflow.from_dict(flow.to_dict(), backend, shown.pop("inputs", None))
    for name, payload in shown.pop("signals", []):
        workflow.signal(name, payload)

    workflow.run()

    assert {"status": workflow.status.value, "outcome": workflow.outcome} == shown


def test_there_are_examples_of_each_kind() -> None:
    kinds = [language for example in EXAMPLES for language in example.shown]

    assert len(EXAMPLES) >= 9
    assert min(kinds.count("yaml"), kinds.count("json")) >= 4
    assert kinds.count("text") >= 3
    assert PAGE.count("\n```") == 2 * (len(EXAMPLES) + len(kinds) + 1)


def test_the_page_names_every_method_function_and_operator() -> None:
    named = {word for form in (r"`([^`\n]+)`", r"\w+(?:\.\w+)+", r"\w+") for word in re.findall(form, PROSE)}
    methods = [name for name in vars(WorkflowBuilder) if not name.startswith("_")]
    functions = [
        f"op.{name}"
        for name, value in vars(op).items()
        if getattr(value, "__module__", None) == op.__name__ and not name.startswith("_")
    ]
    of_types = {"Branch", "Expr", "Json", "Reference", "Source", "Step", "Value"}

    wanted = {*methods, *functions, *OPERATORS, *public_names} - of_types

    assert len(functions) > 50
    assert sorted(wanted - named) == []


def test_every_link_of_the_page_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)

    assert links
    assert not [link for link in links if not (ROOT / "docs" / link).exists()]
