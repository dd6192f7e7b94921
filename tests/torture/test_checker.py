"""The checker of the torture run: it accepts a correct run and reports every kind of violation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torture.checker import Evidence, broken, not_accepted
from torture.facts import Execution, Facts, Letter
from torture.fleet import Exit
from torture.kinds import COMPENSATION, DIAMOND, SCHEDULED, SET, End
from torture.producers import Outages, Sent
from torture.timetable import DAY_MS, timetable

Json = dict[str, Any]
INPUTS: Json = {"n": 3, "ms": 0}


def moved(step: str, to: str, run_id: int = 0) -> Json:
    return {"step": step, "to": to, "run_id": run_id, "attempt": 1}


def unit(status: str = "complete", run_id: int = 0) -> Json:
    return {
        "status": status,
        "run_id": run_id,
        "attempt": 1,
        "output": {"value": 1, "run_id": run_id, "attempt": 1},
    }


def diamond(name: str = "diamond-0") -> Execution:
    history = [moved(step, to) for step in "abcd" for to in ("in_progress", "complete")]
    return Execution(name, "complete", {"sum": 118}, None, {step: unit() for step in "abcd"}, history)


def correct_run() -> Evidence:
    """A correct run: two executions, one of them compensated, and one poison event."""
    compensated = Execution("compensation-1", "failed", None, {"kind": "exception"})
    return Evidence(
        [Sent("diamond-0", DIAMOND, INPUTS, 1, 5.0), Sent("compensation-1", COMPENSATION, INPUTS, 1, 6.0)],
        Outages(forgets=True, at=[20.0]),
        Facts(
            {"diamond-0": diamond(), "compensation-1": compensated},
            {},
            [Letter("poison-0", "not JSON")],
            {"all-diamond": 1},
        ),
        {"poison-0": 7.0},
        exits=[Exit("stock-1", "stock", "exited by itself with code 0")],
    )


def first(evidence: Evidence) -> Execution:
    return evidence.facts.executions["diamond-0"]


def lose(evidence: Evidence) -> None:
    del evidence.facts.executions["diamond-0"]
    evidence.facts.totals.clear()


def accept_twice(evidence: Evidence) -> None:
    first(evidence).history.append(moved("b", "complete"))


def accept_in_two_runs(evidence: Evidence) -> None:
    first(evidence).history.append(moved("b", "complete", 1))


def forget_history(evidence: Evidence) -> None:
    first(evidence).history.pop()


def take_an_old_result(evidence: Evidence) -> None:
    first(evidence).units["c"]["output"]["run_id"] = 7


def take_another_attempt(evidence: Evidence) -> None:
    first(evidence).units["c"]["output"]["attempt"] = 2


def dispatch_too_early(evidence: Evidence) -> None:
    history = first(evidence).history
    history.insert(0, history.pop(6))


def use_too_much_memory(evidence: Evidence) -> None:
    evidence.memory = (2_000_000, 9_000_000)


SLOTS = timetable("nightly", SCHEDULED[1], 2, DAY_MS)


def schedule(evidence: Evidence) -> None:
    """Two slots, the second after the first."""
    evidence.timetables = [SLOTS]
    counts = {"started": 2, "missed": 0, "skipped": 0, "open": [], "queued": []}
    evidence.facts.schedules["nightly"] = counts
    evidence.sent = [*evidence.sent, *(Sent(n, SLOTS.kind, INPUTS, 0, 5.0) for n in SLOTS.execution_ids)]
    times = iter("abcd")
    for name in SLOTS.execution_ids:
        evidence.facts.executions[name] = Execution(
            name, "complete", {"value": 6}, created_at=next(times), ended_at=next(times)
        )


def start_a_slot_again(evidence: Evidence) -> None:
    schedule(evidence)
    evidence.facts.schedules["nightly"]["started"] = 3


def start_a_slot_too_early(evidence: Evidence) -> None:
    schedule(evidence)
    evidence.facts.executions[SLOTS.execution_ids[1]].created_at = "a"


def pass_over_a_slot(evidence: Evidence) -> None:
    schedule(evidence)
    del evidence.facts.executions[SLOTS.execution_ids[0]]


def invent_a_slot(evidence: Evidence) -> None:
    schedule(evidence)
    evidence.facts.executions["nightly:2026"] = Execution("nightly:2026", "complete")


def setting(path: str, value: Any) -> Callable[[Evidence], None]:
    """Change one fact, for example `outcome` of the first execution, or of the evidence itself."""

    def change(evidence: Evidence) -> None:
        owner: Any = evidence
        *names, last = path.split(".")
        for name in names:
            owner = first(evidence) if name == "first" else getattr(owner, name)
        if isinstance(owner, dict):
            owner[last] = value
        else:
            setattr(owner, last, value)

    return change


VIOLATIONS: dict[str, Callable[[Evidence], None]] = {
    "was accepted, and is lost": lose,
    "ended as End(status='complete', outcome={'sum': 119}": setting("first.outcome", {"sum": 119}),
    "ended as End(status='in_progress'": setting("first.status", "in_progress"),
    "stranger was not started by a producer": setting(
        "facts.executions.stranger", Execution("stranger", "complete")
    ),
    "nightly:2026 was not started by a producer": invent_a_slot,
    "nightly: 2 slots were due, and its record is {'started': 3": start_a_slot_again,
    "nightly: a slot has started no execution": pass_over_a_slot,
    "nightly: a slot did not wait for the previous one": start_a_slot_too_early,
    "run 0 of b was accepted 2 times": accept_twice,
    "b was accepted in 2 runs": accept_in_two_runs,
    "d is complete, but not in its history": forget_history,
    "c has the output of run 7 attempt 1 as run 0 attempt 1": take_an_old_result,
    "c has the output of run 0 attempt 2 as run 0 attempt 1": take_another_attempt,
    "d was dispatched before b, c": dispatch_too_early,
    "all-diamond: 1 completions have added 2": setting("facts.totals.all-diamond", 2),
    "the system did not become idle": setting("drained", False),
    "left over, leases: 1, for instance x": setting("facts.left.leases", ["x"]),
    "a dead letter that is not poison: why": setting(
        "facts.letters", [Letter("poison-0", ""), Letter(None, "why")]
    ),
    "poison-0 has 2 dead letters": setting("facts.letters", [Letter("poison-0", "")] * 2),
    "poison-0 has no dead letter": setting("facts.letters", []),
    "concurrent-1 exited by itself": setting(
        "exits", [Exit("concurrent-1", "concurrent", "exited by itself with code 1")]
    ),
    "process 77 was left behind": setting("strays", [77]),
    "Redis used 2,000,000 bytes before": use_too_much_memory,
    "verify: a timer is missing": setting("facts.findings", ["a timer is missing"]),
}


def test_a_correct_run_has_no_violation() -> None:
    assert broken(correct_run()) == []
    assert not_accepted(correct_run()) == []


def test_slots_that_have_all_started_once_are_no_violation() -> None:
    evidence = correct_run()
    schedule(evidence)

    assert broken(evidence) == []


@pytest.mark.parametrize("message", VIOLATIONS)
def test_every_kind_of_violation_is_reported(message: str) -> None:
    evidence = correct_run()
    VIOLATIONS[message](evidence)

    found = broken(evidence)

    assert any(message in one for one in found), found


def test_a_step_that_is_reset_may_complete_once_in_each_run() -> None:
    sent = Sent("set-0", SET, INPUTS, 1, 5.0)
    history = [moved("grow", "complete", run_id) for run_id in range(3)] + [moved("after", "complete")]
    found = Execution("set-0", "complete", {"value": 10}, None, {"grow": unit(run_id=2)}, history)
    evidence = Evidence([sent], Outages(False), Facts({"set-0": found}))

    assert broken(evidence) == []


@pytest.mark.parametrize(
    ("forgets", "killed_at", "is_sure"),
    [(True, 6.0, False), (True, 9.0, True), (False, 6.0, True), (True, 4.0, True)],
)
def test_a_start_may_be_lost_only_in_the_second_before_a_kill_and_only_if_redis_may_forget(
    forgets: bool, killed_at: float, is_sure: bool
) -> None:
    evidence = Evidence([Sent("diamond-0", DIAMOND, INPUTS, 1, 5.0)], Outages(forgets, [killed_at]), Facts())

    assert bool(broken(evidence)) is is_sure
    assert bool(not_accepted(evidence)) is not is_sure


def test_a_start_that_was_never_answered_was_not_accepted() -> None:
    evidence = Evidence([Sent("diamond-0", DIAMOND, INPUTS)], Outages(False), Facts())

    assert broken(evidence) == []
    assert not_accepted(evidence) == ["diamond-0"]


def test_an_end_is_checked_by_status_outcome_and_kind_of_error() -> None:
    assert DIAMOND.expected(INPUTS) == End("complete", {"sum": 118})
    assert COMPENSATION.expected(INPUTS) == End("failed", None, "exception")
