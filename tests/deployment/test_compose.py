"""compose.yaml, read without a Docker engine: commands, users, mounts, health checks and grace periods."""

from __future__ import annotations

import importlib
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis
from rq import Worker

from deployment.command_lines import check_command, check_variables
from orchestrator.application.spec.model import DEFAULT_TIMEOUT_S
from orchestrator.settings import STOP_GRACE_S
from servers.redis_server import RedisServer

ROOT = Path(__file__).parents[2]


OURS = {"coordinator", "exporter", "web", "worker"}
PROFILES = {
    "exporter": {"exporter", "prometheus", "grafana"},
    "prometheus": {"prometheus", "grafana"},
    "grafana": {"grafana"},
}
USERS = {"coordinator": "coordinator", "exporter": "reader", "web": "operator", "worker": "worker"}
VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")

Service = dict[str, Any]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    text = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Service]:
    return dict(compose["services"])


def fill_in(text: str, values: Mapping[str, str]) -> str:
    """Replace variables as compose does: `${NAME:-default}`, and `${NAME:?message}`, which is required."""

    def value(found: re.Match[str]) -> str:
        name, kind, default = found.groups()
        assert values.get(name) or kind == "-", f"{name} is required: {default}"
        return values.get(name) or default

    return VARIABLE.sub(value, text)


def seconds(duration: str) -> float:
    return float(fill_in(duration, {}).removesuffix("s"))


def test_there_are_redis_our_processes_and_what_the_profiles_add(services: dict[str, Service]) -> None:
    assert set(services) == {"redis", *OURS, "prometheus", "grafana"}
    assert {name: {*one["profiles"]} for name, one in services.items() if "profiles" in one} == PROFILES


def test_redis_starts_by_its_script_which_writes_to_disk_and_evicts_nothing(
    services: dict[str, Service],
) -> None:
    script, *options = services["redis"]["command"]
    [mounted] = [one.split(":")[0] for one in services["redis"]["volumes"] if f":{script}:ro" in one]
    text = (ROOT / mounted).read_text()

    assert os.access(ROOT / mounted, os.X_OK)
    assert options == ["--dir", "/data"]
    assert re.search(r"exec redis-server .*--appendonly yes --appendfsync everysec", text)
    assert "--maxmemory-policy noeviction" in text


def test_redis_keeps_its_data_in_a_volume(compose: dict[str, Any]) -> None:
    volume, folder = compose["services"]["redis"]["volumes"][0].split(":")

    assert folder == "/data"
    assert volume in compose["volumes"]


def test_ports_are_published_to_this_machine_only(services: dict[str, Service]) -> None:
    ports = [port for one in services.values() for port in one.get("ports", [])]

    assert len(ports) == 4
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("service", ["redis", *sorted(OURS)])
def test_every_service_restarts_has_a_health_check_and_few_rights(
    services: dict[str, Service], service: str
) -> None:
    assert services[service]["restart"] == "always"
    assert services[service]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert services[service]["read_only"] is True
    assert services[service]["cap_drop"] == ["ALL"]
    assert services[service]["security_opt"] == ["no-new-privileges:true"]
    assert "container_name" not in services[service], "it can be scaled"


