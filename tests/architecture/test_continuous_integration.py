"""The workflows of continuous integration, the forms for issues and the hooks for commits are valid."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CONFIG = ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"
FORMS = [path for path in sorted(CONFIG.parent.glob("*.yml")) if path != CONFIG]
HOOKS = ROOT / ".pre-commit-config.yaml"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def jobs() -> list[tuple[str, dict[str, Any]]]:
    return [(name, job) for path in WORKFLOWS for name, job in yaml.safe_load(text_of(path))["jobs"].items()]


def commands() -> list[str]:
    return [step["run"] for _, job in jobs() for step in job["steps"] if "run" in step]


def test_there_is_a_workflow_with_jobs() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml"]
    assert [name for name, _ in jobs()] == ["test", "matrix", "full"]


@pytest.mark.parametrize(("name", "job"), jobs())
def test_every_job_is_complete(name: str, job: dict[str, Any]) -> None:
    assert job["runs-on"].startswith("ubuntu-")
    assert 0 < job["timeout-minutes"] <= 120
    assert [len(step.keys() & {"uses", "run"}) for step in job["steps"]] == [1] * len(job["steps"])
    assert [
        step["uses"] for step in job["steps"] if "uses" in step and not re.search(r"@v\d+$", step["uses"])
    ] == []


@pytest.mark.parametrize("command", commands())
def test_every_command_is_valid_bash_and_calls_programs_that_can_be_run(command: str) -> None:
    plain = re.sub(r"\$\{\{.*?\}\}", "value", command)

    assert subprocess.run(["bash", "-n"], input=plain, text=True, capture_output=True).stderr == ""
    for script in re.findall(r"\./(scripts/[\w-]+)", command):
        assert os.access(ROOT / script, os.X_OK), script


def test_the_whole_run_is_on_every_change_and_the_full_one_every_week() -> None:
    found = dict(jobs())
    triggers = yaml.safe_load(text_of(WORKFLOWS[0]))[True]  # YAML reads `on` as a boolean

    assert "if" not in found["test"]
    assert "./scripts/test" in [step.get("run") for step in found["test"]["steps"]]
    assert "./scripts/test --full" in [step.get("run") for step in found["full"]["steps"]]
    assert "schedule" in found["full"]["if"]
    assert {"push", "pull_request", "schedule"} <= triggers.keys()
    [weekly] = triggers["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* \d", weekly["cron"])


def test_the_pythons_are_those_of_the_package() -> None:
    pyproject = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    classifiers = "\n".join(pyproject["project"]["classifiers"])
    supported = re.findall(r"Python :: (3\.\d+)$", classifiers, re.M)
    found = dict(jobs())

    assert found["matrix"]["strategy"]["matrix"]["python"] == supported
    assert pyproject["project"]["requires-python"] == f">={supported[0]}"
    for name in ("test", "full"):
        versions = [step["with"]["python-version"] for step in found[name]["steps"] if "with" in step]
        assert versions == [supported[0]], name


def test_the_servers_are_the_oldest_supported_one_newer_ones_and_valkey() -> None:
    images = dict(jobs())["matrix"]["strategy"]["matrix"]["image"]

    assert [re.sub(r"\..*", "", image.split(":")[1]) for image in images] == ["6", "7", "8", "8"]
    assert [image.split(":")[0] for image in images] == ["redis", "redis", "redis", "valkey/valkey"]
    assert images[0].startswith("redis:6.2-")


# ---- forms and hooks


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_for_issues_is_complete(path: Path) -> None:
    form = yaml.safe_load(text_of(path))
    fields = [one for one in form["body"] if one["type"] != "markdown"]
    ids = [one["id"] for one in fields]

    assert all(form[name] for name in ("name", "description", "labels"))
    assert {one["type"] for one in form["body"]} <= {"markdown", "textarea", "input", "dropdown"}
    assert all(one["attributes"]["label"] for one in fields)
    assert len(ids) == len(set(ids))
    assert any(one.get("validations", {}).get("required") for one in fields)


def test_there_are_forms_for_bugs_and_features_and_no_empty_issue() -> None:
    assert [path.name for path in FORMS] == ["bug_report.yml", "feature_request.yml"]
    assert yaml.safe_load(text_of(CONFIG)) == {"blank_issues_enabled": False}


def test_the_hooks_use_the_tools_of_the_development_environment() -> None:
    extras = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    tools = {re.split(r"[<>=\[]", one)[0] for one in extras["dev"]}
    [repo] = yaml.safe_load(text_of(HOOKS))["repos"]
    programs = {hook["entry"].split()[0] for hook in repo["hooks"]}

    assert repo["repo"] == "local"
    assert {hook["language"] for hook in repo["hooks"]} == {"system"}
    assert programs == {"./.venv/bin/mypy", "./.venv/bin/pytest", "./.venv/bin/ruff"}
    assert {"mypy", "pytest", "ruff"} <= tools
