"""A page with every route of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.web.api.openapi import make_document
from orchestrator.web.api.route import ROOT
from orchestrator.web.api.routes import API_ROUTES
from scripts.documentation.markdown import cell, escape_prose

INTRODUCTION = f"""\
# Every route of the HTTP API

This page is generated from the OpenAPI document, which a server has at `{ROOT}/openapi.json`. All paths are
below `{ROOT}`. [HTTP API](../http-api.md) has examples, and [error codes](../errors.md#http-api) all codes of
problems.
"""
METHODS = ("get", "post", "put", "patch", "delete")

Json = dict[str, Any]


def render_http() -> str:
    document = make_document(API_ROUTES)
    sections = [
        _render_route(path, method, operation, document)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in METHODS
    ]
    return "\n".join([INTRODUCTION, *sections])


def _render_route(path: str, method: str, operation: Json, document: Json) -> str:
    lines = [f"## {method.upper()} {path}", "", escape_prose(operation.get("summary", "") + "."), ""]
    details = operation.get("description", "").removeprefix(operation.get("summary", "")).lstrip(". \n")
    if details:
        lines += [escape_prose(details), ""]
    parameters = [_resolve(one, document) for one in operation.get("parameters", ())]
    if parameters:
        rows = [_row(one["name"], one["in"], one.get("schema", {}), one) for one in parameters]
        lines += ["| parameter | in | type | meaning |", "|---|---|---|---|", *rows, ""]
    lines += _render_body(operation, document)
    lines += ["| status | response |", "|---|---|", *_responses(operation, document), ""]
    return "\n".join(lines)


def _render_body(operation: Json, document: Json) -> Iterator[str]:
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = content.get("schema", {})
        yield f"Body, `{kind}`: {_type_of(schema)}\n"
        properties = _resolve(schema, document).get("properties", {})
        if properties:
            yield "| key | type | meaning |\n|---|---|---|"
            yield from (
                f"| `{name}` | {_type_of(one)} | {cell(one.get('description', ''))} |"
                for name, one in properties.items()
            )
            yield ""


def _responses(operation: Json, document: Json) -> Iterator[str]:
    for status, response in operation["responses"].items():
        full = _resolve(response, document)
        types = [_type_of(one.get("schema", {})) for one in full.get("content", {}).values()]
        shown = [one for one in types if one != "any"]
        yield f"| {status} | {cell(' '.join([full.get('description', ''), *shown]))} |"


def _row(name: str, place: str, schema: Json, parameter: Json) -> str:
    needed = " (required)" if parameter.get("required") else ""
    meaning = parameter.get("description") or schema.get("description", "")
    return f"| `{name}`{needed} | {place} | {_type_of(schema)} | {cell(meaning)} |"


def _resolve(value: Json, document: Json) -> Json:
    while "$ref" in value:
        found: Any = document
        for name in value["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        value = found
    return value


def _type_of(schema: Json) -> str:
    """A type in words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_type_of(one) for one in schema[word]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type_of(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
