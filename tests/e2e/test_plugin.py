"""The pytest plugin, as a user of the installed package has it: every run is a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_runs import install_plugin, run_pytest

DOCUMENT = 'DOCUMENT = {"steps": [{"op": "a"}]}\n'

GOOD = """
import pytest
from orchestrator.testing import WorkflowTest

@pytest.mark.parametrize("seed", range(8))
def test_a(workflow_test: type[WorkflowTest], seed):
    test = workflow_test(DOCUMENT, order="shuffled", seed=seed)
    test.mock("a", {"n": 1})
    assert isinstance(test, WorkflowTest)
    assert test.run().state == {"n": 1}
"""
BAD = """
def test_unlucky(workflow_test):
    for seed in (4, 5):
        test = workflow_test(DOCUMENT, order="shuffled", seed=seed)
        test.mock("a", ValueError("no"))
        assert test.run().status == "complete" or seed == 4

def test_without_its_kill(workflow_test):
    test = workflow_test(DOCUMENT)
    test.mock("a", {})
    test.kill("worker.result", step="a", times=5)
    test.kill("worker.start", step="a")
    test.run()

def test_wrong_and_without_its_kill(workflow_test):
    workflow_test(DOCUMENT).kill("coordinator.commit", step="a")
    assert False
"""
IDLE = """
import sys

def test_nothing():
    ours = {name for name in sys.modules if name.split(".")[0] == "orchestrator"}
    assert ours == {
        "orchestrator", "orchestrator.deprecation", "orchestrator.testing", "orchestrator.testing.plugin"
    }
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
    assert "workflow_test -- " in listed.stdout
    assert "Start workflow tests" in listed.stdout
    assert "DeprecationWarning" not in listed.stdout + listed.stderr


def test_the_fixture_has_an_old_name(folder: Path) -> None:
    write(folder, GOOD.replace("workflow_test", "rehearse"))

    run = run_pytest(folder, "-q", "-W", "error")

    assert "8 passed" in run.stdout, run.stdout + run.stderr


def test_it_works_in_many_processes_and_beside_a_measurement_of_coverage(folder: Path) -> None:
    write(folder, GOOD)

    run = run_pytest(folder, "-q", "-n", "2", "--cov", "--cov-report=")

    assert "8 passed" in run.stdout, run.stdout + run.stderr


def test_it_may_be_loaded_by_its_module_where_the_entry_point_is_blocked(folder: Path) -> None:
    write(folder, GOOD)

    run = run_pytest(folder, "-q", "-p", "no:orchestrator", "-p", "orchestrator.testing.plugin")

    assert "8 passed" in run.stdout, run.stdout + run.stderr


def test_a_run_that_tests_no_workflow_imports_nothing(folder: Path) -> None:
    write(folder, IDLE)

    run = run_pytest(folder, "-q", "-p", "no:hypothesispytest")

    assert "1 passed" in run.stdout, run.stdout + run.stderr


def test_a_failure_shows_the_state_of_the_workflow_and_a_missed_kill_is_a_failure(folder: Path) -> None:
    write(folder, BAD)

    run = run_pytest(folder, "-q")

    assert "2 failed, 1 passed, 1 error" in run.stdout, run.stdout + run.stderr
    assert "order='shuffled', seed=5: it is failed" in run.stdout
    assert "a  failed  exception: no" in run.stdout
    assert "seed=4" not in run.stdout
    assert "no process reached these kill points: worker.result of a, 3 of 5" in run.stdout
    assert "killed: coordinator.commit of a, 0 of 1" in run.stdout
