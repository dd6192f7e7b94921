"""Kill points: who dies, what is left, and that it goes on as in production."""

from __future__ import annotations

from typing import Any

import pytest

from coreworld import document, step
from orchestrator.testing import KILL_POINTS, WorkflowTest, WorkflowTestError

Json = dict[str, Any]

CHAIN = document(
    step("first"),
    step("charge", "first", input={"n": {"var": "steps.first.output.n"}}),
    step("last", "charge"),
    outputs={"n": {"var": "steps.charge.output.n"}},
)


def executors(log: list[str]) -> Json:
    def named(name: str) -> Any:
        def execute(inputs: Json) -> Json:
            log.append(name)
            return {"n": inputs.get("n", 0) + 1}

        return execute

    return {name: named(name) for name in ("first", "charge", "last")}


def killed(point: Any, times: int = 1, workflow: Any = CHAIN) -> tuple[WorkflowTest, list[str]]:
    """The chain, with a death at a point of `charge`; and what was executed."""
    log: list[str] = []
    play = WorkflowTest(workflow, executors=executors(log))
    play.kill(point, step="charge", times=times)
    play.run()
    return play, log


def test_a_worker_that_dies_at_the_start_has_done_nothing() -> None:
    play, log = killed("worker.start")

    assert log == ["first", "charge", "last"]
    assert (play.status, play.outcome) == ("complete", {"n": 2})
    known = play.step("charge").record
    assert (known.run_id, known.attempt, known.lost, known.dispatches) == (1, 1, 1, 2)


def test_a_worker_that_dies_with_its_result_has_done_all_of_it() -> None:
    play, log = killed("worker.result")

    assert log == ["first", "charge", "charge", "last"]
    assert (play.status, play.outcome) == ("complete", {"n": 2})
    known = play.step("charge").record
    assert (known.run_id, known.attempt, known.lost, known.dispatches) == (1, 1, 1, 2)
    first, second = play.calls("charge")
    assert (first, first.idempotency_key) == (second, second.idempotency_key)


def test_a_result_that_follows_a_loss_is_accepted_once() -> None:
    play, _ = killed("worker.result")

    moves = [entry["to"] for entry in play.history if entry.get("step") == "charge" and "to" in entry]
    assert moves == ["in_progress", "in_progress", "in_progress", "complete"]  # dispatched, lost, dispatched
    assert play.counters == {"lost": 1}


@pytest.mark.parametrize("point", ["worker.start", "worker.result"])
def test_a_step_that_takes_too_many_workers_with_it_fails(point: Any) -> None:
    play, log = killed(point, times=4)

    assert (play.error or {})["kind"] == "lost"
    assert "4 workers lost" in (play.error or {})["message"]
    assert log.count("charge") == (4 if point == "worker.result" else 0)


def test_a_coordinator_that_dies_before_its_commit_is_followed_by_one_that_decides_the_same() -> None:
    play, log = killed("coordinator.commit", times=3)

    assert log == ["first", "charge", "last"]
    assert (play.status, play.outcome) == ("complete", {"n": 2})
    assert [kill.happened for kill in play.kills] == [3]
    assert play.step("charge").record.dispatches == 1


def test_a_coordinator_that_dies_after_its_commit_leaves_nothing_to_be_done() -> None:
    play, log = killed("coordinator.dispatch")

    assert log == ["first", "charge", "last"]
    assert play.status == "complete"
    assert [kill.happened for kill in play.kills] == [1]
    assert (play.step("charge").run_id, play.step("charge").lost) == (0, 0)


@pytest.mark.parametrize("point", KILL_POINTS)
def test_the_end_is_the_same_wherever_somebody_dies(point: Any) -> None:
    undisturbed = WorkflowTest(CHAIN, executors=executors([])).run()

    play = WorkflowTest(CHAIN, executors=executors([]))
    play.kill(point, times=2)
    play.run()

    assert play.kills[0].happened == 2
    assert (play.status, play.outcome, play.state) == (
        undisturbed.status,
        undisturbed.outcome,
        undisturbed.state,
    )


@pytest.mark.parametrize("point", KILL_POINTS)
def test_somebody_may_die_at_an_item_of_a_map(point: Any) -> None:
    play = WorkflowTest(document(step("m", map={"over": [1, 2, 3]}, input={"n": {"var": "item"}})))
    play.mock("m", lambda inputs: inputs)
    play.kill(point, step="m#1")

    play.run()

    assert play.step("m").output == {"items": [{"n": 1}, {"n": 2}, {"n": 3}], "count": 3, "errors": 0}
    assert [item.lost for item in play.step("m").items] == [0, 1 if point.startswith("worker") else 0, 0]


