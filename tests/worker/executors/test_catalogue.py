"""The catalogue lists the executors that a worker would find, in lookup order, and the broken ones."""

from __future__ import annotations

from functools import partial, wraps
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TypedDict

import pytest

from executor_modules import Modules, install
from orchestrator.invocation.executors import BUILT_IN, ENTRY_POINTS, Executors
from orchestrator.worker.executors import catalogue as module
from orchestrator.worker.executors.catalogue import Catalogue, CatalogueEntry
from orchestrator.worker.executors.signature import Signature


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    return Modules(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _webhook_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use only one built-in executor."""
    install(monkeypatch)
    monkeypatch.setattr(module, "BUILT_IN", frozenset({"webhook"}))


def shown(catalogue: Catalogue) -> list[tuple[str, str, str | None]]:
    return [(one.name, one.origin, one.hidden_by) for one in catalogue.entries]


def entry(catalogue: Catalogue, name: str) -> CatalogueEntry:
    [found] = [one for one in catalogue.entries if one.name == name]
    return found


# ---- which executors, and in which order


def test_modules_come_first_then_built_ins_then_installed_ones_then_the_catch_all(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, EntryPoint("size", "builtins:len", ENTRY_POINTS))
    shop = modules.write("shop", "def execute(fn, inputs): ...\ndef price(inputs): ...")

    assert shown(Catalogue.load([shop])) == [
        ("price", "shop", None),
        ("webhook", "built-in", None),
        ("size", "builtins:len", None),
        ("execute", "shop, for every other name", None),
    ]


def test_an_executor_with_the_name_of_an_earlier_one_is_hidden_by_it(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, EntryPoint("price", "builtins:len", ENTRY_POINTS))
    one = modules.write("one", "def price(inputs): ...\ndef execute(fn, inputs): ...")
    two = modules.write(
        "two", "def price(inputs): ...\ndef webhook(inputs): ...\ndef execute(fn, inputs): ..."
    )

    assert shown(Catalogue.load([one, two])) == [
        ("price", "one", None),
        ("price", "two", "one"),
        ("webhook", "two", None),
        ("webhook", "built-in", "two"),
        ("price", "builtins:len", "one"),
        ("execute", "one, for every other name", None),
        ("execute", "two, for every other name", "one, for every other name"),
    ]


def test_it_finds_what_a_worker_finds(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        monkeypatch,
        EntryPoint("price", "builtins:len", ENTRY_POINTS),
        EntryPoint("size", "builtins:len", ENTRY_POINTS),
        EntryPoint("size", "builtins:sum", ENTRY_POINTS),
        EntryPoint("webhook", "builtins:sum", ENTRY_POINTS),
    )
    one = modules.write("one", "def price(inputs): ...\ndef execute(fn, inputs): ...")
    two = modules.write("two", "def price(inputs): ...\ndef ship(inputs): ...\ndef execute(fn, inputs): ...")
    catalogue, worker = Catalogue.load([one, two]), Executors([one, two])

    for name in ("price", "size", "webhook", "ship"):
        found = catalogue.find(name)
        assert found is not None
        assert found.executor is worker.find(name)
    for name in ("anything", "execute"):
        found, called = catalogue.find(name), worker.find(name)
        assert found is not None
        assert isinstance(called, partial)
        assert found.executor is called.func


def test_an_unknown_name_is_not_found(modules: Modules) -> None:
    shop = modules.write("shop", "def price(inputs): ...")

    assert Catalogue.load([shop]).find("prise") is None
    assert Catalogue.load([shop]).names == ["price", "webhook"]


def test_a_module_that_is_named_twice_hides_nothing_of_its_own(modules: Modules) -> None:
    shop = modules.write("shop", "def price(inputs): ...")

    assert shown(Catalogue.load([shop, shop])) == [("price", "shop", None), ("webhook", "built-in", None)]


# ---- broken modules and executors


def test_a_module_that_cannot_be_imported_is_a_problem_and_the_others_are_listed(modules: Modules) -> None:
    shop = modules.write("shop", "def price(inputs): ...")

    catalogue = Catalogue.load(["no_such_module", shop])

    assert catalogue.names == ["price", "webhook"]
    [problem] = catalogue.problems
    assert "'no_such_module' cannot be imported: No module named" in problem
    assert list(catalogue.broken_modules) == ["no_such_module"]


def test_an_installed_executor_that_cannot_be_loaded_is_listed_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(
        monkeypatch,
        EntryPoint("shout", "nowhere.to_be_found:f", ENTRY_POINTS),
        EntryPoint("size", "builtins:len", ENTRY_POINTS),
    )

    catalogue = Catalogue.load()

    broken = entry(catalogue, "shout")
    assert broken.signature is None
    assert catalogue.problems == [broken.problem]
    assert "ModuleNotFoundError" in catalogue.problems[0]
    assert entry(catalogue, "size").problem is None


def test_a_built_in_that_was_left_out_is_listed_with_the_reason_and_is_no_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BUILT_IN", frozenset({"left_out", "webhook"}))

    catalogue = Catalogue.load()

    assert "cannot be loaded: ModuleNotFoundError" in str(entry(catalogue, "left_out").problem)
    assert entry(catalogue, "left_out").settings({}) == {}
    assert entry(catalogue, "webhook").problem is None
    assert catalogue.problems == []


# ---- details of one executor


def test_the_variables_of_a_built_in_are_those_that_its_module_names_and_their_values_are_not_shown() -> None:
    webhook = entry(Catalogue.load(), "webhook")

    settings = webhook.settings({"ORCHESTRATOR_WEBHOOK_SECRET": "abc"})

    assert settings["ORCHESTRATOR_WEBHOOK_HOSTS"] is False
    assert settings["ORCHESTRATOR_WEBHOOK_SECRET"] is True
    assert "ORCHESTRATOR_WEBHOOK_HOSTS" in webhook.module_doc


def test_a_pattern_of_names_is_not_a_variable() -> None:
    text = "ORCHESTRATOR_FILE_ROOT, ORCHESTRATOR_SECRET_<NAME>, ORCHESTRATOR_SECRETS_*; ORCHESTRATOR_A1."

    assert module._VARIABLE.findall(text) == ["ORCHESTRATOR_FILE_ROOT", "ORCHESTRATOR_A1"]


def test_the_executor_of_a_module_has_no_settings(modules: Modules) -> None:
    shop = modules.write("shop", '"""ORCHESTRATOR_HTTP_HOSTS"""\ndef price(inputs): ...')

    price = entry(Catalogue.load([shop]), "price")

    assert price.module_doc == ""
    assert price.settings({}) == {}


class Price(TypedDict):
    sku: str


def plain(inputs: Price) -> None:
    """What it costs.

    In euros.
    """


async def waiting(inputs: dict[str, Any], context: dict[str, Any], log: Any) -> None: ...


class Object:
    async def __call__(self, inputs: Price, heartbeat: Any) -> None: ...


@wraps(plain)
def wrapped(*args: Any, **kwargs: Any) -> None: ...


def two_more(fn: str, inputs: Price, evaluate: Any) -> None: ...


@pytest.mark.parametrize(
    ("signature", "requested", "is_async", "keys"),
    [
        (Signature(plain), set(), False, ["sku"]),
        (Signature(waiting), {"context", "log"}, True, None),
        (Signature(Object()), {"heartbeat"}, True, ["sku"]),
        (Signature(wrapped), set(), False, ["sku"]),
        (Signature(two_more, 2), {"evaluate"}, False, ["sku"]),
        (Signature(partial(two_more, "price")), {"evaluate"}, False, ["sku"]),
        (Signature(partial(waiting)), {"context", "log"}, True, None),
        (Signature(len), set(), False, None),
        (Signature(print), set(), False, None),
        (Signature(dict), set(), False, None),
    ],
)
def test_a_signature_has_the_parameters_and_input_keys_of_an_executor(
    signature: Signature, requested: set[str], is_async: bool, keys: list[str] | None
) -> None:
    found = signature.keys

    assert signature.requested_parameters == requested
    assert signature.is_async is is_async
    assert (None if found is None else [key.name for key in found]) == keys
    assert signature.call_problem is None


def test_annotations_that_cannot_be_read_say_nothing() -> None:
    def price(inputs: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    assert Signature(price).keys is None


def test_the_first_line_of_a_docstring_stands_for_it() -> None:
    assert Signature(plain).summary == "What it costs."
    assert Signature(plain).doc == "What it costs.\n\nIn euros."
    assert Signature(partial(plain)).summary == "What it costs."
    assert Signature(waiting).doc == ""


def test_a_function_with_other_parameters_is_not_callable_as_an_executor() -> None:
    def nothing() -> None: ...
    def more(inputs: Any, connection: Any) -> None: ...
    def enough(inputs: Any, connection: Any = None, *, context: Any) -> None: ...

    assert "too many positional arguments" in str(Signature(nothing).call_problem)
    assert "missing a required argument: 'connection'" in str(Signature(more).call_problem)
    assert Signature(enough).call_problem is None


def test_every_built_in_that_is_here_is_one_that_a_worker_can_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUILT_IN", BUILT_IN)

    here = [one.signature for one in Catalogue.load().entries if one.signature is not None]

    assert here
    assert [one.call_problem for one in here if one.call_problem] == []
    assert [one.executor for one in here if not one.summary] == []
