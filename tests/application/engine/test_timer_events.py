"""What waits for a clock: deferrals, delays, deadlines and the timeout of a workflow."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from effort import count
from orchestrator.application.records.decisions import Complete, Failed, Halt, Pending
from orchestrator.application.records.events import StepEvent, TimerEvent
from orchestrator.application.records.record import find_due_timers
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.timers import Timer
from orchestrator.application.spec.model import RetrySpec, StepSpec
from worlds.engine_checks import all_timers
from worlds.engine_world import EngineWorld, world_of
from worlds.records import NOW_MS, ended_legally
from worlds.specs import branch, delay, switch, task

AGAIN = (branch({"var": "again"}, {"set": "d"}),)


# ---- defer_ms


def test_a_deferred_step_is_dispatched_when_its_time_has_come() -> None:
    world = world_of(task("a", defer_ms=500))

    assert world.advance() == Pending()
    assert (world.statuses["a"], world["a"].wake_at_ms) == ("deferred", NOW_MS + 500)
    assert world.record.status is WorkflowStatus.IN_PROGRESS
    assert world.last.timers_to_arm == [Timer("wake", "a", "0", NOW_MS + 500)]
    assert world.pass_time(499) == Pending()
    assert world.dispatched(world.pass_time(1)) == ["a"]
    assert world["a"].wake_at_ms is None
    assert world.last.timers_to_disarm == [Timer("wake", "a", "0", NOW_MS + 500)]


def test_the_clock_of_a_deferral_starts_when_the_dependencies_are_met() -> None:
    world = world_of(task("a"), task("d", after="a", defer_ms=500))
    world.advance()
    world.pass_time(10_000)
    assert world.statuses["d"] == "ready"

    world.finish("a", {})

    assert world["d"].wake_at_ms == NOW_MS + 10_500
    assert world.dispatched(world.pass_time(500)) == ["d"]


def test_a_deferral_is_not_repeated_by_a_retry_or_a_loss() -> None:
    world = world_of(task("a", defer_ms=500, max_attempts=2))
    world.advance()
    world.pass_time(500)

    assert world.dispatched(world.lose("a")) == ["a"]
    assert world.dispatched(world.fail("a")) == ["a"]


def test_the_conditions_of_a_deferred_step_are_evaluated_before_it_is_deferred() -> None:
    world = world_of(task("a"), task("d", defer_ms=500, guards=({"!": [{"var": "state.stop"}]},)))
    world.play(a={"stop": True})

    assert world.dispatched(world.pass_time(500)) == ["d"]


def test_the_inputs_of_a_deferred_step_are_resolved_when_it_is_dispatched() -> None:
    world = world_of(task("a"), task("d", defer_ms=500, input={"n": {"var": "state.n"}}))
    world.play(a={"n": 7})
    world.pass_time(500)

    assert world.out["d"].inputs == {"n": 7}


def test_a_wake_that_comes_early_is_armed_again() -> None:
    world = world_of(task("a", defer_ms=500))
    world.advance()
    [timer] = world.armed

    assert world.fire(timer) == Pending()
    assert world.last.timers_to_arm == [timer]
    assert world.last.is_empty
    assert world.dispatched(world.pass_time(500)) == ["a"]


def test_a_deferral_that_is_over_while_paused_waits_for_unpause() -> None:
    world = world_of(task("a", defer_ms=500), delay("d", 500))
    world.advance()
    world.pause()

    assert world.pass_time(500) == Pending()
    assert world.statuses == {"a": "deferred", "d": "complete"}
    assert world.dispatched(world.unpause()) == ["a"]


def test_set_on_a_deferred_step_removes_its_timer_and_its_clock_starts_again() -> None:
    world = world_of(task("a", branch=AGAIN), task("d", defer_ms=500), task("e", after="d"))
    world.advance()
    [timer] = world.armed
    world.now_ms += 400

    world.finish("a", {"again": True})

    assert timer in world.last.timers_to_disarm
    assert (world.statuses["d"], world["d"].wake_at_ms) == ("deferred", NOW_MS + 900)
    assert (world["d"].run_id, world["d"].round) == (1, 1)
    assert world.pass_time(100) == Pending()
    world.fire(timer)
    assert world.counters == {"stale": 1}
    assert world.dispatched(world.pass_time(400)) == ["d"]


def test_a_deferred_switch_chooses_when_it_is_woken() -> None:
    world = world_of(
        switch("s", {"var": "state.k"}, {"a": "x"}, default="y", defer_ms=500),
        task("x", after="s"),
        task("y", after="s"),
        task("z"),
    )
    world.play(z={"k": "a"})
    assert world.statuses["s"] == "deferred"

    assert world.dispatched(world.pass_time(500)) == ["x"]
    assert world.statuses["y"] == "filtered"


# ---- delay


def test_a_delay_completes_when_its_time_has_passed_with_no_job_and_an_empty_output() -> None:
    world = world_of(task("a"), delay("d", 2000, after="a"), task("b", after="d"))
    world.play(a={})

    assert (world.statuses["d"], world["d"].wake_at_ms) == ("deferred", NOW_MS + 2000)
    assert world.pass_time(1999) == Pending()
    assert world.dispatched(world.pass_time(1)) == ["b"]
    assert (world.statuses["d"], world["d"].output, world["d"].wake_at_ms) == ("complete", {}, None)
    assert world.executed["d"] == 0
    assert world.finish("b", {}) == Complete({})


def test_a_workflow_of_a_delay_alone_is_in_progress_until_it_ends() -> None:
    world = world_of(delay("d", 2000))

    assert world.advance() == Pending()
    assert world.record.status is WorkflowStatus.IN_PROGRESS
    assert world.pass_time(2000) == Complete({})


def test_a_delay_of_nothing_ends_with_its_timer() -> None:
    world = world_of(delay("d", 0))

    assert world.advance() == Pending()
    assert world.pass_time(0) == Complete({})


def test_a_delay_with_a_deferral_waits_for_both_one_after_the_other() -> None:
    world = world_of(delay("d", 2000, defer_ms=500), task("a", after="d"))
    world.advance()

    assert world["d"].wake_at_ms == NOW_MS + 500
    assert world.pass_time(500) == Pending()
    assert (world.statuses["d"], world["d"].wake_at_ms) == ("deferred", NOW_MS + 2500)
    assert world.pass_time(1999) == Pending()
    assert world.dispatched(world.pass_time(1)) == ["a"]


def test_a_delay_with_a_deferral_that_is_reset_waits_for_both_again() -> None:
    world = world_of(
        delay("d", 2000, defer_ms=500), task("a", branch=AGAIN), task("b", after="d", branch=AGAIN)
    )
    world.advance()
    world.pass_time(500)
    world.pass_time(1000)

    world.finish("a", {"again": True})
    assert world["d"].wake_at_ms == NOW_MS + 2000
    world.pass_time(500)
    assert world["d"].wake_at_ms == NOW_MS + 4000
    world.pass_time(2000)
    world.finish("b", {"again": True})
    assert world["d"].wake_at_ms == NOW_MS + 4500


@pytest.mark.parametrize(
    ("action", "status"),
    [("complete", "complete"), ("skip", "skipped"), ("fail", "failed"), ("retry", "failed")],
)
def test_the_branches_of_a_delay_are_asked_when_it_ends(action: str, status: str) -> None:
    world = world_of(
        delay("d", 1000, on_error="continue", branch=(branch({"==": [{"var": "ctx.step.id"}, "d"]}, action),))
    )
    world.advance()

    assert world.pass_time(1000) == Complete({})
    assert world.statuses["d"] == status


def test_a_delay_may_halt_the_workflow() -> None:
    world = world_of(delay("d", 1000, branch=(branch(True, "halt", result={"too": "late"}),)), task("a"))
    world.advance()

    assert world.pass_time(1000) == Halt({"too": "late"})
    assert world.statuses == {"d": "halted", "a": "cancelled"}
    assert world.armed == set()


def test_a_delay_may_set_itself() -> None:
    world = world_of(delay("d", 1000, branch=(branch({"<": [{"var": "ctx.step.run_id"}, 2]}, {"set": "d"}),)))
    world.advance()

    assert world.pass_time(1000) == Pending()
    assert world.pass_time(1000) == Pending()
    assert world.pass_time(1000) == Complete({})
    assert world["d"].round == 2


def test_a_delay_that_fails_is_not_retried() -> None:
    world = world_of(delay("d", 1000, max_attempts=5, retry=RetrySpec(), branch=(branch(True, "retry"),)))
    world.advance()

    decision = world.pass_time(1000)

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "rejected"


def test_a_success_of_a_delay_is_not_repeated() -> None:
    world = world_of(delay("d", 1000, max_attempts=3, attempts_on="any"))
    world.advance()

    assert world.pass_time(1000) == Complete({})


def test_a_timer_of_another_kind_or_an_unknown_item_is_stale() -> None:
    world = world_of(delay("d", 1000))
    world.advance()
    weid = world.record.workflow_execution_id
    world.now_ms += 1000

    world.decide(
        TimerEvent("retry", weid, "d", "0"),
        TimerEvent("deadline", weid, "d", "0"),
        TimerEvent("wake", weid, "d", "1"),
        TimerEvent("wake", weid, "d#3", "0"),
    )

    assert world.counters == {"stale": 4}
    assert world.statuses["d"] == "deferred"


# ---- the deadline of an attempt


def test_the_deadline_counts_from_the_start_of_the_execution() -> None:
    world = world_of(task("a", timeout_s=5.0))
    world.advance()
    world.pass_time(60_000)
    assert world.armed == set()

    world.decide(world.started("a"))

    assert world.armed == {Timer("deadline", "a", world.out["a"].token, NOW_MS + 65_000)}
    assert world.pass_time(4999) == Pending()
    decision = world.pass_time(1)
    assert isinstance(decision, Failed)
    assert decision.error == {
        "kind": "timeout",
        "message": "execution timeout exceeded (5 s)",
        "step": "a",
    }
    assert world.armed == set()


def test_a_result_disarms_the_deadline() -> None:
    world = world_of(task("a", timeout_s=5.0), task("b", after="a"))
    world.advance()
    world.decide(world.started("a"))
    [timer] = world.armed

    world.finish("a", {})

    assert world.last.timers_to_disarm == [timer]
    assert world.armed == set()


def test_a_loss_disarms_the_deadline_and_the_next_dispatch_has_one_of_its_own() -> None:
    world = world_of(task("a", timeout_s=5.0))
    world.advance()
    world.decide(world.started("a"))
    [timer] = world.armed
    world.lose("a")
    assert world.armed == set()

    world.now_ms += 1000
    world.decide(world.started("a"))

    assert world.armed == {Timer("deadline", "a", world.out["a"].token, NOW_MS + 6000)}
    world.now_ms += 4000
    world.fire(timer)
    assert world.counters == {"lost": 1, "stale": 1}


@pytest.mark.parametrize(
    ("policy", "status", "below"), [("continue", "failed", "in_progress"), ("skip", "skipped", "skipped")]
)
def test_a_timeout_follows_the_policies_of_a_failure(policy: str, status: str, below: str) -> None:
    world = world_of(task("a", timeout_s=5.0, on_error=policy), task("b", after="a"))
    world.advance()
    world.decide(world.started("a"))
    world.pass_time(5000)

    assert world.statuses == {"a": status, "b": below}


def test_branches_see_a_timeout() -> None:
    late = branch({"in": ["timeout", {"var": "error"}]}, "complete")
    world = world_of(task("a", timeout_s=5.0, branch=(late,)))
    world.advance()
    world.decide(world.started("a"))

    assert world.pass_time(5000) == Complete({})


# ---- the timeout of the workflow


def test_a_workflow_that_exceeds_its_timeout_fails() -> None:
    world = world_of(
        task("a"),
        task("b", after="a"),
        task("c", defer_ms=100_000),
        task("r", retry=RetrySpec(initial_delay_ms=100_000)),
        timeout_s=60.0,
    )
    world.advance()
    world.fail("r")
    assert world.record.deadline_ms == NOW_MS + 60_000
    assert world.pass_time(59_999) == Pending()

    decision = world.pass_time(1)

    assert decision == Failed({"kind": "timeout", "message": "the workflow exceeded its timeout (60 s)"})
    assert world.statuses == {"a": "cancelled", "b": "skipped", "c": "cancelled", "r": "cancelled"}
    assert world.reason("a") == "workflow timed out"
    assert world.armed == set()
    assert world.out == {}


def test_the_clock_of_a_workflow_starts_with_its_first_step_of_whatever_kind() -> None:
    for first in (task("a"), task("a", defer_ms=90_000), delay("a", 90_000)):
        world = world_of(first, timeout_s=60.0)
        world.advance()

        assert Timer("timeout", "", "", NOW_MS + 60_000) in world.last.timers_to_arm
        assert isinstance(world.pass_time(60_000), Failed)


def test_a_timeout_before_anything_started_is_none() -> None:
    world = world_of(task("a"), timeout_s=60.0)
    event = TimerEvent("timeout", world.record.workflow_execution_id, "", "")
    world.now_ms += 60_000

    assert world.apply(event) is None
    assert world.record.status is WorkflowStatus.PENDING
    assert world.dispatched(world.advance()) == ["a"]
    assert world.record.deadline_ms == NOW_MS + 120_000


def test_a_workflow_timeout_that_comes_early_is_armed_again() -> None:
    world = world_of(task("a"), timeout_s=60.0)
    world.advance()
    [timer] = world.armed

    assert world.fire(timer) == Pending()
    assert world.last.timers_to_arm == [timer]
    assert world.last.is_empty


@pytest.mark.parametrize("end", ["complete", "halted", "failed"])
def test_a_workflow_that_has_ended_disarms_its_timeout(end: str) -> None:
    world = world_of(task("a", branch=(branch({"var": "halt"}, "halt"),)), timeout_s=60.0)
    world.advance()
    [timer] = world.armed

    world.fail("a") if end == "failed" else world.finish("a", {"halt": end == "halted"})

    assert str(world.record.status) == end
    assert world.last.timers_to_disarm == [timer]
    assert find_due_timers(world.record, NOW_MS + 60_000) == []
    world.now_ms += 60_000
    world.fire(timer)
    assert world.counters == {"late": 1}


def test_a_workflow_that_ends_with_the_decision_it_started_in_leaves_no_timer() -> None:
    world = world_of(task("a", defer_ms=500), task("b", required=("input.none",)), timeout_s=60.0)

    assert isinstance(world.advance(), Failed)
    assert world.armed == set()


def test_a_workflow_without_a_timeout_has_no_deadline() -> None:
    world = world_of(task("a"))
    world.advance()

    assert (world.record.deadline_ms, world.armed) == (None, set())


def test_a_paused_workflow_still_times_out() -> None:
    world = world_of(task("a"), timeout_s=60.0)
    world.advance()
    world.pause()

    assert isinstance(world.pass_time(60_000), Failed)


# ---- random histories


def random_steps(draw: Random) -> list[StepSpec]:
    """A random graph with guards, joins, retries, deferrals, delays and switches."""
    names = [f"s{n}" for n in range(draw.randint(2, 10))]
    switches: dict[str, list[str]] = {}
    steps: list[StepSpec] = []
    for n, name in enumerate(names):
        parents = draw.sample(names[:n], draw.randint(0, min(n, 3)))
        for chosen in draw.sample(sorted(switches), min(len(switches), draw.randint(0, 1))):
            if chosen not in parents:
                parents.append(chosen)
            switches[chosen].append(name)
        keys: dict[str, Any] = {"defer_ms": draw.choice([0, 0, 0, 0, 300, 2500])}
        if (policy := draw.choice([None, None, None, "skip", "continue", "continue", "fail"])) is not None:
            keys["on_error"] = policy
        if draw.random() < 0.25:
            keys["guards"] = (random_guard(draw, names),)
        if draw.random() < 0.1:
            keys["required"] = (f"state.k{draw.randint(0, 3)}",)
        if parents and draw.random() < 0.4:
            keys["join"] = draw.choice(
                ["any", "done", 1, draw.randint(1, len(parents)), random_guard(draw, parents)]
            )
        branches = [branch({"var": "skip"}, "skip")]
        if draw.random() < 0.1:
            branches.append(branch({"var": "halt"}, "halt"))
        if draw.random() < 0.3:
            targets = draw.sample(names[: n + 1], draw.randint(1, min(2, n + 1)))
            branches.append(branch({"var": "again"}, {"set": targets}))
        kind = draw.random()
        if kind < 0.12:
            ms = draw.choice([700, 4000] if keys["defer_ms"] else [0, 700, 4000])
            steps.append(delay(name, ms, parents, branch=tuple(branches), **keys))
        elif kind < 0.27:
            switches[name] = []
            steps.append(switch(name, {"var": "state.n"}, {}, after=parents, **keys))
        else:
            keys["max_attempts"] = draw.randint(1, 3)
            if draw.random() < 0.4:
                retry = RetrySpec(draw.randint(1, 3), 1000, 2.0, 1500, draw.choice([0.0, 0.5]))
                keys["retry"] = retry
            keys["timeout_s"] = draw.choice([None, 2.0, 300.0])
            steps.append(task(name, parents, branch=tuple(branches), **keys))
    for n, step in enumerate(steps):
        if step.id in switches:
            steps[n] = _with_cases(draw, step, switches[step.id])
    draw.shuffle(steps)
    return steps


def _with_cases(draw: Random, step: StepSpec, listed: list[str]) -> StepSpec:
    cases = {str(key): " ".join(draw.sample(listed, draw.randint(0, len(listed)))) for key in range(4)}
    default = " ".join(listed) if draw.random() < 0.8 else None
    keys = {"on_error": step.on_error} if step.has_own_on_error else {}
    return switch(
        step.id,
        {"var": "state.n"},
        cases,
        default,
        step.depends_on,
        guards=step.guards,
        join=step.join,
        required=step.required,
        defer_ms=step.defer_ms,
        **keys,
    )


def random_guard(draw: Random, names: list[str]) -> Any:
    name = draw.choice(names)
    return draw.choice(
        [
            {"<": [{"var": "state.n"}, draw.randint(0, 9)]},
            {"!": [{"var": f"state.k{draw.randint(0, 3)}"}]},
            {"in": [{"var": f"ctx.status.{name}"}, ["complete", "filtered", "ready"]]},
            {"==": [{"var": f"ctx.status.{name}"}, "complete"]},
        ]
    )


def random_event(draw: Random, world: EngineWorld, made: Counter[str]) -> StepEvent:
    name = draw.choice(sorted(world.out))
    job = world.out[name]
    kind = draw.random()
    if kind < 0.05:
        return world.loss(name)
    if kind < 0.15:
        return world.started(name)
    if kind < 0.22:
        return world.result(name, {"stale": True}, draw.choice(world.jobs))
    if kind < 0.42:
        return world.error(name, kind=draw.choice(["exception", "exception", "declared"]))
    made["results"] += 1
    output: dict[str, Any] = {
        "again": made["results"] < 40 and draw.random() < 0.4,
        "skip": draw.random() < 0.1,
        "halt": draw.random() < 0.1,
        "n": draw.randint(0, 5),
        f"k{draw.randint(0, 3)}": 1,
    }
    return world.result(name, output, job)


def random_history(seed: int, make: type[EngineWorld] = EngineWorld) -> EngineWorld:
    """Results, losses, failures, pauses and time in random order, to the end; EngineWorld checks commits."""
    draw = Random(seed)
    workflow: dict[str, Any] = {
        "max_workers": draw.choice([None, None, 1, 2]),
        "timeout_s": draw.choice([None, None, 20.0]),
    }
    world = make(world_of(*random_steps(draw), **workflow).record)
    world.record.state.update(n=draw.randint(0, 9))
    made: Counter[str] = Counter()
    world.advance(limit=draw.choice([None, 1]))
    for _ in range(600):
        if world.record.is_final:
            break
        kind = draw.random()
        if world.last.has_more_ready:
            world.advance(limit=draw.choice([None, 1]))
        elif kind < 0.05:
            world.reload()
        elif kind < 0.1:
            world.pause() if world.record.status is WorkflowStatus.IN_PROGRESS else world.unpause()
        elif kind < 0.2 and world.armed:
            world.fire(draw.choice(sorted(world.armed, key=repr)))  # perhaps too early
        elif world.out and kind < 0.7:
            events = [random_event(draw, world, made) for _ in range(draw.randint(1, 2))]
            world.decide(*events, limit=draw.choice([None, None, 1]))
        elif world.next_due_ms is not None:
            world.pass_time(draw.choice([world.next_due_ms, world.next_due_ms // 2, 3000]))
        if world.record.status is WorkflowStatus.PAUSED and not world.out and world.next_due_ms is None:
            world.unpause()
    assert world.record.is_final, f"seed {seed}: {world.statuses}"
    return world


SEEDS = range(count(80, 250))


def test_random_histories_keep_readiness_and_timers_true_and_come_to_an_end() -> None:
    ended: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    for seed in SEEDS:
        world = random_history(seed)
        assert ended_legally(world.record), f"seed {seed}"
        assert list(all_timers(world.record)) == []
        assert world.armed == set()
        ended[str(world.record.status)] += 1
        steps.update(world.statuses.values())

    assert set(ended) == {"complete", "failed", "halted"}, ended
    assert ended["complete"] > len(SEEDS) / 5, ended
    assert {"complete", "failed", "skipped", "filtered", "cancelled", "halted"} <= set(steps)


class StoredWorld(EngineWorld):
    """Timers as Redis keeps them: by their names, what is armed written first, then what is disarmed."""

    stored: dict[tuple[str, str, str], int]

    def _commit(self, changes: Any) -> None:
        super()._commit(changes)
        if not hasattr(self, "stored"):
            self.stored = {}
        for timer in changes.timers_to_arm:
            self.stored[timer.kind, timer.step_id, timer.token] = timer.due_ms
        for timer in changes.timers_to_disarm:
            self.stored.pop((timer.kind, timer.step_id, timer.token), None)
        assert self.stored == {
            (timer.kind, timer.step_id, timer.token): timer.due_ms for timer in all_timers(self.record)
        }

    def fire(self, *timers: Timer) -> Any:
        for timer in timers:
            self.stored.pop((timer.kind, timer.step_id, timer.token), None)
        return super().fire(*timers)


def test_a_delay_with_a_deferral_keeps_its_timer_in_the_store() -> None:
    world = StoredWorld(world_of(delay("d", 2000, defer_ms=500)).record)
    world.advance()

    world.pass_time(500)

    assert world.stored == {("wake", "d", "0"): NOW_MS + 2500}


def test_a_delay_of_nothing_with_a_deferral_keeps_its_timer() -> None:
    world = world_of(delay("d", 0, defer_ms=500))
    world.advance()

    assert world.pass_time(500) == Pending()
    assert world.pass_time(0) == Complete({})


def test_a_second_started_event_moves_the_deadline_in_the_store() -> None:
    world = StoredWorld(world_of(task("a", timeout_s=5.0)).record)
    world.advance()
    world.decide(world.started("a"))
    world.now_ms += 1000

    world.decide(world.started("a"))

    assert world.stored == {("deadline", "a", world.out["a"].token): NOW_MS + 6000}


def test_random_histories_leave_in_the_store_what_the_record_waits_for() -> None:
    for seed in SEEDS:
        random_history(seed, StoredWorld)
