"""Rehearsals in an order that a seed decides: results shuffled, late and doubled."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.testing import MockMissing, WorkflowTest, WorkflowTestError
from worlds.documents import document, step

Json = dict[str, Any]

SEEDS = range(30)
FAN = document(
    *(step(name) for name in "abcd"),
    step("end", "a b c d"),
    outputs={name: {"var": f"steps.{name}.output.n"} for name in "abcd"},
)


def echo(fn: str, inputs: Json) -> Json:
    return {"n": fn}


def shuffled(workflow: Any, seed: int, **options: Any) -> WorkflowTest:
    return WorkflowTest(workflow, executors=echo, order="shuffled", seed=seed, **options)


def ends(test: WorkflowTest) -> str:
    return "".join(entry["step"] for entry in test.history if entry.get("to") == "complete")


def test_normally_everything_happens_in_the_order_of_dispatch() -> None:
    test = WorkflowTest(FAN, executors=echo).run()

    assert [call.step for call in test.calls("a") + test.calls("b")] == ["a", "b"]
    assert ends(test) == "abcdend"


def test_seeds_make_different_orders() -> None:
    orders = {ends(shuffled(FAN, seed).run()) for seed in SEEDS}

    assert len(orders) > 10
    assert all(order.endswith("end") for order in orders)


def test_a_seed_makes_the_same_order_each_time() -> None:
    assert all(shuffled(FAN, seed).run().history == shuffled(FAN, seed).run().history for seed in range(5))


def test_what_is_right_is_right_in_every_order() -> None:
    for seed in SEEDS:
        assert shuffled(FAN, seed).run().outcome == {name: name for name in "abcd"}


def test_jobs_too_are_run_in_another_order() -> None:
    def first(seed: int) -> str:
        called: list[str] = []
        executors = {
            name: lambda inputs, name=name: called.append(name) for name in ("a", "b", "c", "d", "end")
        }
        WorkflowTest(FAN, executors=executors, order="shuffled", seed=seed).run()
        return called[0]

    assert {first(seed) for seed in SEEDS} == set("abcd")


def test_some_results_come_before_other_jobs_are_run() -> None:
    """Not one wave after the other: a result is taken in while others wait for their turn."""
    document_ = document(step("a"), step("after_a", "a"), *(step(name) for name in "bcd"))

    def is_early(seed: int) -> bool:
        order = [
            entry["step"]
            for entry in shuffled(document_, seed).run().history
            if entry.get("to") == "complete"
        ]
        return order.index("after_a") < len(order) - 1

    assert any(map(is_early, SEEDS))


def test_a_race_for_a_key_of_the_state_is_won_by_different_steps() -> None:
    race = document(step("a"), step("b"), outputs={"winner": {"var": "state.n"}})

    assert {shuffled(race, seed).run().outcome["winner"] for seed in SEEDS} == {"a", "b"}


def test_doubled_results_are_accepted_once() -> None:
    """A step that sets itself ready is where a second copy of a result would do harm."""
    again = {"condition": {"<": [{"var": "n"}, 5]}, "action": {"set": "steps.count.status", "value": "ready"}}
    done = {"condition": True, "action": "complete"}
    counting = document(
        step("count", input={"n": {"var": ["state.n", 0]}}, branch=[again, done]), step("other")
    )

    for seed in SEEDS:
        test = WorkflowTest(
            counting,
            executors={"count": lambda inputs: {"n": inputs["n"] + 1}, "other": lambda inputs: {}},
            order="shuffled",
            seed=seed,
        )
        assert test.run().state["n"] == 5
        assert test.executed("count") == 5


def test_the_second_copy_of_a_result_is_counted_and_dropped() -> None:
    counted = [shuffled(FAN, seed).run().counters for seed in SEEDS]

    dropped = [one["stale"] + one["late"] for one in counted]
    assert 0 in dropped
    assert sum(dropped) > len(SEEDS) / 2


def test_children_and_time_go_with_every_order() -> None:
    inner = document(step("x"), step("y"), {"id": "nap", "delay": "1h"}, outputs={"done": True})
    outer = {"steps": [{"id": "one", "workflow": inner}, {"id": "two", "workflow": inner}]}

    for seed in range(10):
        assert shuffled(outer, seed).run(skip_waits=True).status == "complete"


def test_a_process_may_die_in_every_order() -> None:
    for seed in SEEDS:
        test = shuffled(FAN, seed)
        test.kill("worker.result", step="b", times=2)
        test.kill("coordinator.commit", step="c")

        assert test.run().outcome == {name: name for name in "abcd"}
        assert test.executed("b") == 3
        test.check_kills()


def test_an_error_says_which_seed_it_was() -> None:
    test = WorkflowTest(FAN, order="shuffled", seed=17)

    with pytest.raises(MockMissing) as raised:
        test.run()

    assert raised.value.__notes__ == ["tested with order='shuffled', seed=17"]
    assert "order='shuffled', seed=17" in str(test)


def test_an_error_of_an_ordered_test_needs_no_seed() -> None:
    with pytest.raises(WorkflowTestError) as raised:
        WorkflowTest(FAN).run()

    assert not hasattr(raised.value, "__notes__")
