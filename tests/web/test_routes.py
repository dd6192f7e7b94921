"""Every route, with every method: it is open to no one without a user, and to no user without the role.

A new route is tested here as soon as it is in the list of its module. A route that is open, or that is
missing in `all_routes`, fails a test.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount, Route, Router

from orchestrator import web
from orchestrator.web.application import InstanceRoutes, all_routes
from orchestrator.web.instance import Instance
from servers.page_server import PAGE
from worlds.page_users import ADA, SHOP, WALL, bearer, write_users

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT-X")
READING = ("GET", "HEAD")

PUBLIC = {
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/healthz"),
    ("GET", "/static/{file}"),
}
"""All that is open to everybody. A change of this list is a change of who may see what."""
HOOK = "/api/v1/hooks/{workflow}"


class Case(NamedTuple):
    """A request for a route: its parameters are filled in."""

    method: str
    path: str
    route: str

    @property
    def is_public(self) -> bool:
        method = "GET" if self.method == "HEAD" else self.method
        return any(self.route == path for _, path in PUBLIC) and (
            (method, self.route) in PUBLIC or self.method not in _methods_of(self.route)
        )

    @property
    def is_served(self) -> bool:
        return self.method in _methods_of(self.route)


def _methods_of(path: str) -> set[str]:
    return {method for route in all_routes() if route.path == path for method in route.methods or ()}


def cases() -> list[Case]:
    """Every path with every method, also with those that it has no route for."""
    paths = sorted({route.path for route in all_routes()})
    return [Case(method, re.sub(r"\{[^}]+\}", "order", path), path) for path in paths for method in METHODS]


class Sender:
    """Sends requests to an application in this process: there are thousands, and none needs a socket."""

    def __init__(self, application: Starlette, **headers: str) -> None:
        self._application, self._headers = application, headers

    def send(self, cases: Sequence[Case], headers: Mapping[str, str] | None = None) -> list[httpx.Response]:
        """One request for each case."""
        return asyncio.run(self._send(cases, {**self._headers, **(headers or {})}))

    async def _send(self, cases: Sequence[Case], headers: Mapping[str, str]) -> list[httpx.Response]:
        transport = httpx.ASGITransport(self._application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.request(case.method, case.path, headers=headers) for case in cases]


@pytest.fixture
def users(tmp_path: Path) -> str:
    """The path of a file with the users of page_users.py."""
    return str(write_users(tmp_path))


@pytest.fixture
def sender(redis_url: str, users: str) -> Sender:
    return Sender(web.app(redis_url, tokens=users))


def unlike(cases: Sequence[Case], responses: Sequence[httpx.Response], *expected: int) -> list[str]:
    """The cases whose response has another status."""
    return [
        f"{case.method} {case.route}: {response.status_code}"
        for case, response in zip(cases, responses, strict=True)
        if response.status_code not in expected
    ]


def test_the_list_of_routes_is_complete() -> None:
    """What the application really has is what these tests look at."""
    one = Instance.of("one", "redis://localhost:1")
    two = Instance.of("two", "redis://localhost:1")

    for instances in ([one], [one, two]):
        found = list(_routes_of(web.app(instances=instances)))
        assert {id(route) for route in found} == {id(route) for route in all_routes()}


def _routes_of(app: Any) -> Iterator[BaseRoute]:
    """The routes of an application, and of everything that is mounted in it."""
    routes: Sequence[BaseRoute] = []
    if isinstance(app, Starlette | Router):
        routes = app.routes
    elif isinstance(app, InstanceRoutes):
        routes = app._router.routes  # type: ignore[attr-defined]
    for route in routes:
        if isinstance(route, Mount):
            assert isinstance(route.app, Starlette | Router | InstanceRoutes), f"{route} hides its routes"
            yield from _routes_of(route.app)
        else:
            assert isinstance(route, Route), f"the guard knows only routes of HTTP, and not {route}"
            yield route


def test_every_route_names_its_methods_and_has_a_name_of_its_own() -> None:
    names = [route.name for route in all_routes()]

    assert len(set(names)) == len(names)
    assert all(route.methods for route in all_routes())


def test_without_a_user_every_route_asks_for_one(sender: Sender) -> None:
    closed = [case for case in cases() if not case.is_public]

    data = sender.send(closed)
    pages = sender.send(closed, PAGE)

    assert unlike(closed, data, 401) == []
    assert unlike(closed, pages, 401, 303) == []
    assert {response.headers.get("Location", "/login") for response in pages} == {"/login"}


def test_what_is_open_shows_nothing_of_an_instance(sender: Sender) -> None:
    open_ones = [case for case in cases() if case.is_public and case.is_served]

    responses = sender.send(open_ones)

    assert {(case.method, case.route) for case in open_ones} - {
        ("HEAD", path) for _, path in PUBLIC
    } == PUBLIC
    assert unlike(open_ones, responses, 200, 303, 400, 404) == []
    assert all("orchestrator:" not in response.text for response in responses)


def test_a_user_who_reads_can_use_no_other_method(sender: Sender) -> None:
    actions = [case for case in cases() if case.method not in READING and not case.is_public]

    responses = sender.send(actions, bearer(WALL))

    assert unlike(actions, responses, 403) == []
    assert {response.json()["code"] for response in responses} == {"forbidden"}


def test_the_token_of_a_webhook_starts_its_workflow_and_opens_no_other_route(sender: Sender) -> None:
    closed = [case for case in cases() if not case.is_public]

    responses = sender.send(closed, bearer(SHOP))

    allowed = [case for case, one in zip(closed, responses, strict=True) if one.status_code != 403]
    assert [(case.method, case.route) for case in allowed] == [("POST", HOOK)]


def test_no_action_is_accepted_from_a_page_of_another_origin(sender: Sender) -> None:
    actions = [case for case in cases() if case.method not in READING]

    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        responses = sender.send(actions, {**bearer(ADA), **headers})
        assert unlike(actions, responses, 403) == []
        assert {response.json()["code"] for response in responses} == {"other_origin"}


def test_a_read_only_page_serves_no_action(redis_url: str, users: str) -> None:
    sender = Sender(web.app(redis_url, tokens=users, read_only=True), **bearer(ADA))
    actions = [case for case in cases() if case.method not in READING and not case.is_public]

    responses = sender.send(actions)

    assert unlike(actions, responses, 403) == []
    assert {response.json()["code"] for response in responses} == {"read_only"}


def test_a_host_of_another_name_reaches_no_route_of_a_page_without_users(redis_url: str) -> None:
    sender = Sender(web.app(redis_url), Host="evil.example")

    responses = sender.send(cases())

    assert unlike(cases(), responses, 403) == []
    assert {response.json()["code"] for response in responses if response.content} == {"unknown_host"}


def test_no_route_of_several_instances_is_open(redis_url: str, users: str) -> None:
    instances = [Instance.of("one", redis_url), Instance.of("two", redis_url)]
    sender = Sender(web.app(instances=instances, tokens=users))
    below = [case._replace(path=f"/one{case.path}") for case in cases()]

    without_user = sender.send(below)
    actions = [case for case in below if case.method not in READING]
    as_reader = sender.send(actions, bearer(WALL))

    assert unlike(below, without_user, 401) == []
    assert unlike(actions, as_reader, 403) == []


@pytest.mark.parametrize("name", ["api", "static", "login", "logout", "healthz"])
def test_no_instance_can_have_a_name_whose_paths_are_open(redis_url: str, name: str) -> None:
    with pytest.raises(ValueError, match="no instance may have one of these names"):
        web.app(instances=[Instance.of("one", redis_url), Instance.of(name, redis_url)])
