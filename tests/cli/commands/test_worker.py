"""Which workers start: those that have executors of the user, or are told to do without."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from executor_modules import Modules, install
from orchestrator.cli import main
from orchestrator.worker.harness import load_executors

NO_EXECUTORS = (
    "Error: this worker has no executors of yours: name their module with --executors MODULE, or in"
    " ORCHESTRATOR_EXECUTORS, or install a package that has them; with --built-in-only the worker serves the"
    " built-in executors alone\n"
)
POINT = EntryPoint("ship", "shop:ship", "orchestrator.executors")


@pytest.fixture(autouse=True)
def _only_what_the_test_installs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORCHESTRATOR_EXECUTORS", raising=False)
    install(monkeypatch)
    load_executors.cache_clear()


def worker(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, ["worker", "--burst", *arguments], env=environment)


class Started(Exception):
    """It went past the check of its executors."""


@pytest.fixture
def _ends_when_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> None:
        raise Started

    monkeypatch.setattr("orchestrator.cli.commands.worker.prepare_payloads", start)


def test_a_worker_without_executors_does_not_start_and_says_what_to_do() -> None:
    result = worker()

    assert (result.exit_code, result.output) == (2, NO_EXECUTORS)


def test_a_module_without_executors_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Modules(tmp_path, monkeypatch).write("shop_empty", "from os.path import join")

    result = worker("--executors", empty)

    assert (result.exit_code, result.output) == (2, NO_EXECUTORS)


@pytest.mark.usefixtures("_ends_when_it_starts")
@pytest.mark.parametrize("text", ["def ship(inputs): return {}", "def execute(fn, inputs): return {}"])
def test_a_module_with_a_function_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    module = Modules(tmp_path, monkeypatch).write("shop_full", text)

    assert isinstance(worker("--executors", module).exception, Started)
    assert isinstance(worker(ORCHESTRATOR_EXECUTORS=module).exception, Started)


@pytest.mark.usefixtures("_ends_when_it_starts")
def test_an_installed_executor_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, POINT)

    assert isinstance(worker().exception, Started)


@pytest.mark.usefixtures("_ends_when_it_starts")
def test_a_worker_may_be_told_to_serve_the_built_in_executors_alone() -> None:
    assert isinstance(worker("--built-in-only").exception, Started)


def test_a_worker_cannot_serve_both_only_built_in_executors_and_those_of_a_module() -> None:
    result = worker("--built-in-only", "--executors", "shop")

    assert result.exit_code == 2
    assert "--built-in-only cannot be used with --executors" in result.output
