"""Declined attempts: a worker without the executor gives an attempt back, and another one gets it."""

from __future__ import annotations

import pytest

from orchestrator.application.audit.history import audit
from orchestrator.application.engine.declines import declined_wait_ms
from orchestrator.application.records.decisions import Complete, Failed, Pending
from orchestrator.application.records.events import DeclinedEvent
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.spec.model import Limits, RetrySpec
from orchestrator.application.values.unit_id import WEBHOOK_UNIT
from worlds.engine_world import EngineWorld, units, world_of
from worlds.specs import key, map_step, task, undo

WAITS_MS = [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]
HOUR_MS = 3_600_000


def declining(*others: object, **keys: object) -> EngineWorld:
    """A world whose step `a` is dispatched."""
    world = world_of(task("a", fn="add"), *others, **keys)  # type: ignore[arg-type]
    world.advance()
    return world


# ---- the same attempt again


def test_a_declined_attempt_is_dispatched_again_after_its_wait_as_the_same_attempt() -> None:
    world = declining()
    first = world.out["a"]

    assert world.decline("a") == Pending()
    waiting = world["a"]
    assert world.pass_time(99) == Pending()
    decision = world.pass_time(1)

    assert (waiting.status, waiting.token, waiting.declined) == (StepStatus.IN_PROGRESS, None, 1)
    assert waiting.reason == "worker w1 has no executor 'add'"
    assert units(decision) == ["a"]
    again = world.out["a"]
    assert (again.attempt, again.run_id, again.idempotency_key) == (1, 0, first.idempotency_key)
    assert again.token != first.token
    assert world.counters == {"declined": 1}


def test_the_wait_doubles_up_to_five_seconds() -> None:
    assert [declined_wait_ms(count) for count in range(1, 9)] == WAITS_MS
    assert declined_wait_ms(10**9) == 5_000


def test_the_wait_follows_from_the_record_and_survives_a_restart() -> None:
    world, waits = declining(), []
    for _ in WAITS_MS:
        world.decline("a")
        world.reload()
        waits.append(world.next_due_ms)
        world.pass_time(world.next_due_ms or 0)

    assert waits == WAITS_MS