@pytest.mark.parametrize("service", sorted(OURS))
def test_our_processes_wait_for_redis_and_have_its_user_of_their_kind(
    services: dict[str, Service], service: str
) -> None:
    user = USERS[service]
    url = services[service]["environment"]["ORCHESTRATOR_REDIS_URL"]

    assert services[service]["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert fill_in(url, {f"REDIS_{user.upper()}_PASSWORD": "x"}) == f"redis://{user}:x@redis:6379/0"


def test_redis_gets_a_password_for_each_user_that_is_on(compose: dict[str, Any]) -> None:
    users = {path.stem for path in (ROOT / "docs" / "acl").glob("*.acl")} - {"default"}

    assert set(compose["services"]["redis"]["secrets"]) == {f"redis-{user}" for user in users}
    assert compose["secrets"] == {
        f"redis-{user}": {"environment": f"REDIS_{user.upper()}_PASSWORD"} for user in users
    }


def test_a_worker_may_finish_its_step_and_gives_up_its_result_before_it_is_killed(
    services: dict[str, Service],
) -> None:
    grace_s = seconds(services["worker"]["stop_grace_period"])

    assert grace_s >= DEFAULT_TIMEOUT_S + STOP_GRACE_S + 10


def test_there_are_two_coordinators(services: dict[str, Service]) -> None:
    assert services["coordinator"]["deploy"]["replicas"] == 2


@pytest.mark.parametrize("service", sorted(OURS))
def test_the_command_lines_and_the_variables_exist(services: dict[str, Service], service: str) -> None:
    passwords = {f"REDIS_{user.upper()}_PASSWORD": "x" for user in USERS.values()}
    values = {name: fill_in(text, passwords) for name, text in services[service]["environment"].items()}

    check_variables(values)
    _, *check = services[service]["healthcheck"]["test"]
    if check[0] == "orchestrator":
        check_command(check)
    check_command(services[service]["command"])


def test_every_mounted_file_exists_or_is_written_before(services: dict[str, Service]) -> None:
    mounted = {
        volume.split(":")[0]
        for one in services.values()
        for volume in one.get("volumes", [])
        if volume.startswith("./")
    }
    written = {"./web"}  # by the commands of docs/deploying.md, whose test compares them with this file

    missing = {path for path in mounted - written if not (ROOT / path).exists()}
    if missing and all(path.startswith("./docs/monitoring") for path in missing):
        pytest.skip(f"this version has no {sorted(missing)}")
    assert missing == set()


def test_prometheus_scrapes_the_port_of_the_exporter(services: dict[str, Service]) -> None:
    config = ROOT / "docs" / "monitoring" / "prometheus.yml"
    if not config.exists():
        pytest.skip("this version has no docs/monitoring/prometheus.yml")
    command = services["exporter"]["command"]
    port = command[command.index("--port") + 1]

    [job] = yaml.safe_load(config.read_text())["scrape_configs"]

    assert services["prometheus"]["network_mode"] == "service:exporter"
    assert job["static_configs"] == [{"targets": [f"127.0.0.1:{port}"]}]
    assert f"127.0.0.1:{port}/" in services["exporter"]["healthcheck"]["test"][-1]


def test_grafana_reads_the_prometheus_of_the_exporters_network(services: dict[str, Service]) -> None:
    folder = ROOT / "docs" / "deploy" / "grafana"
    [source] = yaml.safe_load((folder / "datasource.yaml").read_text())["datasources"]
    [provider] = yaml.safe_load((folder / "dashboards.yaml").read_text())["providers"]
    targets = [volume.split(":")[1] for volume in services["grafana"]["volumes"]]

    assert source["url"] == "http://exporter:9090"
    assert "127.0.0.1:9090:9090" in services["exporter"]["ports"]
    assert any(target.startswith(provider["options"]["path"]) for target in targets)


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


@pytest.mark.parametrize("name", ["ORCHESTRATOR_HTTP_HOSTS", "ORCHESTRATOR_WEBHOOK_HOSTS"])
def test_workers_get_the_hosts_that_they_may_call(services: dict[str, dict[str, Any]], name: str) -> None:
    assert services["worker"]["environment"][name] == f"${{{name}:-}}"
    assert name not in services["coordinator"]["environment"]


def is_healthy(service: dict[str, Any], server: RedisServer) -> bool:
    """Run the health check of a service as Docker would, against our own Redis."""
    _, program, *arguments = service["healthcheck"]["test"]
    assert program == "orchestrator"
    environment = {**os.environ, "ORCHESTRATOR_REDIS_URL": server.url}
    command = [sys.executable, "-m", "orchestrator", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True).returncode == 0
