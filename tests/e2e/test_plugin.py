"""The pytest plugin, as somebody has it who has installed the package: every run is one of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_runs import install_plugin, run_pytest

DOCUMENT = 'DOCUMENT = {"steps": [{"op": "a"}]}\n'

GOOD = """
import pytest
from orchestrator.testing import WorkflowTest

@pytest.mark.parametrize("seed", range(8))
def test_a(rehearse: type[WorkflowTest], seed):
    play = rehearse(DOCUMENT, order="shuffled", seed=seed)
    play.mock("a", {"n": 1})
    assert isinstance(play, WorkflowTest)
    assert play.run().state == {"n": 1}
"""
BAD = """
def test_unlucky(rehearse):
    for seed in (4, 5):
        play = rehearse(DOCUMENT, order="shuffled", seed=seed)
        play.mock("a", ValueError("no"))
        assert play.run().status == "complete" or seed == 4

def test_without_its_kill(rehearse):
    play = rehearse(DOCUMENT)
    play.mock("a", {})
    play.kill("worker.result", step="a", times=5)
    play.kill("worker.start", step="a")
    play.run()

def test_wrong_and_without_its_kill(rehearse):
    rehearse(DOCUMENT).kill("coordinator.commit", step="a")
    assert False
"""
IDLE = """
import sys

def test_nothing():
    ours = {name for name in sys.modules if name.split(".")[0] == "orchestrator"}
    assert ours == {"orchestrator", "orchestrator.testing", "orchestrator.testing.plugin"}
    assert not {"pydantic", "yaml", "redis", "rq"} & set(sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    install_plugin(tmp_path)
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / "test_it.py").write_text(DOCUMENT + text)


def test_the_fixture_comes_with_the_package_and_explains_itself(folder: Path) -> None:
    write(folder, GOOD)

    run = run_pytest(folder, "-q")
    listed = run_pytest(folder, "-q", "--fixtures")

    assert "8 passed" in run.stdout, run.stdout + run.stderr
    assert "rehearse -- " in listed.stdout
    assert "Begin rehearsals" in listed.stdout


def test_it_works_in_many_processes_and_beside_a_measurement_of_coverage(folder: Path) -> None:
    write(folder, GOOD)

    run = run_pytest(folder, "-q", "-n", "2", "--cov", "--cov-report=")

    assert "8 passed" in run.stdout, run.stdout + run.stderr


def test_it_may_be_loaded_by_its_module_where_the_entry_point_is_blocked(folder: Path) -> None:
    write(folder, GOOD)

    run = run_pytest(folder, "-q", "-p", "no:orchestrator", "-p", "orchestrator.testing.plugin")

    assert "8 passed" in run.stdout, run.stdout + run.stderr


def test_a_run_that_rehearses_nothing_imports_nothing(folder: Path) -> None:
    write(folder, IDLE)

    run = run_pytest(folder, "-q", "-p", "no:hypothesispytest")

    assert "1 passed" in run.stdout, run.stdout + run.stderr


def test_a_failure_shows_where_it_stood_and_a_kill_that_never_happened_is_one(folder: Path) -> None:
    write(folder, BAD)

    run = run_pytest(folder, "-q")

    assert "2 failed, 1 passed, 1 error" in run.stdout, run.stdout + run.stderr
    assert "order='shuffled', seed=5: it is failed" in run.stdout
    assert "a  failed  exception: no" in run.stdout
    assert "seed=4" not in run.stdout
    assert "somebody was to die: worker.result of a, 3 of 5" in run.stdout
    assert "killed: coordinator.commit of a, 0 of 1" in run.stdout
