"""`orchestrator exporter`, as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from orchestrator.metrics.exporter import MAX_REQUESTS, Exporter
from orchestrator.metrics.reader import CONTENT_TYPE, MetricsReader
from processes import ROOT, Stack, run_module, stack
from servers.redis_server import own_redis
from worlds.documents import document, step
from worlds.redis_world import RedisWorld
from worlds.samples import parse
from worlds.waiting import in_thread


@pytest.fixture
def started(redis_url: str, tmp_path: Path) -> Iterator[Stack]:
    with stack(redis_url, "", tmp_path / "processes") as made:
        yield made


def get(url: str, method: str = "GET") -> httpx.Response:
    return httpx.request(method, url, timeout=180, trust_env=False)


def ended(world: RedisWorld, name: str = "order") -> None:
    one = world.coordinator()
    world.start(document(step("a"), name=name))
    world.settle(one)


def test_it_serves_the_metrics_until_it_is_told_to_end(world: RedisWorld, started: Stack) -> None:
    ended(world)
    process, url = started.exporter()

    response = get(f"{url}/metrics")

    assert response.headers["Content-Type"] == CONTENT_TYPE
    assert parse(response.text)("executions_ended_total", workflow="order", status="complete") == 1
    assert get(f"{url}/metrics?x=1").status_code == 200
    assert (get(f"{url}/metrics", "HEAD").status_code, get(f"{url}/metrics", "HEAD").content) == (200, b"")
    assert get(f"{url}/").status_code == get(f"{url}/../etc/passwd").status_code == 404
    assert get(f"{url}/metrics", "POST").status_code == 501
    process.send_signal(signal.SIGTERM)
    assert process.wait(180) == 0
    assert "Traceback" not in started.log()


def test_it_says_so_when_redis_is_gone_and_goes_on(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server, stack(server.url, "", tmp_path / "processes") as started:
        server.kill()
        _, url = started.exporter()

        gone = get(f"{url}/metrics")
        server.start()
        again = get(f"{url}/metrics")

    assert (gone.status_code, gone.text.count("\norchestrator_")) == (200, 1)
    assert parse(gone.text)("up") == 0
    assert parse(again.text)("up") == 1


def test_a_slow_redis_does_not_pile_up_requests(world: RedisWorld) -> None:
    """Each of them would keep a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Exporter(listener, MetricsReader(world.client, world.keys))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"
        with in_thread(server.serve_forever):
            taken = [server.free.acquire(blocking=False) for _ in range(MAX_REQUESTS)]
            rejected = get(url).status_code
            server.free.release()
            accepted = get(url).status_code
            server.shutdown()

    assert (all(taken), rejected, accepted) == (True, 503, 200)


def test_without_its_package_the_command_names_the_extra(redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'prometheus_client':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "ORCHESTRATOR_REDIS_URL": redis_url}

    done = run_module(["orchestrator", "exporter"], variables, tmp_path, 180, is_warm=False)

    assert done.returncode == 1
    assert "pip install 'rq-orchestrator[metrics]' (missing: prometheus_client)" in done.stderr


def test_it_needs_no_package_of_the_web_page() -> None:
    code = (
        "import sys, orchestrator.metrics.exporter\n"
        "print(sorted({'starlette', 'uvicorn', 'jinja2', 'rich'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert found.stdout == "[]\n"
