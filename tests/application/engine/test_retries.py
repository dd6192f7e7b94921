"""How often a failure is tried again, and after how long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.application.engine.retries import MAX_RETRY_DELAY_MS
from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.decisions import Complete, Failed, Halt, Pending
from orchestrator.application.records.events import Moment
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.records.timers import Timer
from orchestrator.application.spec.model import Limits, RetrySpec
from orchestrator.application.values.failure_kinds import NON_RETRYABLE_KINDS
from worlds.engine_world import EngineWorld, world_of
from worlds.records import NOW_MS, record_of
from worlds.specs import branch, task


def delays(world: EngineWorld, step_id: str = "a", kind: str = "exception") -> list[int]:
    """Fail a step until it is not tried again: how long it had to wait each time."""
    found = []
    while not world.record.is_final and world.statuses[step_id] != "failed":
        world.fail(step_id, kind=kind)
        if world.statuses[step_id] == "retry":
            found.append(world.next_due_ms or 0)
            assert (world[step_id].not_before_ms or 0) - world.now_ms == found[-1]
            world.pass_time(found[-1])
        elif world.statuses[step_id] == "in_progress":
            found.append(0)
    return found


def delays_of(retry: RetrySpec | None, **keys: Any) -> list[int]:
    world = world_of(task("a", retry=retry, **keys))
    world.advance()
    return delays(world)


# ---- how long


@pytest.mark.parametrize(
    ("retry", "expected"),
    [
        (None, []),
        (RetrySpec(), [1000, 2000]),
        (RetrySpec(max_retries=1), [1000]),
        (RetrySpec(max_retries=4), [1000, 2000, 4000, 8000]),
        (RetrySpec(max_retries=3, initial_delay_ms=10, backoff_multiplier=1.5), [10, 15, 22]),
        (RetrySpec(max_retries=3, initial_delay_ms=500, backoff_multiplier=1.0), [500, 500, 500]),
        (RetrySpec(max_retries=3, initial_delay_ms=800, backoff_multiplier=0.5), [800, 400, 200]),
        (RetrySpec(max_retries=3, initial_delay_ms=0), [0, 0, 0]),
        (RetrySpec(max_retries=4, backoff_multiplier=3.0, max_delay_ms=4000), [1000, 3000, 4000, 4000]),
        (RetrySpec(max_retries=2, initial_delay_ms=9000, max_delay_ms=4000), [4000, 4000]),
    ],
)
def test_the_delay_grows_by_its_multiplier_up_to_its_cap(retry: RetrySpec, expected: list[int]) -> None:
    assert delays_of(retry) == expected


def test_what_a_retry_says_nothing_about_has_its_default() -> None:
    assert RetrySpec() == RetrySpec(2, 1000, 2.0, None, 0.0)
    assert delays_of(RetrySpec(max_retries=3)) == [1000, 2000, 4000]


def test_jitter_lies_between_nothing_and_its_fraction_of_the_delay() -> None:
    retry = RetrySpec(max_retries=6, jitter_fraction=0.5)

    for execution in range(30):
        world = EngineWorld(replace(record_of(task("a", retry=retry)), execution_id=f"x{execution}"))
        world.advance()
        for n, found in enumerate(delays(world)):
            plain = 1000 * 2**n
            assert plain <= found <= 1.5 * plain


def test_jitter_is_spread_over_its_range() -> None:
    retry = RetrySpec(max_retries=1, initial_delay_ms=1000, jitter_fraction=1.0)
    found = []
    for execution in range(200):
        world = EngineWorld(replace(record_of(task("a", retry=retry)), execution_id=f"x{execution}"))
        world.advance()
        found += delays(world)

    assert len(set(found)) > 150
    assert min(found) < 1050
    assert max(found) > 1950
    assert 1400 < sum(found) / len(found) < 1600


def test_the_cap_bounds_the_delay_and_not_its_jitter() -> None:
    retry = RetrySpec(max_retries=50, initial_delay_ms=1000, max_delay_ms=1000, jitter_fraction=1.0)

    found = delays_of(retry)

    assert min(found) >= 1000
    assert max(found) > 1500
    assert max(found) <= 2000
    assert len(set(found)) > 30, "every run has a jitter of its own"


def test_every_process_computes_the_same_jitter() -> None:
    world = world_of(
        task("a", retry=RetrySpec(jitter_fraction=1.0)), task("b", retry=RetrySpec(2, 1000, 2.0))
    )
    world.advance()
    event = world.error("a")

    one, other = (
        decide(world.record, [event], Moment(NOW_MS, nonce, cause))
        for nonce, cause in (("n7", "e7"), ("n8", "e8"))
    )

    assert one.changes.steps["a"].not_before_ms == other.changes.steps["a"].not_before_ms
    assert one.changes.timers_to_arm == other.changes.timers_to_arm


def test_a_delay_never_exceeds_ten_years() -> None:
    retry = RetrySpec(max_retries=2, initial_delay_ms=10**12, jitter_fraction=1.0)

    assert delays_of(retry) == [MAX_RETRY_DELAY_MS, MAX_RETRY_DELAY_MS]


def test_a_great_number_of_retries_does_not_overflow() -> None:
    retry = RetrySpec(max_retries=250, initial_delay_ms=1, max_delay_ms=5)

    assert delays_of(retry) == [1, 2, 4] + [5] * 247


def test_a_steep_multiplier_does_not_overflow_below_its_cap() -> None:
    retry = RetrySpec(max_retries=250, initial_delay_ms=1, backoff_multiplier=100.0, max_delay_ms=5)

    assert delays_of(retry) == [1] + [5] * 249


# ---- how often


@pytest.mark.parametrize(
    ("max_attempts", "retries", "expected"),
    [
        (1, None, []),
        (3, None, [0, 0]),
        (1, 2, [1000, 2000]),
        (3, 2, [1000, 2000]),
        (4, 2, [1000, 2000, 0]),
        (6, 1, [1000, 0, 0, 0, 0]),
        (2, 3, [1000, 2000, 4000]),
    ],
)
def test_max_attempts_and_retry_together_give_the_larger_budget_with_a_delay_while_retries_remain(
    max_attempts: int, retries: int | None, expected: list[int]
) -> None:
    retry = None if retries is None else RetrySpec(max_retries=retries)

    assert delays_of(retry, max_attempts=max_attempts) == expected


@pytest.mark.parametrize("kind", sorted(NON_RETRYABLE_KINDS))
def test_a_failure_that_would_only_happen_again_is_never_retried(kind: str) -> None:
    world = world_of(task("a", retry=RetrySpec(max_retries=5), max_attempts=5))
    world.advance()

    assert isinstance(world.fail("a", kind=kind), Failed)
    assert (world["a"].attempt, world["a"].dispatches) == (1, 1)


@pytest.mark.parametrize("kind", ["exception", "timeout", "lost", "rejected", "child_failed", "other"])
def test_any_other_failure_is_retried(kind: str) -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()

    assert delays(world, kind=kind) == [1000, 2000]


def test_the_never_retried_kinds_are_those_of_the_language() -> None:
    never = {"expression", "bad_output", "branch_target", "no_branch", "loop_limit", "declared", "refused"}

    assert never | {"payload_missing"} == NON_RETRYABLE_KINDS


def test_a_success_is_not_repeated_by_a_retry() -> None:
    world = world_of(task("a", retry=RetrySpec(max_retries=5)))

    assert world.play(a={}) == Complete({})


def test_successes_are_repeated_by_max_attempts_only_if_the_step_says_so() -> None:
    world = world_of(task("a", max_attempts=2, attempts_on="any", retry=RetrySpec(max_retries=5)))
    world.advance()

    assert world.dispatched(world.finish("a", {"n": 1})) == ["a"]
    assert world.finish("a", {"n": 2}) == Complete({})
    assert world.executed == {"a": 2}


def test_a_bad_output_is_not_retried() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()

    assert isinstance(world.finish("a", [1, 2]), Failed)
    assert world.error_kind("a") == "bad_output"


def test_the_attempts_start_again_after_a_set() -> None:
    world = world_of(
        task("a", retry=RetrySpec()), task("b", after="a", branch=(branch({"var": "x"}, {"set": "a"}),))
    )
    world.advance()
    world.fail("a")
    world.pass_time(1000)
    world.finish("a", {})
    assert world["a"].attempt == 2

    world.finish("b", {"x": 1})

    assert (world["a"].attempt, world["a"].round, world["a"].run_id) == (1, 1, 2)
    world.fail("a")
    assert world.next_due_ms == 1000


@pytest.mark.parametrize(
    ("policy", "status", "ends"), [("fail", "failed", "failed"), ("skip", "skipped", "complete")]
)
def test_when_the_retries_are_used_up_the_policy_of_the_step_decides(
    policy: str, status: str, ends: str
) -> None:
    world = world_of(task("a", retry=RetrySpec(max_retries=1), on_error=policy), task("b", after="a"))
    world.advance()
    world.fail("a", "first")
    world.pass_time(1000)
    world.fail("a", "second")

    assert world.statuses == {"a": status, "b": "skipped"}
    assert world["a"].error == {"kind": "exception", "message": "second"}
    assert str(world.record.status) == ends


# ---- retry and branch


def test_branches_see_every_attempts_result_first_and_a_firing_branch_ends_the_attempts() -> None:
    world = world_of(
        task(
            "a",
            retry=RetrySpec(max_retries=5),
            branch=(branch({"==": [{"var": "error"}, "enough"]}, "halt", result={"gave": "up"}),),
        )
    )
    world.advance()

    assert world.fail("a", "once more") == Pending()
    world.pass_time(1000)
    assert world.fail("a", "enough") == Halt({"gave": "up"})


def test_a_retry_branch_treats_a_success_as_an_error_and_uses_the_budget() -> None:
    world = world_of(
        task("a", retry=RetrySpec(max_retries=1), branch=(branch({"<": [{"var": "score"}, 5]}, "retry"),))
    )
    world.advance()

    assert world.finish("a", {"score": 1}) == Pending()
    assert (world.statuses["a"], world.error_kind("a")) == ("retry", "rejected")
    assert world["a"].output == {"score": 1}
    assert world.state == {"score": 1}
    assert world.dispatched(world.pass_time(1000)) == ["a"]
    decision = world.finish("a", {"score": 2})
    assert isinstance(decision, Failed)
    assert decision.error == {"kind": "rejected", "message": "a branch rejected the result", "step": "a"}


def test_a_retry_branch_without_a_budget_fails_by_policy() -> None:
    world = world_of(
        task("a", on_error="continue", branch=(branch(True, "retry"),)),
        task("b", after="a"),
    )

    assert world.dispatched(world.play(a={})) == ["b"]
    assert (world.statuses["a"], world.error_kind("a")) == ("failed", "rejected")


def test_a_retry_branch_on_a_failure_that_is_never_retried_is_retried() -> None:
    world = world_of(task("a", max_attempts=2, branch=(branch({"==": [{"var": "ok"}, False]}, "retry"),)))
    world.advance()

    assert world.dispatched(world.finish("a", "a string")) == ["a"]
    assert world["a"].error == {"kind": "rejected", "message": "a branch rejected the result"}


def test_a_set_fired_by_a_failed_result_forgives_it_and_starts_at_attempt_1() -> None:
    world = world_of(
        task(
            "a",
            retry=RetrySpec(),
            branch=(branch({"==": [{"var": "error"}, "anew"]}, {"set": "a"}),),
        )
    )
    world.advance()
    world.fail("a")
    world.pass_time(1000)

    assert world.dispatched(world.fail("a", "anew")) == ["a"]
    assert (world["a"].attempt, world["a"].error, world["a"].round) == (1, None, 1)


# ---- the timer of a retry


def test_a_step_in_back_off_waits_for_its_timer() -> None:
    world = world_of(task("a", retry=RetrySpec()), task("b", after="a"))
    world.advance()

    assert world.fail("a") == Pending()

    seen = world["a"]
    assert (str(seen.status), seen.run_id, seen.attempt, seen.token) == ("retry", 1, 2, None)
    assert seen.not_before_ms == NOW_MS + 1000
    assert (seen.dispatched_at, seen.started_at, seen.deadline_ms) == (None, None, None)
    assert seen.error == {"kind": "exception", "message": "boom"}
    assert seen.output == {"ok": False, "error": "boom"}
    assert world.last.timers_to_arm == [Timer("retry", "a", "1", NOW_MS + 1000)]
    assert world.record.status is WorkflowStatus.IN_PROGRESS


def test_the_step_is_dispatched_when_its_time_has_come_and_not_before() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()
    world.fail("a")

    assert world.pass_time(999) == Pending()
    assert world.advance() == Pending()
    assert world.dispatched(world.pass_time(1)) == ["a"]
    assert world["a"].not_before_ms is None
    assert (world.out["a"].run_id, world.out["a"].attempt) == (1, 2)
    assert world.last.timers_to_disarm == [Timer("retry", "a", "1", NOW_MS + 1000)]


def test_a_timer_that_comes_early_is_armed_again_and_changes_nothing() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()
    world.fail("a")
    [timer] = world.armed

    assert world.fire(timer) == Pending()

    assert world.last.timers_to_arm == [timer]
    assert world.last.is_empty
    assert world.counters == {}
    assert world.dispatched(world.pass_time(1000)) == ["a"]


def test_a_timer_that_comes_late_dispatches_all_the_same() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()
    world.fail("a")

    assert world.dispatched(world.pass_time(1_000_000)) == ["a"]


def test_a_timer_that_comes_twice_is_stale() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()
    world.fail("a")
    [timer] = world.armed
    world.pass_time(1000)

    assert world.fire(timer) == Pending()
    assert world.counters == {"stale": 1}
    assert world.executed == {"a": 2}


def test_a_timer_of_an_older_run_is_stale() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()
    world.fail("a")
    [first] = world.armed
    world.pass_time(1000)
    world.fail("a")

    assert world.fire(first) == Pending()
    assert world.counters == {"stale": 1}
    assert world["a"].not_before_ms == NOW_MS + 3000


def test_set_on_a_step_in_retry_back_off_removes_its_timer_and_resets_it() -> None:
    world = world_of(task("a", retry=RetrySpec()), task("b", branch=(branch({"var": "x"}, {"set": "a"}),)))
    world.advance()
    world.fail("a")
    [timer] = world.armed

    assert world.dispatched(world.finish("b", {"x": 1})) == ["a", "b"]

    assert world.last.timers_to_disarm == [timer]
    assert (world["a"].not_before_ms, world["a"].run_id, world["a"].attempt) == (None, 2, 1)
    world.now_ms += 1000
    world.fire(timer)
    assert world.counters == {"stale": 1}


def test_the_end_of_the_workflow_disarms_a_retry() -> None:
    world = world_of(task("a", retry=RetrySpec()), task("b"))
    world.advance()
    world.fail("a")
    [timer] = world.armed

    assert isinstance(world.fail("b"), Failed)

    assert world.last.timers_to_disarm == [timer]
    assert (world.statuses["a"], world["a"].not_before_ms) == ("cancelled", None)
    world.now_ms += 1000
    world.fire(timer)
    assert world.counters == {"late": 1}


def test_a_retry_that_becomes_due_while_paused_waits_for_unpause() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()
    world.fail("a")
    world.pause()

    assert world.pass_time(1000) == Pending()
    assert (world.statuses["a"], world["a"].not_before_ms) == ("retry", None)
    assert world.dispatched(world.unpause()) == ["a"]


def test_a_result_that_arrives_during_the_back_off_is_stale() -> None:
    world = world_of(task("a", retry=RetrySpec()))
    world.advance()
    job = world.out["a"]
    world.fail("a")

    world.decide(world.result("a", {"n": 1}, job))

    assert world.counters == {"stale": 1}
    assert world.statuses["a"] == "retry"


def test_a_retry_whose_inputs_cannot_be_resolved_any_more_fails_for_good() -> None:
    world = world_of(task("a", retry=RetrySpec(), input={"n": {"+": [{"var": "state.error"}, 1]}}))
    world.record.state["error"] = 1
    world.advance()
    world.fail("a")  # merges the text of the error into the state

    decision = world.pass_time(1000)

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "expression"


# ---- with losses and timeouts


def test_a_loss_is_not_charged_to_the_retries_until_too_many_workers_are_lost() -> None:
    world = world_of(task("a", retry=RetrySpec(max_retries=1)), limits=Limits(max_lost=1))
    world.advance()

    assert world.dispatched(world.lose("a")) == ["a"]
    assert world["a"].attempt == 1
    assert world.lose("a") == Pending()
    assert (world.error_kind("a"), world["a"].attempt, world["a"].lost) == ("lost", 2, 0)
    assert world.dispatched(world.pass_time(1000)) == ["a"]
    assert world.dispatched(world.lose("a")) == ["a"]
    assert isinstance(world.lose("a"), Failed)


def test_a_dispatch_that_is_lost_is_revoked_since_it_may_still_run_the_last_one_too() -> None:
    world = world_of(task("a"), limits=Limits(max_lost=1))
    world.advance()

    for _ in range(2):
        world.lose("a")

        assert [unit for unit, _ in world.last.revoked] == ["a"]


def test_a_timeout_is_retried_with_its_delay() -> None:
    world = world_of(task("a", retry=RetrySpec(), timeout_s=5.0))
    world.advance()
    world.decide(world.started("a"))

    assert world.pass_time(5000) == Pending()

    assert (world.statuses["a"], world.error_kind("a")) == ("retry", "timeout")
    assert world.armed == {Timer("retry", "a", "1", NOW_MS + 6000)}
    assert [unit for unit, _ in world.last.revoked] == ["a"]
    assert world.dispatched(world.pass_time(1000)) == ["a"]


def test_every_attempt_of_a_round_has_the_same_idempotency_key() -> None:
    world = world_of(
        task("a", retry=RetrySpec(), branch=(branch({"var": "x"}, {"set": "a"}),)), task("b", after="a")
    )
    world.advance()
    world.lose("a")
    world.fail("a")
    world.pass_time(1000)
    world.finish("a", {"x": 1})

    assert [job.idempotency_key for job in world.jobs] == ["x1#a#0", "x1#a#0", "x1#a#0", "x1#a#1"]
    assert len({job.token for job in world.jobs}) == 4
