"""`orchestrator web`, as a process of its own: it serves, says where, and ends at once when it is told to."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from orchestrator.web.access.tokens import TokenFile
from processes import ROOT, Stack, run_module, stack, wait_until
from servers.redis_server import own_redis
from worlds.documents import document, step
from worlds.page_executions import run_execution
from worlds.page_users import ADA, WALL, bearer, write_users
from worlds.redis_world import RedisWorld

PAGE = {"Accept": "text/html"}


@pytest.fixture
def started(redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    """Starts pages as processes, on our own Redis."""
    with stack(redis_url, "", tmp_path / "processes") as made:
        yield made


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, timeout=180, trust_env=False)


def get_or_fail(url: str) -> None:
    with suppress(httpx.HTTPError):
        get(url)


def run_web(*options: str, **environment: str) -> tuple[int, str]:
    """Run the command until it ends; its exit code and what it printed."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "ORCHESTRATOR_REDIS_URL": "redis://localhost:1"}
    done = run_module(["orchestrator", "web", *options], {**variables, **environment}, ROOT, 180)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_also_with_open_live_updates(
    world: RedisWorld, started: Stack, number: signal.Signals
) -> None:
    coordinator = world.coordinator()
    world.begin(coordinator, document(step("a")), execution_id="order-1")
    process, url = started.web()

    with httpx.stream("GET", f"{url}/executions/order-1/live", timeout=180, trust_env=False) as live:
        assert live.headers["Content-Type"].startswith("text/event-stream"), live.read()
        lines = live.iter_lines()
        next(lines)
        process.send_signal(number)
        list(lines)

    assert process.wait(180) == 0
    assert "Traceback" not in started.log()


def test_a_request_that_waits_for_redis_does_not_keep_it(tmp_path: Path) -> None:
    with (
        own_redis(tmp_path) as server,
        stack(f"{server.url}?socket_timeout=600", "", tmp_path / "processes") as started,
    ):
        process, url = started.web()
        threads = Path(f"/proc/{process.pid}/task")
        before = len(list(threads.iterdir()))

        os.kill(server.pid, signal.SIGSTOP)
        asking = threading.Thread(target=get_or_fail, args=[f"{url}/executions"])
        asking.start()
        wait_until(lambda: len(list(threads.iterdir())) > before, what="the request to be served")
        process.terminate()
        code = process.wait(180)
        os.kill(server.pid, signal.SIGCONT)

        asking.join(180)
        assert code == 0


def test_it_shows_the_executions_of_its_redis(world: RedisWorld, started: Stack) -> None:
    run_execution(world, execution_id="order-1")
    _, url = started.web()

    assert url.startswith("http://127.0.0.1:")
    assert "order-1" in get(f"{url}/executions", **PAGE).text
    assert get(f"{url}/healthz").text == "ok\n"


def test_a_page_is_served_while_redis_cannot_be_reached_and_shows_why(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server, stack(server.url, "", tmp_path / "processes") as started:
        server.kill()
        process, url = started.web()

        page = get(f"{url}/executions", **PAGE)
        assert page.status_code == 503
        assert "cannot use Redis" in page.text

        server.start()
        wait_until(lambda: get(f"{url}/executions", **PAGE).status_code == 200)
        assert process.poll() is None


def test_it_listens_on_ipv6(started: Stack) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no IPv6")

    _, url = started.web("--host", "::1")

    assert url.startswith("http://[::1]:")
    assert get(f"{url}/executions", **PAGE).status_code == 200


def test_a_port_that_is_taken_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, printed = run_web("--port", str(port))

    assert (code, printed) == (1, f"Error: cannot listen on 127.0.0.1:{port}: Address already in use\n")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "flows.example"])
def test_an_address_that_others_can_reach_needs_users(host: str) -> None:
    code, printed = run_web("--host", host)

    assert code == 2
    assert f"{host} is not an address of this machine alone" in printed
    assert "--token-file FILE" in printed


def test_with_users_it_listens_on_every_address(started: Stack, tmp_path: Path) -> None:
    _, url = started.web("--host", "0.0.0.0", "--token-file", str(write_users(tmp_path)))

    own = url.replace("0.0.0.0", "127.0.0.1")
    assert get(f"{own}/executions").status_code == 401
    assert get(f"{own}/executions", **bearer(WALL)).status_code == 200


def test_another_loopback_address_serves_its_own_name(started: Stack) -> None:
    _, url = started.web("--host", "127.0.0.2")

    assert get(f"{url}/healthz").status_code == 200


