"""Executors are found by name, and an unknown name is an error that lists the known ones."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from executor_modules import Modules, install
from orchestrator.application.errors import ExecutorNotFound
from orchestrator.invocation import executors
from orchestrator.invocation.executors import (
    BUILT_IN,
    ENTRY_POINTS,
    BadExecutors,
    Executors,
    prepare_built_ins,
)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    return Modules(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)


def one(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"from": "this test"}


def test_a_function_of_a_module_is_an_executor(modules: Modules) -> None:
    name = modules.write("shop", "def price(inputs): return {'price': inputs['n'] * 2}")

    assert Executors([name]).find("price")({"n": 3}) == {"price": 6}


def test_an_imported_or_private_function_is_not_an_executor(modules: Modules) -> None:
    name = modules.write(
        "shop", "from os.path import join\ndef _help(inputs): ...\nTABLE = {}\nclass Price: ..."
    )

    assert Executors([name]).names == []


def test_a_module_may_list_its_executors_in_all(modules: Modules) -> None:
    name = modules.write(
        "shop", "from os.path import join\n__all__ = ['join', 'TABLE']\nTABLE = {}\ndef other(i): ..."
    )

    assert Executors([name]).names == ["join"]


def test_the_first_of_two_modules_wins_and_a_mapping_wins_over_both(modules: Modules) -> None:
    first = modules.write("first", "def one(inputs): return 1\ndef two(inputs): return 1")
    second = modules.write("second", "def two(inputs): return 2\ndef three(inputs): return 2")

    found = Executors([first, second], {"one": one})

    assert found.find("one")({}) == {"from": "this test"}
    assert found.find("two")({}) == 1
    assert found.find("three")({}) == 2


def test_an_installed_executor_is_loaded_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("shout", "nowhere.to_be_found:f", ENTRY_POINTS)
    good = EntryPoint("length", "builtins:len", ENTRY_POINTS)
    install(monkeypatch, point, good)

    found = Executors()

    assert found.names == ["length", "shout"]  # a broken one does not affect the others
    assert found.find("length")({"a": 1}) == 1


def test_a_module_wins_over_what_is_installed(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("price", "builtins:len", ENTRY_POINTS)
    install(monkeypatch, point)
    name = modules.write("shop", "def price(inputs): return 'the module'")

    assert Executors([name]).find("price")({}) == "the module"


def test_execute_takes_every_other_name(modules: Modules) -> None:
    name = modules.write(
        "shop", "def execute(fn, inputs): return [fn, inputs]\ndef price(inputs): return 'price'"
    )

    found = Executors([name])

    assert found.find("price")({}) == "price"
    assert found.find("anything")({"a": 1}) == ["anything", {"a": 1}]
    assert found.find("anything") is found.find("anything"), "so that its signature is read once"
    assert found.names == ["price"]


def test_the_error_of_an_unknown_name_lists_the_known_ones(modules: Modules) -> None:
    name = modules.write("shop", "def price(inputs): ...\ndef ship(inputs): ...")

    with pytest.raises(ExecutorNotFound, match="'prise'; this worker has: price, ship; did you mean 'price'"):
        Executors([name]).find("prise")


def test_a_misspelt_built_in_name_gets_a_suggestion() -> None:
    with pytest.raises(ExecutorNotFound, match="did you mean 'http'"):
        Executors().find("htpp")


def test_the_built_ins_can_be_loaded_before_the_worker_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_HTTP_HOSTS", "*")
    monkeypatch.setenv("ORCHESTRATOR_WEBHOOK_HOSTS", "*")

    prepare_built_ins()

    assert {f"orchestrator_executors.{name}" for name in BUILT_IN} <= sys.modules.keys()
    assert "httpx" in sys.modules


def test_the_error_of_a_worker_without_executors_lists_none() -> None:
    with pytest.raises(ExecutorNotFound, match=r"this worker has: none$"):
        Executors().find("price")


def test_a_module_that_cannot_be_imported_is_named(modules: Modules) -> None:
    broken = modules.write("broken", "import nothing_of_this_name")

    with pytest.raises(BadExecutors, match="'no_such_module' cannot be imported"):
        Executors(["no_such_module"])
    with pytest.raises(BadExecutors, match=r"'broken' cannot be imported: .*nothing_of_this_name"):
        Executors([broken])


# ---- built-in executors


def test_every_worker_has_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Executors().find("webhook")

    assert found.__name__ == "webhook"
    assert found is not one


def test_a_module_named_executors_does_not_hide_the_built_ins(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "executors", raising=False)
    modules.write("executors", "def price(inputs): return {}")

    known = Executors(["executors"])

    assert known.find("price")({}) == {}
    assert known.find("webhook").__module__ == "orchestrator_executors.webhook"


def test_a_mapping_comes_before_a_built_in_and_a_catch_all_after_it(modules: Modules) -> None:
    name = modules.write("shop", "def execute(fn, inputs): return {'fn': fn}")

    assert Executors(mapping={"webhook": one}).find("webhook") is one
    assert Executors([name]).find("webhook").__name__ == "webhook"
    assert Executors([name]).find("other")({}) == {"fn": "other"}


# ---- broken executors


def test_an_installed_executor_that_cannot_be_loaded_is_named_when_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, EntryPoint("shout", "nowhere.to_be_found:f", ENTRY_POINTS))

    with pytest.raises(BadExecutors, match=r"'shout' of nowhere\.to_be_found:f cannot be loaded: Module"):
        Executors().find("shout")


def test_an_installed_executor_that_is_not_a_function_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, EntryPoint("shout", "string:ascii_letters", ENTRY_POINTS))

    with pytest.raises(BadExecutors, match="is not a function: 'string:ascii_letters' is of type str; write"):
        Executors().find("shout")


def test_the_first_of_two_installed_executors_of_a_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("size", target, ENTRY_POINTS) for target in ("builtins:len", "builtins:sum")]
    install(monkeypatch, *points)

    assert Executors().find("size") is len


def test_a_built_in_that_is_not_in_this_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "BUILT_IN", frozenset({"left_out"}))

    with pytest.raises(BadExecutors, match="the built-in executor 'left_out' cannot be loaded: Module"):
        Executors().find("left_out")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("__all__ = ['price']", "AttributeError: module 'shop' has no attribute 'price'"),
    ],
)
def test_a_module_that_fails_to_import_gives_the_reason_and_does_not_end_the_process(
    modules: Modules, text: str, reason: str
) -> None:
    name = modules.write("shop", text)

    with pytest.raises(BadExecutors, match=f"'shop' fails when it is imported: {reason}"):
        Executors([name])


DECORATED = """
from orchestrator import step, workflow

@step(fn="charge_card")
def charge(amount: float) -> str:
    return f"charged {amount:g}"

@step
def _audit(amount: float) -> None: ...

@workflow
def order(amount: float) -> None: ...
"""


@pytest.mark.parametrize("listed", ["", "__all__ = ['order', 'charge']"])
def test_decorated_steps_are_found_by_the_names_of_their_executors(modules: Modules, listed: str) -> None:
    found = Executors([modules.write("shop_steps", f"{DECORATED}\n{listed}\n")])

    assert found.names == ["_audit", "charge_card"]
    assert found.find("charge_card")({"amount": "2"}) == {"result": "charged 2"}


def test_a_decorated_step_that_a_module_only_imports_is_none_of_its_executors(modules: Modules) -> None:
    modules.write("shop_steps", DECORATED)

    found = Executors([modules.write("shop", "from shop_steps import charge")])

    assert found.names == []
