"""A document is checked against the executors that are installed here, before anything is started."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from executor_modules import Modules, install
from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.validation import scan_specs
from orchestrator.application.values.document_limits import MAX_PROBLEMS
from orchestrator.invocation.executors import ENTRY_POINTS
from orchestrator.worker.executors import catalogue as module
from orchestrator.worker.executors.catalogue import Catalogue
from orchestrator.worker.executors.spec_check import CODES, check_executors

SHOP = """
from typing import Literal, NotRequired, TypedDict

class Payment(TypedDict):
    amount: float
    currency: NotRequired[Literal["EUR", "USD"]]

def charge(inputs: Payment): ...
def refund(inputs: Payment): ...
def ship(inputs, heartbeat, configuration): ...
def helper(connection, table): ...
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    """Two built-ins, one of which cannot be loaded, and an entry point that cannot be loaded either."""
    monkeypatch.setattr(module, "BUILT_IN", frozenset({"webhook", "left_out"}))
    install(monkeypatch, EntryPoint("broken", "nowhere.to_be_found:f", ENTRY_POINTS))
    return Catalogue.load([Modules(tmp_path, monkeypatch).write("shop", SHOP)])


def problems(catalogue: Catalogue, *texts: str) -> list[str]:
    """The problems as `validate` prints them."""
    named = [(text, f"{n}.yaml") for n, text in enumerate(texts)]
    loaded, report = scan_specs(named)
    report.raise_if_any()
    assert loaded is not None
    check_executors(loaded, report, catalogue)
    assert {problem.code for problem in report.problems} <= CODES
    return [problem.located_in(problem.source or named[0][1]) for problem in report.problems]


def test_a_document_that_fits_passes(shop: Catalogue) -> None:
    document = """
        webhook: {url: https://example.org}
        sources:
          van: {type: ship, configuration: {colour: blue}}
          variables: {type: env, configuration: {vars: [HOME]}}
        steps:
          - id: pay
            fn: charge
            input: {amount: {var: input.amount}, currency: EUR}
            compensate: {fn: refund, input: {amount: 1}}
          - {id: go, source: van, heartbeat: 5s, depends_on: [pay]}
          - {id: rest, delay: 1s}
          - {id: later, workflow: another_one}
    """

    assert problems(shop, document) == []


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ("{id: s, fn: chrge}", "steps[0].fn"),
        ("{op: chrge}", "steps[0].op"),
        ("{id: s, type: chrge}", "steps[0].type"),
        ("{id: s, source: {type: chrge}}", "steps[0].source.type"),
        ("{id: s, fn: chrge, map: {over: [1]}}", "steps[0].fn"),
        ("{id: s, wait: {signal: go}, compensate: {fn: chrge}}", "steps[0].compensate.fn"),
        ("{id: s, workflow: {steps: [{op: chrge}]}}", "steps[0].workflow.steps[0].op"),
        ("{id: s, workflow: {flow: [{op: chrge}]}}", "steps[0].workflow.flow[0].op"),
    ],
)
def test_an_unknown_executor_is_reported_at_its_place(shop: Catalogue, step: str, place: str) -> None:
    line = f"- {step}"

    found = problems(shop, f"steps:\n{line}")

    message = "no executor is called 'chrge'; did you mean 'charge'? [unknown_executor]"
    assert found == [f"0.yaml:2:{line.index('chrge') + 1}: {place}: {message}"]


def test_the_type_of_a_source_is_reported_once_however_many_steps_use_it(shop: Catalogue) -> None:
    document = """
sources:
  van: {type: shp, configuration: {colour: blue}}
  unused: {type: nobody}
steps:
  - {id: one, source: van}
  - {id: two, source: {base: van, override: {colour: red}}}
  - {id: three, source: {base: van, override: {type: wagon}}}
"""

    assert problems(shop, document) == [
        "0.yaml:3:15: sources.van.type: no executor is called 'shp'; did you mean 'ship'? [unknown_executor]",
        "0.yaml:4:18: sources.unused.type: no executor is called 'nobody';"
        " `orchestrator executors` lists the executors found here; --executors MODULE adds a module"
        " [unknown_executor]",
        "0.yaml:8:54: steps[2].source.override.type: no executor is called 'wagon';"
        " `orchestrator executors` lists the executors found here; --executors MODULE adds a module"
        " [unknown_executor]",
    ]


def test_a_source_of_type_env_needs_an_executor_only_where_a_step_calls_it(shop: Catalogue) -> None:
    sources = "sources: {variables: {type: env, configuration: {vars: [HOME]}}}"
    read = "{id: a, source: {type: ship, configuration: {home: {var: sources.variables.HOME}}}}"

    assert problems(shop, f"{sources}\nsteps: [{read}]") == []
    [called] = problems(shop, f"{sources}\nsteps: [{{id: a, source: variables}}]")
    assert "sources.variables.type: no executor is called 'env'" in called


