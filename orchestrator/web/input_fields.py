"""The fields of a form for the declared inputs of a workflow, and the inputs that a form has.

A field that is left blank is not sent: the default of its input applies. Inputs that are not declared, and
texts that a field of a form cannot carry, go into one more field as a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.application.redaction.by_key import is_secret_key
from orchestrator.application.spec.input_checks import check_inputs
from orchestrator.application.spec.model import InputSpec, InputType, WorkflowSpec
from orchestrator.application.values.paths import render_path
from orchestrator.application.values.payload_refs import has_references
from orchestrator.redis_rq.json_codec import loads

PREFIX = "input."
OTHERS = "other_inputs"
"""The name of the field for inputs that have no field of their own."""
MAX_FIELD_CHARS = 200_000
LONG_TEXT = 120

_HINTS: Mapping[InputType | None, str] = {
    "number": "write a number, such as 12 or 0.5",
    "integer": "write a whole number, such as 12",
    "boolean": "choose true or false",
    "object": 'write a JSON object, such as {"city": "Rome"}',
    "array": "write a JSON list, such as [1, 2]",
    None: 'write JSON; a text needs double quotes, such as "Rome"',
}


@dataclass(frozen=True, slots=True)
class InputField:
    """A field of the form: its text, what is wrong with it, and a note about where its value is."""

    name: str
    declared: InputSpec
    text: str = ""
    error: str | None = None
    note: str | None = None
    is_secret: bool = False

    @property
    def kind(self) -> str:
        """How the field is drawn: "choice", "number", "secret", "line", "text" or "json"."""
        if self.declared.type == "boolean":
            return "choice"
        if self.declared.type in ("number", "integer"):
            return "number"
        if self.declared.type == "string":
            is_long = "\n" in self.text or len(self.text) > LONG_TEXT
            return "secret" if self.is_secret else "text" if is_long else "line"
        return "json"

    @property
    def default(self) -> str:
        """The default of the input as JSON, unless it is a secret; "" for none."""
        if not self.declared.has_default or self.is_secret:
            return ""
        return json.dumps(self.declared.default, ensure_ascii=False)

    @property
    def is_required(self) -> bool:
        return self.declared.required and not self.declared.has_default


@dataclass(slots=True)
class FormInputs:
    """What a form has: the inputs, the errors by their input, and what is wrong with the other inputs."""

    inputs: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def others_error(self) -> str | None:
        return self.errors.get(OTHERS)


def read_inputs(spec: WorkflowSpec, form: Mapping[str, str]) -> FormInputs:
    """Read the inputs of a form, and check them as a start does."""
    found = FormInputs()
    for name, declared in spec.inputs.items():
        text = form.get(PREFIX + name, "").replace("\r\n", "\n")
        if not text.strip():
            continue
        try:
            found.inputs[name] = _parse(text, declared.type)
        except (ValueError, RecursionError):
            found.errors[name] = _HINTS.get(declared.type, "this cannot be read")
    _add_others(found, form.get(OTHERS, ""))
    _check(spec, found)
    return found


def _parse(text: str, kind: InputType | None) -> Any:
    """The value of a field; ValueError for a text of another type."""
    if kind == "string":
        return text
    value = loads(text.strip())
    types = {"number": int | float, "integer": int, "boolean": bool, "object": dict, "array": list}
    if kind is not None and (isinstance(value, bool) != (kind == "boolean")):
        raise ValueError(kind)
    if kind is not None and not isinstance(value, types[kind]):
        raise ValueError(kind)
    return value


def _add_others(found: FormInputs, text: str) -> None:
    if not text.strip():
        return
    try:
        others = loads(text)
    except (ValueError, RecursionError):
        others = None
    if not isinstance(others, dict):
        found.errors[OTHERS] = _HINTS["object"]
        return
    twice = sorted(others.keys() & found.inputs.keys())
    if twice:
        found.errors[OTHERS] = f"{twice[0]!r} has a field of its own, which is not blank"
    found.inputs |= {name: value for name, value in others.items() if name not in found.inputs}


def _check(spec: WorkflowSpec, found: FormInputs) -> None:
    """Add the problems that a start with these inputs has."""
    _, problems = check_inputs(spec, found.inputs)
    paths = {render_path(("inputs", name)): name for name in spec.inputs}
    for problem in problems:
        name = paths.get(problem.path, OTHERS)
        if problem.code == "missing_input":
            found.errors.setdefault(name, "this input is required")
        else:
            found.errors.setdefault(name, problem.message)


def make_fields(
    spec: WorkflowSpec, texts: Mapping[str, str], errors: Mapping[str, str], notes: Mapping[str, str]
) -> list[InputField]:
    """The fields of the declared inputs, with these texts, errors and notes by their inputs."""
    return [
        InputField(
            name,
            declared,
            texts.get(name, ""),
            errors.get(name),
            notes.get(name),
            is_secret_key(name, spec.redact),
        )
        for name, declared in spec.inputs.items()
    ]


@dataclass(slots=True)
class Prefilled:
    """The texts of fields for given inputs, those of the other inputs as JSON, and notes about values that
    must be entered again."""

    texts: dict[str, str] = field(default_factory=dict)
    others: str = ""
    notes: dict[str, str] = field(default_factory=dict)


def prefill(spec: WorkflowSpec, inputs: Mapping[str, Any], redacted: Mapping[str, Any]) -> Prefilled:
    """The texts of fields for the inputs of an execution. A value that is redacted is left out: it must be
    entered again."""
    found = Prefilled()
    others: dict[str, Any] = {}
    for name, value in inputs.items():
        if redacted.get(name) != value:
            found.notes[name] = "This value is secret. Enter it again."
        elif has_references(value) or len(text := _write(spec, name, value)) > MAX_FIELD_CHARS:
            found.notes[name] = "This value is too large for a form. Enter it again."
        elif name in spec.inputs and _can_carry(text):
            found.texts[name] = text
        else:
            others[name] = value
    found.others = json.dumps(others, indent=2) if others else ""
    return found


def _write(spec: WorkflowSpec, name: str, value: Any) -> str:
    declared = spec.inputs.get(name)
    if declared is not None and declared.type == "string" and isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, dict | list) else None)


def _can_carry(text: str) -> bool:
    """Whether a field of a form keeps a text as it is: blank ones are not sent, and browsers change some
    control characters."""
    return bool(text.strip()) and all(char.isprintable() or char in "\n\t" for char in text)
