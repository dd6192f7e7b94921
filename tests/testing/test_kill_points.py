"""Kill points: which process dies, what it leaves behind, and that the system recovers as in production."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.testing import KILL_POINTS, WorkflowTest, WorkflowTestError
from worlds.documents import document, step

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
    test = WorkflowTest(workflow, executors=executors(log))
    test.kill(point, step="charge", times=times)
    test.run()
    return test, log


def test_a_worker_that_dies_at_the_start_has_done_nothing() -> None:
    test, log = killed("worker.start")

    assert log == ["first", "charge", "last"]
    assert (test.status, test.outcome) == ("complete", {"n": 2})
    known = test.step("charge").record
    assert (known.run_id, known.attempt, known.lost, known.dispatches) == (1, 1, 1, 2)


def test_a_worker_that_dies_with_its_result_has_done_all_of_it() -> None:
    test, log = killed("worker.result")

    assert log == ["first", "charge", "charge", "last"]
    assert (test.status, test.outcome) == ("complete", {"n": 2})
    known = test.step("charge").record
    assert (known.run_id, known.attempt, known.lost, known.dispatches) == (1, 1, 1, 2)
    first, second = test.calls("charge")
    assert (first, first.idempotency_key) == (second, second.idempotency_key)


def test_a_result_that_follows_a_loss_is_accepted_once() -> None:
    test, _ = killed("worker.result")

    moves = [entry["to"] for entry in test.history if entry.get("step") == "charge" and "to" in entry]
    assert moves == ["in_progress", "in_progress", "in_progress", "complete"]  # dispatched, lost, dispatched
    assert test.counters == {"lost": 1}


@pytest.mark.parametrize("point", ["worker.start", "worker.result"])
def test_a_step_that_takes_too_many_workers_with_it_fails(point: Any) -> None:
    test, log = killed(point, times=4)

    assert (test.error or {})["kind"] == "lost"
    assert "4 workers lost" in (test.error or {})["message"]
    assert log.count("charge") == (4 if point == "worker.result" else 0)


def test_a_coordinator_that_dies_before_its_commit_is_followed_by_one_that_decides_the_same() -> None:
    test, log = killed("coordinator.commit", times=3)

    assert log == ["first", "charge", "last"]
    assert (test.status, test.outcome) == ("complete", {"n": 2})
    assert [kill.happened for kill in test.kills] == [3]
    assert test.step("charge").record.dispatches == 1


def test_a_coordinator_that_dies_after_its_commit_leaves_nothing_to_be_done() -> None:
    test, log = killed("coordinator.dispatch")

    assert log == ["first", "charge", "last"]
    assert test.status == "complete"
    assert [kill.happened for kill in test.kills] == [1]
    assert (test.step("charge").run_id, test.step("charge").lost) == (0, 0)


@pytest.mark.parametrize("point", KILL_POINTS)
def test_the_end_is_the_same_wherever_a_process_dies(point: Any) -> None:
    undisturbed = WorkflowTest(CHAIN, executors=executors([])).run()

    test = WorkflowTest(CHAIN, executors=executors([]))
    test.kill(point, times=2)
    test.run()

    assert test.kills[0].happened == 2
    assert (test.status, test.outcome, test.state) == (
        undisturbed.status,
        undisturbed.outcome,
        undisturbed.state,
    )


@pytest.mark.parametrize("point", KILL_POINTS)
def test_a_process_may_die_at_an_item_of_a_map(point: Any) -> None:
    test = WorkflowTest(document(step("m", map={"over": [1, 2, 3]}, input={"n": {"var": "item"}})))
    test.mock("m", lambda inputs: inputs)
    test.kill(point, step="m#1")

    test.run()

    assert test.step("m").output == {"items": [{"n": 1}, {"n": 2}, {"n": 3}], "count": 3, "errors": 0}
    assert [item.lost for item in test.step("m").items] == [0, 1 if point.startswith("worker") else 0, 0]


@pytest.mark.parametrize("point", KILL_POINTS)
def test_a_process_may_die_at_a_step_of_a_child(point: Any) -> None:
    inner = document(step("inner"), outputs={"n": {"var": "steps.inner.output.n"}})
    test = WorkflowTest({"steps": [{"id": "outer", "workflow": inner}], "outputs": {"n": {"var": "state.n"}}})
    test.mock("inner", {"n": 1})
    test.kill(point, step="inner")

    assert test.run().outcome == {"n": 1}
    test.check_kills()


def test_a_coordinator_may_die_while_it_hears_of_the_end_of_a_child() -> None:
    inner = document(step("inner"), outputs={"n": {"var": "steps.inner.output.n"}})
    test = WorkflowTest({"steps": [{"id": "outer", "workflow": inner}], "outputs": {"n": {"var": "state.n"}}})
    test.mock("inner", {"n": 1})
    test.kill("coordinator.commit", step="outer", times=2)

    assert test.run().outcome == {"n": 1}
    test.check_kills()


def test_a_signal_counts_once_although_the_coordinator_that_took_it_in_dies() -> None:
    first, second = ({"id": name, "wait": {"signal": "go"}} for name in ("first", "second"))
    test = WorkflowTest({"steps": [first, step("after", "first"), second]})
    test.mock("after", {})
    test.kill("coordinator.dispatch", step="after")

    test.run().signal("go").run()

    assert test.executed("after") == 1
    assert test.waits_for == ["second: signal go"]
    test.check_kills()


def test_a_compensation_is_not_its_step() -> None:
    test = WorkflowTest(document(step("a", compensate={"fn": "undo"}), step("b", "a")))
    test.mock("a", {})
    test.mock("b", ValueError("no"))
    undo = test.mock("undo", {})
    test.kill("worker.result", step="a#undo")

    test.run()

    assert (test.executed("a"), len(undo.calls)) == (1, 2)
    assert test.step("a#undo").record.lost == 1


def test_a_slow_worker_dies_when_it_would_have_been_done() -> None:
    test = WorkflowTest(document(step("slow")))
    test.mock("slow", {}, takes="1m")
    test.kill("worker.result", step="slow")

    test.run()

    assert test.executed("slow") == 1
    assert test.skip("1m").executed("slow") == 2
    assert test.skip("1m").status == "complete"


def test_only_the_attempts_that_were_killed_are_lost() -> None:
    test = WorkflowTest(document(step("flaky", max_attempts=2)))
    test.mock("flaky", [ValueError("no"), ValueError("still no"), {}])
    test.kill("worker.result")

    test.run()

    assert (test.status, test.step("flaky").attempt, test.step("flaky").run_id) == ("complete", 2, 2)


def test_a_loss_says_why() -> None:
    test, _ = killed("worker.start")

    [reason] = {entry["reason"] for entry in test.history if "reason" in entry}
    assert reason == "its worker was killed"


def test_a_kill_that_did_not_happen_fails_the_check() -> None:
    test = WorkflowTest(document(step("a", when=False), step("b")))
    test.mock("b", {})
    test.kill("worker.result", step="a")
    test.kill("worker.start", times=2)

    test.run()

    with pytest.raises(WorkflowTestError, match=r"kill points: worker\.result of a, 0 of 1$"):
        test.check_kills()
    assert [str(kill) for kill in test.kills] == ["worker.result of a, 0 of 1", "worker.start, 2 of 2"]


def test_the_kills_are_printed() -> None:
    test, _ = killed("worker.start")

    assert str(test).endswith("\n  killed: worker.start of charge, 1 of 1")


def test_wrong_kills_are_rejected() -> None:
    test = WorkflowTest(CHAIN)

    with pytest.raises(WorkflowTestError, match=r"no kill point 'worker\.begin'; known: worker\.start"):
        test.kill("worker.begin")  # type: ignore[arg-type]
    with pytest.raises(WorkflowTestError, match=r"there is no step 'chrage'; .*'charge'"):
        test.kill("worker.start", step="chrage")
    with pytest.raises(WorkflowTestError, match="times must be 1 or more, not 0"):
        test.kill("worker.start", times=0)
