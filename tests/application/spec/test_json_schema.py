"""The schema of the language, and an example that uses nearly every key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from orchestrator.application.spec.document import read_document
from orchestrator.application.spec.json_schema import DIALECT, build_schema
from orchestrator.application.spec.model import RetrySpec, WaitSpec, WebhookSpec
from orchestrator.application.spec.part_models import SpecModel
from orchestrator.application.spec.step_models import StepModel, WorkflowModel
from orchestrator.application.spec.validation import load_spec

EXAMPLE = """
name: process-invoice
description: one document, with approval and a bounded clean-up loop
inputs:
  url: {type: string, required: true}
defaults: {timeout: 2m, retry: {max_retries: 2, initial_delay_ms: 1000, jitter_fraction: 0.1}}
runner: {max_workers: 8}
kv: {scopes: [flow, global, flow_group]}
sources:
  api: {type: http, configuration: {method: GET, timeout: 20}}
steps:
  - id: download
    fn: http_get
    input: {url: {"var": "input.url"}}
    output: {path: {"var": "result.file"}, size: {"var": "result.bytes"}}

  - op: ocr
    input: {file: {"var": "steps.download.output.path"}}
    timeout: 10m
    retry: 4
    branch:
      - condition: {"<": [{"var": "confidence"}, 0.3]}
        action: halt
        result: {status: rejected, reason: unreadable}

  - op: clean
    depends_on: [ocr]
    input: {text: {"var": ["state.text", ""]}, round: {"var": ["state.round", 0]}}
    branch:
      - condition: {"and": [{"<": [{"var": "quality"}, 0.9]}, {"<": [{"var": "round"}, 5]}]}
        action: {set: "steps.clean.status", value: ready}
      - condition: true
        action: complete

  - op: extract
    depends_on: [clean]
    filters: {operator: AND, filters: [{expression: {">": [{"var": "state.confidence"}, 0.9]}}]}
    input: {text: {"var": "steps.clean.output.text"}}

  - op: manual_entry
    depends_on: [clean]
    when: {"<=": [{"var": "state.confidence"}, 0.9]}
    input: {text: {"var": "steps.clean.output.text"}}

  - op: merge_fields
    depends_on: [extract, manual_entry]
    input:
      fields:
        any.default: [{"var": "steps.extract.output.fields"}, {"var": "steps.manual_entry.output.fields"}]

  - id: lines
    op: price_line
    map: {over: {"var": "steps.merge_fields.output.fields.lines"}, max_parallel: 4}
    input: {line: {"var": "item"}, n: {"var": "index"}}
    on_error: continue

  - id: approval
    depends_on: [lines]
    when: {">": [{"var": "steps.merge_fields.output.fields.amount"}, 500]}
    wait: {signal: manager, timeout: 24h, on_timeout: fail}

  - id: settle
    delay: 30s
    depends_on: [approval]

  - op: store
    depends_on: [settle, lines]
    input:
      fields: {"var": "steps.merge_fields.output.fields"}
      by: {"var": ["steps.approval.output.by", "auto"]}
    skip_output_mapping: true

  - op: notify
    depends_on: [store]
    on_error: skip
    defer_ms: 1000
outputs:
  amount: {"var": "steps.merge_fields.output.fields.amount"}
  lines: {"vars": "steps.lines.output.items[*].price"}
  status: accepted
