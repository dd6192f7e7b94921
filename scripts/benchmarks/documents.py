"""The workflows of the benchmark and their expected results."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def n_of(step: str) -> dict[str, str]:
    return {"var": f"steps.{step}.output.n"}


def chain(size: int) -> Document:
    """Each step takes the output of the previous one. The result is its size."""
    steps: list[Document] = [{"id": "s0", "fn": "inc", "input": {"n": 0}}]
    steps += [{"id": f"s{i}", "fn": "inc", "input": {"n": n_of(f"s{i - 1}")}} for i in range(1, size)]
    return {"steps": steps, "outputs": {"n": n_of(f"s{size - 1}")}}


def fan(size: int) -> Document:
    """One step, `size` steps that take its output, and one that takes all of theirs.

    The result is twice the size.
    """
    steps: list[Document] = [{"id": "first", "fn": "inc", "input": {"n": 0}}]
    steps += [{"id": f"b{k}", "fn": "inc", "input": {"n": n_of("first")}} for k in range(size)]
    outputs = [{"var": f"steps.b{k}.output"} for k in range(size)]
    steps.append({"id": "join", "fn": "total", "input": {"all": outputs}})
    return {"steps": steps, "outputs": {"n": n_of("join")}}


DIAMOND: Document = {
    "name": "diamond",
    "inputs": {"n": {"type": "number", "required": True}},
    "steps": [
        {"id": "a", "fn": "inc", "input": {"n": {"var": "input.n"}}},
        {"id": "b", "fn": "inc", "input": {"n": n_of("a")}},
        {"id": "c", "fn": "inc", "input": {"n": n_of("a")}},
        {
            "id": "d",
            "fn": "total",
            "input": {"all": [{"var": "steps.b.output"}, {"var": "steps.c.output"}]},
        },
    ],
    "outputs": {"n": n_of("d")},
}
"""The result is twice its input, plus four."""

PARKED: Document = {
    "name": "parked",
    "steps": [{"id": "wait", "fn": "inc", "queue": "parked", "input": {"n": 0}}],
}
"""Stays open, because no worker serves its queue."""
