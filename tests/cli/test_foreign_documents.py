"""Commands that read workflow files take those of flowtoy and flow8, and never convert one of ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from orchestrator.cli.options import read_spec

FLOWTOY = """
flow:
  - name: first
    source: {type: mine}
  - name: second
    source: {type: mine}
    input: {text: "Dear {{ flows.first.name }}"}
"""
FLOW8 = json.dumps({"Flowlets": [{"Name": "a", "ModuleRef": "m", "InputMapping": {"x": "input.x"}}]})
RUNFOX = "name: order\nsteps: [{op: price, input: {n: {var: input.n}}}]\n"


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(text: str, *arguments: str) -> Result:
    Path("file.yaml").write_text(text)
    return CliRunner().invoke(main, [*arguments, "file.yaml"])


@pytest.mark.parametrize(("text", "dialect"), [(FLOWTOY, "flowtoy"), (FLOW8, "flow8")])
def test_a_foreign_document_is_converted_and_named(text: str, dialect: str) -> None:
    result = invoke(text, "validate")

    assert result.exit_code == 0
    assert f"file.yaml: read as a document of {dialect}" in result.stderr


def test_a_command_that_loads_a_file_converts_it() -> None:
    Path("flow.yaml").write_text(FLOWTOY)

    loaded = read_spec("flow.yaml")

    assert loaded.spec.steps[1].input == {"text": {"cat": ["Dear ", {"var": "steps.first.output.name"}]}}
    assert invoke(FLOWTOY, "graph").exit_code == 0


def test_notes_are_printed_with_line_and_column() -> None:
    text = FLOWTOY.replace("name: first", "name: the first").replace("flows.first", "flows['the first']")

    result = invoke(text, "validate")

    assert "file.yaml:3:11: flow[0].name: 'the first' is not a valid id; the id is the_first (warning)" in (
        result.stderr.splitlines()
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FLOWTOY.replace("flows.first.name", "flows.first.name | md5"), "the filter md5 has no equivalent"),
        (FLOW8.replace("input.x", "input.x | y"), "this looks like an expression, but cannot be converted"),
    ],
)
def test_a_document_that_cannot_be_converted_completely_is_rejected(text: str, reason: str) -> None:
    result = invoke(text, "graph")

    assert result.exit_code == 2
    assert reason in result.stderr
    assert "parts of it cannot be converted" in result.stderr
    assert "orchestrator convert" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        RUNFOX,
        "flow: [{name: a, source: {type: mine}, input: {n: {var: input.n}}}]",
        "flow: [{name: a, source: {type: process, configuration: {command: [date]}}}]",
        "flow: [{name: a, source: {type: rest}, input: {n: {var: input.n}}}]",
        "steps: [{op: a, input: {text: '{{ input.n }}'}}]",
        "steps: [{op: a, input: {layers: 1, flowlets: 2}}]",
        "flow: [{name: a, fn: f}, {name: b, fn: f, input: {n: 'of {{ flows.a.n }}'}}]",
        "flow: [{name: a, fn: f, input: {n: {$literal: '{{ x | y }}'}}}]",
    ],
)
def test_a_document_of_ours_is_never_converted(text: str) -> None:
    result = invoke(text, "validate")

    assert result.exit_code == 0
    assert "read as" not in result.stderr
    assert read_spec("file.yaml").document == load(text)


def load(text: str) -> Any:
    from orchestrator.application.spec.document import read_document

    return read_document(text).data


@pytest.mark.parametrize(
    "text",
    [
        "steps: [{op: a, depend_on: [b]}]",
        "flow: [{name: a, source: {type: mine}, depend_on: [b]}]",
        "steps: [",
        "[1, 2]",
        "steps: {}",
    ],
)
def test_an_invalid_document_of_ours_keeps_its_errors(text: str) -> None:
    result = invoke(text, "graph")

    assert result.exit_code == 2
    assert "read as" not in result.stderr
    assert "file.yaml:" in result.stderr


def test_a_source_of_type_rest_is_flowtoys_also_without_templates() -> None:
    result = invoke(
        "flow: [{name: a, source: {type: rest, configuration: {url: 'https://x.org'}}}]", "validate"
    )

    assert "read as a document of flowtoy" in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            FLOWTOY + "    output: {x: {var: result.x}, y: {vra: 1}}\n    depend_on: [x]\n",
            "flow[1].input.text is of flowtoy, and flow[1].output.x is an expression of ours",
        ),
        ("Flowlets: [{ModuleRef: m}]\nflow: []", "has flowlets of flow8, and steps of another language"),
        ("Flowlets: [{ModuleRef: m}]\nsteps: [{op: a}]", "has flowlets of flow8"),
    ],
)
def test_an_ambiguous_document_is_rejected_and_names_both_languages(text: str, expected: str) -> None:
    result = invoke(text, "graph")

    assert result.exit_code == 2
    assert expected in result.stderr


def test_files_of_flowtoy_are_merged_and_then_converted() -> None:
    Path("more.yaml").write_text("runner: {max_workers: 2}")

    result = invoke(FLOWTOY, "validate", "--merge", "more.yaml")

    assert result.exit_code == 0
    assert result.stderr.startswith("more.yaml + file.yaml: read as a document of flowtoy")
    assert "more.yaml + file.yaml:1" not in result.stderr


def test_a_merged_file_that_is_not_json_keeps_its_errors() -> None:
    Path("more.yaml").write_text("x-day: 2026-01-01")

    result = invoke(FLOWTOY, "graph", "--merge", "more.yaml")

    assert "a date is not JSON" in result.stderr