webhook: {url: "https://example.org/hook", on: [complete, halted, failed]}
"""


@pytest.fixture
def everything() -> dict[str, Any]:
    """The schema of the whole language."""
    return build_schema()


def validator(made: dict[str, Any]) -> Any:
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def described(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield part
    yield from part.get("$defs", {}).values()


def test_the_annotated_example_is_a_workflow(everything: dict[str, Any]) -> None:
    loaded = load_spec(EXAMPLE)
    steps = {step.id: step for step in loaded.spec.steps}

    assert [warning.code for warning in loaded.warnings] == ["unused_source"]
    assert loaded.spec.max_workers == 8
    assert loaded.spec.kv_scopes == ("flow", "global", "flow_group")
    assert loaded.spec.webhook == WebhookSpec(
        "https://example.org/hook", {}, ("complete", "halted", "failed")
    )
    assert steps["download"].retry == RetrySpec(jitter_fraction=0.1)
    assert steps["ocr"].retry == RetrySpec(max_retries=4)
    assert steps["approval"].wait == WaitSpec(("manager",), 86_400_000)
    assert steps["settle"].delay_ms == 30_000
    assert steps["lines"].map is not None
    assert steps["extract"].guards == ({"and": [{">": [{"var": "state.confidence"}, 0.9]}]},)
    assert [steps[name].kind for name in ("ocr", "approval", "settle")] == ["task", "wait", "delay"]
    assert [steps[name].timeout_s for name in ("download", "ocr", "approval")] == [120.0, 600.0, None]
    assert loaded.graph.parents["lines"] == ("merge_fields",)
    assert loaded.graph.parents["store"] == ("merge_fields", "lines", "settle")
    assert loaded.graph.parents["clean"] == ("ocr",)


def test_the_annotated_example_fits_the_schema(everything: dict[str, Any]) -> None:
    assert list(validator(everything).iter_errors(read_document(EXAMPLE).data)) == []


def test_the_schema_is_plain_json_for_editors_of_today(everything: dict[str, Any]) -> None:
    assert everything["$schema"] == DIALECT
    assert everything["title"] == "Workflow"
    assert json.loads(json.dumps(everything)) == everything
    assert "Model" not in json.dumps(everything)
    assert "x-see" not in json.dumps(everything)


def test_every_key_has_a_description(everything: dict[str, Any]) -> None:
    for part in described(everything):
        for key, value in part.get("properties", {}).items():
            assert value.get("description"), (part.get("title"), key)
    titled = [part for part in described(everything) if "title" in part]
    assert all(part["description"] for part in titled)
    assert all(part["patternProperties"] == {"^x-": True} for part in titled)


def test_the_schema_has_every_key_of_every_model(everything: dict[str, Any]) -> None:
    models: dict[str, type[SpecModel]] = {
        model.__name__.removesuffix("Model"): model for model in SpecModel.__subclasses__()
    }
    models = models | {"Step": StepModel}
    found = {part["title"]: set(part["properties"]) for part in described(everything) if "title" in part}

    assert found.pop("Workflow") == set(WorkflowModel.key_names())
    assert found == {name: set(models[name].key_names()) for name in found}
    assert len(found) >= 15


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("document", "is_valid"),
    [
        ({"steps": []}, True),
        ({}, False),
        ({"steps": [], "flow": []}, False),
        ({"steps": [{"op": "a", "on_error": "SKIP", "timeout": "None"}]}, True),
        ({"steps": [{"op": "a", "on_error": "skipp"}]}, False),
        ({"steps": [{"op": "a", "timeout": "5 m"}]}, False),
        ({"steps": [{"op": "a", "depend_on": []}]}, False),
        ({"steps": [{"id": "a b", "op": "a"}]}, False),
        ({"steps": [{"fn": "a"}]}, False),
        ({"steps": [{"id": "a"}]}, False),
        ({"steps": [{"op": "a", "branch": [{"condition": "x > 1", "action": "halt"}]}]}, False),
        ({"steps": [{"op": "a", "branch": [{"condition": True, "action": {"set": "a"}}]}]}, True),
        ({"steps": [{"op": "a", "branch": [{"condition": True, "action": "jump"}]}]}, False),
        ({"steps": [{"op": "a", "input": {"x": {"anything": [1, {"var": "y"}]}}}]}, True),
        ({"inputs": {"x": {"type": "text"}}, "steps": []}, False),
        ({"limits": {"max_lost": 4}, "steps": []}, False),
    ],
)
def test_the_schema_rejects_the_wrong_shape(
    everything: dict[str, Any], document: dict[str, Any], is_valid: bool
) -> None:
    assert validator(everything).is_valid(document) is is_valid
