"""Expressions in the schema of the language: which operators there are, what each gives, where one stands.

As in check(): a mapping with one key inside of an expression must be an operator, a $literal or a secret;
elsewhere it may be data, which is searched. How many arguments an operator takes, paths, and whether a secret
may stand there are left to validation.
"""

from __future__ import annotations

from typing import Any

from orchestrator.application.expressions.evaluation import LITERAL
from orchestrator.application.spec.field_types import SEE
from orchestrator.application.values.secret_refs import NAME_PATTERN, SECRET

WORDS = {
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
    "pattern": NAME_PATTERN,
}
_HAS_ONE_KEY = {"type": "object", "minProperties": 1, "maxProperties": 1}

DEFINED: dict[str, Any] = {
    "Rule": {
        "description": _WORDS,
        **_HAS_ONE_KEY,
        "properties": {
            **{operator: {"description": words, SEE: "Argument"} for operator, words in WORDS.items()},
            LITERAL: _AS_IT_IS,
            SECRET: _SECRET,
        },
        "additionalProperties": False,
    },
    "Argument": {
        "if": _HAS_ONE_KEY,
        "then": {SEE: "Rule"},
        "else": {"items": {SEE: "Argument"}, "additionalProperties": {SEE: "Expression"}},
    },
    "Condition": {
        "description": f"True, false, or {_WORDS}",
        "anyOf": [{"type": ["boolean", "number", "null"]}, {SEE: "Rule"}],
    },
    "Expression": {
        "description": f"A literal, or {_WORDS}",
        "properties": {
            **{operator: {"description": words} for operator, words in WORDS.items()},
            LITERAL: _AS_IT_IS,
            SECRET: {"description": _SECRET["description"]},
        },
        "if": {**_HAS_ONE_KEY, "propertyNames": {"enum": [*WORDS, LITERAL, SECRET]}},
        "then": {SEE: "Rule"},
        "else": {"items": {SEE: "Expression"}, "additionalProperties": {SEE: "Expression"}},
    },
    "Values": {"type": "object", "additionalProperties": {SEE: "Expression"}},
}
