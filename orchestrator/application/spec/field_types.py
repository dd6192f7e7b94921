"""The types of the values in a document: which values each accepts, its error message, and its JSON schema.

The type of a validator's PydanticCustomError is one of our own codes; report.py passes it on.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from orchestrator.application.spec.cron import MACROS, parse_cron, zone_names
from orchestrator.application.spec.model import ID_PATTERN, ID_RULE, AttemptsOn, OnError, is_id
from orchestrator.application.values.durations import DURATION_PATTERN, MAX_DURATION_S, parse_duration
from orchestrator.application.values.failure_kinds import RETRYABLE_KINDS
from orchestrator.application.values.secret_refs import is_secret_reference

PLAIN_ACTIONS = ("halt", "complete", "retry", "fail", "skip")
PLAIN_JOINS = ("all", "any", "done")
ON_ERROR = get_args(OnError)
MAX_DURATION_MS = MAX_DURATION_S * 1_000

DEFINITION_REF = "x-see"
"""Names a definition of json_schema.py in the schema of a field. Pydantic would interpret a "$ref"."""

EXPRESSION: dict[str, Any] = {DEFINITION_REF: "Expression"}
DURATION: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": MAX_DURATION_S},
        {"type": "string", "pattern": f"^{DURATION_PATTERN}$"},
    ]
}
POSITIVE_DURATION: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": MAX_DURATION_S},
        {"type": "string", "pattern": "^0*[1-9][0-9]*(ms|s|m|h|d)$"},
    ]
}
NO_TIMEOUT: dict[str, Any] = {"type": "string", "pattern": "^[Nn][Oo][Nn][Ee]$"}


def timeout_seconds(timeout: Any) -> float | None:
    """Return a valid timeout in seconds, or None for "none"."""
    return None if isinstance(timeout, str) and timeout.lower() == "none" else parse_duration(timeout)


def _policy(value: Any) -> Any:
    if isinstance(value, str) and value.lower() in ON_ERROR:
        return value.lower()
    raise PydanticCustomError("bad_policy", "must be fail, skip or continue")


def _attempts_on(value: Any) -> Any:
    if value in ("error", "any"):
        return value
    raise PydanticCustomError("bad_policy", "must be error or any")


def _operator(value: Any) -> Any:
    if isinstance(value, str) and value.upper() in ("AND", "OR"):
        return value.upper()
    raise PydanticCustomError("bad_policy", "must be AND or OR")


def _join(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if value is None or is_number or isinstance(value, dict) or value in PLAIN_JOINS:
        return value
    rule = "must be all, any, done, a number of steps from 1, or an expression"
    raise PydanticCustomError("bad_policy", "{rule}", {"rule": rule})


def _duration(value: Any) -> Any:
    try:
        parse_duration(value)
    except ValueError as error:
        raise PydanticCustomError("bad_duration", "{why}", {"why": str(error)}) from None
    return value


def _positive_duration(value: Any) -> Any:
    if parse_duration(_duration(value)) == 0:
        raise PydanticCustomError("bad_duration", "must be longer than 0")
    return value


def _timeout_or_none(value: Any, min_s: float = 0) -> Any:
    try:
        timeout_s = timeout_seconds(value)
    except ValueError as error:
        raise PydanticCustomError("bad_duration", "{why}; or none", {"why": str(error)}) from None
    if timeout_s is not None and timeout_s < min_s:
        raise PydanticCustomError("bad_duration", "must be longer than 0; write none for no timeout")
    return value


def _timeout(value: Any) -> Any:
    return _timeout_or_none(value, 0.001)


def _identifier(value: str) -> str:
    if not is_id(value):
        raise PydanticCustomError("bad_id", "{rule}", {"rule": ID_RULE})
    return value


def _item_name(value: str) -> str:
    if value in _ROOTS or not _ITEM_NAME.fullmatch(value):
        rule = "must be letters, digits and '_', and not a root of expressions such as input or state"
        raise PydanticCustomError("bad_id", "{rule}", {"rule": rule})
    return value


_ITEM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ROOTS = frozenset({"input", "state", "steps", "flows", "kv", "ctx", "index", "sources", "output", "result"})


def _action(value: Any) -> Any:
    if isinstance(value, dict) and "set" in value:
        if value.get("value", "ready") != "ready":
            raise PydanticCustomError("bad_type", "value must be ready: a step can be set to nothing else")
        if unknown := [key for key in value if key not in ("set", "value")]:
            raise PydanticCustomError("unknown_key", "set has no key {key}", {"key": repr(unknown[0])})
    elif value not in PLAIN_ACTIONS:
        rule = f"must be {', '.join(PLAIN_ACTIONS)} or {{set: <step>, value: ready}}"
        raise PydanticCustomError("unknown_action", "{rule}", {"rule": rule})
    return value


def _override(value: Any) -> Any:
    if isinstance(value, dict):
        if "configuration" in value and not isinstance(value["configuration"], dict):
            raise PydanticCustomError("bad_type", "its configuration must be a mapping")
        if "type" in value and not (isinstance(value["type"], str) and value["type"]):
            raise PydanticCustomError("bad_type", "its type must be a string")
        if "configuration" in value and len(value) > 1 + ("type" in value):
            raise PydanticCustomError(
                "bad_type", "has keys besides type and configuration: put them into configuration"
            )
    return value


def _concurrency_key(value: Any) -> Any:
    if isinstance(value, bool | list | None):
        raise PydanticCustomError("bad_type", "must be a string, a number or an expression")
    return value


def expand_retry_count(value: Any) -> Any:
    """Turn the short form of `retry`, a number, into its mapping."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"max_retries": value}
    if value is None or isinstance(value, dict):
        return value
    raise PydanticCustomError("bad_type", "must be a number of retries, or a mapping")


