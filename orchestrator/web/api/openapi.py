"""The OpenAPI document, made from the same routes that serve requests."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Literal

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from orchestrator import __version__
from orchestrator.web.access.sessions import COOKIE
from orchestrator.web.api.problem_models import ProblemReply
from orchestrator.web.api.reading import JSON_TYPE
from orchestrator.web.api.route import ROOT, ApiRoute
from orchestrator.web.problems import PROBLEM_TYPE
from orchestrator.web.rendering import path_of

REFERENCES = "#/components/schemas/{model}"
DESCRIPTION = """\
Start, control and watch executions. Everything that the page shows and does is here too; docs/http-api.md has
examples. Errors are problem+json, each with a `code` for programs."""
COMMON_PROBLEMS: Mapping[int, str] = {
    401: "No token, or a wrong one.",
    403: "The role of the user does not suffice, or the page only reads.",
    503: "Redis cannot be used now. Try again later.",
}
"""The problems that every route may have."""
SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the file of tokens."},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "The login of the page. Without a file of tokens, no request needs any.",
    },
    "hook": {
        "type": "apiKey",
        "in": "query",
        "name": "token",
        "description": "The token of a webhook in its URL.",
    },
}

Json = dict[str, Any]
Mode = Literal["validation", "serialization"]


def serve_document(path: str, routes: Sequence[ApiRoute]) -> Route:
    """The route that returns the document about these routes."""

    @lru_cache(maxsize=1)
    def make() -> Json:
        return make_document(routes)

    def openapi(request: Request) -> Response:
        root = path_of(request, "openapi").removesuffix("/openapi.json")
        return JSONResponse({**make(), "servers": [{"url": root}]})

    return Route(path, openapi, name="openapi")


def make_document(routes: Sequence[ApiRoute]) -> Json:
    """The document. Its paths are below ROOT."""
    schemas = _Schemas(routes)
    paths: dict[str, Json] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe(route, schemas)
    paths[EVENTS_PATH] = {"get": _describe_events(paths)}
    tags = {route.noun: _first_line(inspect.getmodule(route.serve)) for route in routes}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Orchestrator", "version": __version__, "description": DESCRIPTION},
        "servers": [{"url": ROOT}],
        "tags": [{"name": name.replace("_", " "), "description": text} for name, text in tags.items()],
        "security": [{"bearer": []}, {"cookie": []}, {}],
        "paths": paths,
        "components": {"schemas": schemas.components, "securitySchemes": SECURITY},
    }


EVENTS_PATH = "/executions/{execution}/events"


def _describe_events(paths: Mapping[str, Json]) -> Json:
    """The stream of events, which web/live serves. Its problems are those of other reads."""
    like = paths["/executions/{execution}"]["get"]
    responses = {status: one for status, one in like["responses"].items() if status not in ("200", "304")}
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "operationId": "executions.events",
        "tags": ["executions"],
        "summary": "Follow an execution by server-sent events",
        "description": "Follow an execution by server-sent events, until it ends. The id of an event is a"
        " position in the history; sent as Last-Event-ID, it resumes the stream.",
        "parameters": [
            *(one for one in like["parameters"] if one["in"] == "path"),
            _make_parameter(
                "query",
                "after",
                {"type": "integer", "minimum": 0, "description": "The position to begin after."},
                False,
            ),
            _make_parameter(
                "header",
                "Last-Event-ID",
                {"type": "string", "description": "The id of the last event that was received."},
                False,
            ),
        ],
        "responses": {
            "200": {"description": "A stream of events.", "content": stream},
            **responses,
            "429": {**responses["404"], "description": "Too many streams are open."},
        },
    }


class _Schemas:
    """The JSON schemas of all models. Those of bodies and responses have a name under components."""

    def __init__(self, routes: Sequence[ApiRoute]) -> None:
        wanted: dict[tuple[Any, Mode], TypeAdapter[Any]] = {
            (ProblemReply, "serialization"): TypeAdapter(ProblemReply)
        }
        for route in routes:
            wanted[route.name, "serialization"] = route.adapter
            for one in (route.query, route.body):
                if one is not None:
                    wanted[one, "validation"] = TypeAdapter(one)
            for name, adapter in route.path_parameters.items():
                wanted[(route.name, name), "validation"] = adapter
        self._found, definitions = TypeAdapter.json_schemas(
            [(key, mode, adapter) for (key, mode), adapter in wanted.items()], ref_template=REFERENCES
        )
        self._definitions: Json = definitions.get("$defs", {})
        queries = {route.query.__name__ for route in routes if route.query is not None}
        self.components = {
            name: one for name, one in sorted(self._definitions.items()) if name not in queries
        }

    def of(self, key: Any, mode: Mode) -> Json:
        return self._found[key, mode]

    def resolve(self, schema: Json) -> Json:
        """A schema itself, and not a reference to it."""
        name = schema.get("$ref", "").rpartition("/")[2]
        found: Json = self._definitions[name] if name else schema
        return found


def summarize(route: ApiRoute) -> str:
    """What a route does, in one line: the first sentence of its description."""
    text = inspect.cleandoc(route.serve.__doc__ or "")
    return " ".join(re.split(r"[.:](?=\s|$)", text)[0].split())


def _describe(route: ApiRoute, schemas: _Schemas) -> Json:
    text = inspect.cleandoc(route.serve.__doc__ or "")
    described: Json = {
        "operationId": f"{route.noun}.{route.serve.__name__}",
        "tags": [route.noun.replace("_", " ")],
        "summary": summarize(route),
        "description": text,
        "parameters": [*_list_path(route, schemas), *_list_query(route, schemas), *_list_headers(route)],
        "responses": _list_responses(route, schemas),
    }
    if route.is_hook:
        described["security"] = [{"bearer": []}, {"hook": []}, {}]
    if route.body is not None:
        schema = schemas.of(route.body, "validation")
        required = bool(schemas.resolve(schema).get("required")) or route.is_hook
        described["requestBody"] = {"required": required, "content": {JSON_TYPE: {"schema": schema}}}
    return described


def _list_path(route: ApiRoute, schemas: _Schemas) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": schemas.of((route.name, name), "validation")}
        for name in route.path_parameters
    ]


def _list_query(route: ApiRoute, schemas: _Schemas) -> list[Json]:
    if route.query is None:
        return []
    model = schemas.resolve(schemas.of(route.query, "validation"))
    required = model.get("required", ())
    return [
        _make_parameter("query", name, one, name in required) for name, one in model["properties"].items()
    ]


def _list_headers(route: ApiRoute) -> list[Json]:
    return [
        {"name": name, "in": "header", "required": False, "description": text, "schema": {"type": "string"}}
        for name, text in route.headers.items()
    ]


def _make_parameter(place: str, name: str, schema: Json, required: bool) -> Json:
    """A parameter of a URL, which cannot be null: it is left out instead."""
    shown = {key: value for key, value in schema.items() if key not in ("title", "description")}
    if "anyOf" in shown:
        [one] = [one for one in shown.pop("anyOf") if one != {"type": "null"}]
        shown |= one
    if shown.get("default", "") is None:
        del shown["default"]
    text = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "required": required, **text, "schema": shown}


def _list_responses(route: ApiRoute, schemas: _Schemas) -> Json:
    content: Json = {route.media: {"schema": schemas.of(route.name, "serialization")}}
    found: Json = {
        str(status): {"description": text or HTTPStatus(status).phrase, "content": content}
        for status, text in {route.status: "", **route.others}.items()
    }
    found |= {str(status): {"description": text} for status, text in route.empty.items()}
    problem = {PROBLEM_TYPE: {"schema": schemas.of(ProblemReply, "serialization")}}
    for status, text in {**COMMON_PROBLEMS, **route.problems}.items():
        if str(status) in found:  # this status has two meanings, which differ in their media type
            found[str(status)]["content"] = {**content, **problem}
        else:
            found[str(status)] = {"description": text, "content": problem}
    found["default"] = {"description": "Any other problem.", "content": problem}
    return dict(sorted(found.items()))


def _first_line(module: Any) -> str:
    return str(inspect.getdoc(module)).partition("\n")[0]
