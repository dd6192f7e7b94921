"""A command in the console block of a page prints and exits as a command in a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from e2e.pages import ORDINARY_COMMAND, ROOT, WARM_COMMAND
from warm_processes import WARM_SERVER

GREETING = "steps: [{op: greet, input: {name: {var: input.name}}}]\n"


@pytest.mark.parametrize(
    "command",
    [
        "orchestrator validate greeting.yaml; echo $?",
        "orchestrator validate missing.yaml; echo $?",
        "orchestrator validate --nonsense 2>/dev/null; echo $?",
        "orchestrator graph greeting.yaml | wc -l",
        "cat greeting.yaml | orchestrator validate -; echo $?",
        "ORCHESTRATOR_PREFIX='a b' orchestrator list; echo $?",
        "cd elsewhere && orchestrator validate ../greeting.yaml '' ; echo $?",
    ],
)
def test_a_warm_command_does_what_an_ordinary_one_does(command: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "greeting.yaml").write_text(GREETING)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}

    def printed(script: str) -> str:
        (tmp_path / "orchestrator").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "orchestrator").chmod(0o755)
        on_path = {**environment, "PATH": f"{tmp_path}{os.pathsep}{environment['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=on_path, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    warm = printed(WARM_COMMAND.format(socket=WARM_SERVER.path))

    assert warm == printed(ORDINARY_COMMAND)
    assert warm.strip()
