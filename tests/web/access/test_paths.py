"""Paths, as the guard reads them."""

from __future__ import annotations

import pytest

from orchestrator.web.access.paths import instance_path, is_hook, is_public, own_path, public_root


@pytest.mark.parametrize(
    ("root", "path", "own"),
    [
        ("", "/login", "/login"),
        ("/flows", "/flows/login", "/login"),
        ("/flows", "/flows", ""),
        ("/flows", "/flowsx/login", "/flowsx/login"),
        ("/flows", "/login", "/login"),
        ("/flows", "//flows/login", "//flows/login"),
    ],
)
def test_the_path_of_a_request_begins_below_the_prefix(root: str, path: str, own: str) -> None:
    assert own_path({"path": path, "root_path": root}) == own


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/shop/executions", "/executions"),
        ("/shop", "/shop"),
        ("/other/executions", "/other/executions"),
        ("/shop/shop/executions", "/shop/executions"),
        ("//shop/executions", "//shop/executions"),
    ],
)
def test_the_name_of_an_instance_is_no_part_of_its_paths(path: str, found: str) -> None:
    assert instance_path({"path": path, "root_path": ""}, {"shop"}) == found


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/executions",
        "/login/",
        "/login/x",
        "//login",
        "/LOGIN",
        "/login\n",
        "/healthz/../executions",
        "/static",
        "/static/",
        "/static/x/y",
        "/static/../executions",
    ],
)
def test_only_exact_paths_are_public(path: str) -> None:
    assert not is_public(path)


def test_the_login_and_what_it_needs_are_public() -> None:
    assert all(map(is_public, ("/login", "/logout", "/healthz", "/static/style.css")))


@pytest.mark.parametrize(
    "path", ["/api/v1/hooks", "/api/v1/hooks/", "/api/v1/hooks/a/b", "/x/api/v1/hooks/a"]
)
def test_only_exact_paths_are_those_of_webhooks(path: str) -> None:
    assert is_hook("/api/v1/hooks/order")
    assert not is_hook(path)


@pytest.mark.parametrize(
    ("root", "shown"),
    [
        ("", ""),
        ("/", ""),
        ("/tools/flows", "/tools/flows"),
        ("//evil.example", "/evil.example"),
        ("/\\evil.example", "/%5Cevil.example"),
        ("/a\r\nSet-Cookie: x=y", "/a%0D%0ASet-Cookie%3A%20x%3Dy"),
    ],
)
def test_the_prefix_in_links_leads_to_this_host(root: str, shown: str) -> None:
    assert public_root({"root_path": root}) == shown
