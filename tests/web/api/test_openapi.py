"""The OpenAPI document: it describes every route, and nothing else."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from starlette.routing import Route

from api_client import ROOT, ApiClient
from orchestrator import web
from orchestrator.settings import Settings
from orchestrator.web.api import routes as api_routes
from orchestrator.web.api.route import ApiRoute
from orchestrator.web.instance import Instance
from orchestrator.web.routes import INSTANCE_ROUTES
from servers.page_server import serve

NOT_DESCRIBED = {("GET", f"{ROOT}/openapi.json")}
"""The document itself, and a stream of events, which OpenAPI 3.1 cannot describe: docs/live-updates.md."""


def operations(document: dict[str, dict[str, dict[str, object]]]) -> set[tuple[str, str]]:
    return {
        (method.upper(), f"{ROOT}{path}") for path, methods in document["paths"].items() for method in methods
    }


def test_the_document_is_valid(api: ApiClient) -> None:
    validate(api.document, cls=OpenAPIV31SpecValidator)

    assert api.document["openapi"] == "3.1.0"
    assert api.document["servers"] == [{"url": ROOT}]


def test_the_document_has_exactly_the_routes_that_serve_requests(api: ApiClient) -> None:
    served = {
        (method, route.path)
        for route in INSTANCE_ROUTES
        if isinstance(route, Route) and route.path.startswith("/api/")
        for method in (route.methods or set()) - {"HEAD"}
    }

    assert operations(api.document) == served - NOT_DESCRIBED
    assert len(served) > 40


@pytest.mark.parametrize("route", api_routes.API_ROUTES, ids=lambda one: one.name)
def test_a_route_takes_what_its_path_has_and_says_what_it_does(route: ApiRoute) -> None:
    in_path = re.findall(r"\{(\w+)\}", route.path)
    text = inspect.getdoc(route.serve) or ""

    assert in_path == list(route.path_parameters)
    assert text.partition("\n")[0].endswith((".", ":")) or text.partition(".")[2] != ""
    assert (route.body is not None) <= route.is_action
    assert set(route.problems) <= {400, 403, 404, 409, 413, 415, 422, 429, 504}


def test_the_names_of_operations_differ(api: ApiClient) -> None:
    names = [one["operationId"] for methods in api.document["paths"].values() for one in methods.values()]

    assert len(names) == len(set(names)) > 40


def test_below_a_prefix_and_for_an_instance_the_document_names_its_server(redis_url: str) -> None:
    instances = [Instance.of(name, redis_url, settings=Settings()) for name in ("a", "b")]
    with serve(web.app(instances=instances), root_path="/ops") as site:
        document = site.get("/b/api/v1/openapi.json").json()

    assert document["servers"] == [{"url": "/ops/b/api/v1"}]


def test_a_reader_may_read_the_document_and_nobody_without_a_token(redis_url: str, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"wall read {'r' * 32}\n")
    with serve(web.app(redis_url, tokens=str(file))) as site:
        assert site.get(f"{ROOT}/openapi.json").status_code == 401
        found = site.get(f"{ROOT}/openapi.json", headers={"Authorization": f"Bearer {'r' * 32}"})

    assert found.json()["openapi"] == "3.1.0"
