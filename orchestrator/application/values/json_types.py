"""Names of JSON types, for messages."""

from __future__ import annotations

from typing import Any


def describe_type(value: Any) -> str:
    """Return the JSON type of a value, such as "a string"; for other values the class, such as "a set"."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case dict():
            return "an object"
    return f"a {type(value).__name__}"


def describe_value(value: Any) -> str:
    """Describe a value of a document, in the words of YAML; booleans and numbers are shown."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case dict():
            return "a mapping"
    return describe_type(value)
