"""docs/web.md is correct: its commands serve the page, and its applications serve it under their prefixes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from e2e.pages import Block, Reader, blocks, check_treatments, reading
from processes import wait_until
from servers.page_server import PAGE as HTML
from servers.page_server import PageServer, serve
from servers.redis_server import own_redis
from worlds.page_executions import run_execution
from worlds.page_users import ADA, WALL, bearer, write_users
from worlds.redis_world import RedisWorld

PAGE = "docs/web.md"
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
BLOCKS = {block.treatment: block for block in blocks(TEXT) if block.treatment}


def test_every_block_of_it_names_its_treatment() -> None:
    check_treatments(PAGE)


# ---- commands


@contextmanager
def served(reader: Reader, block: Block, redis_url: str) -> Iterator[str]:
    """Run a command of the page on a free port and on our own Redis; the URL that it prints."""
    [command] = block.text.splitlines()
    command = re.sub(r"rediss?://(?:[^@\s]*@)?localhost:6379/0", redis_url, command)
    log = reader.folder / "served.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", *command.split(), "--port", "0"],
            cwd=reader.folder,
            env={**reader.environment, "ORCHESTRATOR_REDIS_URL": redis_url},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        wait_until(lambda: "The page is at " in log.read_text() or process.poll() is not None)
        found = re.search(r"The page is at (\S+)/ ", log.read_text())
        assert found is not None, log.read_text()
        yield found[1].replace("0.0.0.0", "127.0.0.1")
    finally:
        process.terminate()
        process.wait(180)


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers={**HTML, **headers}, timeout=180, trust_env=False)


@pytest.mark.slow
def test_the_commands_serve_the_page(world: RedisWorld, redis_url: str, tmp_path: Path) -> None:
    run_execution(world, execution_id="order-1")

    with reading(tmp_path, PAGE) as reader:
        with served(reader, BLOCKS["serve"], redis_url) as url:
            assert "order-1" in get(f"{url}/executions").text
        reader.do(BLOCKS["console"])
        with served(reader, BLOCKS["serve users"], redis_url) as url:
            tokens = [line.split()[2] for line in (tmp_path / "tokens").read_text().splitlines()]
            assert len(set(tokens)) == 3
            statuses = [get(f"{url}/executions", **bearer(token)).status_code for token in tokens]
            assert statuses == [200, 200, 403]
        with served(reader, BLOCKS["serve instances"], redis_url) as url:
            assert "order-1" in get(f"{url}/shop/executions").text
            assert "order-1" not in get(f"{url}/billing/executions").text


@pytest.mark.slow
def test_the_command_for_readers_works_with_the_redis_user_of_that_name(tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    users.write_text(
        "".join((ROOT / f"docs/acl/{name}.acl").read_text() for name in ("coordinator", "reader"))
    )
    with own_redis(tmp_path, "--aclfile", str(users)) as server, reading(tmp_path, PAGE) as reader:
        url = f"unix://reader@{server.socket}?password=reader-password"
        with served(reader, BLOCKS["serve reader"], url) as page:
            assert get(f"{page}/executions").status_code == 200


# ---- applications


def load(name: str, folder: Path, redis_url: str) -> ModuleType:
    """The module of a block, with the URL of our own Redis and the folder of the test."""
    text = BLOCKS[f"application {name}.py"].text.replace("redis://localhost:6379/0", redis_url)
    module = ModuleType(name)
    exec(
        compile(text.replace('"tokens"', repr(str(folder / "tokens"))), f"{PAGE}: {name}", "exec"),
        vars(module),
    )
    return module


def check_prefix(
    site: PageServer, prefix: str, as_reader: dict[str, str], as_operator: dict[str, str]
) -> None:
    """The page works below its prefix: its links, its files, a page, the API and an action."""
    page = site.get(f"{prefix}/executions", headers={**HTML, **as_reader})
    assert "order-1" in page.text
    links = set(re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text))
    assert links
    assert {link for link in links if not link.startswith(f"{prefix}/")} == set()
    for link in links:
        if "/static/" in link:
            assert site.get(link).status_code == 200, link
    home = site.get(f"{prefix}/", headers={**HTML, **as_reader})
    assert home.headers["Location"].startswith(f"{prefix}/")
    execution = f"{prefix}/api/v1/executions/order-1"
    assert site.get(execution, headers=as_reader).json()["execution_id"] == "order-1"
    assert site.request("DELETE", execution, headers=as_reader).status_code == 403
    other = {"Origin": "https://evil.example"}
    assert (
        site.request("DELETE", execution, headers={**as_operator, **other}).json()["code"] == "other_origin"
    )
    assert site.get(f"{prefix}/executions").status_code == 401


def test_the_page_works_under_a_prefix_of_starlette(
    world: RedisWorld, redis_url: str, tmp_path: Path
) -> None:
    run_execution(world, execution_id="order-1")
    write_users(tmp_path)
    module = load("starlette_tools", tmp_path, redis_url)

    with serve(module.application) as site:
        check_prefix(site, "/flows", bearer(WALL), bearer(ADA))
        assert site.get("/flows/executions", headers=HTML).headers["Location"] == "/flows/login"


def test_the_page_works_under_a_prefix_of_fastapi(world: RedisWorld, redis_url: str, tmp_path: Path) -> None:
    run_execution(world, execution_id="order-1")
    module = load("fastapi_tools", tmp_path, redis_url)

    module.application.add_api_route("/own", lambda: "of the application")

    with serve(module.application) as site:
        eve, ada = {"Cookie": "session=session-of-eve"}, {"Cookie": "session=session-of-ada"}
        check_prefix(site, "/tools/flows", eve, ada)
        assert site.get("/own").json() == "of the application"


def test_the_page_works_beside_django_with_its_users(
    world: RedisWorld, redis_url: str, tmp_path: Path
) -> None:
    run_execution(world, execution_id="order-1")
    sessions = start_django(tmp_path)
    module = load("django_tools", tmp_path, redis_url)

    with serve(module.application) as site:
        cookies = {name: {"Cookie": f"sessionid={key}"} for name, key in sessions.items()}
        check_prefix(site, "/flows", cookies["staff"], cookies["root"])
        for headers in (cookies["visitor"], {"Cookie": "sessionid=guess"}, {}):
            assert site.get("/flows/executions", headers=headers).status_code == 401
        assert site.get("/own").text == "of the application"


def start_django(folder: Path) -> dict[str, str]:
    """Configure Django with a database in a file; the key of a session for each kind of user."""
    import django
    from django.conf import settings
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    def own(request: HttpRequest) -> HttpResponse:
        return HttpResponse("of the application")

    urls = ModuleType("django_urls_of_the_test")
    urls.urlpatterns = [path("own", own)]  # type: ignore[attr-defined]
    sys.modules[urls.__name__] = urls
    settings.configure(
        SECRET_KEY="only for this test",
        ALLOWED_HOSTS=["127.0.0.1"],
        ROOT_URLCONF=urls.__name__,
        INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "django.db")}},
        LOGGING_CONFIG=None,
    )
    django.setup()
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    keys = {}
    for name, rights in {
        "root": {"is_staff": True, "is_superuser": True},
        "staff": {"is_staff": True},
        "visitor": {},
    }.items():
        user = User.objects.create_user(name, password=None, **rights)
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.save()
        keys[name] = session.session_key
    return keys


def test_several_systems_are_shown_in_one_application(
    world: RedisWorld, redis_url: str, tmp_path: Path
) -> None:
    run_execution(world, execution_id="order-1")
    write_users(tmp_path)
    module = load("several_tools", tmp_path, redis_url)

    with serve(module.application) as site:
        assert "order-1" in site.get("/shop/executions", headers={**HTML, **bearer(WALL)}).text
        assert "order-1" not in site.get("/billing/executions", headers={**HTML, **bearer(WALL)}).text