def test_an_executor_that_cannot_be_called_is_reported_with_the_reason(shop: Catalogue) -> None:
    document = """
webhook: {url: https://example.org}
steps:
  - {id: a, fn: left_out}
  - {id: b, fn: broken}
  - {id: c, fn: helper}
"""

    left_out, broken, helper = problems(shop, document)

    assert left_out.startswith("0.yaml:4:17: steps[0].fn: the built-in executor 'left_out' cannot be loaded")
    assert "the executor 'broken' of nowhere.to_be_found:f cannot be loaded: ModuleNotFound" in broken
    assert helper == (
        "0.yaml:6:17: steps[2].fn: the executor 'helper' of shop: it cannot be called with its inputs alone:"
        " missing a required argument: 'table' [bad_executor]"
    )


def test_a_webhook_needs_its_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    monkeypatch.setattr(module, "BUILT_IN", frozenset())

    [missing] = problems(Catalogue.load(), "webhook: {url: https://example.org}\nsteps: []")

    assert missing.startswith("0.yaml:1:10: webhook: no executor is called 'webhook'")


def test_an_executor_must_request_the_heartbeat_and_the_configuration_of_its_step(shop: Catalogue) -> None:
    document = """
steps:
  - id: a
    heartbeat: 5s
    source: {type: charge, configuration: {colour: red}}
    input: {amount: 1}
  - {id: b, source: {type: charge}, input: {amount: 1}}
"""

    heartbeat, configuration = problems(shop, document)

    assert heartbeat.startswith("0.yaml:4:16: steps[0].heartbeat: step 'a' has a heartbeat of 5 s, but its")
    assert heartbeat.endswith("[bad_executor]")
    assert configuration.startswith(
        "0.yaml:5:13: steps[0].source: the source of step 'a' has a configuration"
    )
    assert configuration.endswith("[bad_executor]")


def test_inputs_are_checked_against_the_typed_dict_of_the_executor(shop: Catalogue) -> None:
    document = """
steps:
  - {id: a, fn: charge, input: {amuont: 3, currency: CHF}}
  - {id: b, fn: charge}
  - {id: c, fn: charge, input: {amount: "3"}, compensate: {fn: refund, input: {amount: {secret: price}}}}
  - {id: d, fn: ship, input: {anything: goes}}
"""

    found = problems(shop, document)

    assert all(line.endswith(" [bad_input]") for line in found)
    assert [line.removeprefix("0.yaml:").removesuffix(" [bad_input]") for line in found] == [
        "3:32: steps[0].input: the executor 'charge' requires the key 'amount' here, a number",
        "3:41: steps[0].input.amuont: the executor 'charge' accepts no key 'amuont' here;"
        " did you mean 'amount'?",
        "3:54: steps[0].input.currency: the executor 'charge' expects 'EUR' or 'USD' here, not 'CHF'",
        "4:5: steps[1].input: the executor 'charge' requires the key 'amount' here, a number",
        "5:41: steps[2].input.amount: the executor 'charge' expects a number here, not a string",
        "5:88: steps[2].compensate.input.amount: the executor 'refund' expects a number here,"
        " not a secret, which is a string",
    ]


def test_a_catch_all_takes_every_name_and_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    name = Modules(tmp_path, monkeypatch).write("shop", "def execute(fn, inputs): ...")

    [found] = problems(Catalogue.load([name]), "steps: [{op: a}, {op: b, heartbeat: 5s}]")

    assert "steps[1].heartbeat: step 'b' has a heartbeat" in found


def test_a_problem_names_its_file_among_merged_files(shop: Catalogue) -> None:
    one, two = "x-a: 1\nsteps: [{op: charge, input: {amount: 1}}]", "\nsteps: [{op: chrge}]"

    assert [line.partition(" steps")[0] for line in problems(shop, one, two)] == ["1.yaml:2:14:"]


def test_only_the_first_of_many_problems_are_reported(shop: Catalogue) -> None:
    document = json.dumps({"steps": [{"id": f"s{n}", "fn": "nobody"} for n in range(MAX_PROBLEMS + 5)]})

    loaded, report = scan_specs([(document, "many.json")])
    assert loaded is not None
    with pytest.raises(InvalidSpec) as refused:
        check_executors(loaded, report, shop)

    assert len(refused.value.problems) == MAX_PROBLEMS + 1


def test_other_problems_hide_no_unknown_executor(shop: Catalogue) -> None:
    document = """\
timeout: soon
steps:
  - {op: chrge, timeout: [], depends_on: [5, nowhere]}
  - {id: 5, fn: refnd, map: 3}
  - {fn: chrge, input: {x: {var: inputs.a}}}
  - {id: undone, fn: charge, input: {amount: 1}, compensate: {fn: refnd, input: 3}}
  - {id: idle, fn: 3}
  - just a text
  - {id: child, workflow: {steps: [{op: chrge, on_error: ignore}]}}
"""
    loaded, report = scan_specs([(document, "w.yaml")])
    assert loaded is not None

    check_executors(loaded, report, shop)

    assert [(problem.line, problem.code) for problem in report.problems] == [
        (1, "bad_duration"),
        (3, "unknown_executor"),
        (3, "bad_duration"),
        (3, "bad_type"),
        (3, "unknown_dependency"),
        (4, "bad_type"),
        (4, "unknown_executor"),
        (4, "bad_type"),
        (5, "missing_id"),
        (5, "unknown_executor"),
        (5, "unknown_root"),
        (6, "unknown_executor"),
        (6, "bad_type"),
        (7, "bad_type"),
        (8, "bad_type"),
        (9, "unknown_executor"),
        (9, "bad_policy"),
    ]
