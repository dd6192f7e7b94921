"""scripts/quickstart takes a newcomer from a clone to a finished workflow, and leaves nothing running. It
installs nothing outside of .venv; scripts/test may, as root, and says so before. Neither waits for input."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MISSING = ("redis-", "valkey-", "chromium", "google-chrome")


@pytest.mark.slow
def test_the_quickstart_finishes_an_order_and_shows_what_redis_holds() -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}

    run = subprocess.run(["./scripts/quickstart"], cwd=ROOT, env=ours, capture_output=True, text=True)

    assert run.returncode == 0, run.stdout + run.stderr
    said = run.stdout
    assert ": complete in " in said
    assert 'outcome: {"total": 29.9, "shelf": "shelf-a1"}' in said
    assert "$ redis-cli HGETALL 'orchestrator:workflow:" in said
    assert "$ redis-cli LRANGE 'orchestrator:history:" in said
    assert '"workflow":"complete"}' in said
    assert "attempt 2" in said
    assert "state:shelf" in said
    assert "state:ok" not in said
    assert "state:error" not in said
    assert 'outcome: {"reason": "we do not sell \'z9\'"}' in said
    assert "exit code 3" in said
    assert said.rstrip().endswith(" --web")


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """An environment for scripts: root on a machine without Redis and browser, whose apt-get is observed.

    apt-get reads an answer from its standard input, as it would for a question, and writes what it was asked
    into a file. Then it installs the program that it was told to install.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in os.get_exec_path():
        for program in Path(place).glob("*"):
            if not program.name.startswith(MISSING) and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    write_program(folder / "id", "echo 0")
    write_program(
        folder / "apt-get",
        f"""
        echo "apt-get $1 $DEBIAN_FRONTEND" >>{tmp_path}/asked
        read -r answer && echo "answered: $answer" >>{tmp_path}/asked
        echo "apt-get is called"
        if [ "$1" = install ]; then
            for name; do :; done
            printf '#!/bin/sh\\necho the program of the distribution\\n' >{folder}/$name
            chmod +x {folder}/$name
        fi
        """,
    )
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    return {**ours, "PATH": str(folder)}


def write_program(path: Path, script: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def run_without_answering(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a command whose standard input stays open and is never written to."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        assert run.stdout is not None
        printed = run.stdout.read()
    return run.returncode, printed


@pytest.mark.slow
def test_the_quickstart_takes_the_server_of_the_wheel_and_installs_no_system_package(
    bare_machine: dict[str, str], tmp_path: Path
) -> None:
    code, printed = run_without_answering(["./scripts/quickstart"], bare_machine)

    assert code == 0, printed
    assert not (tmp_path / "asked").exists(), (tmp_path / "asked").read_text()
    assert "Valkey server v=" in printed
    assert "/server/redis-server, a coordinator and 2 workers" in printed
    assert "demo:" not in printed
    assert printed.count(": complete in ") == 1


@pytest.mark.parametrize(("function", "program"), [("redis_server", "redis-server"), ("browser", "chromium")])
def test_the_tests_say_what_they_install_before_they_install_it(
    bare_machine: dict[str, str], tmp_path: Path, function: str, program: str
) -> None:
    script = f"source scripts/_environment; {function} --install; {program}"
    code, printed = run_without_answering(["bash", "-euo", "pipefail", "-c", script], bare_machine)

    assert code == 0, printed
    lines = printed.splitlines()
    assert lines[0].startswith(
        f"No {program} on the PATH. As root, this script installs the system package {program}"
    )
    assert lines[-1] == "the program of the distribution"
    assert (tmp_path / "asked").read_text().splitlines() == [
        "apt-get update noninteractive",
        "apt-get install noninteractive",
    ]


def test_a_missing_browser_is_an_error_where_it_cannot_be_installed(
    bare_machine: dict[str, str],
) -> None:
    write_program(Path(bare_machine["PATH"]) / "id", "echo 1000")
    script = "source scripts/_environment; browser --install"

    code, printed = run_without_answering(["bash", "-euo", "pipefail", "-c", script], bare_machine)

    assert code == 1
    assert printed.startswith("There is no chromium on the PATH")


def test_only_scripts_test_installs_system_packages() -> None:
    scripts = [path for path in (ROOT / "scripts").iterdir() if path.is_file()]
    texts = {path.name: path.read_text("utf-8") for path in scripts}

    for function in ("redis_server --install", "browser --install"):
        installing = {name for name, text in texts.items() if f'" {function}' in text}
        assert installing == {"test"}
