"""The command `convert`: what it reads, prints and writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.application.spec.validation import load_spec
from orchestrator.cli import main

FLOW = """
flow:
  - {name: a, source: {type: process}}
  - {name: b, source: {type: process}, input: {stdin: "Hi {{ flows.a.name }}"}}
"""
CONVERTED = """\
steps:
  - id: a
    source: {type: process}
  - id: b
    source: {type: process}
    input: {stdin: {cat: ["Hi ", {var: steps.a.output.name}]}}
"""
MACRO = """
flow: [{name: a, source: {type: slack}, input: {text: "{% macro x() %}{% endmacro %}"}}]
"""


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    Path("macro.yaml").write_text(MACRO)


def run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["convert", *arguments], input=text, prog_name="orchestrator")


def test_the_converted_document_goes_to_the_standard_output() -> None:
    result = run("flow.yaml")

    assert (result.exit_code, result.stdout, result.stderr) == (0, CONVERTED, "")
    assert load_spec(result.stdout)


def test_the_standard_input_is_read_for_a_dash() -> None:
    result = run("-", text=FLOW)

    assert (result.exit_code, result.stdout) == (0, CONVERTED)


def test_what_could_not_be_converted_gets_a_note_and_has_its_own_exit_code() -> None:
    result = run("macro.yaml")

    assert result.exit_code == 6
    assert result.stderr == (
        "macro.yaml:2:55: flow[0].input.text: this template cannot be converted:"
        " {% macro %} has no equivalent; kept as plain text\n"
    )
    assert load_spec(result.stdout)


def test_a_changed_meaning_is_a_warning() -> None:
    Path("fox.yaml").write_text("steps: [{op: a, max_attempts: 3, on_error: fail}]")

    result = run("fox.yaml")

    assert (result.exit_code, result.stdout) == (0, "steps: [{op: a, max_attempts: 3, on_error: fail}]")
    assert result.stderr.startswith("fox.yaml:1:31: steps[0].max_attempts: only errors use up attempts here")
    assert result.stderr.endswith("(warning)\n")


def test_json_has_the_document_and_the_notes() -> None:
    result = run("macro.yaml", "--json")

    assert (result.exit_code, result.stderr) == (6, "")
    printed = json.loads(result.stdout)
    assert printed["document"]["steps"][0]["id"] == "a"
    assert printed["notes"] == [
        {
            "path": "flow[0].input.text",
            "message": "this template cannot be converted: {% macro %} has no equivalent",
            "instead": "kept as plain text",
            "kind": "lost",
            "line": 2,
            "column": 55,
        }
    ]


def test_a_file_is_written_but_not_over_another() -> None:
    assert run("flow.yaml", "-o", "out.yaml").exit_code == 0
    assert Path("out.yaml").read_text() == CONVERTED

    refused = run("macro.yaml", "-o", "out.yaml")
    assert refused.exit_code == 2
    assert "out.yaml exists already: use --force" in refused.stderr
    assert Path("out.yaml").read_text() == CONVERTED

    forced = run("macro.yaml", "-o", "out.yaml", "--force")
    assert (forced.exit_code, forced.stdout) == (6, "")
    assert "$literal" in Path("out.yaml").read_text()


def test_a_file_that_cannot_be_written_is_an_error() -> None:
    result = run("flow.yaml", "-o", "nowhere/out.yaml")

    assert result.exit_code == 2
    assert "cannot write 'nowhere/out.yaml': No such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.yaml"], "cannot read 'missing.yaml'"),
        (["broken.yaml"], "broken.yaml:1:"),
        (["strange.yaml"], "strange.yaml: cannot detect the dialect of this document"),
        (["flow.yaml", "--from", "airflow"], "Invalid value for '--from'"),
    ],
)
def test_what_cannot_be_read_or_detected_is_wrong_usage(arguments: list[str], complaint: str) -> None:
    Path("broken.yaml").write_text("flow: [}")
    Path("strange.yaml").write_text("colour: red")

    result = run(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert complaint in result.stderr


def test_a_dialect_may_be_named() -> None:
    Path("empty.yaml").write_text("steps: []")

    assert run("empty.yaml").exit_code == 2
    assert run("empty.yaml", "--from", "runfox").stdout == "steps: []"
    assert run("empty.yaml", "--from", "flow8").stdout.startswith("kv: ")


def test_the_help_names_the_exit_codes() -> None:
    result = run("--help")

    assert "0 converted, 6 converted in part, 2 the file cannot be read" in " ".join(result.output.split())
