"""Commands that read workflow files take workflow functions: app.py:order."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from executor_modules import Modules
from orchestrator.cli import main
from orchestrator.cli.python_files import find_executor_modules, is_python_name
from processes import run_module

APP = """
from typing import Any
from helpers import ask
from orchestrator import step, workflow

print("imported")

@step
def add(n: int, by: int = 1) -> int:
    return n + by

@workflow
def order(n: int) -> dict[str, Any]:
    return {"n": add(ask(n))}
"""
HELPERS = """
from orchestrator import step

@step
def ask(n: int) -> int:
    return n * 10
"""
SECOND = """
@workflow
def other() -> None: ...
"""


@pytest.fixture(autouse=True)
def modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Modules:
    monkeypatch.chdir(tmp_path)
    made = Modules(tmp_path, monkeypatch)
    made.write("helpers", HELPERS)
    made.write("app", APP)
    return made


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize(
    ("name", "is_python"),
    [("app.py", True), ("app.py:order", True), ("a/b.py:order", True), ("app", False), ("app.yaml", False)],
)
def test_only_these_names_mean_python_files(name: str, is_python: bool) -> None:
    assert is_python_name(name) is is_python


@pytest.mark.parametrize("name", ["app.py", "app.py:order"])
def test_a_workflow_function_is_run_validated_and_drawn(name: str) -> None:
    ran = invoke("run", name, "--local", "--json", "--inputs", '{"n": 4}')
    validated = invoke("validate", name, "--check-executors")
    drawn = invoke("graph", name, "--json")

    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["outcome"] == {"n": 41}
    assert validated.stdout == f"{name}: valid, 2 steps\n"
    assert [one["id"] for one in json.loads(drawn.stdout)["nodes"]] == ["ask", "add"]


def test_inputs_are_checked_before_anything_runs() -> None:
    result = invoke("run", "app.py", "--local", "--inputs", '{"n": "four"}')

    assert result.exit_code == 2
    assert "n: must be an integer" in result.stderr or "integer" in result.stderr


def test_a_function_can_be_merged_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("timeout: 5m\n")

    result = invoke("validate", "app.py:order", "more.yaml", "--merge")

    assert result.exit_code == 0, result.output


def test_the_modules_of_all_steps_are_passed_to_workers(tmp_path: Path) -> None:
    found = find_executor_modules(["app.py:order", "more.yaml"])

    assert found.names == ("app", "helpers")
    assert found.folders == (str(tmp_path.resolve()),)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("app.py:ordr", "app.py has no workflow 'ordr'; did you mean app.py:order?"),
        ("two.py", "two.py has several workflows: name one of them: two.py:order, two.py:other"),
        ("helpers.py", "helpers.py has no function with @workflow"),
        ("none.py", "cannot read 'none.py': No such file"),
        ("broken.py", "broken.py fails: broken.py:3: ZeroDivisionError: division by zero"),
        ("failing.py", "failing.py fails: failing.py:6: ZeroDivisionError: division by zero"),
        ("not-a-name.py", "its name must be a Python name"),
        ("wrong.py", "wrong.py:8:14: workflow 'order': str has no field 'upper'; write op.upper()"),
    ],
)
def test_a_mistake_is_a_message(modules: Modules, name: str, error: str) -> None:
    modules.write("two", APP + SECOND)
    modules.write("broken", "\n\n1 / 0\n")
    modules.write("failing", "from orchestrator import workflow\n\n\n@workflow\ndef order():\n    1 / 0\n")
    wrong = "@workflow\ndef order(a: str) -> None:\n    print(a, a.upper())\n"
    modules.write("wrong", f"from orchestrator import workflow\n\n\n\n\n{wrong}")
    Path("not-a-name.py").write_text("")

    validated, drawn = invoke("validate", name), invoke("graph", name)

    assert (validated.exit_code, drawn.exit_code) == (2, 2)
    assert error in validated.stdout
    assert error in drawn.stderr


def test_a_name_that_another_module_has_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "app.py").write_text(APP)

    invoke("validate", "app.py")
    result = invoke("validate", "inside/app.py")

    assert "another module is called 'app'" in result.stdout


def test_a_file_in_a_package_has_the_name_of_the_package(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "flows.py").write_text(APP)

    assert find_executor_modules(["shop/flows.py"]).names == ("shop.flows", "helpers")


@pytest.mark.slow
def test_it_runs_on_a_private_redis_from_another_folder(tmp_path: Path) -> None:
    """The workers import the module, although it is not in their current directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = ["orchestrator", "run", "../app.py:order", "--json", "--inputs", '{"n": 4}']

    run = run_module(command, os.environ, elsewhere, timeout_s=600)

    assert run.returncode == 0, run.stderr
    found: Any = json.loads(run.stdout)
    assert found["outcome"] == {"n": 41}
