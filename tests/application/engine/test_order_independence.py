"""Whatever order results come in, and however often: the same final record, as far as the spec allows (I4).
So it is however small the work of a turn is, that is, wherever a decision is divided.

Specs without races of their own (ruling 19) must end alike to the last field; times, tokens, workers and the
words of a reason (which of two parents was skipped first) aside.
Specs with races must end legally; no execution is ever neither final nor waiting for something that is out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from random import Random
from typing import Any

import pytest

from effort import count
from orchestrator.application.records.events import ContinueEvent, StepEvent
from orchestrator.application.records.status import WorkflowStatus
from worlds.documents import Json, document, step, when
from worlds.engine_world import EngineWorld, Execute, executed_result, world_of
from worlds.records import ended_legally, essence, reloaded, same_numbers

SEEDS = range(count(20, 50))


@pytest.fixture(autouse=True)
def with_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the deltas of every commit."""
    monkeypatch.setattr(EngineWorld, "keeps_deltas", True)


ORDERS = 3
MOST_EVENTS = 3_000


def play(world: EngineWorld, execute: Execute, draw: Random, *, losses: bool = False) -> None:
    """Deliver results late, in any order, several at a time and some of them twice, until the end."""
    calls: Counter[tuple[str, int]] = Counter()
    delivered: list[StepEvent] = []
    known: dict[str, StepEvent] = {}
    world.advance(draw.choice([None, 1, 3]))
    for _ in range(MOST_EVENTS):
        if world.record.is_final:
            return
        assert world.out or world.last.has_more_ready, (
            f"neither final nor waiting for anything: {world.statuses}"
        )
        for job in world.out.values():
            if job.token not in known:
                known[job.token] = executed_result(world, job, execute, job.run_id)
                calls[job.step_id, job.run_id] += 1
        out = sorted(job.token for job in world.out.values())
        batch = [known[token] for token in draw.sample(out, draw.randint(min(1, len(out)), min(3, len(out))))]
        if losses and out and draw.random() < 0.2:
            batch.append(world.loss(draw.choice(sorted(world.out))))
        batch += draw.sample(delivered, min(len(delivered), draw.choice([0, 0, 1, 2])))
        draw.shuffle(batch)
        if world.last.has_more_ready:
            batch.append(ContinueEvent(world.record.workflow_execution_id, world.last.continue_at))
        if draw.random() < 0.2:
            world.record = reloaded(world.record)
        delivered += batch
        if draw.random() < 0.3:
            for event in batch:
                world.apply(event)
            world.advance()
        else:
            world.decide(*batch, limit=draw.choice([None, None, 2]), work=draw.choice([inf, inf, 1, 40]))
    raise AssertionError(f"no end after {MOST_EVENTS} events")


# ---- without races


def quiet_case(seed: int) -> tuple[Json, Execute]:
    """No parallel steps write one key, nothing halts or stops, a set resets no step that runs in parallel."""
    draw = Random(seed)
    names = [f"s{n}" for n in range(draw.randint(2, 9))]
    steps, fails = [], {}
    for n, name in enumerate(names):
        parents = draw.sample(names[:n], draw.randint(0, min(n, 3)))
        keys: Json = {"on_error": draw.choice(["skip", "continue"]), "max_attempts": draw.randint(1, 3)}
        branches = []
        kind = draw.random()
        if kind < 0.25:  # a loop of its own: what is below has not started yet
            keys["max_attempts"] = 1
            rounds = draw.randint(1, 3)
            branches = [
                when({"<": [{"var": f"runs_{name}"}, rounds]}, {"set": name}),
                when({"var": "ok"}, "complete"),
            ]
        elif kind < 0.35:
            branches = [when(True, "skip")]
        elif kind < 0.45:
            branches = [when({"var": f"even_{name}"}, "fail")]
        fails[name] = draw.choice([0, 0, 1, 9])
        reads = {f"from_{parent}": {"var": f"steps.{parent}.output.n_{parent}"} for parent in parents}
        steps.append(step(name, parents, branch=branches, input=reads, **keys))
    draw.shuffle(steps)
    outputs = {name: {"var": f"steps.{name}.output"} for name in names} | {"all": {"vars": "steps[*].output"}}

    def execute(fn: str, inputs: Json, run_id: int) -> Any:
        if run_id < fails[fn]:
            raise ValueError("scripted")
        known = sorted((key, str(value)) for key, value in inputs.items())
        number = Random(f"{fn}{known}").randint(0, 9)
        return {f"n_{fn}": number, f"runs_{fn}": run_id, f"even_{fn}": number % 2 == 0}

    return document(*steps, outputs=outputs), execute


def without_shared_keys(found: Json) -> Json:
    """Errors of parallel steps write the same two keys, ok and error: a race of no interest."""
    state = {key: value for key, value in found["state"].items() if key not in ("ok", "error")}
    return {**found, "state": state}


