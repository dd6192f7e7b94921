"""Documents of runfox stay unchanged; differences in meaning get notes."""

from __future__ import annotations

import json
from typing import Any

import pytest
import runfox as published

from orchestrator import Backend, Workflow
from orchestrator.application.spec.validation import load_spec
from orchestrator.convert import ConversionResult, convert, runfox

QUICKSTART = """
# the greeting of the first page
name: example
steps:
- id: greet
  fn: make_greeting
  input:
    name: {"var": "input.name"}
  branch: [{condition: {"===": [{"var": "ok"}, false]}, action: halt}]
- id: shout
  fn: upper
  depends_on: [greet]
  input:
    text: {"var": "steps.greet.output.text"}
  on_error: fail
outputs:
  message: {"var": "steps.shout.output.text"}
"""


def notes_of(steps: str, more: str = "") -> list[str]:
    """The notes on a document of these steps, none of which is about failures."""
    return [str(note) for note in converted(steps, more).notes]


def converted(steps: str, more: str = "") -> ConversionResult:
    made = convert(f"defaults: {{on_error: fail}}\nsteps: {steps}\n{more}")
    assert all(note.kind == "changed" for note in made.notes)
    return made


def test_a_document_of_one_meaning_stays_unchanged() -> None:
    made = convert(QUICKSTART)

    assert made.text == QUICKSTART
    assert made.notes == ()
    assert made.document == load_spec(QUICKSTART).document


def test_both_styles_of_runfox_are_recognised() -> None:
    for style in ("{op: a}", "{id: a, fn: b}", "{id: a, type: b}"):
        text = f"steps: [{style}]"
        assert convert(text).text == text


def test_a_converted_document_runs() -> None:
    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        text = inputs.get("name") or inputs["text"]
        return {"text": f"hello, {text}" if fn == "make_greeting" else text.upper()}

    made = convert(QUICKSTART)
    workflow = Workflow.from_yaml(made.text, Backend(executor=execute), inputs={"name": "world"})
    workflow.run()

    assert workflow.outcome == {"message": "HELLO, WORLD"}


@pytest.mark.parametrize(
    "value",
    ["[{var: input.a}]", "[[1, {var: input.a}]]", "[{x: {var: input.a}}]", "{deep: [{var: input.a}]}"],
)
def test_expressions_in_lists_get_notes(value: str) -> None:
    [input_note] = notes_of(f"[{{op: a, input: {{x: {value}}}}}]")
    [output_note] = notes_of("[{op: a}]", f"outputs: {{x: {value}}}")

    assert input_note.startswith("steps[0].input.x")
    assert output_note.startswith("outputs.x")
    assert "expressions inside a list are evaluated here" in input_note


def test_the_arguments_of_an_expression_are_not_a_list() -> None:
    assert notes_of("[{op: a, input: {x: {cat: [{var: input.a}, b]}, y: [1, {z: 2}]}}]") == []


def test_operators_that_runfox_does_not_know_get_notes() -> None:
    notes = notes_of("[{op: a, input: {x: {cat: [{substr: [{var: input.a}, 1]}, [{some: [[], true]}]]}}}]")

    assert notes == [
        "steps[0].input.x: some is an operator here, but data in runfox",
        "steps[0].input.x: substr is an operator here, but data in runfox",
    ]
    assert notes_of("[{op: a, input: {x: {cat: [{$literal: {substr: 1}}]}}}]") == []


def test_attempts_that_repeat_a_success_get_notes() -> None:
    note = (
        "steps[0].max_attempts: only errors use up attempts here; runfox also repeats a step that succeeded"
    )

    assert [line.partition("; to get")[0] for line in notes_of("[{op: a, max_attempts: 3}]")] == [note]
    for silent in (
        "[{op: a, max_attempts: 1}]",
        "[{op: a, max_attempts: 3, attempts_on: error}]",
        "[{op: a, max_attempts: 3, branch: [{condition: true, action: complete}]}]",
    ):
        assert notes_of(silent) == []
    assert (
        convert("defaults: {attempts_on: any, on_error: fail}\nsteps: [{op: a, max_attempts: 3}]").notes == ()
    )


def test_a_loop_that_uses_up_attempts_gets_a_note() -> None:
    branch = "[{condition: {var: again}, action: {set: a}}, {condition: true, action: complete}]"

    [note] = notes_of(f"[{{op: a, max_attempts: 3, branch: {branch}}}]")

    assert "resets the attempts" in note


