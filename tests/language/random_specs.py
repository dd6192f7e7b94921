"""Workflows made by chance from all that the language has.

    case = quiet_case(7)          # the same for the same seed, here and everywhere

A quiet case has no races of its own: whatever order its events come in, it ends alike. So the steps of a
quiet document write keys of their own and read only what has surely ended; and whatever stops, halts or
resets others is a *gate*: a step that waits for all before it, and that all after it wait for. A racing case
has no such manners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from language.cases import Case, Script, Start, Wait
from language.random_results import ResultWriter, Written
from worlds.documents import Json

SHORT_S = 60
"""No delay and no timeout that is meant to be reached is longer."""
LONG = "2h"
"""A timeout that is not."""
GLOBAL, GROUP = "global", "flow_group"


def quiet_case(seed: int) -> Case:
    return _made(seed, is_quiet=True)


def racing_case(seed: int) -> Case:
    return _made(seed, is_quiet=False)


def _made(seed: int, is_quiet: bool) -> Case:
    draw = Random(f"{'quiet' if is_quiet else 'racing'} {seed}")
    case = Case(seed, is_quiet=is_quiet)
    is_twin = draw.random() < 0.2
    case.document = Writer(case, draw, "s", depth=0, is_twin=is_twin).document(draw.randint(2, 10))
    for n in range(2 if is_twin else 1):
        inputs: Json = {
            "a": draw.randint(0, 9),
            "list": [draw.randint(0, 9) for _ in range(draw.randint(0, 3))],
        }
        if "inputs" in case.document and draw.random() < 0.5:
            del inputs["list"]  # it has a default
        priority = draw.choice([None, None, 1, 4])
        case.starts.append(Start(f"x{seed}-{n}", inputs, group=f"g{seed}", priority=priority))
    return case


class Writer:
    """Writes one document. The names of its steps begin with `prefix`; `depth` is how far below the top it
    is; `is_twin`: it is started twice, or may be, so that values beyond the execution are only added to."""

    def __init__(self, case: Case, draw: Random, prefix: str, depth: int, is_twin: bool) -> None:
        self._case, self._draw, self._prefix = case, draw, prefix
        self._depth, self._is_twin, self._is_quiet = depth, is_twin, case.is_quiet
        self._steps: list[Json] = []
        self._written: dict[str, Written] = {}
        self._segment: list[str] = []
        self._gate: str | None = None
        self._shared: dict[str, str] = {}
        self._sources: Json = {}
        self._has_map_output = False
        self._results = ResultWriter(case, draw, self._written)

    def document(self, size: int) -> Json:
        draw = self._draw
        gates = set(draw.sample([size // 2, size - 1, draw.randrange(size)], draw.choice([0, 1, 2, 2])))
        for n in range(size):
            if len(self._steps) >= size:
                break
            self._write(f"{self._prefix}{n}", is_gate=n in gates)
        document: Json = {"steps": self._in_any_order(), "kv": {"scopes": ["flow", GLOBAL, GROUP]}}
        if draw.random() < 0.3:
            document["runner"] = {"max_workers": draw.randint(1, 3)}
        if draw.random() < 0.2:
            key = draw.choice(["w", {"cat": ["w", {"var": "input.a"}]}])
            document["concurrency"] = self._one_of(key)
        if draw.random() < 0.6 or self._depth:
            document["outputs"] = self._outputs()
        if draw.random() < 0.2:
            document["timeout"] = LONG if self._is_quiet else draw.choice([LONG, "40s"])
        if draw.random() < 0.2:
            document["defaults"] = self._defaults()
        if draw.random() < 0.2:
            document["inputs"] = {"a": {"type": "integer", "required": True}, "list": {"default": [5, 6]}}
        if self._sources:
            document["sources"] = self._sources
        if not self._is_quiet:
            document["limits"] = {"max_runs": 6, "max_lost": 1}
        return document

    def _defaults(self) -> Json:
        retry = {"max_retries": 1, "initial_delay_ms": 1500}
        every = {"priority": self._draw.randint(1, 5), "queue": "slow", "retry": retry, "timeout": LONG}
        return {key: every[key] for key in self._draw.sample(sorted(every), 2)}

    def _in_any_order(self) -> list[Json]:
        self._draw.shuffle(self._steps)
        return self._steps

    def _outputs(self) -> Json:
        names = list(self._written)
        outputs: Json = {"o": {"var": f"steps.{self._draw.choice(names)}.output"}}
        if self._draw.random() < 0.5:
            outputs["all"] = {"vars": "steps[*].output"}
        return outputs

    # ---- one step

    def _write(self, name: str, is_gate: bool) -> None:
        draw = self._draw
        kinds = ["task"] * 10 + ["map"] * 3 + ["loop"] * 2 + ["wait"] * 3 + ["delay", "switch", "switch"]
        kinds += ["child"] * 3 if self._depth < 2 else []
        kind = "task" if is_gate else draw.choice(kinds)
        parents = self._parents_of_gate() if is_gate else self._parents()
        written = Written(name, set(parents))
        self._written[name] = written
        step: Json = {"id": name}
        self._connect(step, written, is_gate)
        getattr(self, f"_{kind}")(step, written)
        written.settled = self._settled(step, written)
        self._add_rarer(step, written, kind)
        if is_gate:
            self._results.make_gate(step, written)
        else:
            self._results.add_policies(step, written, kind)
        self._steps.append(step)
        if is_gate:
            self._gate, self._segment = name, []
        else:
            self._segment.append(name)

    def _parents(self) -> list[str]:
        draw = self._draw
        if not self._is_quiet:
            return draw.sample(list(self._written), draw.randint(0, min(len(self._written), 3)))
        found = draw.sample(self._segment, draw.randint(0, min(len(self._segment), 3)))
        return found or ([self._gate] if self._gate else [])

    def _parents_of_gate(self) -> list[str]:
        """All since the last one, and not only those without dependents yet: what waits for two may be
        skipped because of one of them, while the other one still runs."""
        return [*self._segment, *([self._gate] if self._gate else [])]

    def _with_settled(self, names: Iterable[str]) -> list[set[str]]:
        return [{name, *self._written[name].settled} for name in sorted(names)]

    def _settled(self, step: Json, written: Written) -> set[str]:
        if step.get("join", "all") == "all" and len(written.parents) > 1:
            return set.intersection(*self._with_settled(written.parents))
        return set(written.readable)

    def _connect(self, step: Json, written: Written, is_gate: bool) -> None:
        """The steps it waits for: declared, by what it reads, or both; and how it joins them."""
        draw, parents = self._draw, sorted(written.parents)
        join: Any = (
            draw.choice(["any", "done", "done"]) if is_gate else draw.choice(["all"] * 5 + ["any", "done"])
        )
        chained = self._chained(written) if not is_gate and draw.random() < 0.15 else None
        if chained is not None:
            parents, written.parents = list(chained), set(chained)
            join = draw.choice([1, 2])
        elif len(parents) > 1 and not self._is_quiet and draw.random() < 0.3:
            join = draw.randint(1, len(parents))
        elif parents and draw.random() < 0.1 and (self._is_quiet or not is_gate):
            join = {"and": [{"==": [{"var": f"ctx.status.{one}"}, "complete"]} for one in parents]}
        implied = [] if isinstance(join, int) else [one for one in parents if draw.random() < 0.4]
        declared = [one for one in parents if one not in implied or draw.random() < 0.2]
        step["input"] = {f"from_{one}": {"var": f"steps.{one}.output.n_{one}"} for one in implied}
        if declared:
            step["depends_on"] = declared
        if join != "all":
            step["join"] = join
        sure = parents[:1] if chained is not None else parents
        written.readable = set().union(*self._with_settled(sure))

    def _chained(self, written: Written) -> tuple[str, str] | None:
        """Two parents of which one waits for the other alone: they cannot come in another order."""
        names = [name for name in self._segment if not self._written[name].is_set]
        pairs = [(above, one) for one in names for above in names if self._written[one].parents == {above}]
        return self._draw.choice(pairs) if pairs else None

    # ---- kinds

    def _task(self, step: Json, written: Written) -> None:
        step["fn"] = self._scripted(written.name)
        step["input"] |= self._reads(written)

    def _scripted(self, fn: str, again: int = 0) -> str:
        fails = self._draw.choice([0] * 7 + [1, 1, 2, 9])
        kind = self._draw.choice(["exception"] * 4 + ["bad_output"])
        self._case.scripts[fn] = Script(fails, again, kind)
        return fn

    def _map(self, step: Json, written: Written) -> None:
        draw, over = self._draw, self._draw.choice([[1, 2, 3], [], {"var": "input.list"}])
        near = sorted(written.readable & {*self._segment, self._gate})  # not past a gate, which it waits for
        if near and not self._is_eager(step) and draw.random() < 0.5:
            one = draw.choice(near)
            over = {"var": f"steps.{one}.output.l_{one}"}
            written.parents.add(one)
        step["map"] = {"over": over}
        if draw.random() < 0.6:
            step["map"]["max_parallel"] = draw.randint(1, 2)
        step["fn"] = self._scripted(written.name)
        step["input"]["item"] = {"var": "item"}
        if draw.random() < 0.3 and not self._has_map_output:
            self._has_map_output = True
            step["output"] = {
                f"n_{written.name}": {"var": f"result.n_{written.name}"},
                "at": {"var": "index"},
            }

    def _loop(self, step: Json, written: Written) -> None:
        draw = self._draw
        step["loop"] = {
            "max_iterations": draw.randint(1, 3),
            "on_max": draw.choice(["fail", "exit_with_last"]),
        }
        step["fn"] = self._scripted(written.name, again=draw.randint(0, 3))
        step["input"] |= {"round": {"var": "ctx.loop.iteration"}, "last": {"var": "ctx.loop.value"}}
        if draw.random() < 0.2:
            step["map"] = {"over": [1, 2], "max_parallel": draw.randint(1, 2)}

    def _wait(self, step: Json, written: Written) -> None:
        draw, name = self._draw, written.name
        is_answered = draw.random() < 0.7
        is_early = is_answered and not self._depth and draw.random() < 0.4
        spare = "shared" if not self._is_quiet and draw.random() < 0.5 else f"spare_{name}"
        signal = draw.choice([f"go_{name}", spare]) if is_answered else None
        self._case.waits[name] = Wait(signal, is_early)
        timeout = f"{draw.randint(5, SHORT_S)}s" if not is_answered else draw.choice([None, LONG])
        if not self._is_quiet:
            timeout = draw.choice([timeout, "20s"])
        if draw.random() < 0.4 or signal == spare:
            events = [{"signal": f"go_{name}"}, {"signal": spare}]
            step["wait"] = {"any": [*events, *([{"timeout": timeout}] if timeout else [])]}
            step["output"] = {f"n_{name}": {"var": "result.n"}, f"event_{name}": {"var": "result.event"}}
        else:
            step["wait"] = {"signal": f"go_{name}", "on_timeout": draw.choice(["fail", "continue"])}
            step["wait"] |= {"timeout": timeout} if timeout else {}
            step["output"] = {f"n_{name}": {"var": "result.n"}}

    def _delay(self, step: Json, written: Written) -> None:
        step["delay"] = f"{self._draw.randint(1, SHORT_S)}s"

    def _switch(self, step: Json, written: Written) -> None:
        """The steps that it lists are written here too, and wait for no other step."""
        draw, name = self._draw, written.name
        above = [f"steps.{one}.output.n_{one}" for one in sorted(written.readable)]
        on = {"%": [{"var": [draw.choice([*above, "input.a"]), 5]}, 3]}
        lists: list[list[str]] = [[], [], []]
        for n in range(draw.randint(1, 3)):
            listed = f"{name}_{n}"
            lists[draw.randrange(3)].append(listed)
            own = Written(listed, {name}, {name, *written.readable}, {name, *self._settled(step, written)})
            self._written[listed] = own
            under: Json = {"id": listed, "input": {}}
            self._task(under, own)
            self._results.add_policies(under, own, "task")
            self._steps.append(under)
            self._segment.append(listed)
        step["switch"] = {"on": on, "cases": {"0": lists[0], "1": lists[1]}}
        if lists[2] or draw.random() < 0.3:
            step["switch"]["default"] = lists[2]
        if draw.random() < 0.3:
            step["output"] = {f"n_{name}": {"var": "result.branch"}}

    def _child(self, step: Json, written: Written) -> None:
        draw, name = self._draw, written.name
        is_named = draw.random() < 0.3
        below = Writer(self._case, draw, f"{name}c", self._depth + 1, is_twin=True)
        document = below.document(draw.randint(1, 4))
        if is_named:
            self._case.registered[f"doc_{name}"] = document
        step["workflow"] = f"doc_{name}" if is_named else document
        step["input"] |= {"a": {"var": "input.a"}, "list": [1, 2]}
        if draw.random() < 0.5:
            step["output"] = {f"n_{name}": {"var": "result.o"}}
        else:
            step["skip_output_mapping"] = True

    # ---- what a step may have besides

    def _is_eager(self, step: Json) -> bool:
        """Whether what it waits for must stay as it is: reading more would add to it."""
        return "join" in step and not isinstance(step["join"], str)

    def _reads(self, written: Written) -> Json:
        """References to steps above, and to what they left elsewhere, that add no dependency."""
        draw, reads = self._draw, Json()
        for one in draw.sample(sorted(written.readable), min(len(written.readable), 2)):
            reads[f"old_{one}"] = {"var": [draw.choice([f"state.n_{one}", f"flows.{one}.n_{one}"]), -1]}
            if one in self._shared:
                reads[f"kv_{one}"] = {"kv.get": [self._shared[one], -1]}
        if draw.random() < 0.3:
            reads["attempt"] = {"var": "ctx.step.attempt"}
        if not self._is_quiet:
            reads["shared"] = {"var": "state.shared"}
        return reads

    def _add_rarer(self, step: Json, written: Written, kind: str) -> None:
        draw, name = self._draw, written.name
        if draw.random() < 0.12:
            step["when"] = self._condition(written)
        if draw.random() < 0.1:
            operator = draw.choice(["AND", "OR"])
            filters = [
                {"expression": self._condition(written)},
                {"expression": {"var": "input.a"}, "value": 3},
            ]
            step["filters"] = {"operator": operator, "filters": filters[: draw.randint(1, 2)]}
        if draw.random() < 0.1:
            step["required"] = [draw.choice(["input.a", "input.nothing"])]
        if draw.random() < 0.1:
            step["defer_ms"] = draw.randint(1, SHORT_S * 1000)
        if kind in ("task", "map", "loop"):
            self._add_ways(step, name)
        if kind == "task" and draw.random() < 0.15:
            step["output"] = {f"n_{name}": {"var": f"result.n_{name}"}, f"more_{name}": {"var": "input.a"}}
        if kind in ("task", "loop") and draw.random() < 0.1:
            step["skip_output_mapping"] = True
        if kind in ("task", "child") and draw.random() < 0.15:
            step["priority"] = draw.randint(1, 5)
        if kind in ("task", "map", "loop", "child") and draw.random() < 0.15:
            key = draw.choice(["k", {"cat": ["k", {"%": [{"var": "input.a"}, 2]}]}])
            step["concurrency"] = self._one_of(key)
        if draw.random() < 0.2:
            keys = [f"{GLOBAL}:sum", f"{GROUP}:sum", "sum"]
            step["kv_add"] = {key: draw.choice([1, {"var": "input.a"}]) for key in draw.sample(keys, 2)}
        if draw.random() < 0.5 and kind != "switch":
            self._make_undoable(step, name)
        if kind == "task" and "output" not in step and draw.random() < 0.15:
            self._share(step, name)
        if not self._is_quiet and kind in ("task", "map", "child"):
            step["timeout"] = draw.choice(["none", "10s", "30s"])

    def _add_ways(self, step: Json, name: str) -> None:
        """Where its jobs go, what comes with them, and how they are watched."""
        draw = self._draw
        if draw.random() < 0.15:
            step |= {"queue": draw.choice(["fast", "slow"]), "tags": ["gpu"]}
        if draw.random() < 0.1:
            step["heartbeat"] = "30s"
        if draw.random() < 0.2:
            configuration = {"url": f"https://example.org/{name}", "limits": {"rows": draw.randint(1, 9)}}
            source = {"type": step.pop("fn"), "configuration": configuration}
            self._sources[f"source_{name}"] = source
            change = {"base": f"source_{name}", "override": {"limits": {"tries": 2}}}
            step["source"] = draw.choice([f"source_{name}", source, change])

    def _one_of(self, key: Any) -> Json:
        """No document shares its keys with the documents inside of it, which would wait for it for ever."""
        own = f"{self._case.seed}-{self._prefix}-"
        key = {"cat": [own, *key["cat"]]} if isinstance(key, Mapping) else own + str(key)
        return {"key": key, "limit": 1 + self._case.seed % 2}

    def _share(self, step: Json, name: str) -> None:
        scopes = [GLOBAL] if self._is_twin and self._is_quiet and not self._depth else [GLOBAL, GROUP]
        if self._is_twin and self._is_quiet and self._depth:
            return
        key = f"{self._draw.choice(scopes)}:v_{name}"
        self._shared[name] = key
        step["output"] = {f"n_{name}": {"var": f"result.n_{name}"}, key: {"var": f"result.n_{name}"}}

    def _make_undoable(self, step: Json, name: str) -> None:
        draw = self._draw
        self._case.scripts[f"undo_{name}"] = Script(draw.choice([0, 0, 0, 1, 9]))
        step["compensate"] = {"fn": f"undo_{name}", "input": {"of": {"var": "output"}}}
        if draw.random() < 0.5:
            step["compensate"]["retry"] = {"max_retries": draw.randint(1, 2), "initial_delay_ms": 2000}

    def _condition(self, written: Written) -> Any:
        draw = self._draw
        sources = [f"steps.{one}.output.n_{one}" for one in sorted(written.readable)]
        return {
            draw.choice(["<", ">="]): [{"var": [draw.choice([*sources, "input.a"]), 5]}, draw.randint(2, 7)]
        }
