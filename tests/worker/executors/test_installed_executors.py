"""Executors that come with an installed package, found by real workers: the example of docs/executors.md."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from installation import EXAMPLE, install
from processes import ROOT, PatientClient, stack

LETTER = {
    "steps": [
        {"id": "write", "fn": "write_letter", "input": {"name": {"var": "input.name"}, "language": "de"}},
        {
            "id": "deliver",
            "fn": "deliver_letter",
            "input": {"letter": {"var": "steps.write.output.letter"}, "stops": 2},
            "heartbeat": "30s",
        },
    ],
    "outputs": {"carried": {"var": "steps.deliver.output.carried"}},
}


@pytest.fixture(scope="module")
def python_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    site = install(EXAMPLE, tmp_path_factory.mktemp("installed"))
    return os.pathsep.join([str(ROOT), str(site)])


def orchestrator(folder: Path, python_path: str, *arguments: str) -> tuple[int, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    run = subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        cwd=folder,
        env={**ours, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return run.returncode, run.stdout


@pytest.mark.parametrize("kind", ["worker", "rq_worker"])
def test_a_worker_runs_the_executors_of_an_installed_package(
    redis_url: str, tmp_path: Path, python_path: str, kind: str
) -> None:
    with stack(redis_url, "", tmp_path / "logs", PYTHONPATH=python_path) as processes:
        processes.coordinator()
        getattr(processes, kind)()
        client = PatientClient(redis_url)
        started = client.start(LETTER, {"name": "Ada"})

        outcome = client.result(started.execution_id, timeout_s=180)

    assert outcome == {"carried": "Guten Tag Ada,"}


def test_the_command_lists_an_installed_executor_with_its_package(tmp_path: Path, python_path: str) -> None:
    code, said = orchestrator(tmp_path, python_path, "executors", "--json")

    assert code == 0
    listed: dict[str, Any] = {one["name"]: one for one in json.loads(said)["executors"]}
    assert listed["write_letter"] == {
        "name": "write_letter",
        "kind": "entry point",
        "from": "letter-executors 1.0.0",
        "takes": [],
        "async": False,
        "about": "Write a letter to somebody, in a language that we speak.",
    }
    assert listed["deliver_letter"]["async"] is True
    assert listed["deliver_letter"]["takes"] == ["context", "heartbeat"]


def test_a_document_is_checked_against_an_installed_executor(tmp_path: Path, python_path: str) -> None:
    (tmp_path / "letter.yaml").write_text(json.dumps(LETTER))
    (tmp_path / "wrong.yaml").write_text(json.dumps(LETTER).replace('"de"', '"fr"'))

    assert orchestrator(tmp_path, python_path, "validate", "letter.yaml", "--check-executors")[0] == 0
    code, said = orchestrator(tmp_path, python_path, "validate", "wrong.yaml", "--check-executors")
    assert code == 2
    assert "steps[0].input.language: the executor 'write_letter' expects 'en' or 'de' here, not 'fr'" in said


def test_without_the_package_the_same_document_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "letter.yaml").write_text(json.dumps(LETTER))

    code, said = orchestrator(tmp_path, str(ROOT), "validate", "letter.yaml", "--check-executors")

    assert code == 2
    assert "steps[0].fn: no executor is called 'write_letter'" in said
