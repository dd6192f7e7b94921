"""The JSON Schema of the language, for editors: completion, a word on every key, and what is plainly wrong.

It is made from the models, so it cannot say anything else than they do. What depends on the rest of a
document (ids, targets, cycles) or needs a parser (expressions) is left to validation. Keys that this release
refuses are not in it.
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.spec import model as language
from orchestrator.application.spec.checks import FORBIDDEN_KEYS
from orchestrator.application.spec.field_types import DEFINITION_REF
from orchestrator.application.spec.step_models import KINDS, WorkflowModel
from orchestrator.application.values.secret_refs import SECRET, SECRET_NAME_PATTERN

OPERATOR_DESCRIPTIONS = {
    "var": "What is at a path such as input.x: path, or [path, default].",
    "vars": "All that is at a JSONPath such as steps.a.output.items[*].price, as a list.",
    "==": "Whether two values are equal; 1 and '1' are.",
    "!=": "Whether two values differ; 1 and '1' do not.",
    "===": "Whether two values are equal and of one type.",
    "!==": "Whether two values differ, or their types.",
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
    "+": "The sum; of one argument: it as a number.",
    "-": "The difference; of one argument: its negative.",
    "*": "The product.",
    "/": "The quotient.",
    "%": "The remainder.",
    "min": "The least argument.",
    "max": "The greatest argument.",
    "cat": "The arguments as one text.",
    "substr": "A part of a text: [text, start, length].",
    "in": "Whether a text or a list holds something: [what, where].",
    "merge": "Several lists as one.",
    "count": "How many arguments count as true; of one list: its length.",
    "map": "Each item changed: [list, expression over the item].",
    "filter": "The items for which it is true: [list, expression over the item].",
    "reduce": "One value of all items: [list, expression over accumulator and current, initial].",
    "all": "Whether it is true for every item: [list, expression over the item].",
    "some": "Whether it is true for an item: [list, expression over the item].",
    "none": "Whether it is true for no item: [list, expression over the item].",
    "missing": "Which of these paths are not there.",
    "missing_some": "Which paths are not there, if fewer are than needed: [needed, [paths]].",
    "log": "Its argument, which is noted in the history.",
    "str.upper": "A text in capitals.",
    "str.lower": "A text in small letters.",
    "str.trim": "A text without white space around it.",
    "str.replace": "[text, old, new]",
    "str.split": "[text, separator]; at white space without a separator.",
    "str.join": "[list, separator]",
    "str.contains": "[text, part]",
    "str.starts_with": "[text, part]",
    "str.ends_with": "[text, part]",
    "str.matches": "Whether a pattern is found anywhere: [text, pattern].",
    "list.length": "How many items a list has, characters a text, or keys an object.",
    "list.first": "The first item, or null.",
    "list.last": "The last item, or null.",
    "list.sort": "[list, descending]; all numbers or all texts.",
    "list.unique": "A list without its repetitions.",
    "obj.keys": "The keys of an object.",
    "obj.values": "The values of an object.",
    "obj.get": "[object, key, default]; dots belong to the key.",
    "json.dumps": "A value as JSON text.",
    "json.parse": "The value of a JSON text.",
    "num.round": "[number, digits]; half away from zero.",
    "num.abs": "A number without its sign.",
    "time.now": "The time of the event that caused the evaluation.",
    "time.hour": "The hour of a time, or of now, in UTC.",
    "time.weekday": "The weekday of a time, or of now, in UTC; Monday is 1.",
    "time.iso": "A time as text, in UTC.",
    "time.add": "[time, seconds]",
    "kv.get": "A shared value: [key, default].",
    "any.default": "The first argument that is not null.",
}

_WORDS = 'JSON Logic: a mapping with one operator, such as {"==": [{"var": "input.x"}, 1]}'
_AS_IT_IS = {"description": "What is inside, as it is: not searched for expressions."}
_SECRET = {
    "description": "The name of a secret, which the worker puts here.",
    "type": "string",
    "pattern": SECRET_NAME_PATTERN,
}
_HAS_ONE_KEY = {"type": "object", "minProperties": 1, "maxProperties": 1}

DEFINITIONS: dict[str, Any] = {
    "Rule": {
        "description": _WORDS,
        **_HAS_ONE_KEY,
        "properties": {
            **{
                operator: {"description": words, DEFINITION_REF: "Argument"}
                for operator, words in OPERATOR_DESCRIPTIONS.items()
            },
            LITERAL: _AS_IT_IS,
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
        "description": f"True, false, or {_WORDS}",
        "anyOf": [{"type": ["boolean", "number", "null"]}, {DEFINITION_REF: "Rule"}],
    },
    "Expression": {
        "description": f"A literal, or {_WORDS}",
        "properties": {
            **{operator: {"description": words} for operator, words in OPERATOR_DESCRIPTIONS.items()},
            LITERAL: _AS_IT_IS,
            SECRET: {"description": _SECRET["description"]},
        },
        "if": {**_HAS_ONE_KEY, "propertyNames": {"enum": [*OPERATOR_DESCRIPTIONS, LITERAL, SECRET]}},
        "then": {DEFINITION_REF: "Rule"},
        "else": {
            "items": {DEFINITION_REF: "Expression"},
            "additionalProperties": {DEFINITION_REF: "Expression"},
        },
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
                        "description": "The key that the output gets.",
                    },
                    "type": {
                        "enum": ["raw", "json", "jmespath"],
                        "description": "Whether it is all that came back, or a part of it.",
                    },
                    "value": {"type": "string", "description": "A path such as data.users[*].name"},
                    "path": {"type": "string", "description": "Another word for value."},
                },
                "required": ["name"],
                "patternProperties": {"^x-": True},
                "additionalProperties": False,
            },
        },
    ]
}


def schema() -> dict[str, Any]:
    """The schema of a workflow document."""
    root = WorkflowModel.model_json_schema(by_alias=True)
    parts: dict[str, Any] = root.pop("$defs")
    step = parts["StepModel"]
    for name, part in {"Workflow": root, **parts}.items():
        part["title"] = name.removesuffix(_SUFFIX)
        part["patternProperties"] = {"^x-": True}
    root["oneOf"] = _required(root, "steps", "flow")
    for key in root["properties"].keys() & {"steps", "flow"}:
        there = root["properties"][key]
        there.update(there.pop("anyOf")[0])  # an empty key is no list of steps
    _refine_step(step)
    defined = {name.removesuffix(_SUFFIX): part for name, part in parts.items()}
    defined |= {**DEFINITIONS, "Output": _OUTPUT}
    made: dict[str, Any] = _resolved({**root, "$defs": dict(sorted(defined.items()))})
    used = _reachable(made)
    made["$defs"] = {name: part for name, part in made["$defs"].items() if name in used}
    return {"$schema": DIALECT, **made}


def _refine_step(step: dict[str, Any]) -> None:
    """What the model leaves to validation, because it needs several keys at once."""
    step["properties"]["id"]["anyOf"][0]["pattern"] = language.ID_PATTERN
    step["anyOf"] = _given(step, "id", "op", "name")
    tokens = _given(step, "op", "fn", "type", "source")
    kinds = [kind for kind in KINDS if kind in step["properties"]]
    step["oneOf"] = [{"anyOf": tokens}, *_given(step, *kinds)]
    step["allOf"] = [_named_by(step, "op", "id"), _named_by(step, "name", "id", "op")]
    for kind in kinds:
        refused = {"properties": dict.fromkeys(sorted(FORBIDDEN_KEYS[kind]), False)}
        step["allOf"].append({"if": _given(step, kind)[0], "then": refused})


def _named_by(step: dict[str, Any], key: str, *sooner: str) -> dict[str, Any]:
    """Without any of the keys that name a step sooner, `key` is its id."""
    return {
        "if": {"not": {"anyOf": _given(step, *sooner)}},
        "then": {"properties": {key: {"pattern": language.ID_PATTERN}}},
    }


def _required(model: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    return [{"required": [key]} for key in keys if key in model["properties"]]


def _given(model: dict[str, Any], *keys: str) -> list[dict[str, Any]]:
    """A key of null counts as absent."""
    is_there = {"not": {"type": "null"}}
    return [{**required, "properties": {key: is_there}} for key in keys for required in _required(model, key)]


def _resolved(value: Any, is_named: bool = False) -> Any:
    """With our names for the parts, and without the title and the default of null that pydantic adds."""
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for key, item in value.items():
        if is_named and isinstance(item, dict):
            made[key] = _resolved({name: part for name, part in item.items() if name != "title"})
        elif key == DEFINITION_REF:
            made["$ref"] = item if item == "#" else f"#/$defs/{item}"
        elif key == "$ref":
            made[key] = item.removesuffix(_SUFFIX)
        elif not (key == "default" and item is None):
            made[key] = _resolved(item, is_named=key == "properties")
    return made


def _reachable(made: dict[str, Any]) -> set[str]:
    """The definitions that the schema still needs without the keys that were left out."""
    used: set[str] = set()
    todo: list[Any] = [{key: value for key, value in made.items() if key != "$defs"}]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).removeprefix("#/$defs/")
            if name in made["$defs"] and name not in used:
                used.add(name)
                todo.append(made["$defs"][name])
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
    return used
