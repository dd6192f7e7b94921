"""Random workflows that runfox and this project must run alike: `random_case(seed)`, a pure function.

A case is a document, its inputs and, for each step, the script its executor follows: data only, so the same
case can be run in memory, by runfox, or through Redis. An output depends on step, inputs and how often
the step was called before, and on nothing else.

What is left out, and why (D: the deviations of language.md section 1; U20: of seed-features.md):

    D1  no expression inside a list of `input` or `outputs`; lists hold literals there
    D3  no bad spec: every set step has a complete or halt branch, every name exists
    D4  no executor raises on its last attempt unless a branch catches it
    D5  no step has attempts if a set could reset it
    D6  every reference to a step is to an ancestor, has a default, or is nested and to itself or below
    D7  no substr, all, none, some
    D9  ids are letters, digits and underscores
    U20 no expression that fails (runfox is eager), no ===/cat of a product or quotient (6.0 is 6 here), no
        falsy items in map and filter, no null in arithmetic, no expression inside a list inside an operator
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

Json = dict[str, Any]

FEATURES = (
    "dag",
    "loop",
    "loop_to_ancestor",
    "loop_to_sibling",
    "loop_through_state",
    "halt",
    "complete",
    "retries",
    "errors",
    "rejections",  # results whose `ok` is false
    "attempts_on_error",  # max_attempts without attempts_on: any, see oracle.py
    "vars",
    "nested",
    "scoped",  # map, filter, reduce
    "state",
    "null_output",
    "dynamic_target",
)


class ScriptedFailure(Exception):
    """What a scripted executor raises."""


@dataclass(frozen=True, slots=True)
class Script:
    """What the executor of one step does.

    keys    of its output: n (a number), s (a text), flag, items (a list), obj (an object), maybe (or null)
    echo    output key -> input key: the input is passed on as it came
    count   output key that carries how often the step was called before
    null    the calls (counted from 0) that return nothing; raises: those that raise
    rejects the calls whose output has `ok` false, and an error, besides its keys
    """

    keys: tuple[str, ...] = ()
    echo: tuple[tuple[str, str], ...] = ()
    count: str | None = None
    null: tuple[int, ...] = ()
    raises: tuple[int, ...] = ()
    rejects: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    seed: int
    document: Json
    inputs: Json
    scripts: dict[str, Script]
    features: frozenset[str]

    def execute(self, fn: str, inputs: Json, calls: int) -> Any:
        return perform(self.scripts[fn], fn, inputs, calls)

    def __str__(self) -> str:
        scripts = "\n".join(f"  {name}: {script}" for name, script in self.scripts.items())
        return f"seed {self.seed}\n{json.dumps(self.document, indent=1)}\ninputs {self.inputs}\n{scripts}"


def perform(script: Script, fn: str, inputs: Json, calls: int) -> Any:
    """The output of one execution: None, an object, or a ScriptedFailure."""
    if calls in script.raises:
        raise ScriptedFailure(f"{fn} failed in call {calls}")
    if calls in script.null:
        return None
    known = json.dumps([fn, _plain(inputs), calls], sort_keys=True)
    draw = Random(int.from_bytes(hashlib.sha256(known.encode()).digest()[:8], "big"))
    output = {key: _VALUES[key](draw) for key in script.keys}
    output.update({key: _plain(inputs.get(given)) for key, given in script.echo})
    if script.count is not None:
        output[script.count] = calls
    if calls in script.rejects:
        output.update(ok=False, error=f"{fn} rejected call {calls}")
    return output


_WORDS = ("red", "green", "blue", "ok", "late")
_VALUES: dict[str, Callable[[Random], Any]] = {
    "n": lambda draw: draw.randint(1, 20),
    "s": lambda draw: draw.choice(_WORDS),
    "flag": lambda draw: draw.random() < 0.5,
    "items": lambda draw: [draw.randint(1, 9) for _ in range(draw.randint(1, 4))],
    "obj": lambda draw: {"k": draw.randint(1, 9), "deep": {"t": draw.choice(_WORDS)}},
    "maybe": lambda draw: draw.choice([None, draw.randint(1, 9)]),
}


def _plain(value: Any) -> Any:
    """Numbers as JSON would compare them: 6.0 is 6 (U20), and thirds have an end."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 6)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def random_case(seed: int) -> Case:
    return _Author(seed).write()


