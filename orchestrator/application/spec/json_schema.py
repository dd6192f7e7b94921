"""The JSON Schema of the language, for editors: completion, a description of every key, and simple errors.

It is generated from the models, so that the two cannot differ. Rules that depend on the rest of a document
(ids, targets, cycles) or need a parser (expressions) are left to validation.
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.expressions.short_references import (
    MIXED_TEXT_PATTERN,
    WHOLE_REFERENCE_PATTERN,
)
from orchestrator.application.spec import model as language
from orchestrator.application.spec.checks import FORBIDDEN_KEYS
from orchestrator.application.spec.field_types import DEFINITION_REF
from orchestrator.application.spec.step_models import KINDS, WorkflowModel
from orchestrator.application.values.secret_refs import SECRET, SECRET_NAME_PATTERN

OPERATOR_DESCRIPTIONS = {
    "var": "The value at a path such as input.x: path, or [path, default].",
    "vars": "The list of values at a JSONPath such as steps.a.output.items[*].price.",
    "==": "Whether two values are equal; 1 and '1' are equal.",
    "!=": "Whether two values differ; 1 and '1' do not differ.",
    "===": "Whether two values are equal and of the same type.",
    "!==": "Whether two values or their types differ.",
    "<": "Less than; with three arguments: between.",
    "<=": "Less than or equal; with three arguments: between.",
    ">": "Greater than.",
    ">=": "Greater than or equal.",
    "!": "Not.",
    "!!": "Whether a value counts as true.",
    "and": "The first argument that counts as false, else the last.",
    "or": "The first argument that counts as true, else the last.",
    "if": "[condition, then, condition, then, ..., else]",
    "?:": "[condition, then, else]",
    "+": "The sum; with one argument: the argument as a number.",
    "-": "The difference; with one argument: its negative.",
    "*": "The product.",
    "/": "The quotient.",
    "%": "The remainder.",
    "min": "The smallest argument.",
    "max": "The largest argument.",
    "cat": "The arguments joined into one string.",
    "substr": "A part of a string: [string, start, length].",
    "in": "Whether a string or a list contains a value: [value, container].",
    "merge": "Several lists joined into one.",
    "count": "How many arguments count as true; with one list: its length.",
    "map": "The result for each item: [list, expression over the item].",
    "filter": "The items for which the expression is true: [list, expression over the item].",
    "reduce": "All items combined: [list, expression over accumulator and current, initial].",
    "all": "Whether the expression is true for every item: [list, expression over the item].",
    "some": "Whether the expression is true for at least one item: [list, expression over the item].",
    "none": "Whether the expression is true for no item: [list, expression over the item].",
    "missing": "Which of these paths have no value.",
    "missing_some": "Which paths have no value, if fewer than needed have one: [needed, [paths]].",
    "log": "Its argument, which is also written to the history.",
    "str.upper": "A string in upper case.",
    "str.lower": "A string in lower case.",
    "str.trim": "A string without white space at its ends.",
    "str.replace": "[text, old, new]",
    "str.split": "[text, separator]; splits at white space if there is no separator.",
    "str.join": "[list, separator]",
    "str.contains": "[text, part]",
    "str.starts_with": "[text, part]",
    "str.ends_with": "[text, part]",
    "str.matches": "Whether a pattern is found anywhere: [text, pattern].",
    "list.length": "The number of items of a list, characters of a string, or keys of an object.",
    "list.first": "The first item, or null.",
    "list.last": "The last item, or null.",
    "list.sort": "[list, descending]; all numbers or all strings.",
    "list.unique": "A list without duplicates.",
    "obj.keys": "The keys of an object.",
    "obj.values": "The values of an object.",
    "obj.get": "[object, key, default]; dots are part of the key.",
    "json.dumps": "A value as a JSON string.",
    "json.parse": "The value of a JSON string.",
    "num.round": "[number, digits]; half away from zero.",
    "num.abs": "A number without its sign.",
    "time.now": "The time of the event that caused this evaluation.",
    "time.hour": "The hour of a time, or of now, in UTC.",
    "time.weekday": "The weekday of a time, or of now, in UTC; Monday is 1.",
    "time.iso": "A time as a string, in UTC.",
    "time.add": "[time, seconds]",
    "kv.get": "A shared value: [key, default].",
    "any.default": "The first argument that is not null.",
}

_RULE_DESCRIPTION = 'JSON Logic: a mapping with one operator, such as {"==": [{"var": "input.x"}, 1]}'
_LITERAL = {"description": "The value inside, unchanged: expressions in it are not evaluated."}
_SECRET = {
    "description": "The name of a secret. The worker replaces this by its value.",
    "type": "string",
    "pattern": SECRET_NAME_PATTERN,
}
_HAS_ONE_KEY = {"type": "object", "minProperties": 1, "maxProperties": 1}

DEFINITIONS: dict[str, Any] = {
    "Rule": {
        "description": _RULE_DESCRIPTION,
        **_HAS_ONE_KEY,
        "properties": {
            **{
                operator: {"description": description, DEFINITION_REF: "Argument"}
                for operator, description in OPERATOR_DESCRIPTIONS.items()
            },
            LITERAL: _LITERAL,
            SECRET: _SECRET,
        },
        "additionalProperties": False,
    },
    "Argument": {
        "if": _HAS_ONE_KEY,
        "then": {DEFINITION_REF: "Rule"},
        "else": {
            "items": {DEFINITION_REF: "Argument"},
            "additionalProperties": {DEFINITION_REF: "Expression"},
        },
    },
    "Condition": {
        "description": f"True, false, or {_RULE_DESCRIPTION}",
        "anyOf": [
            {"type": ["boolean", "number", "null"]},
            {DEFINITION_REF: "Rule"},
            {DEFINITION_REF: "Reference"},
        ],
    },
    "Expression": {
        "description": f"A literal, a text with {{{{ paths }}}}, or {_RULE_DESCRIPTION}",
        "properties": {
            **{operator: {"description": text} for operator, text in OPERATOR_DESCRIPTIONS.items()},
            LITERAL: _LITERAL,
            SECRET: {"description": _SECRET["description"]},
        },
        "if": {**_HAS_ONE_KEY, "propertyNames": {"enum": [*OPERATOR_DESCRIPTIONS, LITERAL, SECRET]}},
        "then": {DEFINITION_REF: "Rule"},
        "else": {
            "items": {DEFINITION_REF: "Expression"},
            "additionalProperties": {DEFINITION_REF: "Expression"},
        },
    },
    "Reference": {
        "description": "The value at a path: {{ input.x }}, or {{ input.x or 'default' }}",
        "type": "string",
        "pattern": WHOLE_REFERENCE_PATTERN,
    },
    "Text": {
        "description": "A text with values in it, such as {{ input.kind }}-{{ input.size }}",
        "type": "string",
        "pattern": MIXED_TEXT_PATTERN,
    },
    "Values": {"type": "object", "additionalProperties": {DEFINITION_REF: "Expression"}},
}


DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SUFFIX = "Model"
_OUTPUT: dict[str, Any] = {
    "anyOf": [
        {"type": "null"},
        {DEFINITION_REF: "Values"},
        {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {
                        "type": "string",
                        "minLength": 1,
                        "description": "The key of the output.",
                    },
                    "type": {
                        "enum": ["raw", "json", "jmespath"],
                        "description": "Whether the output is the whole result, or a part of it.",
                    },
                    "value": {"type": "string", "description": "A path such as data.users[*].name"},
                    "path": {"type": "string", "description": "An alias of value."},
                },
                "required": ["name"],
                "patternProperties": {"^x-": True},
                "additionalProperties": False,
            },
        },
    ]
}


def build_schema() -> dict[str, Any]:
    """Build the schema of a workflow document."""
    root = WorkflowModel.model_json_schema(by_alias=True)
    parts: dict[str, Any] = root.pop("$defs")
    step = parts["StepModel"]
    for name, part in {"Workflow": root, **parts}.items():
        part["title"] = name.removesuffix(_SUFFIX)
        part["patternProperties"] = {"^x-": True}
    root["oneOf"] = _required(root, "steps", "flow")
    for key in root["properties"].keys() & {"steps", "flow"}:
        steps = root["properties"][key]
        steps.update(steps.pop("anyOf")[0])  # null is not a list of steps
    _refine_step(step)
    definitions = {name.removesuffix(_SUFFIX): part for name, part in parts.items()}
    definitions |= {**DEFINITIONS, "Output": _OUTPUT}
    schema: dict[str, Any] = _resolve({**root, "$defs": dict(sorted(definitions.items()))})
    used = _find_used_definitions(schema)
    schema["$defs"] = {name: part for name, part in schema["$defs"].items() if name in used}
    return {"$schema": DIALECT, **schema}


def _refine_step(step: dict[str, Any]) -> None:
    """Add the rules about several keys of a step, which the model does not have."""
    step["properties"]["id"]["anyOf"][0]["pattern"] = language.ID_PATTERN
    step["anyOf"] = _present(step, "id", "op", "name")
    tokens = _present(step, "op", "fn", "type", "source")
    kinds = [kind for kind in KINDS if kind in step["properties"]]
    step["oneOf"] = [{"anyOf": tokens}, *_present(step, *kinds)]
    step["allOf"] = [_named_by(step, "op", "id"), _named_by(step, "name", "id", "op")]
    for kind in kinds:
        forbidden = {"properties": dict.fromkeys(sorted(FORBIDDEN_KEYS[kind]), False)}
        step["allOf"].append({"if": _present(step, kind)[0], "then": forbidden})


def _named_by(step: dict[str, Any], key: str, *preferred: str) -> dict[str, Any]:
    """Require that `key` is a valid id if none of the preferred keys is present: it is the id then."""
    return {
        "if": {"not": {"anyOf": _present(step, *preferred)}},
        "then": {"properties": {key: {"pattern": language.ID_PATTERN}}},
    }


def _required(model: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    return [{"required": [key]} for key in keys if key in model["properties"]]


def _present(model: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    """For each key, require that it is present and not null."""
    not_null = {"not": {"type": "null"}}
    return [{**required, "properties": {key: not_null}} for key in keys for required in _required(model, key)]


def _resolve(value: Any, is_properties: bool = False) -> Any:
    """Refer to definitions by our names, and drop the titles and null defaults that pydantic adds."""
    if isinstance(value, list):
        return [_resolve(item) for item in value]
    if not isinstance(value, dict):
        return value
    resolved: dict[str, Any] = {}
    for key, item in value.items():
        if is_properties and isinstance(item, dict):
            resolved[key] = _resolve({name: part for name, part in item.items() if name != "title"})
        elif key == DEFINITION_REF:
            resolved["$ref"] = item if item == "#" else f"#/$defs/{item}"
        elif key == "$ref":
            resolved[key] = item.removesuffix(_SUFFIX)
        elif not (key == "default" and item is None):
            resolved[key] = _resolve(item, is_properties=key == "properties")
    return resolved


def _find_used_definitions(schema: dict[str, Any]) -> set[str]:
    """Return the definitions that the schema refers to, directly or not."""
    used: set[str] = set()
    todo: list[Any] = [{key: value for key, value in schema.items() if key != "$defs"}]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).removeprefix("#/$defs/")
            if name in schema["$defs"] and name not in used:
                used.add(name)
                todo.append(schema["$defs"][name])
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
    return used