def _failure_name(value: str) -> str:
    if value not in RETRYABLE_KINDS and not _TYPE_NAME.fullmatch(value):
        rule = "must be an exception type, such as ValueError or package.Rejected, or a kind of failure: "
        raise PydanticCustomError("bad_type", "{rule}", {"rule": rule + ", ".join(RETRYABLE_KINDS)})
    return value


_TYPE_NAME = re.compile(r"[A-Z_][A-Za-z0-9_]*|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")


def expand_source_name(value: Any) -> Any:
    """Turn the short form of `source`, a name, into its mapping."""
    if isinstance(value, str) and value:
        return {"base": value}
    if value is None or isinstance(value, dict):
        return value
    raise PydanticCustomError("bad_type", "must be the name of a source, or a mapping")


def _url(value: str) -> str:
    if not _URL.fullmatch(value):
        raise PydanticCustomError("bad_type", "must be a URL that begins with http:// or https://")
    return value


_URL = re.compile(r"https?://[^\s/]\S*")


def _header(value: Any) -> Any:
    if is_secret_reference(value):
        raise PydanticCustomError(
            "bad_secret",
            "a secret cannot be used here: only workers can read it;"
            " ORCHESTRATOR_WEBHOOK_SECRET signs webhooks",
        )
    return value


def _cron(value: str) -> str:
    try:
        parse_cron(value)
    except ValueError as error:
        raise PydanticCustomError("bad_schedule", "{why}", {"why": str(error)}) from None
    return value


def _zone(value: str) -> str:
    if value not in zone_names():
        raise PydanticCustomError("bad_schedule", "is not a known time zone, such as Europe/Berlin")
    return value


def _in_any_case(*words: str) -> dict[str, Any]:
    """Build the schema of a choice that ignores case. An editor proposes the words as they are here."""
    cases = ("".join(f"[{letter.upper()}{letter.lower()}]" for letter in word) for word in words)
    return {"anyOf": [{"enum": list(words)}, {"type": "string", "pattern": f"^({'|'.join(cases)})$"}]}


REFERENCE: dict[str, Any] = {DEFINITION_REF: "Reference"}
"""A text that is one short reference, so that its value can be of any type."""

