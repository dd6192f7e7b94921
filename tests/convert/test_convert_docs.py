"""docs/convert.md does what it says: its examples are converted and run, its tables are looked up."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from orchestrator import Backend, Workflow
from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.validation import load_spec
from orchestrator.cli import main
from orchestrator.convert import DIALECTS
from orchestrator.convert.cel import CelTranslator, convert_expression
from orchestrator.convert.jinja import JinjaTranslator, convert_template
from orchestrator.convert.jinja_filters import FILTERS
from orchestrator.convert.jmespath import convert_path

PAGE = (Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")


class Example(NamedTuple):
    name: str
    before: str
    after: str
    notes: str


RUN = re.compile(r"^<!-- test: [^\n]* -->\n```.*?^```$", re.DOTALL | re.MULTILINE)
"""Blocks that say how they are tested are run by tests/e2e/test_flowtoy_documents.py."""
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", RUN.sub("", PAGE), re.DOTALL | re.MULTILINE)
COMMAND = BLOCKS[0][1]
EXAMPLES = [
    Example(notes.partition(":")[0], before, after, notes)
    for (_, before), (_, after), (_, notes) in zip(BLOCKS[1::3], BLOCKS[2::3], BLOCKS[3::3], strict=True)
]


@pytest.fixture(autouse=True)
def _whole_language(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for example in EXAMPLES:
        Path(example.name).write_text(example.before)


# ---- the examples


def test_the_page_has_an_example_of_each_dialect() -> None:
    assert [kind for kind, _ in BLOCKS] == [
        "console",
        *("yaml", "yaml", "text"),
        *("json", "yaml", "text"),
        *("yaml", "yaml", "text"),
    ]
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == list(DIALECTS)


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.name for example in EXAMPLES])
def test_an_example_is_converted_as_the_page_shows(example: Example) -> None:
    result = CliRunner().invoke(main, ["convert", example.name])

    assert result.stdout == example.after
    assert result.stderr == example.notes
    is_complete = all(line.endswith("(warning)") for line in example.notes.splitlines())
    assert result.exit_code == (0 if is_complete else 6)
    assert load_spec(example.after)


def test_the_command_of_the_page_writes_a_file() -> None:
    dollar, program, *arguments = shlex.split(COMMAND)
    assert (dollar, program) == ("$", "orchestrator")

    assert CliRunner().invoke(main, arguments).exit_code == 6

    assert Path(arguments[-1]).read_text() == EXAMPLES[0].after


def outcome(text: str, execute: Callable[..., dict[str, Any]]) -> Workflow:
    workflow = Workflow.from_yaml(text, Backend(executor=execute), inputs={"item": "pen"})
    workflow.run()
    return workflow


def test_the_example_of_flowtoy_runs() -> None:
    def execute(fn: str, inputs: dict[str, Any], configuration: dict[str, Any]) -> dict[str, Any]:
        if fn == "http":
            assert configuration
            users = [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 8}, {"name": "Cid", "age": 50}]
            return {"value": {"users": users}}
        return {"printed": inputs.get("payload", inputs.get("text"))}

    workflow = outcome(EXAMPLES[0].after, execute)

    assert [status.value for status in workflow.step_statuses.values()] == ["complete"] * 3
    assert workflow.state["adults"] == ["Ada", "Cid"]
    assert workflow.state["printed"] == "{{ flows.greet.users | groupby('age') }}"


def test_the_example_of_runfox_runs() -> None:
    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"total": len(inputs["items"])} if fn == "price" else inputs["lines"]

    assert outcome(EXAMPLES[2].after, execute).outcome == {"total": 2}


# ---- the tables


def rows(title: str) -> list[tuple[str, Any]]:
    """The rows of a table of two columns of code: what is converted, and what it becomes."""
    table = PAGE.partition(f"| {title} |\n|---|---|\n")[2].partition("\n\n")[0]
    found = [re.fullmatch(r"\| `(.*)` \| `(.*)` \|", row) for row in table.splitlines()]
    pairs = [(row[1].replace(r"\|", "|"), row[2]) for row in found if row]
    assert len(pairs) == len(table.splitlines()) > 5
    return [(before, read_document(f"x: {after}").data["x"]) for before, after in pairs]


def flows(name: str, keys: list[Any]) -> tuple[Any, list[Any]]:
    assert name == "flows"
    return {"var": f"steps.{keys[0]}.output"}, keys[1:]


@pytest.mark.parametrize(("template", "rule"), rows("template | expression"))
def test_a_template_of_the_page_becomes_what_stands_beside_it(template: str, rule: Any) -> None:
    assert convert_template(template, JinjaTranslator(flows)) == rule


@pytest.mark.parametrize(("path", "rule"), rows("JMESPath of an output | expression"))
def test_a_path_of_the_page_becomes_what_stands_beside_it(path: str, rule: Any) -> None:
    assert convert_path(path) == (rule, [])


@pytest.mark.parametrize(("text", "rule"), rows("expression | expression here"))
def test_an_expression_of_the_page_becomes_what_stands_beside_it(text: str, rule: Any) -> None:
    assert convert_expression(text, CelTranslator()) == rule


def test_the_page_names_every_filter_that_is_known() -> None:
    code = " ".join(re.findall(r"`([^`\n]+)`", PAGE))

    assert FILTERS.keys() - set(re.findall(r"\w+", code)) == set()
