"""Builds workflow documents in Python. Arguments are typed, and each call checks what it adds.

flow = WorkflowBuilder("greeting")
name = flow.input("name", type="string", required=True)
greet = flow.step("greet", fn="make_greeting", input={"name": name})
flow.outputs(text=greet.output.text)
flow.to_yaml(), flow.to_dict(), flow.load()
"""

from orchestrator.builder import op
from orchestrator.builder.branches import Branch, complete, fail, halt, reset, retry, skip, when
from orchestrator.builder.expressions import (
    Expr,
    Json,
    MissingValue,
    Reference,
    Step,
    Value,
    literal,
    raw,
    ref,
    render,
    secret,
)
from orchestrator.builder.keyword_arguments import Source
from orchestrator.builder.roots import ctx, index, input_, item, kv, output, result, sources, state
from orchestrator.builder.workflow import WorkflowBuilder

__all__ = [
    "Branch",
    "Expr",
    "Json",
    "MissingValue",
    "Reference",
    "Source",
    "Step",
    "Value",
    "WorkflowBuilder",
    "complete",
    "ctx",
    "fail",
    "halt",
    "index",
    "input_",
    "item",
    "kv",
    "literal",
    "op",
    "output",
    "raw",
    "ref",
    "render",
    "reset",
    "result",
    "retry",
    "secret",
    "skip",
    "sources",
    "state",
    "when",
]
