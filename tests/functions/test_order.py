"""The order of docs/functions.md: as YAML, with short references, by the builder, and as functions. It is one
workflow."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jsonschema
import pytest

from functions.order_page import SHORT_YAML, YAML
from orchestrator import Backend, Workflow, WorkflowBuilder, load_spec
from orchestrator.application.records.status import StepStatus
from orchestrator.application.spec.json_schema import build_schema
from orchestrator.builder import item, op, output
from orchestrator.invocation.executors import Executors
from orchestrator.local.isolated_child import find_function
from worlds.redis_world import RedisWorld
from worlds.spec_executions import signal

WITHOUT_APPROVAL = (
    {"sku": "pen", "quantity": 2},
    {"prices": [300.0, 300.0], "by": "nobody", "shipped": "parcel for 400"},
)
WITH_APPROVAL = (
    {"sku": "pen", "quantity": 3},
    {"prices": [300.0, 300.0, 300.0], "by": "ada", "shipped": "parcel for 600"},
)


def build() -> dict[str, Any]:
    flow = WorkflowBuilder(
        "order", description="Check, price, approve, charge and ship an order.", timeout="2d"
    )
    sku = flow.input("sku", type="string", required=True)
    quantity = flow.input("quantity", type="integer", default=1)
    check = flow.step("check", input={"sku": sku, "quantity": quantity}, retry=3)
    price = flow.map("price", over=check.output.lines, max_parallel=4, input={"line": item})
    manager = flow.wait(
        "manager", signal="manager", timeout="24h", after=price, when=check.output.amount > 500
    )
    pay = flow.step(
        "pay",
        fn="charge",
        input={"order": op.cat(sku, " x ", quantity), "amount": check.output.amount},
        timeout="30s",
        after=manager,
        compensate={"fn": "refund", "input": {"payment": output.id}},
    )
    flow.switch("switch", on=check.output.kind, cases={"parcel": "send_parcel"}, default="send_letter")
    parcel = flow.step("send_parcel", input={"payment": pay.output})
    letter = flow.step("send_letter", input={"payment": pay.output})
    flow.outputs(
        prices=op.map(price.output["items"], lambda one: one.result),
        by=op.default(manager.output.by, "nobody"),
        shipped=op.default(parcel.output.result, letter.output.result),
    )
    return flow.to_dict()


def documents(app: ModuleType) -> dict[str, dict[str, Any]]:
    return {
        "yaml": load_spec(YAML).document,
        "short": load_spec(SHORT_YAML).document,
        "builder": build(),
        "functions": app.order.to_dict(),
    }


def test_yaml_builder_and_functions_are_one_document(app: ModuleType) -> None:
    assert app.order.to_yaml() == YAML
    assert app.order.load().workflow_id == load_spec(YAML).workflow_id
    assert documents(app)["builder"] == app.order.to_dict()


def test_every_way_is_valid_by_the_schema_and_short_references_mean_the_same(app: ModuleType) -> None:
    schema = build_schema()

    for document in documents(app).values():
        jsonschema.validate(document, schema)
    assert load_spec(SHORT_YAML).graph.parents == load_spec(YAML).graph.parents


@pytest.mark.parametrize("way", ["yaml", "short", "builder", "functions"])
@pytest.mark.parametrize(("inputs", "outcome"), [WITHOUT_APPROVAL, WITH_APPROVAL])
def test_it_runs_in_memory(
    app: ModuleType, way: str, inputs: dict[str, Any], outcome: dict[str, Any]
) -> None:
    execution = Workflow.from_dict(documents(app)[way], Backend("app"), inputs)
    execution.signal("manager", {"by": "ada"})

    execution.run()

    assert execution.outcome == outcome


@pytest.mark.parametrize("way", ["yaml", "short", "functions"])
@pytest.mark.parametrize(("inputs", "outcome"), [WITHOUT_APPROVAL, WITH_APPROVAL])
def test_it_runs_on_redis(
    app: ModuleType, world: RedisWorld, way: str, inputs: dict[str, Any], outcome: dict[str, Any]
) -> None:
    one, executors = world.coordinator(), found_by_a_worker("app")
    weid = world.begin(one, documents(app)[way], inputs=inputs)
    world.settle(one, executors=executors)
    if world.record(weid).steps["manager"].status is StepStatus.WAITING:
        signal(world, weid, "manager", {"by": "ada"})
        world.settle(one, executors=executors)

    assert world.record(weid).outcome == outcome


def test_a_payment_is_refunded_when_a_later_step_fails(
    app: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    executors = {**app.order.executors, "send_letter": lambda inputs: 1 / 0}

    execution = Workflow.from_dict(app.order.to_dict(), Backend(executors), {"sku": "pen"})
    execution.run()

    assert (execution.status, capsys.readouterr().out) == ("failed", "refund payment of pen x 1\n")


def test_another_process_can_import_the_executor_of_a_step(app: ModuleType) -> None:
    charge = app.charge.executor

    assert find_function(charge.__module__, charge.__qualname__) is charge


def found_by_a_worker(module: str) -> dict[str, Any]:
    found = Executors([module])
    return {name: found.find(name) for name in found.names}
