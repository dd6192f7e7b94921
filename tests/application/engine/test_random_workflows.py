"""Random workflows with all that the language has, under random events.

Whatever comes, and in whatever order: what is kept beside the record stays true (`specworld.check`), no move
is illegal, nothing is left with nothing to wait for, a record that is loaded anew is decided upon alike, and
when all that is asked for is granted, every execution ends and leaves nothing behind. So it does when it is
opened again, and unless something in it can only fail, it completes then.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import inf
from random import Random

import pytest

from effort import count
from orchestrator.application.engine.transitions import decide
from orchestrator.application.engine.turn import Turn
from orchestrator.application.records.events import (
    ContinueEvent,
    Control,
    ControlEvent,
    StepEvent,
    TimerEvent,
)
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from worlds.engine_checks import parent_of
from worlds.engine_world import EngineWorld
from worlds.random_worlds import any_event, any_world, loops
from worlds.records import reloaded

SEEDS = count(60, 150)
SEEDS_OF_ONE_TEST = 15
MOST_EVENTS = 400
MOST_TO_WIND_UP = 600


@pytest.fixture(autouse=True)
def with_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the deltas of every commit."""
    monkeypatch.setattr(EngineWorld, "keeps_deltas", True)


REPEATED = [
    pytest.param(first, marks=pytest.mark.untraced)
    for first in range(SEEDS_OF_ONE_TEST, SEEDS, SEEDS_OF_ONE_TEST)
]


@pytest.mark.parametrize("first", [0, *REPEATED])
def test_whatever_comes_everything_stays_true_and_comes_to_an_end(first: int) -> None:
    for seed in range(first, first + SEEDS_OF_ONE_TEST):
        try:
            assert played(seed)["ended"] == 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def test_the_random_workflows_end_in_every_way() -> None:
    """Without this, the test above could play only harmless ones."""
    ended: Counter[str] = sum((played(seed) for seed in range(SEEDS)), Counter())
    assert all(ended[what] > 0 for what in ("complete", "failed", "cancelled", "halted")), ended
    assert all(ended[what] > SEEDS / 15 for what in ("compensated", "children", "could complete")), ended
    assert ended["opened again"] > SEEDS / 3, ended


@cache
def played(seed: int) -> Counter[str]:
    """Play a world to its end, and again if it can be opened again; what happened in it is counted."""
    draw = Random(seed)
    world = any_world(draw)
    play(draw, world)
    wind_up(draw, world)
    check_end(world)
    found = Counter({"ended": 1, str(world.record.status): 1})
    if reopens(draw, world):
        found["opened again"] += 1
        found["could complete"] += can_complete(world)
        wind_up(draw, world)
        check_end(world)
        assert world.record.status is WorkflowStatus.COMPLETE or not can_complete(world)
    found["compensated"] += world.record.compensated is not None
    found["children"] += bool(world.children)
    return found


def play(draw: Random, world: EngineWorld) -> None:
    seen: list[StepEvent] = []
    world.advance(draw.choice([None, 1, 2]))
    for _ in range(MOST_EVENTS):
        if world.record.is_final:
            old = [one for one in seen if not isinstance(one, ControlEvent)]
            step(draw, world, draw.sample(old, min(3, len(old))))  # final is final
            assert world.last.is_empty
            if draw.random() < 0.5 or not reopens(draw, world):
                return
        if draw.random() < 0.15:
            world.reload()
        if world.last.has_more_ready and draw.random() < 0.8:
            step(draw, world, [ContinueEvent(world.record.workflow_execution_id, world.last.continue_at)])
        batch: list[StepEvent] = []
        for _ in range(draw.choice([1, 1, 1, 2, 3])):
            event = any_event(draw, world, seen)
            if event is None:
                world.now_ms += draw.choice([0, 100, 1000, 5000])
            else:
                batch.append(event)
        seen += batch
        step(draw, world, batch)