def test_an_unservable_step_is_dispatched_as_often_as_its_waits_allow() -> None:
    world = declining()

    until = world.now_ms + HOUR_MS
    while world.now_ms < until:
        world.decline("a")
        world.pass_time(world.next_due_ms or 0)

    assert len(world.jobs) == 1 + len(WAITS_MS[:6]) + -(-(HOUR_MS - sum(WAITS_MS[:6])) // 5_000)
    assert len(world.history) == 3, "the workflow begins, the dispatch, the first decline"
    assert audit(world.record, world.history) == []


def test_declines_use_neither_an_attempt_nor_the_limit_of_losses() -> None:
    world = declining(limits=Limits(max_lost=1))
    for _ in range(20):
        world.decline("a")
        world.pass_time(5_000)
    world.lose("a")

    assert world["a"].lost == 1
    assert world.finish("a", {}) == Complete({})
    assert (world["a"].attempt, world["a"].reason) == (1, None)


def test_a_lost_worker_had_the_executor_so_the_waits_begin_anew() -> None:
    world = declining()
    world.decline("a")
    world.pass_time(100)

    world.lose("a")
    world.decline("a")

    assert (world["a"].declined, world.next_due_ms) == (1, 100)


def test_the_next_attempt_begins_with_a_short_wait() -> None:
    world = world_of(task("a", retry=RetrySpec(max_retries=1, initial_delay_ms=10)))
    world.advance()
    world.decline("a")
    world.pass_time(100)
    world.fail("a")
    assert world["a"].declined == 0
    world.pass_time(10)

    world.decline("a")

    assert (world["a"].attempt, world["a"].declined, world.next_due_ms) == (2, 1, 100)


def test_a_decline_that_comes_twice_or_late_changes_nothing() -> None:
    world = declining()
    first = world.declined("a")
    world.decide(first)
    world.decide(first)
    world.pass_time(100)
    world.decide(first)
    assert (world["a"].declined, world.counters["stale"]) == (1, 2)

    world.finish("a", {})
    world.decide(first)

    assert (world.record.status, world.counters["late"]) == (WorkflowStatus.COMPLETE, 1)


def test_a_decline_whose_worker_has_no_name_is_one_too() -> None:
    world = declining()
    job = world.out["a"]

    world.decide(DeclinedEvent(job.workflow_execution_id, "a", 0, 1, job.token, "add"))

    assert world.reason("a") == "worker unknown has no executor 'add'"


def test_a_timer_that_comes_too_early_does_not_end_the_wait() -> None:
    world = declining()
    world.decline("a")
    [timer] = world.armed

    assert world.fire(timer) == Pending()

    assert (timer.kind, world.armed) == ("retry", {timer})


# ---- beside other steps


def test_a_declined_step_leaves_its_place_under_max_workers_to_others() -> None:
    world = declining(task("b"), max_workers=1)

    decision = world.decline("a")

    assert units(decision) == ["b"]
    assert world.pass_time(100) == Pending(), "b has the place now"
    assert units(world.finish("b", {})) == ["a"]


def test_a_declined_step_gives_its_slot_back_and_waits_for_another() -> None:
    world = world_of(task("a", **key("one")))
    world.advance()
    world.grant("a")
    held = world.slot("a")

    world.decline("a")
    assert world.slots == {}
    world.pass_time(100)

    assert not world.slot("a").is_held
    assert world.slot("a").token != held.token
    assert world.out == {}
    assert units(world.grant("a")) == ["a"]
    assert world.finish("a", {}) == Complete({})


def test_a_declined_item_waits_alone_and_the_map_goes_on() -> None:
    world = world_of(
        map_step("m", {"var": "input.xs"}, max_parallel=1, fn="add"), inputs={"xs": [1, 2]}, max_workers=1
    )
    world.advance()

    assert units(world.decline("m#0")) == ["m#1"]
    assert world.finish("m#1", {"n": 2}) == Pending()
    assert units(world.pass_time(100)) == ["m#0"]
    assert isinstance(world.finish("m#0", {"n": 1}), Complete)

    assert world["m"].output == {"items": [{"n": 1}, {"n": 2}], "count": 2, "errors": 0}


def test_the_last_item_in_flight_may_be_declined_after_a_fatal_one() -> None:
    world = world_of(map_step("m", {"var": "input.xs"}), inputs={"xs": [1, 2]})
    world.advance()
    world.fail("m#0")

    assert isinstance(world.decline("m#1"), Failed)

    assert world.item("m#1").status is StepStatus.CANCELLED
    assert world.armed == set()


def test_a_compensation_may_be_declined() -> None:
    world = world_of(task("a", **undo("refund")), task("b", "a"))
    world.advance()
    world.finish("a", {})
    world.fail("b")

    world.decline("a#undo")
    assert world.item("a#undo").reason == "worker w1 has no executor 'refund'"
    assert units(world.pass_time(100)) == ["a#undo"]

    assert isinstance(world.finish("a#undo", {}), Failed)
    assert world.record.compensated is True


def test_a_webhook_may_be_declined() -> None:
    world = world_of({"steps": [{"id": "a", "fn": "x"}], "webhook": {"url": "https://example.org/"}})
    world.advance()
    world.finish("a", {})

    world.decline(WEBHOOK_UNIT)
    world.pass_time(100)
    world.finish(WEBHOOK_UNIT, {})

    assert world.item(WEBHOOK_UNIT).status is StepStatus.COMPLETE
    assert audit(world.record, world.history) == []


# ---- operators and timeouts


def test_a_paused_execution_dispatches_a_declined_step_when_it_goes_on() -> None:
    world = declining()
    world.decline("a")
    world.pause()
    assert world.pass_time(100) == Pending()
    assert audit(world.record, world.history) == []

    assert units(world.unpause()) == ["a"]


def test_a_cancelled_execution_waits_for_no_executor() -> None:
    world = declining()
    world.decline("a")

    world.cancel()

    assert (world["a"].status, world.armed) == (StepStatus.CANCELLED, set())


def test_the_timeout_of_the_workflow_ends_a_step_that_no_worker_can_run() -> None:
    world = declining(timeout_s=1)
    for _ in range(3):
        world.decline("a")
        world.pass_time(world.next_due_ms or 0)
    world.decline("a")

    decision = world.pass_time(300)

    assert isinstance(decision, Failed)
    assert decision.error["kind"] == "timeout"


def test_the_timeout_of_a_step_counts_from_its_start_and_not_while_it_is_declined() -> None:
    world = world_of(task("a", timeout_s=1))
    world.advance()
    world.decide(world.started("a"))

    world.decline("a")

    assert {timer.kind for timer in world.armed} == {"retry"}
    assert (world["a"].deadline_ms, world["a"].started_at) == (None, None)


# ---- an executor becomes available


def test_a_worker_with_the_executor_ends_the_wait() -> None:
    world = declining()
    for _ in range(8):
        world.decline("a")
        world.pass_time(5_000)
    world.decline("a")
    assert world.next_due_ms == 5_000

    decision = world.offer("a", "add")

    assert units(decision) == ["a"]
    assert world.armed == set()
    world.decline("a")
    assert world.next_due_ms == 200, "a worker without it was faster: the next wait is short"


def test_one_that_is_dispatched_again_already_has_a_short_next_wait() -> None:
    world = declining()
    for _ in range(8):
        world.decline("a")
        world.pass_time(5_000)
    token = world.out["a"].token

    assert world.offer("a", "add") == Pending()
    assert world.out["a"].token == token
    world.decline("a")

    assert world.next_due_ms == 200


def test_a_paused_execution_takes_note_of_an_executor() -> None:
    world = declining()
    world.decline("a")
    world.pause()

    assert world.offer("a", "add") == Pending()

    assert audit(world.record, world.history) == []
    assert units(world.unpause()) == ["a"]


def test_an_item_whose_executor_becomes_available_is_dispatched() -> None:
    world = world_of(map_step("m", {"var": "input.xs"}, fn="add"), inputs={"xs": [1]})
    world.advance()
    world.decline("m#0")

    assert units(world.offer("m#0", "add")) == ["m#0"]


@pytest.mark.parametrize("executor", ["add", "other"])
def test_an_executor_that_nothing_waits_for_is_stale(executor: str) -> None:
    world = declining(task("b", "a", fn="add"))
    token = world.out["a"].token
    if executor == "other":
        world.decline("a")

    world.offer("a", executor)
    world.offer("b", "add")
    world.offer("a#7", "add")

    assert world.counters["stale"] == 3
    assert executor == "other" or world.out["a"].token == token
