"""Readiness is kept up to date event by event; it must equal its definition, and cost what the event touches.

`scan` is that definition: language.md 7.2 step 3, literally, over all steps, from the document and the record
alone. It shares no code with the core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from orchestrator.application.engine.draft import Draft
from orchestrator.application.engine.readiness_draft import PositionQueue
from orchestrator.application.engine.transitions import on_step_result
from orchestrator.application.records.decisions import Dispatch
from orchestrator.application.records.events import Moment, StepEvent
from orchestrator.application.records.readiness import (
    PositionChanges,
    Readiness,
    ReadinessChanges,
)
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from worlds.documents import Json, document, step, when
from worlds.engine_checks import fresh_readiness
from worlds.engine_world import EngineWorld, world_of
from worlds.records import reloaded

SEEDS = range(60)


# ---- the definition


def scan(spec: Json, record: WorkflowRecord) -> tuple[dict[str, str], list[str]]:
    """What every step comes to when nothing more can be skipped or filtered, and which steps may run."""
    status = {one: str(seen.status) for one, seen in record.steps.items()}
    has_error = {one: seen.error is not None for one, seen in record.steps.items()}
    parents = {one["op"]: one.get("depends_on", []) for one in spec["steps"]}
    written = {one["op"]: one.get("on_error") for one in spec["steps"]}
    default = spec.get("defaults", {}).get("on_error", "fail")

    def edge(parent: str, child: str) -> str:
        if status[parent] == "complete":
            return "ok"
        if status[parent] == "filtered":
            return "soft"
        if status[parent] == "failed" or (status[parent] == "skipped" and has_error[parent]):
            rule = written[child] if written[child] in ("skip", "continue") else written[parent] or default
            return "ok" if rule == "continue" else "skip"
        return "skip" if status[parent] == "skipped" else "wait"

    changed = True
    while changed:
        changed = False
        for one in parents:
            edges = [edge(parent, one) for parent in parents[one]]
            if status[one] == "ready" and "skip" in edges:
                status[one], changed = "skipped", True
            elif status[one] == "ready" and edges and all(found == "soft" for found in edges):
                status[one], changed = "filtered", True

    def is_candidate(one: str) -> bool:
        if status[one] == "ready":
            return all(edge(parent, one) != "wait" for parent in parents[one])
        return status[one] == "retry" or (status[one] == "in_progress" and record.steps[one].token is None)

    return status, [one for one in parents if is_candidate(one)]


def check(world: EngineWorld, spec: Json) -> None:
    """The counters kept by events equal those computed from the steps."""
    kept, made = world.record.readiness, fresh_readiness(world.record)
    assert kept.unmet == made.unmet
    assert (kept.open, kept.in_flight) == (made.open, made.in_flight)
    assert kept.agenda == sorted(set(kept.agenda))
    assert kept.candidates == sorted(set(kept.candidates))
    assert (kept.active, kept.waiting) == (made.active, made.waiting)
    if not world.record.is_final:
        _, candidates = scan(spec, world.record)
        known = {*kept.agenda, *kept.candidates}
        on_agenda = {world.record.graph.order[position] for position in known}
        assert on_agenda >= set(candidates), "a step that can run is not on the agenda"


# ---- random executions


def random_document(draw: Random, *, loops: bool, failures: bool) -> Json:
    names = [f"s{n}" for n in range(draw.randint(2, 9))]
    above: dict[str, set[str]] = {}
    steps = []
    for n, name in enumerate(names):
        parents = draw.sample(names[:n], draw.randint(0, min(n, 3)))
        above[name] = {*parents}.union(*(above[parent] for parent in parents))
        keys: Json = {"max_attempts": draw.randint(1, 3)}
        branches = []
        if failures:
            if (policy := draw.choice([None, None, "fail", "skip", "continue"])) is not None:
                keys["on_error"] = policy
            branches.append(when({"var": "skip"}, "skip"))
            if draw.random() < 0.1:
                branches.append(when({"var": "halt"}, "halt"))
        if loops and draw.random() < 0.4:
            branches.append(
                when({"var": "again"}, {"set": draw.sample(names[: n + 1], draw.randint(1, min(2, n + 1)))})
            )
        branches.append(when({"var": "done"}, "complete"))
        steps.append(step(name, parents, branch=branches, **keys))
    draw.shuffle(steps)
    spec = document(*steps)
    if failures and draw.random() < 0.3:
        spec["defaults"] = {"on_error": draw.choice(["fail", "skip", "continue"])}
    return spec


def random_event(draw: Random, world: EngineWorld, again: Counter[str], *, failures: bool) -> StepEvent:
    """A result, an error or a loss of a job that is out, or the result of one that is not any more."""
    name = draw.choice(sorted(world.out))
    kind = draw.random()
    if kind < 0.08:
        return world.loss(name)
    if kind < 0.16:
        return world.result(name, {"stale": True}, draw.choice(world.jobs) if draw.random() < 0.5 else None)
    if kind < (0.4 if failures else 0.2):
        return world.error(name)
    again[name] += 1
    may_loop = sum(again.values()) < 60
    output = {
        "again": may_loop and draw.random() < 0.3,
        "skip": draw.random() < 0.15,
        "halt": draw.random() < 0.2,
        "done": draw.random() < 0.8,
        "n": draw.randint(0, 9),
    }
    return world.result(name, None if draw.random() < 0.1 else output)


KINDS = [
    pytest.param(True, False, id="loops"),
    pytest.param(False, True, id="failures"),
    pytest.param(True, True, id="loops and failures"),
]


@pytest.mark.untraced
@pytest.mark.parametrize(("loops", "failures"), KINDS)
def test_every_decision_claims_and_settles_what_the_definition_says(loops: bool, failures: bool) -> None:
    ended: Counter[str] = Counter()
    for seed in SEEDS:
        draw = Random(seed)
        spec = random_document(draw, loops=loops, failures=failures)
        world, again = world_of(spec), Counter[str]()
        assert world.dispatched(world.advance()) == scan(spec, world_of(spec).record)[1], f"seed {seed}"
        for _ in range(400):
            if world.record.is_final:
                break
            event = random_event(draw, world, again, failures=failures)
            settled = reloaded(world.record)
            settled.apply(on_step_result(settled, event, Moment(0, "n"))[0])
            statuses, candidates = scan(spec, settled)
            before = len(world.jobs)

            world.decide(event)

            about = f"seed {seed}, {event}"
            if not settled.is_final:
                expected = statuses | dict.fromkeys(candidates, "in_progress")
                assert world.statuses == expected, about
                assert [job.step_id for job in world.jobs[before:]] == candidates, about
            check(world, spec)
        ended[str(world.record.status)] += 1
    assert sum(ended.values()) == len(SEEDS)
    assert set(ended) <= {"complete", "failed", "halted"}, ended  # none stays in progress
    assert ended["complete"] > len(SEEDS) / 10, ended


@pytest.mark.untraced
@pytest.mark.parametrize(("loops", "failures"), KINDS)
def test_results_limits_pauses_and_reloads_in_any_order_claim_what_the_definition_says(
    loops: bool, failures: bool
) -> None:
    """As above, with on_step_result and advance apart, batches, limits, pauses and other processes."""
    for seed in SEEDS:
        draw = Random(seed)
        spec = random_document(draw, loops=loops, failures=failures)
        world, again = world_of(spec), Counter[str]()
        for _ in range(400):
            if world.record.is_final:
                break
            if draw.random() < 0.1:
                world.record = reloaded(world.record)
            if draw.random() < 0.1:
                pause_or_resume(world)
            for _ in range(draw.randint(0, min(3, len(world.out)))):
                event = random_event(draw, world, again, failures=failures)
                world.apply(event)
                check(world, spec)
                if world.record.is_final:
                    break
                assert world.statuses == scan(spec, world.record)[0], f"seed {seed}, {event}"
                if not world.out:
                    break
            if world.record.status is WorkflowStatus.PAUSED and not world.out:
                pause_or_resume(world)
            limit = draw.choice([None, 1, 2])
            _, candidates = scan(spec, world.record)
            is_open = world.record.status in (WorkflowStatus.PENDING, WorkflowStatus.IN_PROGRESS)
            decision = world.advance(limit)
            claimed = world.dispatched(decision) if isinstance(decision, Dispatch) else []
            assert claimed == (candidates[:limit] if is_open else []), f"seed {seed}"
            assert not claimed or world.last.has_more_ready == (len(candidates) > len(claimed)), (
                f"seed {seed}"
            )
            check(world, spec)
        assert world.record.is_final, f"seed {seed}: {world.statuses}"


def pause_or_resume(world: EngineWorld) -> None:
    swap = {
        WorkflowStatus.IN_PROGRESS: WorkflowStatus.PAUSED,
        WorkflowStatus.PAUSED: WorkflowStatus.IN_PROGRESS,
    }
    world.record.status = swap.get(world.record.status, world.record.status)


# ---- applying changes to what is kept


@pytest.mark.parametrize("join", ["all", "any", 1])
def test_the_readiness_of_a_new_execution_equals_the_definition(join: Any) -> None:
    last = step("d", depends_on=["b", "c"], join=join)
    spec = document(step("b", depends_on=["a"]), step("a"), last, step("c"), step("e"))

    record = world_of(spec).record

    assert record.readiness == Readiness.of(record.graph, record.steps)
    assert record.readiness.agenda == [1, 3, 4]


def test_a_long_agenda_is_rebuilt_and_a_short_one_is_edited_with_the_same_result() -> None:
    for count in (3, 64, 65, 200):
        readiness = Readiness({}, 0, 0, 0, list(range(0, 400, 2)))

        changes = PositionChanges(taken={*range(count), 999}, added={5, 390, 401})
        readiness.apply(ReadinessChanges(open=2, in_flight=1, agenda=changes))

        left = {position for position in range(0, 400, 2) if position >= count} | {5, 390, 401}
        assert readiness.agenda == sorted(left)
        assert (readiness.open, readiness.in_flight) == (2, 1)


def test_changes_without_readiness_leave_it_as_it_is() -> None:
    world = world_of(document(step("a")))
    world.last.readiness = None

    world.record.apply(world.last)

    assert world.record.readiness == fresh_readiness(world.record)


# ---- what an event costs


def chain(size: int) -> Json:
    return document(step("s0"), *(step(f"s{n}", after=f"s{n - 1}") for n in range(1, size)))


def fan(size: int, **keys: Any) -> Json:
    leaves = [f"s{n}" for n in range(size)]
    return document(
        step("first"), *(step(leaf, after="first", **keys) for leaf in leaves), step("last", after=leaves)
    )


def looks(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> int:
    """How often an action reads or moves a step: the work that could grow with the workflow."""
    count = 0

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            return method(*args, **kwargs)

        return counted

    with monkeypatch.context() as patched:
        for name in ("step", "unit", "spec", "unmet", "move", "amend", "add_to_agenda"):
            patched.setattr(Draft, name, counting(getattr(Draft, name)))
        act()
    return count


def middle_of_a_chain(size: int) -> EngineWorld:
    world = world_of(chain(size), checked=False)
    world.advance()
    for n in range(20):
        world.finish(f"s{n}", {"n": n})
    return world


def middle_of_a_fan(size: int, **keys: Any) -> EngineWorld:
    world = world_of(fan(size, **keys), checked=False)
    world.advance()
    world.finish("first", {"n": 1})
    for n in range(20):
        world.fail(f"s{n}") if keys else world.finish(f"s{n}", {"n": n})
    return world


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("make", "event"),
    [
        pytest.param(
            middle_of_a_chain, lambda world: world.result("s20", {"n": 1}), id="a result in a chain"
        ),
        pytest.param(middle_of_a_chain, lambda world: world.loss("s20"), id="a loss in a chain"),
        pytest.param(middle_of_a_fan, lambda world: world.result("s20", {"n": 1}), id="a result in a fan"),
        pytest.param(middle_of_a_fan, lambda world: world.loss("s20"), id="a loss in a fan"),
        pytest.param(
            middle_of_a_fan,
            lambda world: world.result("first", {}, world.jobs[0]),
            id="a stale result in a fan",
        ),
        pytest.param(
            lambda size: middle_of_a_fan(size, on_error="continue"),
            lambda world: world.error("s20"),
            id="a tolerated failure in a fan",
        ),
    ],
)
def test_an_event_costs_what_it_touches_not_what_the_workflow_holds(
    make: Callable[[int], EngineWorld],
    event: Callable[[EngineWorld], StepEvent],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = []
    for size in (100, 2_000):
        world = make(size)
        costs.append(looks(monkeypatch, partial(world.decide, event(world))))

    small, large = costs
    assert 0 < small < 60
    assert large <= small + 2


# ---- positions


def test_positions_are_taken_in_order_and_what_was_discarded_is_passed_over() -> None:
    agenda = PositionQueue([1, 3, 5, 7])
    agenda.add(4)
    agenda.add(2)

    for position in (1, 2, 5):
        agenda.discard(position)
    agenda.add(5)

    assert [agenda.take() for _ in range(6)] == [3, 4, 5, 7, None, None]
    assert (agenda.added, agenda.taken) == (set(), {1, 2, 3, 4, 5, 7})


def test_what_is_discarded_after_it_was_added_is_not_there_any_more() -> None:
    agenda = PositionQueue([2])

    agenda.add(9)
    agenda.discard(9)
    agenda.discard(2)

    assert agenda.take() is None
    assert agenda.added == set()


def test_a_step_that_a_store_does_not_have_yet_is_ready() -> None:
    record = world_of(document(step("a"), step("b", depends_on=["a"]))).record
    complete = record.steps["a"].with_changes(status=StepStatus.COMPLETE)

    loaded = replace(record, steps={"a": complete})

    assert loaded.steps == {"a": complete, "b": StepRecord()}
    assert loaded.readiness == Readiness.of(loaded.graph, loaded.steps)
    assert loaded.readiness.agenda == [1]