class _Author:
    """Writes one case; `features` notes what it used."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draw = seed, Random(seed)
        self.features: set[str] = set()
        self.ids: list[str] = []
        self.parents: dict[str, list[str]] = {}
        self.above: dict[str, set[str]] = {}
        self.echo: dict[str, list[tuple[str, str]]] = {}
        self.inputs: Json = {}
        self.own = "state."  # where a condition reads the keys of the step: the state, or its fresh output

    def chance(self, probability: float) -> bool:
        return self.draw.random() < probability

    def write(self) -> Case:
        self._graph()
        self.inputs = {"n": self.draw.randint(1, 9), "s": self.draw.choice(_WORDS), "list": [3, 1, 2]}
        self.keys = {one: self._keys() for one in self.ids}
        loops = self._loops()
        resettable = self._below(target for name, targets in loops.items() for target in [name, *targets])
        steps, scripts = [], {}
        for one in self.ids:
            written, script = self._step(one, loops.get(one), one in resettable)
            steps.append(written)
            scripts[one] = script
        document: Json = {"name": f"case-{self.seed}", "steps": steps}
        if self.chance(0.9):
            document["outputs"] = self._outputs()
        return Case(self.seed, document, self.inputs, scripts, frozenset(self.features))

    # ---- the graph

    def _graph(self) -> None:
        count = self.draw.randint(1, 9)
        names = [f"s{n}" if self.chance(0.7) else f"step_{n}" for n in range(count)]
        for n, name in enumerate(names):
            most = min(n, 3)
            self.parents[name] = sorted(self.draw.sample(names[:n], self.draw.randint(0, most)))
            self.above[name] = {*self.parents[name]}.union(*(self.above[up] for up in self.parents[name]))
            if len(self.parents[name]) > 1:
                self.features.add("dag")
        self.ids = list(names)
        if self.chance(0.3):
            self.draw.shuffle(self.ids)  # the order of a spec need not be topological

    def _below(self, targets: Iterable[str]) -> set[str]:
        seeds = set(targets)
        return seeds | {one for one in self.ids if self.above[one] & seeds}

    def _keys(self) -> tuple[str, ...]:
        return tuple(key for key in _VALUES if self.chance(0.6))

    def _loops(self) -> dict[str, list[str]]:
        """Which steps have a set branch, and what it names besides the step itself."""
        loops: dict[str, list[str]] = {}
        for one in self.ids:
            if len(loops) == 2 or not self.chance(0.16):
                continue
            kind = self.draw.random()
            others = [other for other in self.ids if other != one and one not in self.above[other]]
            siblings = [other for other in others if other not in self.above[one]]
            if kind < 0.4 and self.above[one]:
                loops[one] = [self.draw.choice(sorted(self.above[one]))]
                self.features.add("loop_to_ancestor")
            elif kind < 0.65 and siblings:
                loops[one] = [self.draw.choice(siblings)]
                self.features.add("loop_to_sibling")
            else:
                loops[one] = []
            self.features.add("loop")
        return loops

    # ---- one step

    def _step(self, one: str, targets: list[str] | None, resettable: bool) -> tuple[Json, Script]:
        written: Json = {"op": one}
        if self.parents[one] or self.chance(0.2):
            written["depends_on"] = self.parents[one]
        inputs: Json = {f"i{n}": self._value(one) for n in range(self.draw.randint(0, 3))}
        branches: list[Json] = []
        echo: list[tuple[str, str]] = []
        count: str | None = None
        null: tuple[int, ...] = ()
        raises: tuple[int, ...] = ()
        rejects: tuple[int, ...] = (0,) if self.chance(0.1) else ()

        if targets is not None:
            count = f"calls_{one}"
            branches += self._loop_branches(one, targets, inputs, echo)
        elif not resettable and self.chance(0.35):
            written["max_attempts"] = self.draw.randint(2, 4)
            self.features.add("retries")
            if self.chance(0.5):
                written["attempts_on"] = "any"
            else:
                self.features.add("attempts_on_error")
            rejects = tuple(n for n in range(written["max_attempts"]) if self.chance(0.4))
            if self.chance(0.5):
                last = written["max_attempts"] - 1  # D4: the last attempt succeeds
                raises = tuple(n for n in range(last) if self.chance(0.6))
            if self.chance(0.4):
                inputs["seen"] = {"cat": ["again ", {"var": [f"steps.{one}.output.s", "first"]}]}
            if self.chance(0.4):
                branches.append(self._plain_branch({">": [{"var": ["n", 0]}, 8]}, "complete"))
        elif self.chance(0.15):
            raises = tuple(range(self.draw.randint(1, 2)))
            caught = {"==": [{"var": "ok"}, False]}
            branches.append(self._plain_branch(caught, "halt" if self.chance(0.15) else "complete"))  # D4
        if raises:
            self.features.add("errors")
        if rejects:
            self.features.add("rejections")
        if not raises and self.chance(0.15):
            null = tuple(range(self.draw.randint(1, 3)))
            self.features.add("null_output")
        if self.chance(0.25):
            branches.append(
                self._plain_branch(self._branch_condition(one), "halt" if self.chance(0.45) else "complete")
            )
        if self.chance(0.2):
            inputs["passed"] = self._number(one)
            echo.append((f"passed_{one}", "passed"))
        if inputs:
            written["input"] = inputs
        elif self.chance(0.3):
            written["input"] = self.draw.choice([{}, None])
        if branches:
            written["branch"] = branches
        return written, Script(self.keys[one], tuple(echo), count, null, raises, rejects)

    def _loop_branches(
        self, one: str, targets: list[str], inputs: Json, echo: list[tuple[str, str]]
    ) -> list[Json]:
        """Bounded in one of three ways: a counter in the output, in the state, or carried by the state."""
        times = self.draw.randint(1, 4)
        way = self.draw.random()
        again: Json
        if way < 0.4:
            again = {"<": [{"var": [f"calls_{one}", times]}, times]}
        elif way < 0.7:  # branches see the state before the merge: one round more
            again = {"<": [{"var": [f"state.calls_{one}", 0]}, times]}
            self.features.add("loop_through_state")
        else:
            inputs["round"] = {"+": [{"var": [f"state.round_{one}", 0]}, 1]}
            echo.append((f"round_{one}", "round"))
            again = {"<": [{"var": f"round_{one}"}, times]}
            self.features.add("loop_through_state")
        if self.chance(0.3):
            again = {"and": [again, {"or": [True, self._branch_condition(one)]}]}
        exit_ = self._plain_branch(True, "complete" if self.chance(0.85) else "halt")
        branches = [{"condition": again, "action": self._set(one, targets)}, exit_]
        if self.chance(0.25):
            branches.insert(0, self._plain_branch(self._branch_condition(one), "complete"))
        return branches

    def _set(self, one: str, targets: list[str]) -> Json:
        target = (targets or [one])[0]
        named = self.draw.choice([target, f"steps.{target}.status"])
        spelled: Any = named
        if self.chance(0.3):
            spelled = [named, *([one] if self.chance(0.5) else [])]
        elif self.chance(0.3):
            spelled = {
                "if": [self._condition(one), named, target]
            }  # both are the same step: the loop is bounded
            self.features.add("dynamic_target")
        return {"set": spelled, **({"value": "ready"} if self.chance(0.8) else {})}

    def _plain_branch(self, condition: Any, action: str) -> Json:
        self.features.add(action)
        branch = {"condition": condition, "action": action}
        if action == "halt" and self.chance(0.8):  # without one, the result is {}
            branch["result"] = self.draw.choice(
                [{"why": "stop"}, {"quoted": {"var": "input.n"}}, "text", None, [1, 2]]
            )
        return branch

    # ---- expressions

    def _outputs(self) -> Json:
        outputs: Json = {f"o{n}": self._value(None) for n in range(self.draw.randint(0, 3))}
        if self.ids and self.chance(0.6):
            outputs["all"] = {"var": f"steps.{self.draw.choice(self.ids)}.output"}
        if self.chance(0.4):
            outputs["state"] = {"var": "state"}
        if self.chance(0.3):
            outputs["literal"] = self.draw.choice([1, "text", None, [1, 2], {"a": 1, "b": [True]}])
        return outputs

    def _value(self, one: str | None, depth: int = 0) -> Any:
        """Anything that may stand in `input` or `outputs`."""
        makers: list[Callable[[], Any]] = [
            lambda: self._number(one),
            lambda: self._text(one),
            lambda: self._condition(one),
            lambda: self._list(one),
            lambda: self._vars(),
            lambda: self._whole(one),
            lambda: self.draw.choice([7, "literal", True, None, [1, "two"], {"plain": {"data": 1}}]),
        ]
        if depth < 2:
            makers.append(lambda: {"a": self._value(one, depth + 1), "b": {"c": self._value(one, depth + 1)}})
        return self.draw.choice(makers)()

    def _whole(self, one: str | None) -> Any:
        """A whole reference: to an ancestor, complete for certain, or with a default (D6)."""
        above = sorted(self.above[one]) if one is not None else list(self.ids)
        path, key = "input.s", self.draw.choice(list(_VALUES))
        if above and self.chance(0.7):
            path = f"steps.{self.draw.choice(above)}.output"
            path = f"{path}.{key}" if self.chance(0.7) else path
            return {"var": path} if self.chance(0.7) else {"var": [path, "absent"]}
        if self.chance(0.5):
            return {"var": [f"steps.{self.draw.choice(self.ids)}.output.{key}", "none yet"]}
        self.features.add("state")
        return {
            "var": self.draw.choice(
                [path, "input.list.1", "input.list.9", "input.none", "state", f"state.{key}", "state.error"]
            )
        }

    def _number(self, one: str | None, depth: int = 0) -> Any:
        """An expression that is a number; never null, so that arithmetic is defined."""
        plain: list[Callable[[], Any]] = [
            lambda: self.draw.randint(1, 9),
            lambda: {"var": "input.n"},
            lambda: self._whole_number(one),
            lambda: self._whole_number(one),
        ]
        if depth >= 2:
            return self.draw.choice(plain)()
        self.features.add("nested")
        deeper: list[Callable[[], Any]] = [
            lambda: {self.draw.choice("+*"): [self._number(one, depth + 1), self._number(one, depth + 1)]},
            lambda: {"-": [self._number(one, depth + 1), self.draw.randint(1, 5)]},
            lambda: {"-": [self._number(one, depth + 1)]},
            lambda: {"/": [self._number(one, depth + 1), self.draw.randint(1, 4)]},
            lambda: {"%": [self._whole_number(one), self.draw.randint(2, 5)]},
            lambda: {
                self.draw.choice(["min", "max"]): [self._number(one, depth + 1), self._number(one, depth + 1)]
            },
            lambda: {
                self.draw.choice(["if", "?:"]): [
                    self._condition(one, depth + 1),
                    self._number(one, depth + 1),
                    self._number(one, depth + 1),
                ]
            },
            lambda: {"count": [self._list(one, depth + 1)]},
            lambda: self._sum(self._list(one, depth + 1)),
        ]
        return self.draw.choice(plain + deeper)()

    def _whole_number(self, one: str | None) -> Any:
        """A reference to an integer, with a default; in runfox and here the very same integer."""
        if self.chance(0.4):
            self.features.add("state")
            return {"var": ["state.n", self.draw.randint(0, 5)]}
        if one is not None and self.chance(0.2):  # itself: nothing, or the attempt before
            return {"+": [{"var": [f"steps.{one}.output.n", 0]}, 1]}
        return {"var": [f"steps.{self.draw.choice(self.ids)}.output.n", self.draw.randint(0, 5)]}

    def _text(self, one: str | None) -> Any:
        parts = [
            self.draw.choice(
                ["plain ", 3, {"var": "input.s"}, {"var": ["state.s", "-"]}, self._whole_number(one)]
            )
            for _ in range(self.draw.randint(1, 3))
        ]
        return {"cat": parts}

    def _branch_condition(self, one: str) -> Any:
        """A condition that sees the fresh output."""
        self.own = ""
        condition = self._condition(one)
        self.own = "state."
        return condition

    def _condition(self, one: str | None, depth: int = 0) -> Any:
        plain: list[Callable[[], Any]] = [
            lambda: {
                self.draw.choice(["<", "<=", ">", ">="]): [self._number(one, 2), self.draw.randint(1, 20)]
            },
            lambda: {self.draw.choice(["==", "!="]): [{"var": ["state.s", "-"]}, self.draw.choice(_WORDS)]},
            lambda: {
                self.draw.choice(["===", "!=="]): [{"var": [f"{self.own}s", "-"]}, self.draw.choice(_WORDS)]
            },
            lambda: {"in": [{"var": ["state.s", "-"]}, list(_WORDS[:2])]},
            lambda: {"in": ["e", {"var": "input.s"}]},
            lambda: {"!": [{"var": f"{self.own}flag"}]},
            lambda: {"!!": [{"var": "state.flag"}]},
            lambda: {"!": [{"var": ["state.ok", True]}]},
            lambda: {"<": [{"var": "state.maybe"}, 5]},  # null is less than nothing
            lambda: {"missing": ["input.n", "input.unknown"]},
            lambda: {"missing_some": [1, ["input.n", "input.unknown"]]},
            lambda: {"<": [1, self._number(one, 2), 15]},
        ]
        if depth >= 2:
            return self.draw.choice(plain)()
        deeper: list[Callable[[], Any]] = [
            lambda: {
                self.draw.choice(["and", "or"]): [
                    self._condition(one, depth + 1),
                    self._condition(one, depth + 1),
                ]
            },
            lambda: {"!": [self._condition(one, depth + 1)]},
            lambda: {">": [{"count": [self._list(one, depth + 1)]}, 2]},
            lambda: self._vars(),
        ]
        return self.draw.choice(plain * 2 + deeper)()

    def _list(self, one: str | None, depth: int = 0) -> Any:
        """A list of positive integers: no falsy item (U20)."""
        plain: list[Callable[[], Any]] = [
            lambda: {"var": "input.list"},
            lambda: {"var": ["state.items", []]},
            lambda: {"merge": [[4, 5], {"var": ["state.items", []]}]},
            lambda: self._vars(only_numbers=True),
        ]
        if depth >= 2:
            return self.draw.choice(plain)()
        self.features.add("scoped")
        deeper: list[Callable[[], Any]] = [
            lambda: {"map": [self._list(one, depth + 1), {self.draw.choice("+*"): [{"var": ""}, 2]}]},
            lambda: {"filter": [self._list(one, depth + 1), {">": [{"var": ""}, self.draw.randint(1, 6)]}]},
            lambda: {"merge": [self._list(one, depth + 1), self._list(one, depth + 1), 9]},
        ]
        return self.draw.choice(plain + deeper)()

    def _sum(self, values: Any) -> Json:
        self.features.add("scoped")
        return {"reduce": [values, {"+": [{"var": "accumulator"}, {"var": "current"}]}, 0]}

    def _vars(self, *, only_numbers: bool = False) -> Json:
        self.features.add("vars")
        numbers = [
            "steps[*].output.n",
            "steps.*.output.n",
            "$.steps[*].output.n",
            "state.items[*]",
            "input.list[0:2]",
        ]
        numbers += ["input.list[*]", "input.list[-1]", "steps[*].output.items[0]", "steps[*].output.obj.k"]
        others = ["steps[*].output.s", "steps[*].output.maybe", "steps[*].output", "steps[*].output.obj.deep"]
        others += ["state.none[*]", "input.s", "steps[*].output['s']", "state.obj.deep.t"]
        return {"vars": self.draw.choice(numbers if only_numbers else numbers + others)}
