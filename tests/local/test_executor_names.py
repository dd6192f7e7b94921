"""In one process executors are found by name as workers find them: in modules, built in, in packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from executor_modules import Modules, install
from orchestrator import Backend, Complete, Failed, Workflow
from orchestrator.backend.memory import InProcessRunner
from orchestrator.invocation.executors import BUILT_IN, ENTRY_POINTS, BadExecutors, ExecutorSource
from orchestrator.local.worker import InProcessWorker
from worlds.documents import document, step

Json = dict[str, Any]
SHOP = "def price(inputs): return {'price': inputs['n'] * 2}"
PRICE = document(
    step("a", fn="price", input={"n": 4}), outputs={"price": {"var": "steps.a.output.price"}}, name="shop"
)
WITHOUT_PERMISSION = {
    "env": ({"vars": ["SHOP_REGION"]}, "ORCHESTRATOR_ENV_VARIABLES"),
    "file": ({"action": "read", "path": "a"}, "ORCHESTRATOR_FILE_ROOT"),
    "http": ({"url": "http://127.0.0.1/"}, "ORCHESTRATOR_HTTP_HOSTS"),
    "process": ({"command": ["ls"]}, "ORCHESTRATOR_PROCESS_COMMANDS"),
    "python": ({"function": "shop.price"}, "ORCHESTRATOR_PYTHON_MODULES"),
    "webhook": ({"url": "http://127.0.0.1/", "body": {}, "headers": {}}, "ORCHESTRATOR_WEBHOOK_HOSTS"),
}
HARMLESS = {
    "echo": ({"a": 1}, {"a": 1}),
    "sleep": ({"seconds": 0}, {"seconds": 0}),
    "transform": ({"output": {"b": 2}}, {"b": 2}),
}


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    return Modules(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def run(spec: Json, executor: ExecutorSource) -> Any:
    return Workflow.from_dict(spec, Backend(executor)).run()


def error_of(spec: Json, executor: ExecutorSource) -> Json:
    end = run(spec, executor)
    assert isinstance(end, Failed)
    assert isinstance(end.error, dict)
    return end.error


def test_a_module_is_named(modules: Modules) -> None:
    assert run(PRICE, modules.write("shop", SHOP)) == Complete({"price": 8})


def test_of_several_modules_the_first_that_has_the_name_counts(modules: Modules) -> None:
    other = modules.write("other", "def ship(inputs): ...")
    shop = modules.write("shop", SHOP)
    late = modules.write("late", "def price(inputs): return {'price': 0}")

    assert run(PRICE, [other, shop, late]) == Complete({"price": 8})


def test_a_module_that_does_not_exist_is_an_error_before_anything_starts() -> None:
    with pytest.raises(BadExecutors, match="'no_such_module' cannot be imported"):
        Backend("no_such_module")


def test_a_module_may_have_a_function_for_all_other_names(modules: Modules) -> None:
    name = modules.write("shop", "def execute(fn, inputs): return {'price': fn}")

    assert run(PRICE, [name]) == Complete({"price": "price"})


def test_an_executor_of_an_installed_package_is_found(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules.write("package_of_another", SHOP)
    install(monkeypatch, EntryPoint("price", "package_of_another:price", ENTRY_POINTS))

    assert run(PRICE, {"ship": len}) == Complete({"price": 8})


def test_a_function_for_all_names_gets_the_names_of_built_ins_too() -> None:
    spec = document(step("a", fn="echo"), step("b", fn="unknown"))
    called: list[str] = []

    def execute(fn: str, inputs: Json) -> Json:
        called.append(fn)
        return {}

    assert run(spec, execute) == Complete({})
    assert sorted(called) == ["echo", "unknown"]


def test_a_function_of_ones_own_comes_before_a_built_in() -> None:
    spec = document(step("a", fn="echo"), outputs={"a": {"var": "steps.a.output.own"}})

    assert run(spec, {"echo": lambda inputs: {"own": True}}) == Complete({"a": True})


def test_a_mapping_may_get_a_function_after_the_backend_was_made() -> None:
    executors: dict[str, Any] = {}
    backend = Backend(executors)
    executors["price"] = lambda inputs: {"price": 1}

    assert Workflow.from_dict(PRICE, backend).run() == Complete({"price": 1})


def test_every_built_in_executor_is_tested_here() -> None:
    assert WITHOUT_PERMISSION.keys() | HARMLESS.keys() == BUILT_IN


@pytest.mark.parametrize("fn", HARMLESS)
def test_a_built_in_that_can_do_no_harm_needs_no_permission(fn: str) -> None:
    given, expected = HARMLESS[fn]
    spec = document(step("a", fn=fn, input=given), outputs={"a": {"var": "steps.a.output"}})

    assert run(spec, {}) == Complete({"a": expected})


@pytest.mark.parametrize("fn", WITHOUT_PERMISSION)
@pytest.mark.parametrize("executor", [{}, []], ids=["mapping", "modules"])
def test_a_built_in_without_permission_names_the_variable_to_set(
    fn: str, executor: ExecutorSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, variable = WITHOUT_PERMISSION[fn]
    monkeypatch.delenv(variable, raising=False)

    error = error_of(document(step("a", fn=fn, input=given, retry=3)), executor)

    assert variable in error["message"]
    assert "is not set" in error["message"]


def test_a_built_in_runs_with_the_permission_that_a_worker_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_PROCESS_COMMANDS", "printf")
    spec = document(
        step("a", fn="process", input={"command": ["printf", "hello"]}),
        outputs={"said": {"var": "steps.a.output.stdout"}},
    )

    assert run(spec, {}) == Complete({"said": "hello"})


def test_an_unknown_name_lists_what_exists_and_what_to_do() -> None:
    error = error_of(document(step("a", fn="frobnicate")), {"price": len, "ship": len})

    assert error["type"] == "ExecutorNotFound"
    assert (
        "no executor is called 'frobnicate'; this worker has: price, ship, and the built-in echo, env,"
        in (error["message"])
    )
    assert "add a function of this name to the executors, or a module that defines it" in error["message"]


def test_a_misspelt_name_gets_a_suggestion() -> None:
    assert "did you mean 'price'?" in error_of(document(step("a", fn="prise")), {"price": len})["message"]


def test_without_executors_the_steps_are_left_to_workers_elsewhere(modules: Modules) -> None:
    runner, spec = InProcessRunner(), document(step("a", fn="echo", input={"n": 1}))
    backend = Backend(runner=runner)
    workflow = Workflow.from_dict(spec, backend)

    workflow.backend.dispatch(workflow.id, workflow.advance().jobs)  # type: ignore[union-attr]

    assert [job.fn for job in backend.list_pending_jobs()] == ["echo"]
    assert workflow.run(InProcessWorker(runner, modules.write("shop", SHOP))) == Complete({})
