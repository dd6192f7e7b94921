"""`orchestrator executors`, and the checks of executors in `validate`: output and exit codes."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from executor_modules import Modules, install
from orchestrator.cli import main
from orchestrator.invocation.executors import ENTRY_POINTS
from orchestrator.worker.executors import catalogue

SHOP = '''
from typing import Any, NotRequired, TypedDict

print("hello from shop")

class Payment(TypedDict):
    amount: float
    note: NotRequired[str]

async def charge(inputs: Payment, context):
    """Take the money.

    Once.
    """

def ship(inputs, heartbeat):
    """Send it.\\x1b[31m"""
'''


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Modules:
    """A shop, one built-in, nothing installed and nothing in the environment."""
    install(monkeypatch)
    monkeypatch.setattr(catalogue, "BUILT_IN", frozenset({"webhook"}))
    monkeypatch.chdir(tmp_path)
    for name in ("EXECUTORS", "WEBHOOK_HOSTS", "WEBHOOK_SECRET"):
        monkeypatch.delenv(f"ORCHESTRATOR_{name}", raising=False)
    made = Modules(tmp_path, monkeypatch)
    made.write("shop", SHOP)
    return made


def orchestrator(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment, prog_name="orchestrator")


def as_json(*arguments: str, **environment: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(orchestrator(*arguments, "--json", **environment).stdout)
    return answer


# ---- executors


def test_executors_are_listed_with_their_origin_and_parameters() -> None:
    result = orchestrator("executors", "--executors", "shop")

    assert result.exit_code == 0
    title, charge, ship, webhook = result.stdout.splitlines()
    assert title.split() == ["EXECUTOR", "FROM", "TAKES", "ABOUT"]
    assert charge == "charge    shop      async inputs, context  Take the money."
    assert ship == r"ship      shop      inputs, heartbeat      Send it.\x1b[31m"
    assert webhook.startswith("webhook   built-in  async inputs, context ")
    assert result.stderr == "hello from shop\n", "what a module prints is no part of the answer"


def test_the_modules_are_those_of_the_environment_unless_others_are_named(modules: Modules) -> None:
    modules.write("other", "def pack(inputs): ...")

    named = as_json("executors", "--executors", "other", ORCHESTRATOR_EXECUTORS="shop")
    environment = as_json("executors", ORCHESTRATOR_EXECUTORS="shop, other")

    assert [one["name"] for one in named["executors"]] == ["pack", "webhook"]
    assert [one["name"] for one in environment["executors"]] == ["charge", "ship", "pack", "webhook"]


def test_json_output_is_not_cut_and_leaves_out_missing_fields() -> None:
    charge, _, webhook = as_json("executors", "--executors", "shop")["executors"]

    assert charge == {
        "name": "charge",
        "kind": "module",
        "from": "shop",
        "takes": ["context"],
        "async": True,
        "about": "Take the money.",
    }
    assert webhook["settings"]["ORCHESTRATOR_WEBHOOK_SECRET"] is False


def test_everything_about_one_executor_is_shown() -> None:
    result = orchestrator("executors", "charge", "--executors", "shop")

    assert result.exit_code == 0
    assert result.stdout == (
        "charge, from shop\n"
        "takes async inputs, context\n"
        "\n"
        "Take the money.\n"
        "\n"
        "Once.\n"
        "\n"
        "INPUT   REQUIRED  TYPE\n"
        "amount  yes       a number\n"
        "note    no        a string\n"
    )
    [charge] = as_json("executors", "charge", "--executors", "shop")["executors"]
    assert charge["doc"] == "Take the money.\n\nOnce."
    assert charge["inputs"] == [
        {"name": "amount", "required": True, "type": "a number"},
        {"name": "note", "required": False, "type": "a string"},
    ]


def test_a_built_in_shows_its_variables_and_never_their_values() -> None:
    said = orchestrator("executors", "webhook", ORCHESTRATOR_WEBHOOK_SECRET="abc123").stdout

    assert "webhook, from built-in" in said
    assert "ORCHESTRATOR_WEBHOOK_HOSTS   not set\n" in said
    assert "ORCHESTRATOR_WEBHOOK_SECRET  set\n" in said
    assert "abc123" not in said


def test_a_hidden_executor_names_the_one_that_hides_it(modules: Modules) -> None:
    modules.write("mine", "def webhook(inputs): ...")

    listed = orchestrator("executors", "--executors", "mine").stdout
    told = orchestrator("executors", "webhook", "--executors", "mine").stdout
    mine, ours = as_json("executors", "--executors", "mine")["executors"]

    assert listed.splitlines()[2].endswith("hidden by mine")
    assert told.startswith(
        "webhook, from mine\ntakes inputs\n\nwebhook, from built-in\nhidden by mine, which is called"
    )
    assert "hidden_by" not in mine
    assert ours["hidden_by"] == "mine"


def test_a_catch_all_is_shown_for_an_unknown_name(modules: Modules) -> None:
    modules.write("any", "def execute(fn, inputs, context): ...")

    assert orchestrator("executors", "whatever", "--executors", "any").stdout == (
        "execute, from any, for every other name\ntakes fn, inputs, context\n"
    )


def test_an_unknown_name_is_rejected_and_broken_modules_are_listed_too() -> None:
    result = orchestrator("executors", "chrage", "--executors", "shop", "--executors", "no_such_module")

    assert result.exit_code == 2
    assert "no executor is called 'chrage'; this worker has: charge, ship, webhook; did you mean" in (
        result.stderr
    )
    assert "'no_such_module' cannot be imported" in result.stderr
    assert "did you mean" not in orchestrator("executors", "zzz", "--executors", "shop").stderr


def test_a_broken_executor_is_a_problem_and_the_others_are_listed(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, EntryPoint("shout", "nowhere.to_be_found:f", ENTRY_POINTS))
    modules.write("broken", "raise ValueError('two\\nlines')")
    arguments = ("executors", "--executors", "broken", "--executors", "shop")

    result = orchestrator(*arguments)
    answer = as_json(*arguments)

    assert result.exit_code == 1
    assert "charge " in result.stdout
    module, point = result.stdout.splitlines()[-2:]
    assert module == (
        "problem: the executors module 'broken' fails when it is imported: ValueError: two lines"
    )
    assert point.startswith("problem: the executor 'shout' of nowhere.to_be_found:f cannot be loaded")
    assert len(answer["problems"]) == 2
    assert orchestrator("executors", "shout").stdout.startswith("shout, from nowhere.to_be_found:f\nthe exec")
    assert [one["problem"] for one in answer["executors"] if one["name"] == "shout"] == answer["problems"][1:]


def test_a_built_in_that_was_left_out_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "BUILT_IN", frozenset({"left_out"}))

    result = orchestrator("executors")

    assert result.exit_code == 0
    assert "left_out  built-in         the built-in executor 'left_out' cannot be loaded" in result.stdout


def test_a_function_that_cannot_be_called_is_listed_with_the_problem(modules: Modules) -> None:
    modules.write("more", "def connect(host, port): ...")

    listed = orchestrator("executors", "--executors", "more")
    told = orchestrator("executors", "connect", "--executors", "more")

    assert listed.exit_code == 0
    complaint = "it cannot be called with its inputs alone: missing a required argument: 'port'"
    assert complaint in listed.stdout
    assert complaint in told.stdout


# ---- validate


def test_executors_are_checked_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "order.yaml").write_text("steps: [{op: chrge}]")

    assert orchestrator("validate", "order.yaml", ORCHESTRATOR_EXECUTORS="shop").exit_code == 0
    named = orchestrator("validate", "order.yaml", "--executors", "shop")
    flagged = orchestrator("validate", "order.yaml", "--check-executors", ORCHESTRATOR_EXECUTORS="shop")

    assert named.exit_code == flagged.exit_code == 2
    said = "no executor is called 'chrge'; did you mean 'charge'? [unknown_executor]\n"
    assert named.stdout == flagged.stdout == f"order.yaml:1:14: steps[0].op: {said}"


def test_a_document_that_fits_its_executors_is_valid(tmp_path: Path) -> None:
    (tmp_path / "order.yaml").write_text("steps: [{op: charge, input: {amount: 3}}]")

    result = orchestrator("validate", "order.yaml", "--executors", "shop")

    assert (result.exit_code, result.stdout) == (0, "order.yaml: valid, 1 step\n")


def test_every_file_is_checked_and_json_has_the_same_problems(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("steps: [{op: ship}]")
    (tmp_path / "bad.yaml").write_text("steps: [{op: charge, input: {amount: three}}]")

    result = orchestrator("validate", "good.yaml", "bad.yaml", "--executors", "shop", "--json")
    good, bad = json.loads(result.stdout)
    merged = orchestrator("validate", "good.yaml", "bad.yaml", "--merge", "--executors", "shop")

    assert result.exit_code == merged.exit_code == 2
    assert (good["valid"], bad["valid"]) == (True, False)
    assert bad["problems"] == [
        {
            "path": "steps[0].input.amount",
            "code": "bad_input",
            "message": "the executor 'charge' expects a number here, not a string",
            "line": 1,
            "column": 38,
        }
    ]
    assert merged.stdout.startswith("bad.yaml:1:38: steps[0].input.amount: ")


def test_a_broken_module_ends_the_validation(tmp_path: Path) -> None:
    (tmp_path / "order.yaml").write_text("steps: [{op: charge}]")

    result = orchestrator("validate", "order.yaml", "--executors", "no_such_module")

    assert result.exit_code == 2
    assert "the executors module 'no_such_module' cannot be imported" in result.stderr
    assert result.stdout == ""


# ---- libraries that a built-in needs


@pytest.mark.parametrize("name", ["http", "webhook"])
def test_a_built_in_that_lacks_its_library_is_a_problem_of_the_document(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "BUILT_IN", frozenset({"http", "webhook"}))
    document = {
        "http": "steps:\n  - {id: a, fn: http}\n  - {id: b, fn: http}\n",
        "webhook": "steps: []\nwebhook: {url: https://hooks.example.org}\n",
    }[name]
    (tmp_path / "order.yaml").write_text(document)
    installed = orchestrator("validate", "order.yaml", "--check-executors")
    monkeypatch.setitem(sys.modules, "httpx", None)

    missing = orchestrator("validate", "order.yaml", "--check-executors")
    listed = orchestrator("executors")
    [row] = as_json("executors", name)["executors"]

    problem = (
        f"the executor {name!r} needs httpx, which is not installed here: pip install 'rq-orchestrator[http]'"
    )
    assert (installed.exit_code, missing.exit_code, listed.exit_code) == (0, 2, 0)
    places = {"http": ["2:17: steps[0].fn", "3:17: steps[1].fn"], "webhook": ["2:10: webhook"]}[name]
    assert missing.stdout.splitlines() == [f"order.yaml:{one}: {problem} [bad_executor]" for one in places]
    assert row["problem"] == problem
    assert problem in listed.stdout