@pytest.mark.untraced
def test_the_order_of_results_does_not_matter_without_races() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        spec, execute = quiet_case(seed)
        ends = []
        for order in range(ORDERS):
            world = world_of(spec)
            play(world, execute, Random(1000 * seed + order))
            assert ended_legally(world.record), f"seed {seed}, order {order}: {world.statuses}"
            ends.append(
                without_shared_keys(same_numbers(essence(world.record, without=["reason", "retried_keys"])))
            )
        for order, end in enumerate(ends):
            assert end == ends[0], f"seed {seed}, order {order}"
        seen.update(str(one["status"]) for one in ends[0]["steps"].values())
        seen[str(ends[0]["status"])] += 1
    assert all(seen[status] > 10 for status in ("complete", "failed", "skipped")), seen


@pytest.mark.untraced
def test_lost_workers_change_the_run_ids_and_nothing_else() -> None:
    for seed in range(30):
        spec, execute = quiet_case(seed)
        spec["limits"] = {"max_lost": 3}
        spec["steps"] = [one | {"max_attempts": 1, "branch": []} for one in spec["steps"]]

        def always(fn: str, inputs: Json, run_id: int, execute: Execute = execute) -> Any:
            return execute(fn, inputs, 9)

        ends = []
        for order in range(3):
            world = world_of(spec)
            play(world, always, Random(1000 * seed + order), losses=order > 0)
            if "lost" in {(seen.error or {}).get("kind") for seen in world.record.steps.values()}:
                continue  # more often than max_lost: that is an end of its own
            ends.append(essence(world.record, without=["run_id", "lost", "dispatches", "reason"]))
        assert all(end == ends[0] for end in ends), f"seed {seed}"


def test_a_diamond_ends_alike_whichever_side_is_first() -> None:
    spec = document(
        step("a"),
        step("b", after="a"),
        step("c", after="a"),
        step("d", after="b c"),
        outputs={"s": {"var": "state"}},
    )
    ends = []
    for order in ("bc", "cb"):
        world = world_of(spec)
        world.play(**{"a": {"a": 1}, order[0]: {order[0]: 1}, order[1]: {order[1]: 1}, "d": {"d": 1}})
        ends.append(essence(world.record))

    assert ends[0] == ends[1]


@pytest.mark.untraced
def test_delivering_every_result_three_times_changes_nothing() -> None:
    for seed in SEEDS:
        spec, execute = quiet_case(seed)
        once, thrice = world_of(spec), world_of(spec)
        for world, times in ((once, 1), (thrice, 3)):
            world.advance()
            while not world.record.is_final:
                batch = [executed_result(world, job, execute, job.run_id) for job in world.out.values()]
                for event in batch * times:
                    world.decide(event)
        assert same_numbers(essence(once.record)) == same_numbers(essence(thrice.record)), f"seed {seed}"
        assert thrice.counters["stale"] + thrice.counters["late"] > 0


# ---- with races


def racing_case(seed: int) -> tuple[Json, Execute]:
    """Halts, stops, sets across the graph and shared keys: how it ends may depend on the order."""
    draw = Random(seed)
    names = [f"s{n}" for n in range(draw.randint(2, 9))]
    steps = []
    for n, name in enumerate(names):
        parents = draw.sample(names[:n], draw.randint(0, min(n, 2)))
        keys: Json = {"max_attempts": draw.randint(1, 2)}
        if draw.random() < 0.5:
            keys["on_error"] = draw.choice(["fail", "skip", "continue"])
        branches = [when({"var": "skip"}, "skip")] if draw.random() < 0.2 else []
        if draw.random() < 0.3:
            targets = draw.sample(names, draw.randint(1, 2))
            branches.append(
                when({"and": [{"var": "again"}, {"<": [{"var": "ctx.step.run_id"}, 6]}]}, {"set": targets})
            )
        if draw.random() < 0.15:
            branches.append(when({"var": "halt"}, "halt", result=name))
        branches.append(when({"var": "done"}, "complete"))
        steps.append(step(name, parents, branch=branches, **keys))

    def execute(fn: str, inputs: Json, run_id: int) -> Any:
        throw = Random(f"{seed}{fn}{run_id}")
        if throw.random() < 0.2:
            raise ValueError("scripted")
        if throw.random() < 0.1:
            return None
        return {key: throw.random() < 0.4 for key in ("again", "skip", "halt", "done", "n")}

    return document(*steps, limits={"max_lost": 1, "max_runs": 20}), execute


def orders() -> Iterator[tuple[int, int]]:
    return ((seed, order) for seed in SEEDS for order in range(ORDERS))


@pytest.mark.untraced
@pytest.mark.parametrize("losses", [False, True])
def test_with_races_every_order_ends_legally_and_none_hangs(losses: bool) -> None:
    ended: Counter[str] = Counter()
    for seed, order in orders():
        spec, execute = racing_case(seed)
        world = world_of(spec)

        play(world, execute, Random(1000 * seed + order), losses=losses)

        assert ended_legally(world.record), f"seed {seed}, order {order}: {world.statuses}"
        assert world.record.error is None or world.record.error["kind"] != "stalled", f"seed {seed}"
        assert (world.record.error is not None) == (world.record.status is WorkflowStatus.FAILED)
        assert not world.out, f"seed {seed}: not revoked: {sorted(world.out)}"
        ended[str(world.record.status)] += 1
    assert all(ended[status] > 3 for status in ("complete", "failed", "halted")), ended
