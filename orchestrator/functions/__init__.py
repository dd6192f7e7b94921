"""Workflows as Python functions: `@step` on a typed function, `@workflow` on a function that calls steps.

    @step(retry=3)
    def charge(order_id: str, amount: float) -> Charge: ...

    @workflow
    def order(order_id: str) -> dict[str, Any]:
        paid = charge(order_id=order_id, amount=12.5)
        return {"charge": paid.id}

    order.to_yaml(), order.run(order_id="o-1"), order.start(client, order_id="o-1")

Conditions and branches are those of the builder: `when`, `halt`, `retry` and so on of `orchestrator.builder`.
"""

from orchestrator.functions import op
from orchestrator.functions.again import Again
from orchestrator.functions.errors import BadStepInput, BadStepResult, OutsideWorkflow
from orchestrator.functions.forms import (
    child,
    loop,
    map_each,
    sleep,
    step_of,
    switch,
    wait_for,
    wait_for_any,
)
from orchestrator.functions.steps import StepFunction, executor, step
from orchestrator.functions.workflows import WorkflowFunction, workflow

__all__ = [
    "Again",
    "BadStepInput",
    "BadStepResult",
    "OutsideWorkflow",
    "StepFunction",
    "WorkflowFunction",
    "child",
    "executor",
    "loop",
    "map_each",
    "op",
    "sleep",
    "step",
    "step_of",
    "switch",
    "wait_for",
    "wait_for_any",
    "workflow",
]
