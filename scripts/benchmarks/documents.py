"""The workflows of the benchmark, and what must come of them."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]


def n_of(step: str) -> dict[str, str]:
    return {"var": f"steps.{step}.output.n"}


def chain(size: int) -> Document:
    """Every step takes what the one before it gave; it comes to its size."""
    steps: list[Document] = [{"id": "s0", "fn": "inc", "input": {"n": 0}}]
    steps += [{"id": f"s{i}", "fn": "inc", "input": {"n": n_of(f"s{i - 1}")}} for i in range(1, size)]
    return {"steps": steps, "outputs": {"n": n_of(f"s{size - 1}")}}


def fan(size: int) -> Document:
    """One step, as many as wanted that take its output, and one that takes all of theirs; it comes to twice
    its size."""
    steps: list[Document] = [{"id": "first", "fn": "inc", "input": {"n": 0}}]
    steps += [{"id": f"b{k}", "fn": "inc", "input": {"n": n_of("first")}} for k in range(size)]
    everyone = [{"var": f"steps.b{k}.output"} for k in range(size)]
    steps.append({"id": "join", "fn": "total", "input": {"all": everyone}})
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
"""Comes to twice what its input is, and four."""

PARKED: Document = {
    "name": "parked",
    "steps": [{"id": "wait", "fn": "inc", "queue": "parked", "input": {"n": 0}}],
}
"""Stays open: nobody serves its queue."""
