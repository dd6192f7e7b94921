"""What editors need: a current schema, a description of every key, and errors for typical mistakes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.expressions.evaluation import OPERATORS
from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.json_schema import OPERATOR_DESCRIPTIONS, build_schema
from orchestrator.application.spec.validation import check_spec
from orchestrator.cli import main

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "docs" / "workflow.schema.json"
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
PAGE = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
ON_THE_PAGE = {
    PAGE.count("\n", 0, found.start()) + 1: found[1]
    for found in re.finditer(r"^```yaml\n((?:(?!```).*\n)*)```\n\n```json$", PAGE, re.MULTILINE)
}
# As the YAML language server reads it.
MODELINE = re.compile(r"^#\s+yaml-language-server\s*:\s*\$schema=(\S+)", re.MULTILINE)
VALIDATOR = jsonschema.Draft202012Validator(build_schema())


def orchestrator(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def errors_of(document: Any) -> Iterator[Any]:
    """Every error, also those inside alternatives."""
    todo = list(VALIDATOR.iter_errors(document))
    while todo:
        error = todo.pop()
        yield error
        todo.extend(error.context)


# ---- the file


def test_the_command_prints_the_schema() -> None:
    assert json.loads(orchestrator("schema")) == build_schema()


def test_the_command_writes_it_to_a_file(tmp_path: Path) -> None:
    assert orchestrator("schema", "-o", str(tmp_path / "w.json")) == ""

    assert (tmp_path / "w.json").read_text(encoding="utf-8") == orchestrator("schema")


def test_a_file_that_cannot_be_written_is_wrong_usage(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["schema", "-o", str(tmp_path / "no" / "w.json")])

    assert result.exit_code == 2
    assert "cannot write" in result.output


def test_the_copy_in_the_repository_is_current() -> None:
    is_current = COMMITTED.read_text(encoding="utf-8") == orchestrator("schema")

    assert is_current, "the language has changed; renew it: orchestrator schema > docs/workflow.schema.json"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_names_the_schema_for_the_editor(path: Path) -> None:
    found = MODELINE.match(path.read_text(encoding="utf-8"))

    assert found, "its first line names the schema"
    assert (path.parent / found[1]).resolve() == COMMITTED


def test_the_page_explains_its_use_in_an_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [example] = [text for text in ON_THE_PAGE.values() if MODELINE.match(text)]
    [(command, name)] = re.findall(r"`orchestrator (schema -o (\S+))`", PAGE)
    monkeypatch.chdir(tmp_path)

    orchestrator(*command.split())

    found = MODELINE.match(example)
    assert found
    assert found[1] == name
    assert json.loads((tmp_path / name).read_text(encoding="utf-8")) == build_schema()


# ---- valid documents


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_fit(path: Path) -> None:
    assert list(VALIDATOR.iter_errors(read_document(path.read_text(encoding="utf-8")).data)) == []


@pytest.mark.parametrize("line", ON_THE_PAGE)
def test_the_documents_of_the_page_fit(line: int) -> None:
    assert list(VALIDATOR.iter_errors(read_document(ON_THE_PAGE[line]).data)) == []


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
    assert len(ON_THE_PAGE) >= 10


# ---- mistakes

MISTAKES = [  # the mistake, where it is, and the correction; a step unless it has steps
    ("{op: a, depend_on: []}", "", "{op: a, depends_on: []}"),
    ("{op: a, depends_on: b}", "depends_on", "{op: a, depends_on: []}"),
    ("{op: a, timeout: 5 minutes}", "timeout", "{op: a, timeout: 5m}"),
    ("{op: a, timeout: 0}", "timeout", "{op: a, timeout: none}"),
    ("{op: a, timeout: 1.5}", "timeout", "{op: a, timeout: 1500ms}"),
    ("{op: a, on_error: ignore}", "on_error", "{op: a, on_error: Continue}"),
    ("{op: a, retry: often}", "retry", "{op: a, retry: 3}"),
    ("{op: a, retry: {max_retry: 3}}", "retry", "{op: a, retry: {max_retries: 3}}"),
    ("{op: a, retry: {jitter_fraction: 2}}", "retry.jitter_fraction", "{op: a, retry: {jitter_fraction: 1}}"),
    ("{op: a, max_attempts: 0}", "max_attempts", "{op: a, max_attempts: 1}"),
    ("{op: a, attempts_on: success}", "attempts_on", "{op: a, attempts_on: any}"),
    ("{op: a, priority: 9}", "priority", "{op: a, priority: 5}"),
    ("{op: a, queue: not a queue}", "queue", "{op: a, queue: slow}"),
    ("{op: a, input: [1]}", "input", "{op: a, input: {x: [1]}}"),
    ("{op: a, join: most}", "join", "{op: a, join: all}"),
    ("{op: a, skip_output_mapping: 'no'}", "skip_output_mapping", "{op: a, skip_output_mapping: no}"),
    ("{op: a b}", "op", "{id: a, op: a b}"),
    ("{id: a/b, op: a}", "id", "{id: a.b, op: a}"),
    ("{id: a}", "", "{id: a, fn: f}"),
    ("{fn: f}", "", "{id: a, fn: f}"),
    ("{op: a, delay: 5s}", "", "{id: a, delay: 5s}"),
    ("{id: a, wait: {signal: go}, delay: 5s}", "", "{id: a, wait: {signal: go}}"),
    ("{id: a, wait: {signal: go}, timeout: 5s}", "", "{id: a, wait: {signal: go, timeout: 5s}}"),
    ("{id: a, wait: go}", "wait", "{id: a, wait: {signal: go}}"),
    ("{id: a, wait: {any: [{timeout: 5s}]}}", "wait.any", "{id: a, wait: {any: [{signal: go}]}}"),
    ("{id: a, delay: soon}", "delay", "{id: a, delay: 5s}"),
    ("{id: a, switch: {on: {var: input.x}}}", "switch", "{id: a, switch: {on: {var: input.x}, cases: {}}}"),
    ("{id: a, switch: {on: x, cases: {}}}", "switch.on", "{id: a, switch: {on: {var: input.x}, cases: {}}}"),
    ("{op: a, map: {as: line}}", "map", "{op: a, map: {over: {var: input.x}, as: line}}"),
    ("{op: a, map: {over: [], as: state}}", "map.as", "{op: a, map: {over: [], as: item}}"),
    ("{op: a, loop: {on_max: stop}}", "loop.on_max", "{op: a, loop: {on_max: fail}}"),
    ("{op: a, when: x > 1}", "when", '{op: a, when: {">": [{var: input.x}, 1]}}'),
    ('{op: a, when: {"=": [1, 2]}}', "when", '{op: a, when: {"==": [1, 2]}}'),
    (
        '{op: a, when: {and: [true, {"=>": [1, 2]}]}}',
        "when.and.1",
        '{op: a, when: {and: [true, {">=": [1, 2]}]}}',
    ),
    (
        "{op: a, input: {x: {cat: [{vra: input.y}]}}}",
        "input.x.cat.0",
        "{op: a, input: {x: {cat: [{var: input.y}]}}}",
    ),
    ("{op: a, filters: {operator: AND}}", "filters", "{op: a, filters: {operator: AND, filters: []}}"),
    ("{op: a, branch: {action: halt}}", "branch", "{op: a, branch: [{condition: true, action: halt}]}"),
    ("{op: a, branch: [{action: halt}]}", "branch.0", "{op: a, branch: [{condition: true, action: halt}]}"),
    (
        "{op: a, branch: [{condition: true, action: stop}]}",
        "branch.0.action",
        "{op: a, branch: [{condition: true, action: halt}]}",
    ),
    (
        "{op: a, branch: [{condition: 1, action: {set: a, value: done}}, {condition: 0, action: halt}]}",
        "branch.0.action.value",
        "{op: a, branch: [{condition: 1, action: {set: a, value: ready}}, {condition: 0, action: halt}]}",
    ),
    (
        "{op: a, branch: [{condition: true, action: halt, result: 1, result_expr: 2}]}",
        "branch.0",
        "{op: a, branch: [{condition: true, action: halt, result: 1}]}",
    ),
    ("{step: []}", "", "{steps: []}"),
    ("{steps: {a: {op: a}}}", "steps", "{steps: [{op: a}]}"),
    ("{steps: }", "steps", "{steps: []}"),
    ("{steps: [a]}", "steps.0", "{steps: [{op: a}]}"),
    ("{steps: [], timout: 5s}", "", "{steps: [], timeout: 5s, x-timout: 5s}"),
    ("{steps: [], name: 5}", "name", "{steps: [], name: '5'}"),
    ("{steps: [], inputs: [x]}", "inputs", "{steps: [], inputs: {x: {}}}"),
    ("{steps: [], inputs: {x: {type: text}}}", "inputs.x.type", "{steps: [], inputs: {x: {type: string}}}"),
    ("{steps: [], defaults: {depends_on: []}}", "defaults", "{steps: [], defaults: {timeout: 5s}}"),
    ("{steps: [], runner: {max_workers: 0}}", "runner.max_workers", "{steps: [], runner: {max_workers: 1}}"),
    ("{steps: [], limits: {max_lost: 99}}", "limits.max_lost", "{steps: [], limits: {max_lost: 1}}"),
    ("{steps: [], outputs: {var: [1]}, output: 1}", "", "{steps: [], outputs: {var: [1]}}"),
]


def document_of(text: str) -> Any:
    return read_document(text if text.startswith("{step") else f"{{steps: [{text}]}}").data


@pytest.mark.parametrize(("wrong", "where", "right"), MISTAKES)
def test_a_typical_mistake_is_found_where_it_is(wrong: str, where: str, right: str) -> None:
    document = document_of(wrong)
    base = [] if wrong.startswith("{step") else ["steps", "0"]
    expected = base + (where.split(".") if where else [])

    places = [[str(segment) for segment in error.absolute_path] for error in errors_of(document)]

    assert expected in places
    with pytest.raises(InvalidSpec):  # validation rejects it too
        check_spec(document)
    assert list(VALIDATOR.iter_errors(document_of(right))) == []
    check_spec(document_of(right))


# ---- descriptions


def keys_of(part: Any, where: str = "#") -> Iterator[tuple[str, Any]]:
    """Every key in the schema, with its description."""
    if isinstance(part, list):
        for item in part:
            yield from keys_of(item, where)
    elif isinstance(part, dict):
        for key, value in part.get("properties", {}).items():
            if value != {"not": {"type": "null"}}:
                yield f"{where}/{key}", value
        for key, value in part.items():
            if key not in ("if", "then", "not"):  # conditions have no descriptions
                inner = value.values() if key in ("properties", "$defs") else [value]
                for item in inner:
                    yield from keys_of(item, f"{where}/{key}")


def test_every_key_is_explained() -> None:
    keys = dict(keys_of(build_schema()))

    assert len(keys) > 100
    assert [where for where, said in keys.items() if not said.get("description")] == []


def test_every_operator_is_explained() -> None:
    assert OPERATOR_DESCRIPTIONS.keys() == OPERATORS
