"""Starts with large documents: they wait while their documents are checked, and nothing else does."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.application.errors import InvalidSpec
from orchestrator.application.spec.validation import check_spec, load_spec
from orchestrator.coordinator.checker_process import ProcessChecker
from orchestrator.coordinator.large_document import LargeDocument
from orchestrator.coordinator.loop import Coordinator
from orchestrator.coordinator.waiting_events import Checked, CheckFailed, InProcessChecker
from orchestrator.redis_rq.keys import GROUP
from processes import is_running, stack, wait_until
from slow_checker import HANG, WAIT
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld

SMALL = document(step("a"), step("b", after="a"))


def large(text: str = "", **keys: Any) -> Json:
    """A document that is not checked in the loop."""
    return {**SMALL, **keys, "description": f"{text} {'x' * 20_000}"}


class ManualChecker:
    """Checks a document when the test says so."""

    def __init__(self) -> None:
        self.submitted: list[LargeDocument] = []
        self._done: list[tuple[LargeDocument, Checked]] = []
        self.is_closed = False

    def submit(self, document: LargeDocument) -> None:
        self.submitted.append(document)

    def finish(self) -> None:
        """Check all that was submitted."""
        in_process = InProcessChecker()
        for one in self.submitted:
            in_process.submit(one)
        self.submitted = []
        self._done += in_process.finished()

    def fail(self, reason: str) -> None:
        """Fail the checks of all that was submitted."""
        self._done += [(one, CheckFailed(reason)) for one in self.submitted]
        self.submitted = []

    def finished(self) -> list[tuple[LargeDocument, Checked]]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def checker() -> ManualChecker:
    return ManualChecker()


def turn(coordinator: Coordinator, times: int = 4) -> None:
    for _ in range(times):
        coordinator.run_once()


def deliveries(world: RedisWorld) -> list[tuple[str, int]]:
    """The readers of the pending starts, and how often each start was delivered."""
    rows: Any = world.client.xpending_range(world.keys.starts, GROUP, "-", "+", 100)
    return [(row["consumer"], row["times_delivered"]) for row in rows]


def is_answered(world: RedisWorld, entry: str) -> bool:
    return bool(world.client.exists(world.keys.reply(entry)))


def test_other_executions_go_on_while_a_document_is_checked(
    world: RedisWorld, checker: ManualChecker
) -> None:
    one = world.coordinator(checker=checker)
    waiting = world.start(large())
    other = world.begin(one, SMALL)

    world.settle(one)

    assert world.status(other) == "complete"
    assert not is_answered(world, waiting)
    assert world.pending() == [waiting]
    checker.finish()
    world.settle(one)
    assert world.status(world.answer(waiting)["workflow_execution_id"]) == "complete"
    assert world.pending() == []


def test_a_small_document_that_expands_to_many_nodes_is_not_checked_in_the_loop(
    world: RedisWorld, checker: ManualChecker
) -> None:
    lines = ["description: x", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    one = world.coordinator(checker=checker)

    world.send(world.keys.starts, {"spec": "\n".join(lines)})
    turn(one)

    assert len(checker.submitted) == 1


def test_the_problems_of_a_large_document_reach_the_producer(
    world: RedisWorld, checker: ManualChecker
) -> None:
    one = world.coordinator(checker=checker)
    wrong = large(outputs={"x": {"var": "steps.c.output"}})
    entry = world.start(wrong)
    turn(one)

    checker.finish()
    turn(one)

    with pytest.raises(InvalidSpec) as expected:
        load_spec(json.dumps(wrong))
    reply = world.answer(entry)
    assert reply["ok"] is False
    assert reply["problems"] == [problem.as_dict() for problem in expected.value.problems]
    assert len(world.dead()) == 1


def test_a_large_workflow_that_is_registered_is_loaded_outside_of_the_loop(
    world: RedisWorld, checker: ManualChecker
) -> None:
    world.store.register("large", check_spec(large(name="large")))
    one = world.coordinator("one", world.connect(), checker=checker, small_stored_bytes=1_000)
    by_name = world.start("large")
    parent = world.start(document({"id": "child", "workflow": "large"}))
    turn(one)
    world.settle(one)
    assert not is_answered(world, by_name)
    assert [one.is_stored for one in checker.submitted] == [True]

    checker.finish()
    world.settle(one)

    for entry in (by_name, parent):
        assert world.status(world.answer(entry)["workflow_execution_id"]) == "complete"
    assert checker.submitted == []


def test_events_of_an_execution_wait_while_its_large_spec_is_loaded(
    world: RedisWorld, checker: ManualChecker
) -> None:
    before = world.coordinator("before")
    weids = [world.begin(before, large(), execution_id=f"x{n}") for n in range(3)]
    small = world.begin(before, SMALL, execution_id="small")
    world.killed("before")
    one = world.coordinator("one", world.connect(), checker=checker, small_stored_bytes=1_000)
    world.work()
    turn(one)

    waiting = [world.record(weid).steps["a"].status for weid in weids]
    other = world.record(small).steps["a"].status
    checker.finish()
    turn(one)
    world.settle(one)

    assert (waiting, other) == (["in_progress"] * 3, "complete")
    assert {world.status(weid) for weid in weids} == {"complete"}
    assert len(checker.submitted) == 0, "the spec was loaded once"
    assert (world.pending(), world.dead()) == ([], [])


def test_many_events_of_a_large_execution_are_parked_and_all_handled(
    world: RedisWorld, checker: ManualChecker
) -> None:
    before = world.coordinator("before")
    steps = [step(f"s{n}") for n in range(50)]
    weid = world.begin(before, {**document(*steps), "description": "x" * 2_000})
    world.killed("before")
    one = world.coordinator("one", world.connect(), checker=checker, small_stored_bytes=1_000)
    world.work()
    turn(one)
    assert world.status(weid) == "in_progress"

    checker.finish()
    turn(one, 8)

    assert world.status(weid) == "complete"
    assert world.pending() == []


def test_a_spec_that_cannot_be_loaded_outside_of_the_loop_is_loaded_in_it(
    world: RedisWorld, checker: ManualChecker
) -> None:
    before = world.coordinator("before")
    weid = world.begin(before, large(), execution_id="x")
    world.killed("before")
    one = world.coordinator("one", world.connect(), checker=checker, small_stored_bytes=1_000)
    world.work()
    turn(one)

    checker.fail("it takes too long")
    turn(one)
    world.settle(one)

    assert world.status(weid) == "complete"
    assert world.dead() == []


def test_a_stored_document_that_belongs_to_another_id_starts_nothing(
    world: RedisWorld, checker: ManualChecker
) -> None:
    spec, other = check_spec(large(name="large")), check_spec(large(name="other"))
    world.store.register("large", spec)
    world.store.register("other", other)
    forged = world.client.hget(world.keys.spec(other.workflow_id), "document")
    world.client.hset(world.keys.spec(spec.workflow_id), "document", str(forged))
    one = world.coordinator("one", world.connect(), checker=checker, small_stored_bytes=1_000)
    entry = world.start("large")
    turn(one)

    checker.finish()
    world.settle(one)

    assert f"the document stored as {spec.workflow_id!r} is" in world.answer(entry)["reason"]


def test_equal_documents_are_checked_once(world: RedisWorld, checker: ManualChecker) -> None:
    one = world.coordinator(checker=checker)
    entries = [world.start(large()) for _ in range(3)]
    turn(one)
    assert len(checker.submitted) == 1

    checker.finish()
    world.settle(one)
    entries.append(world.start(large()))
    world.settle(one)

    assert checker.submitted == []
    started = {world.answer(entry)["workflow_execution_id"] for entry in entries}
    assert [world.status(one) for one in started] == ["complete"] * 4


def test_starts_with_equal_documents_are_created_together(world: RedisWorld, checker: ManualChecker) -> None:
    one = world.coordinator(checker=checker, max_documents=2)
    entries = [world.start(large()) for _ in range(9)]
    other = world.start(large("other"))
    turn(one)

    checker.finish()
    turn(one, 2)  # its second turn reads new events

    assert [is_answered(world, entry) for entry in entries] == [True] * 9
    assert not is_answered(world, other)
    turn(one)
    checker.finish()
    turn(one)
    assert is_answered(world, other)


def test_few_documents_are_kept_and_the_other_starts_follow(
    world: RedisWorld, checker: ManualChecker
) -> None:
    one = world.coordinator(checker=checker, max_documents=2)
    entries = [world.start(large(str(n))) for n in range(7)]
    turn(one)
    assert len(checker.submitted) == 2

    for _ in range(4):
        assert len(checker.submitted) <= 2
        checker.finish()
        world.settle(one)

    assert [world.answer(entry)["ok"] for entry in entries] == [True] * 7
    assert world.dead() == []


def test_no_more_starts_are_read_while_too_many_wait(world: RedisWorld, checker: ManualChecker) -> None:
    one = world.coordinator(checker=checker, max_documents=1, max_waiting_starts=2, batch=3)
    running = world.begin(one, SMALL)
    entries = [world.start(large(str(n))) for n in range(3)]
    turn(one)
    last = world.start(SMALL)

    world.settle(one)

    assert world.status(running) == "complete"
    assert not is_answered(world, last)
    for _ in entries:
        checker.finish()
        world.settle(one)
    assert all(world.answer(entry)["ok"] for entry in (*entries, last))


def test_a_start_that_waits_is_renewed_and_delivered_once(world: RedisWorld, checker: ManualChecker) -> None:
    one = world.coordinator(checker=checker, max_documents=1, renew_every_s=0.0)
    two = world.coordinator("two", world.connect(), reclaim_after_ms=1_000)
    entries = [world.start(large(str(n))) for n in range(2)]
    turn(one)

    for _ in range(6):  # as if a second passed between two turns
        world.age_pending(1_000, reader="one")
        turn(one, 1)
        turn(two, 1)

    assert deliveries(world) == [("one", 1), ("one", 1)]
    for _ in entries:
        checker.finish()
        world.settle(one)
    assert [world.answer(entry)["ok"] for entry in entries] == [True] * 2


def test_outages_do_not_reject_a_start_that_waits(world: RedisWorld, checker: ManualChecker) -> None:
    one = world.coordinator(checker=checker, max_deliveries=2)
    entry = world.start(large())
    turn(one)

    for _ in range(5):
        one.resume_unfinished()
    assert deliveries(world) == [("one", 1)]  # else the coordinator that takes it over would reject it
    assert len(checker.submitted) == 1
    checker.finish()
    world.settle(one)

    assert world.answer(entry)["ok"] is True
    assert world.dead() == []


def test_a_start_that_waits_is_taken_over_from_a_dead_coordinator(
    world: RedisWorld, checker: ManualChecker
) -> None:
    entry = world.start(large())
    turn(world.coordinator("one", checker=checker))
    world.killed("one")
    world.age_pending(10_000, reader="one")

    world.settle(world.coordinator("two", world.connect()))

    assert world.status(world.answer(entry)["workflow_execution_id"]) == "complete"


def test_a_start_that_two_coordinators_check_is_created_once(
    world: RedisWorld, checker: ManualChecker
) -> None:
    one, entry = world.coordinator("one", checker=checker), world.start(large())
    turn(one)
    world.age_pending(10_000, reader="one")
    two = world.coordinator("two", world.connect())
    turn(two)
    reply = world.answer(entry)

    checker.finish()
    world.settle(one, two)

    assert world.answer(entry) == reply
    assert world.moves(reply["workflow_execution_id"], "complete") == ["a", "b"]
    assert world.dead() == []


def test_an_early_signal_reaches_a_start_whose_document_was_checked(
    world: RedisWorld, checker: ManualChecker
) -> None:
    """A signal for a start that waits is kept, and a control is rejected: the execution does not exist."""
    one = world.coordinator(checker=checker)
    waits = {**large(), "steps": [{"id": "w", "wait": {"signal": "go"}}]}
    world.start(waits, execution_id="x1")
    turn(one)
    signal_fields = {"type": "signal", "execution": "x1", "name": "go", "payload": "7"}
    control = {"type": "control", "execution": "x1", "action": "cancel", "reply": "r1"}
    world.send(world.keys.events(0), signal_fields)
    world.send(world.keys.events(0), control)
    turn(one)

    checker.finish()
    world.settle(one)

    assert world.answer("r1")["ok"] is False
    assert world.status(world.store.full_id("x1")) == "complete"


def test_a_coordinator_that_stops_leaves_the_start_and_closes_its_checker(
    world: RedisWorld, checker: ManualChecker
) -> None:
    class StopAfterSomeTurns:
        turns = 0

        def is_set(self) -> bool:
            self.turns += 1
            return self.turns > 10

        def wait(self, timeout: float) -> bool:
            return self.is_set()

    entry = world.start(large())

    world.coordinator(checker=checker).run(StopAfterSomeTurns())

    assert checker.is_closed
    assert world.pending() == [entry]


# ---- real processes


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Callable[..., ProcessChecker]]:
    made: list[ProcessChecker] = []

    def make(**options: Any) -> ProcessChecker:
        made.append(ProcessChecker((sys.executable, "-m", "slow_checker", str(tmp_path)), **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def turn_until(coordinator: Coordinator, fact: Callable[[], object]) -> None:
    def turn_and_ask() -> object:
        coordinator.run_once()
        return fact()

    wait_until(turn_and_ask)


def test_a_document_that_hangs_is_rejected_with_a_reply(
    world: RedisWorld, slow: Callable[..., ProcessChecker], tmp_path: Path
) -> None:
    one = world.coordinator(checker=slow(deadline_s=3.0))
    entry = world.start(large(HANG))
    turn_until(one, lambda: pids(tmp_path) or is_answered(world, entry))
    other = world.begin(one, SMALL)
    world.settle(one)
    assert world.status(other) == "complete"

    turn_until(one, lambda: is_answered(world, entry))

    reply = world.answer(entry)
    assert reply["ok"] is False
    assert "the document could not be checked within 3 s" in reply["reason"]
    assert reply["problems"][0]["code"] == "too_big"


def test_a_start_survives_the_death_of_the_checking_process(
    world: RedisWorld, slow: Callable[..., ProcessChecker], tmp_path: Path
) -> None:
    one = world.coordinator(checker=slow())
    entry = world.start(large(WAIT))
    turn_until(one, lambda: pids(tmp_path))

    os.kill(pids(tmp_path)[0], signal.SIGKILL)
    turn_until(one, lambda: len(pids(tmp_path)) == 2)
    (tmp_path / "go").touch()
    turn_until(one, lambda: is_answered(world, entry))

    assert world.answer(entry)["ok"] is True


def test_a_workflow_of_ten_thousand_steps_starts_beside_others(
    world: RedisWorld, slow: Callable[..., ProcessChecker], tmp_path: Path
) -> None:
    one = world.coordinator(checker=slow(), jobs_per_commit=10)
    steps = [step(f"s{n}", after=f"s{n - 1}" if n else "") for n in range(10_000)]
    entry = world.start({"description": WAIT, **document(*steps)})
    turn_until(one, lambda: pids(tmp_path))
    other = world.begin(one, SMALL)
    world.settle(one)
    assert world.status(other) == "complete"
    assert not is_answered(world, entry)

    (tmp_path / "go").touch()
    turn_until(one, lambda: is_answered(world, entry))

    assert len(world.record(world.answer(entry)["workflow_execution_id"]).steps) == 10_000


def test_a_killed_coordinator_takes_its_checking_process_with_it(
    world: RedisWorld, redis_url: str, tmp_path: Path
) -> None:
    """Another coordinator takes the start over, and creates it exactly once."""
    entry = world.start(large(WAIT), execution_id="x1")
    with stack(redis_url, "", tmp_path / "logs") as processes:
        first = processes.module("checking_coordinator", redis_url, "first", str(tmp_path))
        wait_until(lambda: pids(tmp_path))
        [child] = pids(tmp_path)

        processes.kill(first)

        wait_until(lambda: not is_running(child))
        (tmp_path / "go").touch()
        processes.module("checking_coordinator", redis_url, "second", str(tmp_path))
        wait_until(lambda: is_answered(world, entry))
    assert world.answer(entry)["ok"] is True
    assert len(pids(tmp_path)) == 2
    created = [one for one in world.history(world.store.full_id("x1")) if one.get("to") == "in_progress"]
    assert len([one for one in created if one.get("step") == "a"]) == 1
    assert world.dead() == []