Expression = Annotated[Any, WithJsonSchema(EXPRESSION)]
Condition = Annotated[Any, WithJsonSchema({DEFINITION_REF: "Condition"})]
Rule = Annotated[Any, WithJsonSchema({"anyOf": [{DEFINITION_REF: "Rule"}, {DEFINITION_REF: "Text"}]})]
Items = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": EXPRESSION},
                {DEFINITION_REF: "Rule"},
                REFERENCE,
                {"type": "null"},
            ]
        }
    ),
]
Values = Annotated[dict[str, Any], WithJsonSchema({DEFINITION_REF: "Values"})]
Count = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[int, Field(ge=0, le=MAX_DURATION_MS)]
Priority = Annotated[int, Field(ge=1, le=5)]
Token = Annotated[str, Field(min_length=1)]
Identifier = Annotated[str, AfterValidator(_identifier), Field(json_schema_extra={"pattern": ID_PATTERN})]
ItemName = Annotated[
    str,
    AfterValidator(_item_name),
    Field(json_schema_extra={"pattern": f"^{_ITEM_NAME.pattern}$", "not": {"enum": sorted(_ROOTS)}}),
]
FailureName = Annotated[
    str,
    AfterValidator(_failure_name),
    Field(json_schema_extra={"pattern": f"^({'|'.join(RETRYABLE_KINDS)}|{_TYPE_NAME.pattern})$"}),
]
Duration = Annotated[Any, BeforeValidator(_duration), WithJsonSchema(DURATION)]
PositiveDuration = Annotated[Any, BeforeValidator(_positive_duration), WithJsonSchema(POSITIVE_DURATION)]
TimeoutOrNone = Annotated[
    Any, BeforeValidator(_timeout_or_none), WithJsonSchema({"anyOf": [*DURATION["anyOf"], NO_TIMEOUT]})
]
Timeout = Annotated[
    Any, BeforeValidator(_timeout), WithJsonSchema({"anyOf": [*POSITIVE_DURATION["anyOf"], NO_TIMEOUT]})
]
Policy = Annotated[OnError, BeforeValidator(_policy), WithJsonSchema(_in_any_case(*ON_ERROR))]
Repetition = Annotated[AttemptsOn, BeforeValidator(_attempts_on)]
Operator = Annotated[
    Literal["AND", "OR"], BeforeValidator(_operator), WithJsonSchema(_in_any_case("AND", "OR"))
]
Join = Annotated[
    Any,
    BeforeValidator(_join),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [*PLAIN_JOINS, None]},
                {"type": "integer", "minimum": 1},
                {DEFINITION_REF: "Rule"},
                REFERENCE,
            ]
        }
    ),
]
Action = Annotated[
    Any,
    BeforeValidator(_action),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(PLAIN_ACTIONS)},
                {
                    "type": "object",
                    "properties": {
                        "set": {
                            "description": "A step, a list of steps, or an expression that gives either.",
                            "anyOf": [
                                {"type": "string"},
                                {
                                    "type": "array",
                                    "items": {"anyOf": [{"type": "string"}, {DEFINITION_REF: "Rule"}]},
                                },
                                {DEFINITION_REF: "Rule"},
                            ],
                        },
                        "value": {"const": "ready", "description": "The status that the steps get."},
                    },
                    "required": ["set"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
ConcurrencyKey = Annotated[
    Any,
    BeforeValidator(_concurrency_key),
    WithJsonSchema({"anyOf": [{"type": ["string", "number"]}, {DEFINITION_REF: "Rule"}]}),
]
Override = Annotated[
    dict[str, Any],
    BeforeValidator(_override),
    Field(
        json_schema_extra={
            "properties": {
                "type": {"type": "string", "minLength": 1, "description": "Another executor."},
                "configuration": {
                    "type": "object",
                    "description": "The changed keys, merged into its configuration.",
                },
            }
        }
    ),
]
Header = Annotated[str, BeforeValidator(_header)]
Address = Annotated[str, AfterValidator(_url), Field(json_schema_extra={"pattern": "^https?://"})]
Cron = Annotated[
    str,
    AfterValidator(_cron),
    Field(json_schema_extra={"pattern": rf"^\s*({'|'.join(MACROS)}|\S+(\s+\S+){{4}})\s*$"}),
]
TimeZoneName = Annotated[str, AfterValidator(_zone), Field(json_schema_extra={"minLength": 1})]

# validation.py checks these, because their meaning depends on the rest of the document.
Output = Annotated[Any, WithJsonSchema({DEFINITION_REF: "Output"})]
Workflow = Annotated[
    Any,
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {DEFINITION_REF: "#"}, {"type": "null"}]}),
]