def test_an_executor_that_raises_gets_a_note_once() -> None:
    made = convert("steps: [{op: a}, {op: b}]")

    [note] = made.notes
    assert (note.path, note.kind) == ("steps", "changed")
    assert "an executor that raises fails the workflow here" in note.message
    assert convert("steps: [{op: a, on_error: skip}]").notes == ()


def test_a_dependency_that_runfox_does_not_see_gets_a_note() -> None:
    steps = """
- {op: a}
- {op: b, depends_on: [a]}
- {op: c, depends_on: [b], input: {above: {var: steps.a.output.x}}}
- {op: d, input: {deep: {x: {var: steps.a.output.x}}, default: {var: [steps.b.output.x, 0]}}}
"""

    notes = notes_of(f"\n{steps}")

    assert notes == [
        "steps[3].input: reads step 'a' without depends_on: here this is a dependency, in runfox it is not"
    ]


def test_a_search_for_dependencies_that_takes_too_long_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runfox, "MAX_STEPS_SCANNED", 0)

    assert notes_of("[{op: a}, {op: b}, {op: c, depends_on: [b], input: {x: {var: steps.a.output.x}}}]") == []


def test_keys_that_runfox_ignores_are_kept_aside() -> None:
    made = converted(
        "[{op: a, retries: 3, branch: [{condition: true, action: halt, note: x}], x-mine: 1}]", "version: 2"
    )

    assert made.document == {
        "defaults": {"on_error": "fail"},
        "steps": [
            {
                "op": "a",
                "x-retries": 3,
                "branch": [{"condition": True, "action": "halt", "x-note": "x"}],
                "x-mine": 1,
            }
        ],
        "x-version": 2,
    }
    assert [note.path for note in made.notes] == ["version", "steps[0].retries", "steps[0].branch[0].note"]
    assert load_spec(made.text).document == made.document


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("steps: [{id: a b, fn: x, on_error: fail}]", "steps[0].id"),
        ("steps: [{op: a, depends_on: [b], on_error: fail}]", "steps[0].depends_on[0]"),
        ("steps: [{op: a, branch: [{condition: true, action: jump}]}]", "steps[0].branch[0].action"),
        ("steps: [{op: a, branch: [text]}]", "steps[0].branch[0]"),
        ("steps: [{op: a, on_error: fail}, text]", "steps[1]"),
    ],
)
def test_what_is_wrong_with_a_document_gets_a_note(text: str, path: str) -> None:
    made = convert(text)

    assert path in [note.path for note in made.notes if note.kind == "lost"]
    assert not made.is_complete


def test_a_document_that_never_ends_gets_a_note_in_time() -> None:
    count = 3_000
    rows = [f"- {{op: s{n}, on_error: fail, depends_on: [s{n - 1}]}}" for n in range(1, count)]
    last = "- {op: last, on_error: fail, input: {x: {a: {var: steps.s0.output.x}}}}"

    made = convert("\n".join(["steps:", "- {op: s0, on_error: fail}", *rows, last]))

    assert [note.path for note in made.notes] == [f"steps[{count}].input"]


def test_braces_are_quoted_because_runfox_takes_them_as_text() -> None:
    text = "[{op: a, input: {x: 'Hi {{ input.x }}', y: ['{{', {cat: ['{% if %}', b]}], z: plain}}]"

    made = converted(text, "outputs: {x: '{{ state.x }}'}")

    [step] = made.document["steps"]
    assert step["input"] == {
        "x": {"$literal": "Hi {{ input.x }}"},
        "y": [{"$literal": "{{"}, {"cat": [{"$literal": "{% if %}"}, "b"]}],
        "z": "plain",
    }
    assert made.document["outputs"] == {"x": {"$literal": "{{ state.x }}"}}
    [note, *_] = made.notes
    assert str(note) == (
        "steps[0].input.x: double braces are a reference here, and text in runfox; written as {$literal: ...}"
    )


def test_a_quoted_document_gives_executors_the_text_of_runfox() -> None:
    spec = {"steps": [{"op": "a", "input": {"text": "Hi {{ input.x }}, {{ not | a path }}"}}]}
    seen: list[Any] = []

    def execute(fn: str, inputs: dict[str, Any]) -> dict[str, Any]:
        seen.append(inputs)
        return {}

    theirs = published.Workflow.from_dict(spec, published.Backend(executor=execute), inputs={})
    theirs.run()
    Workflow.from_yaml(convert(json.dumps(spec)).text, Backend(executor=execute), inputs={}).run()

    assert seen == [{"text": "Hi {{ input.x }}, {{ not | a path }}"}] * 2