def step(draw: Random, world: EngineWorld, batch: list[StepEvent]) -> None:
    """A batch of events, one by one or as one decision; what is refused is left out."""
    limit, work = draw.choice([None, None, 1, 2]), draw.choice([inf, inf, 1, 30, 100])
    if draw.random() < 0.2:
        for event in batch:
            if not decide(world.record, [event], world.moment()).rejected:
                ring(world, [event])
                world.apply(event)
        batch = []
    moment = world.moment()
    decided = decide(world.record, batch, moment, limit, Turn(work))
    # A candidate is evaluated again earlier after a reload, and so a divided decision ends earlier.
    if not world.record.readiness.candidates and work == inf:
        again = decide(reloaded(world.record), batch, moment, limit)
        for name in (
            "steps",
            "items",
            "state",
            "fields",
            "outgoing_events",
            "slots",
            "shared",
            "jobs",
            "has_more_ready",
        ):
            assert getattr(again.changes, name) == getattr(decided.changes, name), name
        assert (again.decision, again.rejected) == (decided.decision, decided.rejected)
    rejected = {position for position, _ in decided.rejected}
    kept = [event for position, event in enumerate(batch[: decided.applied]) if position not in rejected]
    ring(world, kept)
    world.decide(*kept, limit=limit, work=work)
    if batch[decided.applied :]:
        step(draw, world, batch[decided.applied :])


def reopens(draw: Random, world: EngineWorld) -> bool:
    """Retry an execution that has ended, or rerun it from any step; False when that is rejected. A reloaded
    record gives the same decision."""
    action: Control = "retry" if draw.random() < 0.5 else "rerun"
    event, moment = world.control(action, draw.choice(list(world.record.steps))), world.moment()
    decided = decide(world.record, [event], moment)
    if decided.rejected:
        return False
    again = decide(reloaded(world.record), [event], moment)
    assert (again.changes.steps, again.changes.jobs) == (decided.changes.steps, decided.changes.jobs)
    world.decide(event)
    return True


def can_complete(world: EngineWorld) -> bool:
    """Whether nothing in it fails whatever its executors do."""
    spec = world.record.spec
    texts = [repr(spec), repr([one.concurrency for one in spec.steps])]
    hopeless = ("no number", "no list", "'no'", "global:total", "max_depth=0")
    return not (
        any(word in texts[0] for word in hopeless)
        or "state.n" in texts[1]
        or any(one.switch is not None and one.switch.default is None for one in spec.steps)
    )


def ring(world: EngineWorld, batch: list[StepEvent]) -> None:
    """A timer that rings is no longer armed."""
    rung = {(one.kind, one.step_id, one.token) for one in batch if isinstance(one, TimerEvent)}
    world.armed = {one for one in world.armed if one.name not in rung}


def wind_up(draw: Random, world: EngineWorld) -> None:
    """From here on all that is asked for is granted."""
    for _ in range(MOST_TO_WIND_UP):
        if world.record.is_final:
            return
        held = [one for one, step in world.record.steps.items() if step.status is StepStatus.ON_HOLD]
        in_line = sorted(owner for owner, slot in world.slots.values() if not world.is_held(slot))
        if world.record.status is WorkflowStatus.PAUSED:
            world.unpause()
        elif held:
            world.release(held[0])
        elif world.last.has_more_ready:
            world.advance()
        elif in_line:
            world.grant(draw.choice(in_line))
        elif world.out:
            unit = draw.choice(sorted(world.out))
            world.finish(unit, {"_loop": "done", "value": {"n": 1}} if loops(world, unit) else {"n": 1})
        elif world.awaited:
            world.end_child(draw.choice(sorted(world.awaited)), {"n": 1})
        elif world.record.readiness.waiting:
            world.signal(draw.choice(["go", "stop"]))
        else:
            world.pass_time(world.next_due_ms or 0)
    raise AssertionError(f"no end: {world.statuses}")


def check_end(world: EngineWorld) -> None:
    record = world.record
    assert record.error is None or record.error["kind"] != "stalled"
    assert max(Counter((job.step_id, job.run_id) for job in world.jobs).values(), default=1) == 1
    tokens = [job.token for job in world.jobs] + [parent_of(start).token for start in world.children]
    assert len(set(tokens)) == len(tokens)
    owed = {
        spec.id: record.steps[spec.id].completion or 0
        for spec in record.spec.steps
        if spec.compensate is not None and record.steps[spec.id].status is StepStatus.COMPLETE
    }
    undone = [unit.partition("#")[0] for unit in record.items if unit.endswith("#undo")]
    failed = [one for one in undone if record.items[f"{one}#undo"].error is not None]
    noted = [error["step"] for error in (record.error or {}).get("compensation_errors", [])]
    if record.compensated is None:
        assert not undone
        assert not owed or record.status in (WorkflowStatus.COMPLETE, WorkflowStatus.HALTED)
    else:
        assert undone == sorted(owed, key=owed.__getitem__, reverse=True)
        assert record.compensated == (not failed)
    assert noted == failed
