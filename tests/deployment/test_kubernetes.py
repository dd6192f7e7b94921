"""The kustomizations in docs/deploy build, fit the command line and are safe to run."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment.command_lines import check_command, check_variables
from orchestrator.application.spec.model import DEFAULT_TIMEOUT_S
from orchestrator.settings import STOP_GRACE_S

ROOT = Path(__file__).parents[2]
OVERLAYS = ROOT / "docs" / "deploy" / "kubernetes" / "overlays"
NAMES = ["available", "keda", "plain"]
SECRETS = {"orchestrator-redis", "orchestrator-web"}
"""Created before by the commands of docs/deploying.md."""

Resource = dict[str, Any]


def build(folder: Path, home: Path) -> list[Resource]:
    """Build a kustomization. kubectl gets no configuration, so it knows no cluster."""
    if kustomize := shutil.which("kustomize"):
        command = [kustomize, "build"]
    elif kubectl := shutil.which("kubectl"):
        command = [kubectl, "kustomize"]
    else:
        pytest.skip("there is neither kustomize nor kubectl on the PATH")
    environment = {**os.environ, "HOME": str(home), "KUBECONFIG": os.devnull}
    run = subprocess.run([*command, str(folder)], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return list(yaml.safe_load_all(run.stdout))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Resource]]:
    home = tmp_path_factory.mktemp("home")
    return {name: build(OVERLAYS / name, home) for name in NAMES}


def of_kind(resources: list[Resource], kind: str) -> dict[str, Resource]:
    return {one["metadata"]["name"]: one for one in resources if one["kind"] == kind}


def pods(resources: list[Resource]) -> Iterator[tuple[str, Resource]]:
    for kind in ("Deployment", "StatefulSet"):
        for name, one in of_kind(resources, kind).items():
            yield name, one["spec"]["template"]["spec"]


def containers(resources: list[Resource]) -> Iterator[tuple[str, Resource]]:
    for name, pod in pods(resources):
        for container in pod["containers"]:
            yield name, container


def test_every_overlay_is_tested() -> None:
    assert sorted(path.name for path in OVERLAYS.iterdir()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_an_overlay_has_its_processes(built: dict[str, list[Resource]], name: str) -> None:
    usual = {"coordinator", "redis", "web", "worker"}

    assert {one for one, _ in pods(built[name])} == usual | ({"exporter"} if name == "keda" else set())


@pytest.mark.parametrize("name", NAMES)
def test_the_command_lines_and_the_variables_exist(built: dict[str, list[Resource]], name: str) -> None:
    maps = of_kind(built[name], "ConfigMap")
    for process, container in containers(built[name]):
        if process == "redis":
            continue
        check_command(container["args"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if "exec" in container.get(probe, {}):
                check_command(container[probe]["exec"]["command"])
        values = {one["name"]: one.get("value", "") for one in container["env"]}
        for source in container["envFrom"]:
            values |= maps[source["configMapRef"]["name"]]["data"]
        check_variables({key: value for key, value in values.items() if key != "REDIS_PASSWORD"})


@pytest.mark.parametrize("name", NAMES)
def test_every_process_has_the_redis_user_and_the_password_of_its_kind(
    built: dict[str, list[Resource]], name: str
) -> None:
    users = {"coordinator": "coordinator", "exporter": "reader", "web": "operator", "worker": "worker"}
    for process, container in containers(built[name]):
        if process == "redis":
            continue
        [password] = [one for one in container["env"] if one["name"] == "REDIS_PASSWORD"]
        [url] = [one["value"] for one in container["env"] if one["name"] == "ORCHESTRATOR_REDIS_URL"]

        assert password["valueFrom"]["secretKeyRef"]["key"] == f"redis-{users[process]}"
        assert url == f"redis://{users[process]}:$(REDIS_PASSWORD)@redis:6379/0"


@pytest.mark.parametrize("name", NAMES)
def test_no_container_is_root_or_may_become_it(built: dict[str, list[Resource]], name: str) -> None:
    for _, pod in pods(built[name]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
    for _, container in containers(built[name]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"readinessProbe", "livenessProbe", "resources"} <= container.keys()


@pytest.mark.parametrize("name", NAMES)
def test_what_a_pod_mounts_and_a_service_selects_exists(built: dict[str, list[Resource]], name: str) -> None:
    maps = of_kind(built[name], "ConfigMap")
    labels = {one: f"app.kubernetes.io/name: {one}" for one, _ in pods(built[name])}
    for _, pod in pods(built[name]):
        for volume in pod["volumes"]:
            assert volume.get("configMap", {}).get("name", next(iter(maps))) in maps
            assert volume.get("secret", {}).get("secretName", next(iter(SECRETS))) in SECRETS
    for service in of_kind(built[name], "Service").values():
        assert service["spec"]["selector"]["app.kubernetes.io/name"] in labels


@pytest.mark.parametrize("name", NAMES)
def test_a_worker_may_finish_its_step(built: dict[str, list[Resource]], name: str) -> None:
    grace_s = dict(pods(built[name]))["worker"]["terminationGracePeriodSeconds"]

    assert grace_s >= DEFAULT_TIMEOUT_S + STOP_GRACE_S + 10


@pytest.mark.parametrize("process", ["coordinator", "worker"])
def test_an_outage_of_redis_restarts_nothing_for_ten_minutes(
    built: dict[str, list[Resource]], process: str
) -> None:
    container = dict(containers(built["plain"]))[process]
    probe = container["livenessProbe"]

    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600


def test_redis_starts_with_the_users_of_docs_acl(built: dict[str, list[Resource]]) -> None:
    maps = of_kind(built["plain"], "ConfigMap")
    [rules] = [one["data"] for name, one in maps.items() if name.startswith("redis-rules")]
    [start] = [one["data"] for name, one in maps.items() if name.startswith("redis-start")]

    assert rules == {path.name: path.read_text() for path in sorted((ROOT / "docs" / "acl").glob("*.acl"))}
    assert start == {"start": (ROOT / "docs" / "deploy" / "redis" / "start").read_text()}


def test_two_coordinators_are_not_disrupted_together(built: dict[str, list[Resource]]) -> None:
    deployments = of_kind(built["available"], "Deployment")
    budgets = of_kind(built["available"], "PodDisruptionBudget")

    for name in ("coordinator", "worker"):
        spec = deployments[name]["spec"]
        assert spec["replicas"] == 2 > budgets[name]["spec"]["minAvailable"] == 1
        labels = spec["template"]["metadata"]["labels"]
        [spread] = spec["template"]["spec"]["topologySpreadConstraints"]
        for selector in (budgets[name]["spec"]["selector"], spread["labelSelector"]):
            assert selector["matchLabels"].items() <= labels.items()


def test_workers_are_scaled_by_the_length_of_their_queue_and_its_oldest_job(
    built: dict[str, list[Resource]],
) -> None:
    [scaled] = of_kind(built["keda"], "ScaledObject").values()
    worker = of_kind(built["keda"], "Deployment")[scaled["spec"]["scaleTargetRef"]["name"]]
    queries = [one["metadata"]["query"] for one in scaled["spec"]["triggers"]]
    [queue] = worker["spec"]["template"]["spec"]["containers"][0]["args"][2:]

    assert "replicas" not in worker["spec"], "each `kubectl apply` would undo what KEDA has scaled"
    assert 0 < scaled["spec"]["minReplicaCount"] < scaled["spec"]["maxReplicaCount"]
    assert queries == [
        f'max(orchestrator_queue_{what}{{queue="{queue}"}})'
        for what in ("waiting_jobs", "oldest_job_seconds")
    ]