def test_a_mistake_in_the_file_of_users_is_named_with_its_line(tmp_path: Path) -> None:
    path = write_users(tmp_path, f"ada operator {ADA}\n")

    code, printed = run_web("--token-file", str(path))
    missing, printed_of_missing = run_web("--token-file", str(tmp_path / "missing"))

    assert (code, missing) == (2, 2)
    assert printed == f"Error: {path}:1: the role must be read, operate or start:WORKFLOW\n"
    assert "No such file" in printed_of_missing


def test_a_read_only_page_rejects_actions(started: Stack) -> None:
    _, url = started.web("--read-only")

    answer = httpx.post(f"{url}/executions", timeout=180, trust_env=False)

    assert answer.json()["code"] == "read_only"


def test_several_systems_are_shown_below_their_names(
    world: RedisWorld, started: Stack, redis_url: str
) -> None:
    run_execution(world, execution_id="order-1")

    _, url = started.web("--instance", f"shop={redis_url}", "--instance", f"test={redis_url},other")

    home = get(f"{url}/", **PAGE).text
    assert 'href="/shop/executions"' in home
    assert 'href="/test/executions"' in home
    assert "order-1" in get(f"{url}/shop/executions", **PAGE).text
    assert "order-1" not in get(f"{url}/test/executions", **PAGE).text
    assert get(f"{url}/executions", **PAGE).status_code == 404


def test_a_proxy_may_remove_a_part_of_the_path(started: Stack) -> None:
    _, url = started.web("--root-path", "/flows/")

    own = url.removesuffix("/flows")
    assert url.endswith("/flows")
    assert get(f"{own}/", **PAGE).headers["Location"] == "/flows/executions"
    assert 'href="/flows/failures"' in get(f"{own}/executions", **PAGE).text


SECRET = "redis://user:hidden@localhost:1"
MISTAKES = {
    ("--instance", "shop"): "'shop' is not an instance: write NAME=URL or NAME=URL,PREFIX",
    ("--instance", SECRET): "'redis://***@localhost:1' is not an instance",
    ("--instance", "shop=http://x"): "is not a Redis URL",
    ("--instance", "sh/op=redis://x"): "the name of an instance has 1 to 64 letters",
    ("--instance", "shop=redis://x,a b"): "the prefix must have 1 to 64 letters",
    ("--instance", "a=redis://x", "--instance", "a=redis://y"): "two instances have the same name",
    (
        "--instance",
        "a=redis://x",
        "--instance",
        "static=redis://y",
    ): "no instance may have one of these names",
    ("--root-path", "flows"): "write a path, such as /flows",
    ("--root-path", "//evil.example"): "write a path, such as /flows",
    ("--port", "70000"): "70000 is not in the range",
    ("--host", "no such host"): "no such host is not an address of this machine alone",
}


@pytest.mark.parametrize("options", MISTAKES, ids=" ".join)
def test_a_wrong_option_is_explained(options: tuple[str, ...]) -> None:
    code, printed = run_web(*options)

    assert code == 2, printed
    assert MISTAKES[options] in printed
    assert "hidden" not in printed
    assert "Traceback" not in printed


def test_the_url_of_sentinels_may_stand_before_a_prefix() -> None:
    from orchestrator.cli.web_server import _read_instance
    from orchestrator.settings import Settings

    url = "redis+sentinel://a:26379,b:26379/main/0"

    for text, prefix in ((f"shop={url}", "orchestrator"), (f"shop={url},eu", "eu")):
        name, settings = _read_instance(text, Settings())
        assert (name, settings.redis_url, settings.prefix) == ("shop", url, prefix)


def test_a_new_token_fits_the_file_of_users(tmp_path: Path) -> None:
    code, printed = run_web("--new-token")

    assert code == 0
    assert TokenFile(write_users(tmp_path, f"ada operate {printed}")).find(printed.strip()) is not None


BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize("missing", ["jinja2", "starlette", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(tmp_path: Path, missing: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER.format(names={missing}))

    code, printed = run_blocked(tmp_path, "web")

    assert code == 1
    assert printed == (
        f"Error: the web page needs more packages: pip install 'rq-orchestrator[web]' (missing: {missing})\n"
    )


def test_no_other_command_needs_the_extra(tmp_path: Path) -> None:
    names = {"jinja2", "starlette", "uvicorn", "anyio", "h11", "markupsafe"}
    (tmp_path / "sitecustomize.py").write_text(BLOCKER.format(names=names))

    for command in (["--help"], ["web", "--help"], ["validate", str(ROOT / "docs/examples/order.yaml")]):
        code, printed = run_blocked(tmp_path, *command)
        assert code == 0, printed


def run_blocked(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run the command line in a new interpreter that cannot import some modules."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    return done.returncode, done.stdout + done.stderr
