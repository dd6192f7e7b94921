"""The image: scripts/Dockerfile, .dockerignore and the lock file, read without a Docker engine."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deployment.command_lines import check_command

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    return dict(yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"])


def test_the_image_is_built_from_files_that_exist_and_runs_as_a_plain_user(
    services: dict[str, dict[str, Any]],
) -> None:
    lines = dockerfile_of(services["worker"])
    copied = {name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]}

    [user] = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert int(user) > 0, "Kubernetes compares a number"
    assert any(f"useradd --create-home --user-group --uid {user} " in line for line in lines)
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


def test_the_image_has_a_health_check_and_a_command_that_exist(services: dict[str, dict[str, Any]]) -> None:
    lines = dockerfile_of(services["worker"])
    commands = [
        json.loads(line[line.index("[") :]) for line in lines if re.match(r"(HEALTHCHECK|CMD) .*\[", line)
    ]

    assert commands == [["orchestrator", "health", "redis"], ["orchestrator", "--help"]]
    check_command(commands[0])


def test_the_builder_gets_what_the_image_copies_and_nothing_else(services: dict[str, dict[str, Any]]) -> None:
    """Passwords and tokens beside compose.yaml are no part of what is sent."""
    first, *rest = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"
    ]
    lines = dockerfile_of(services["worker"])
    sources = {name for line in lines if line.startswith("COPY") for name in line.split()[1:-1]}

    assert first == "*"
    assert {line[1:] for line in rest if line[0] == "!"} == sources
    assert {line for line in rest if line[0] != "!"} == {"**/__pycache__", "**/*.py[cod]"}


def test_the_lock_satisfies_the_project_its_extras_in_the_image_and_the_build() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    script = (ROOT / "scripts" / "lock").read_text(encoding="utf-8")
    found = re.search(r"^extras=\((.*)\)$", script, re.MULTILINE)
    assert found is not None
    assert found[1].split() == ["http", "metrics", "s3", "web"]
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    needed = [
        *project["project"]["dependencies"],
        *(text for name in found[1].split() for text in extras.get(name, [])),
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
