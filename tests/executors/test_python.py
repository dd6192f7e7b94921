"""The executor `python`: it calls only functions of the allowed modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.invocation.coroutines import await_result
from orchestrator_executors import python as module
from orchestrator_executors.folders import ROOT_VARIABLE
from orchestrator_executors.python import python
from orchestrator_executors.settings import Refused

TASKS = """
import os
import subprocess
from os import popen
from os.path import join
from functools import wraps

def loud(function):
    @wraps(function)
    def call(*args, **options):
        return function(*args, **options)
    return call

def price(amount, rate=2):
    return amount * rate

@loud
def offer(amount):
    return {"offer": amount}

async def slow(amount):
    return amount

async def slow_offer(amount):
    return {"offer": amount}

def nothing():
    pass

def broken():
    raise LookupError("no such price")

def only(a, /):
    return a

def _private():
    return 1

class Shop:
    def sell(self):
        return 1
    @staticmethod
    def buy():
        return 1

system = os.system
table = {"a": print}

def __getattr__(name):
    return os.system
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    package = tmp_path / "code" / "shopping"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("def root(): return 'root'")
    (package / "tasks.py").write_text(TASKS)
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "deep.py").write_text("def where(): return 'deep'")
    (package / "wrong.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    allow(monkeypatch, "shopping.tasks, shopping.inner.*, shopping.wrong, shopping.missing")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "shopping"]:
        del sys.modules[name]


def allow(monkeypatch: pytest.MonkeyPatch, modules: str) -> None:
    monkeypatch.setenv(module.MODULES_VARIABLE, modules)


def call(function: Any, **arguments: Any) -> Any:
    return await_result(python({"function": function, "arguments": arguments}, {}))


@pytest.mark.parametrize(
    ("function", "arguments", "output"),
    [
        ("shopping.tasks.price", {"amount": 3}, {"result": 6}),
        ("shopping.tasks.price", {"amount": 3, "rate": 5}, {"result": 15}),
        ("shopping.tasks.offer", {"amount": 3}, {"offer": 3}),
        ("shopping.tasks.slow", {"amount": 3}, {"result": 3}),
        ("shopping.tasks.slow_offer", {"amount": 3}, {"offer": 3}),
        ("shopping.tasks.nothing", {}, {"result": None}),
        ("shopping.inner.deep.where", {}, {"result": "deep"}),
    ],
)
def test_a_function_is_called_by_its_name(function: str, arguments: dict[str, Any], output: Any) -> None:
    assert call(function, **arguments) == output


def test_the_configuration_may_fix_the_function() -> None:
    configuration = {"function": "shopping.tasks.price"}

    assert python({"arguments": {"amount": 1}}, configuration) == {"result": 2}
    with pytest.raises(Refused, match="'function' is fixed by the configuration"):
        python({"function": "shopping.tasks.offer"}, configuration)


def test_an_exception_of_the_function_is_passed_on() -> None:
    with pytest.raises(LookupError, match="no such price"):
        call("shopping.tasks.broken")


def test_without_a_list_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(module.MODULES_VARIABLE)

    with pytest.raises(Refused, match=f"{module.MODULES_VARIABLE} is not set; .* such as shopping.tasks"):
        call("shopping.tasks.nothing")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("shopping.root", "shopping may not be called: add it to"),
        ("shopping.inner.x", "shopping.inner may not be called"),
        ("shopping.tasksx.price", "shopping.tasksx may not be called"),
        ("shopping.Tasks.price", "shopping.Tasks may not be called"),
        ("os.system", "os is part of the standard library"),
        ("subprocess.call", "subprocess is part of the standard library"),
        ("builtins.eval", "builtins is part of the standard library"),
        ("shopping.tasks.os.system", "shopping.tasks.os may not be called"),
        ("shopping.tasks.subprocess", "defines no function 'subprocess'"),
        ("shopping.tasks.popen", "defines no function 'popen'"),
        ("shopping.tasks.join", "defines no function 'join'"),
        ("shopping.tasks.system", "defines no function 'system'"),
        ("shopping.tasks.table", "defines no function 'table'"),
        ("shopping.tasks.Shop", "defines no function 'Shop'"),
        ("shopping.tasks.Shop.buy", "shopping.tasks.Shop may not be called"),
        ("shopping.tasks.anything", "defines no function 'anything'"),
        ("shopping.tasks.prize", "defines no function 'prize'; did you mean 'price'"),
        ("shopping.tasks._private", "is private"),
        ("shopping.tasks.__getattr__", "is private"),
        ("shopping.tasks.price.__globals__", "is private"),
        ("shopping.tasks.__builtins__.eval", "is private"),
        ("__main__.price", "is private"),
        ("price", "is not the dotted name of a function"),
        ("shopping..price", "is not the dotted name of a function"),
        (".tasks.price", "is not the dotted name of a function"),
        ("shopping.tasks.price()", "is not the dotted name of a function"),
        ("shopping/tasks.price", "is not the dotted name of a function"),
        (None, "must be the dotted name of a function"),
    ],
)
def test_no_other_function_can_be_called(function: Any, said: str) -> None:
    with pytest.raises(Refused, match=said) as caught:
        call(function)
    assert caught.value.non_retryable


@pytest.mark.parametrize("function", ["os.system", "os.popen", "shutil.rmtree", "json.dumps", "_io.open"])
def test_the_standard_library_is_never_called_whatever_is_listed(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, "os, shutil, json, _io, o*, *")

    with pytest.raises(Refused, match=r"is part of the standard library|is private"):
        call(function)


def test_a_star_alone_allows_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, "*")

    with pytest.raises(Refused, match="a pattern must begin with the name of a package"):
        call("shopping.tasks.price")


def test_arguments_that_do_not_fit_are_rejected() -> None:
    with pytest.raises(Refused, match="cannot be called with these arguments: missing a required argument"):
        call("shopping.tasks.price")
    with pytest.raises(Refused, match="unexpected keyword argument 'tax'"):
        call("shopping.tasks.price", amount=1, tax=1)
    with pytest.raises(Refused, match="cannot be called with these arguments"):
        call("shopping.tasks.only", a=1)
    with pytest.raises(Refused, match="'arguments' must be a mapping"):
        python({"function": "shopping.tasks.price", "arguments": [1]}, {})  # type: ignore[typeddict-item]
    with pytest.raises(Refused, match="unknown setting 'args'"):
        python({"function": "shopping.tasks.price", "args": {}}, {})  # type: ignore[typeddict-unknown-key]


def test_a_module_that_is_missing_or_wrong_may_be_there_on_another_worker() -> None:
    for name, said in [
        ("shopping.missing.price", "no module shopping.missing"),
        ("shopping.wrong.f", "no_such"),
    ]:
        with pytest.raises(ModuleNotFoundError, match=said) as caught:
            call(name)
        assert not hasattr(caught.value, "non_retryable")


def test_a_module_that_the_executor_file_can_write_is_not_even_imported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(folder))

    with pytest.raises(Refused, match="shopping is below ORCHESTRATOR_FILE_ROOT, where steps can write"):
        call("shopping.tasks.price", amount=1)
    assert "shopping" not in sys.modules
