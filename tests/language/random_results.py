"""What is to follow from the results of steps made by chance: attempts, policies and branches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random
from typing import Any

from language.cases import Case, Script
from worlds.documents import Json


@dataclass(slots=True)
class Written:
    """A step of the document: its parents, the steps that have surely ended when it runs, and those that have
    ended when it ends, which may be fewer: a join of all is skipped as soon as one parent is. `is_set`: its
    branch resets it."""

    name: str
    parents: set[str]
    readable: set[str] = field(default_factory=set)
    settled: set[str] = field(default_factory=set)
    is_set: bool = False


class ResultWriter:
    """`names` are the steps of the document that have been written so far."""

    def __init__(self, case: Case, draw: Random, names: Collection[str]) -> None:
        self._case, self._draw, self._names, self._is_quiet = case, draw, names, case.is_quiet

    def add_policies(self, step: Json, written: Written, kind: str) -> None:
        draw = self._draw
        policies = ["skip", "continue"] * 3
        policy = draw.choice(policies if self._is_quiet else [*policies, "fail", None])
        if policy is not None:
            step["on_error"] = policy
        if kind in ("task", "map", "loop", "child"):
            self._add_attempts(step)
        if kind in ("task", "wait", "child", "map") and draw.random() < (0.35 if self._is_quiet else 0.5):
            step["branch"] = self._branches(step, written)

    def _add_attempts(self, step: Json) -> None:
        draw = self._draw
        if draw.random() < 0.4:
            step["max_attempts"] = draw.randint(2, 3)
        if draw.random() < 0.3:
            step["retry"] = {"max_retries": draw.randint(1, 2), "initial_delay_ms": draw.randint(1, 5) * 1000}
            if draw.random() < 0.4:
                step["retry"] |= {"backoff_multiplier": 3, "max_delay_ms": 9000, "jitter_fraction": 0.5}
            if draw.random() < 0.3:
                step["retry"]["non_retryable"] = draw.sample(["exception", "child_failed", "Rare"], 2)
        if draw.random() < 0.1:
            step["attempts_on"] = "any"

    def _branches(self, step: Json, written: Written) -> list[Json]:
        draw, name = self._draw, written.name
        number = {"var": [f"n_{name}", 0]}
        actions = ["complete", "skip", "retry", "fail", "set"]
        action: Any = draw.choice(actions if self._is_quiet else [*actions, "set", "set", "set", "halt"])
        condition: Any = {draw.choice(["<", ">="]): [number, draw.randint(3, 7)]}
        if action == "complete":
            condition = {"==": [{"var": "ok"}, False]}
        elif action == "set":
            written.is_set = True
            condition = {"and": [condition, {"<": [{"var": "ctx.step.run_id"}, draw.randint(1, 3)]}]}
            others = [] if self._is_quiet else draw.sample(sorted(self._names), min(2, len(self._names)))
            action = {"set": [name, *others]}
        found = [{"condition": condition, "action": action}]
        if isinstance(action, dict):
            found.append({"condition": {"!=": [{"var": "ok"}, False]}, "action": "complete"})
        return found

    def make_gate(self, step: Json, written: Written) -> None:
        """Nothing runs beside a gate: here a failure may stop, a branch halt, and a set take back others."""
        draw, name = self._draw, written.name
        what = draw.choice(["stop", "stop", "stop", "halt", "set", "set", "map"])
        policy = draw.choice([None, "fail", "skip", "continue"])
        if what != "map":
            self._add_attempts(step)
        if what == "stop":
            self._case.scripts[name] = Script(fails=9)
            policy = draw.choice([None, "fail"])
        elif what == "halt":
            self._case.scripts[name] = Script()
            condition = {">=": [{"var": [f"n_{name}", 0]}, 3]}
            result: Json = draw.choice(
                [{"result": {"by": name}}, {"result_expr": {"n": {"var": f"n_{name}"}}}]
            )
            step["branch"] = [{"condition": condition, "action": "halt", **result}]
        elif what == "set" and written.parents:
            targets = draw.sample(sorted(written.parents), draw.randint(1, min(2, len(written.parents))))
            condition = {"<": [{"var": "ctx.step.run_id"}, draw.randint(1, 3)]}
            step["branch"] = [
                {"condition": condition, "action": {"set": targets}},
                {"condition": True, "action": "complete"},
            ]
        elif what == "map":
            step["map"] = {"over": [1, 2, 3], "max_parallel": 1}
            step["input"]["item"] = {"var": "item"}
            step.pop("output", None)
            self._case.scripts[name] = Script(fails=draw.choice([0, 9]))
            policy = draw.choice(["fail", "fail", "skip", "continue"])
        if policy is not None:
            step["on_error"] = policy