@pytest.mark.parametrize("point", KILL_POINTS)
def test_somebody_may_die_at_a_step_of_a_child(point: Any) -> None:
    inner = document(step("inner"), outputs={"n": {"var": "steps.inner.output.n"}})
    play = WorkflowTest({"steps": [{"id": "outer", "workflow": inner}], "outputs": {"n": {"var": "state.n"}}})
    play.mock("inner", {"n": 1})
    play.kill(point, step="inner")

    assert play.run().outcome == {"n": 1}
    play.check_kills()


def test_a_coordinator_may_die_while_it_hears_of_the_end_of_a_child() -> None:
    inner = document(step("inner"), outputs={"n": {"var": "steps.inner.output.n"}})
    play = WorkflowTest({"steps": [{"id": "outer", "workflow": inner}], "outputs": {"n": {"var": "state.n"}}})
    play.mock("inner", {"n": 1})
    play.kill("coordinator.commit", step="outer", times=2)

    assert play.run().outcome == {"n": 1}
    play.check_kills()


def test_a_signal_counts_once_although_the_coordinator_that_took_it_in_dies() -> None:
    first, second = ({"id": name, "wait": {"signal": "go"}} for name in ("first", "second"))
    play = WorkflowTest({"steps": [first, step("after", "first"), second]})
    play.mock("after", {})
    play.kill("coordinator.dispatch", step="after")

    play.run().signal("go").run()

    assert play.executed("after") == 1
    assert play.waits_for == ["second: signal go"]
    play.check_kills()


def test_a_compensation_is_not_its_step() -> None:
    play = WorkflowTest(document(step("a", compensate={"fn": "undo"}), step("b", "a")))
    play.mock("a", {})
    play.mock("b", ValueError("no"))
    undo = play.mock("undo", {})
    play.kill("worker.result", step="a#undo")

    play.run()

    assert (play.executed("a"), len(undo.calls)) == (1, 2)
    assert play.step("a#undo").record.lost == 1


def test_a_slow_worker_dies_when_it_would_have_been_done() -> None:
    play = WorkflowTest(document(step("slow")))
    play.mock("slow", {}, takes="1m")
    play.kill("worker.result", step="slow")

    play.run()

    assert play.executed("slow") == 1
    assert play.skip("1m").executed("slow") == 2
    assert play.skip("1m").status == "complete"


def test_only_the_attempts_that_were_killed_are_lost() -> None:
    play = WorkflowTest(document(step("flaky", max_attempts=2)))
    play.mock("flaky", [ValueError("no"), ValueError("still no"), {}])
    play.kill("worker.result")

    play.run()

    assert (play.status, play.step("flaky").attempt, play.step("flaky").run_id) == ("complete", 2, 2)


def test_a_loss_says_why() -> None:
    play, _ = killed("worker.start")

    [reason] = {entry["reason"] for entry in play.history if "reason" in entry}
    assert reason == "its worker was killed"


def test_a_kill_that_nobody_came_to_is_no_proof() -> None:
    play = WorkflowTest(document(step("a", when=False), step("b")))
    play.mock("b", {})
    play.kill("worker.result", step="a")
    play.kill("worker.start", times=2)

    play.run()

    with pytest.raises(WorkflowTestError, match=r"to die: worker\.result of a, 0 of 1$"):
        play.check_kills()
    assert [str(kill) for kill in play.kills] == ["worker.result of a, 0 of 1", "worker.start, 2 of 2"]


def test_who_was_killed_is_printed() -> None:
    play, _ = killed("worker.start")

    assert str(play).endswith("\n  killed: worker.start of charge, 1 of 1")


def test_wrong_orders_are_refused() -> None:
    play = WorkflowTest(CHAIN)

    with pytest.raises(WorkflowTestError, match=r"no kill point 'worker\.begin'; there is: worker\.start"):
        play.kill("worker.begin")  # type: ignore[arg-type]
    with pytest.raises(WorkflowTestError, match=r"there is no step 'chrage'; .*'charge'"):
        play.kill("worker.start", step="chrage")
    with pytest.raises(WorkflowTestError, match="times must be 1 or more, not 0"):
        play.kill("worker.start", times=0)
