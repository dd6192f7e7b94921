"""compose.yaml and its Dockerfile, read and judged without a Docker engine."""

from __future__ import annotations

import importlib
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from redis import Redis
from rq import Worker

from servers.redis_server import RedisServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return dict(compose["services"])


def test_there_are_redis_coordinators_and_workers(services: dict[str, dict[str, Any]]) -> None:
    assert set(services) == {"redis", "coordinator", "worker"}


def test_redis_writes_to_disk_and_evicts_nothing(services: dict[str, dict[str, Any]]) -> None:
    words = services["redis"]["command"].split()
    flags = dict(zip(words[1::2], words[2::2], strict=True))

    assert words[0] == "redis-server"
    assert flags["--appendonly"] == "yes"
    assert flags["--appendfsync"] == "everysec"
    assert flags["--maxmemory-policy"] == "noeviction"


def test_redis_keeps_its_data_in_a_volume(services: dict[str, dict[str, Any]]) -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    volume, folder = services["redis"]["volumes"][0].split(":")

    assert folder == "/data"
    assert volume in compose["volumes"]


def test_redis_is_published_to_this_machine_only(services: dict[str, dict[str, Any]]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in services["redis"]["ports"])


@pytest.mark.parametrize("service", ["redis", "coordinator", "worker"])
def test_every_service_restarts_and_has_a_health_check(
    services: dict[str, dict[str, Any]], service: str
) -> None:
    assert services[service]["restart"] == "always"
    assert services[service]["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("service", ["coordinator", "worker"])
def test_our_processes_wait_for_a_healthy_redis(services: dict[str, dict[str, Any]], service: str) -> None:
    assert services[service]["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert services[service]["environment"]["ORCHESTRATOR_REDIS_URL"] == "redis://redis:6379/0"
    assert "ORCHESTRATOR_EXECUTORS" in services[service]["environment"]


def test_a_worker_gives_up_its_results_before_it_is_killed(services: dict[str, dict[str, Any]]) -> None:
    settings = importlib.import_module("orchestrator.settings")

    assert float(services["worker"]["stop_grace_period"].removesuffix("s")) - 10 >= settings.STOP_GRACE_S


def test_there_are_two_coordinators(services: dict[str, dict[str, Any]]) -> None:
    assert services["coordinator"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("service", ["redis", "coordinator", "worker"])
def test_every_service_can_be_scaled(services: dict[str, dict[str, Any]], service: str) -> None:
    assert "container_name" not in services[service]


@pytest.mark.parametrize("service", ["coordinator", "worker"])
def test_the_commands_exist(services: dict[str, dict[str, Any]], service: str) -> None:
    program, command = services[service]["command"][:2]

    main = importlib.import_module("orchestrator.cli").main

    assert program == "orchestrator"
    assert isinstance(main, click.Group)
    assert main.get_command(click.Context(main), command) is not None


def test_a_coordinator_is_healthy_while_the_one_of_its_host_beats(
    services: dict[str, dict[str, Any]], redis_server: RedisServer, redis_client: Redis
) -> None:
    beats = importlib.import_module("orchestrator.redis_rq.keys").Keys().coordinators
    now_ms, here = int(time.time() * 1000), f"{socket.gethostname()}-7-ab12"

    redis_client.zadd(beats, {"elsewhere-7-ab12": now_ms, here: now_ms - 120_000})
    assert not is_healthy(services["coordinator"], redis_server)

    redis_client.zadd(beats, {here: now_ms + 60_000})  # it does not grow old while Python starts
    assert is_healthy(services["coordinator"], redis_server)


def test_a_worker_is_healthy_when_it_is_registered_and_connected(
    services: dict[str, dict[str, Any]], redis_server: RedisServer, redis_client: Redis
) -> None:
    worker = Worker(["orchestrator.default"], connection=redis_client)
    worker.register_birth()
    assert not is_healthy(services["worker"], redis_server)

    worker.subscribe()
    try:
        assert is_healthy(services["worker"], redis_server)
    finally:
        worker.unsubscribe()


def test_the_image_is_built_from_files_that_exist_and_runs_as_a_plain_user(
    services: dict[str, dict[str, Any]],
) -> None:
    lines = dockerfile_of(services["worker"])
    copied = {name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]}

    assert "USER orchestrator" in lines
    assert not {name for name in copied if not (ROOT / name).exists()}


def test_the_image_installs_only_what_the_lock_file_allows(services: dict[str, dict[str, Any]]) -> None:
    lines = dockerfile_of(services["worker"])
    installs = [line.split() for line in lines if "pip install" in line]

    locked, ours = installs
    assert {"--require-hashes", "scripts/requirements.lock"} <= {*locked}
    assert {"--no-deps", "--no-build-isolation", "."} <= {*ours}, "pip would fetch what is not locked"


def test_the_builder_can_pin_the_base_image(services: dict[str, dict[str, Any]]) -> None:
    lines = dockerfile_of(services["worker"])

    assert lines.index("ARG PYTHON_IMAGE=python:3.11-slim") < lines.index("FROM ${PYTHON_IMAGE}")
    assert "PYTHON_IMAGE" in services["worker"]["build"]["args"]


def test_every_locked_requirement_has_a_version_and_hashes() -> None:
    for requirement, hashes in read_lock().items():
        assert re.fullmatch(r"[\w.-]+==[\w.!+]+", requirement), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), requirement


def test_the_lock_satisfies_the_project_the_extra_http_and_the_build() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["http"],
        *project["build-system"]["requires"],
    ]
    locked = {canonicalize_name(one.partition("==")[0]): one.partition("==")[2] for one in read_lock()}

    unmet = [
        text
        for text in needed
        if not (requirement := Requirement(text)).specifier.contains(
            locked.get(canonicalize_name(requirement.name), "0.dev0")
        )
    ]

    assert not unmet, f"run scripts/lock: scripts/requirements.lock does not satisfy {unmet}"


@pytest.mark.parametrize("name", ["ORCHESTRATOR_HTTP_HOSTS", "ORCHESTRATOR_WEBHOOK_HOSTS"])
def test_workers_get_the_hosts_that_they_may_call(services: dict[str, dict[str, Any]], name: str) -> None:
    assert services["worker"]["environment"][name] == f"${{{name}:-}}"
    assert name not in services["coordinator"]["environment"]


def dockerfile_of(service: dict[str, Any]) -> list[str]:
    """The lines of a Dockerfile; a line that goes on is one line."""
    build = service["build"]
    text: str = (ROOT / build["context"] / build["dockerfile"]).read_text(encoding="utf-8")
    return text.replace("\\\n", " ").splitlines()


def read_lock() -> dict[str, list[str]]:
    """The locked requirements with their hashes."""
    text = (ROOT / "scripts" / "requirements.lock").read_text(encoding="utf-8")
    lines = [line.split("#")[0] for line in text.replace("\\\n", " ").splitlines()]
    return {words[0]: words[1:] for line in lines if (words := line.split())}


def is_healthy(service: dict[str, Any], server: RedisServer) -> bool:
    """Run the health check of a service as Docker would, against our own Redis."""
    _, program, *arguments = service["healthcheck"]["test"]
    assert program == "orchestrator"
    environment = {**os.environ, "ORCHESTRATOR_REDIS_URL": server.url}
    command = [sys.executable, "-m", "orchestrator", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode == 0
