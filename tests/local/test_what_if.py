"""What another spec would have made of an execution, from what its record has."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from effort import count
from language.memory_play import MemoryPlay
from language.random_specs import quiet_case, racing_case
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.spec.validation import check_spec
from orchestrator.local.what_if import Differences, what_if
from orchestrator.testing import WorkflowTest
from worlds.documents import Json, document, step, when


def var(path: str) -> Json:
    return {"var": path}


ORDER = document(
    step("fetch", input={"url": var("input.url")}),
    step("price", input={"item": var("steps.fetch.output.item"), "currency": "eur"}),
    step("ship", "price", when={"<": [var("steps.price.output.total"), 100]}),
    step("mail", "ship"),
    outputs={"total": var("steps.price.output.total")},
)
ANSWERS = {"fetch": {"item": "a1"}, "price": {"total": 50}, "ship": {"parcel": 1}, "mail": {}}


def run(spec: Json, answers: Json | None = None, inputs: Json | None = None) -> WorkflowRecord:
    """An execution that has ended, or cannot go on."""
    play = WorkflowTest(spec, inputs or {"url": "x"})
    for name, answer in (ANSWERS if answers is None else answers).items():
        play.mock(name, answer)
    play.run(skip_waits=True)
    return play.record


def played(record: WorkflowRecord, spec: Json) -> Differences:
    return what_if(record, check_spec(spec))


def verdicts(found: Differences) -> dict[str, str]:
    return {one.step: one.verdict for one in (*found.steps, found.outcome)}


def how(found: Differences, step_id: str) -> str:
    return next(one.how for one in (*found.steps, found.outcome) if one.step == step_id)


def changed(spec: Json, name: str, **keys: Any) -> Json:
    """A document with one step changed; None takes a key away."""
    steps = [
        {
            key: value
            for key, value in {**one, **(keys if one["op"] == name else {})}.items()
            if value is not None
        }
        for one in spec["steps"]
    ]
    return {**spec, "steps": steps}


# ---- the same


def test_with_the_same_spec_nothing_differs() -> None:
    found = played(run(ORDER), ORDER)

    assert found.is_same
    assert set(verdicts(found).values()) == {"same"}
    assert found.not_reproduced == ()


@pytest.mark.parametrize("seed", range(count(12, 40)))
@pytest.mark.parametrize("make", [quiet_case, racing_case])
def test_with_its_own_spec_nothing_differs_whatever_has_happened(make: Any, seed: int) -> None:
    play = MemoryPlay(make(seed), Random(seed))
    play.play()

    for record in play.all_records():
        assert what_if(record, record.loaded).is_same, record.execution_id


def test_a_replay_sends_no_webhook() -> None:
    spec = {**ORDER, "webhook": {"url": "https://example.com/done"}}
    record = run(spec, {**ANSWERS, "webhook": {}})

    assert record.items["#webhook"].status == "complete"
    assert played(record, spec).is_same
    assert played(record, ORDER).is_same


def test_what_changes_nothing_differs_in_nothing() -> None:
    spec = changed(changed(ORDER, "fetch", timeout="9s", queue="fast", label="Fetch"), "ship", retry=3)

    assert played(run(ORDER), spec).is_same


def test_loops_retries_children_waits_delays_and_maps_are_replayed_with_their_last_results() -> None:
    again = [when({"<": [var("n"), 2]}, {"set": "count"}), when(True, "complete")]
    spec = document(
        step("count", input={"before": {"any.default": [var("state.n"), 0]}}, branch=again),
        step("flaky", retry={"max_retries": 2, "initial_delay_ms": 1000}),
        {"id": "rest", "delay": "1h"},
        {"id": "kid", "workflow": document(step("inner"), outputs={"done": True})},
        step("each", map={"over": [1, 2]}, input={"n": var("item")}, output={"m": var("result.n")}),
        step("poll", loop={"max_iterations": 5}),
        {"id": "way", "switch": {"on": {"cat": ["a"]}, "cases": {"a": ["end"], "b": []}}},
        step("end", "way"),
        outputs={"each": var("steps.each.output.items"), "kid": var("steps.kid.output.done")},
    )
    answers = {
        "count": lambda inputs: {"n": inputs["before"] + 1},
        "flaky": [ValueError("no"), {"ok": 1}],
        "inner": {},
        "each": lambda inputs: inputs,
        "poll": [{"_loop": "again", "value": {"n": 1}}, {"_loop": "done", "value": {"n": 2}}],
        "end": {},
    }
    record = run(spec, answers)
    assert record.outcome == {"each": [{"m": 1}, {"m": 2}], "kid": True}

    found = played(record, spec)

    assert found.is_same
    assert found.not_reproduced == ()


def test_a_wait_is_replayed_with_its_recorded_signal() -> None:
    spec = document(
        {"id": "w", "wait": {"signal": "go"}}, step("a", "w", when={"==": [var("steps.w.output.n"), 1]})
    )
    play = WorkflowTest(spec)
    play.mock("a", {})
    play.run().signal("go", {"n": 1}).run()

    same = played(play.record, spec)
    other = played(play.record, changed_wait(spec, "stop"))

    assert same.is_same
    assert how(other, "w") == "it would run again: another signals"


def changed_wait(spec: Json, signal: str) -> Json:
    return {**spec, "steps": [{"id": "w", "wait": {"signal": signal}}, *spec["steps"][1:]]}


# ---- different


def test_a_condition_that_says_no_takes_its_path_away() -> None:
    spec = changed(ORDER, "ship", when={"<": [var("steps.price.output.total"), 10]})

    found = played(run(ORDER), spec)

    assert verdicts(found) == {
        "fetch": "same",
        "price": "same",
        "ship": "different",
        "mail": "different",
        "": "same",
    }
    assert how(found, "ship") == "filtered instead of complete: its condition is false"


def test_outputs_that_differ_make_another_outcome() -> None:
    spec = {**ORDER, "outputs": {"total": {"+": [var("steps.price.output.total"), 1]}}}

    found = played(run(ORDER), spec)

    assert how(found, "") == 'its outcome would be {"total": 51} instead of {"total": 50}'
    assert (found.outcome.verdict, found.is_same) == ("different", False)


def test_a_failure_may_be_forgiven() -> None:
    record = run(ORDER, {**ANSWERS, "price": ValueError("no")})
    assert record.status == "failed"

    found = played(record, changed(ORDER, "price", on_error="skip"))

    assert verdicts(found)["price"] == "different"
    assert how(found, "price").startswith("skipped instead of failed")
    assert found.outcome.after == "complete"


def test_a_branch_judges_what_is_recorded() -> None:
    spec = changed(ORDER, "price", branch=[when({"==": [var("total"), 50]}, "halt", result={"stop": True})])

    found = played(run(ORDER), spec)

    assert verdicts(found)["price"] == "different"
    assert how(found, "ship") == "ready instead of complete"
    assert how(found, "") == 'its status would be "halted" instead of "complete"'


def test_what_a_branch_made_of_a_result_is_judged_anew() -> None:
    declared = changed(ORDER, "price", branch=[when({"==": [var("total"), 50]}, "fail")])
    record = run(declared)
    assert record.error is not None

    found = played(record, ORDER)

    assert how(found, "price") == "complete instead of failed"
    assert verdicts(found)["ship"] == "unknown", "it has no recorded output"


def test_what_a_broken_branch_made_of_a_result_is_judged_anew() -> None:
    broken = changed(ORDER, "price", branch=[when({"+": [var("item"), 1]}, "halt")])
    record = run(broken, {**ANSWERS, "price": {"total": 50, "item": "a1"}})
    assert record.error is not None
    assert record.error["kind"] == "expression"

    assert how(played(record, ORDER), "price") == "complete instead of failed"


def test_an_output_that_was_not_mapped_is_mapped_now() -> None:
    found = played(run(ORDER), changed(ORDER, "price", output={"total": {"*": [var("result.total"), 3]}}))

    assert how(found, "price") == 'its output would be {"total": 150} instead of {"total": 50}'
    assert verdicts(found)["ship"] == "different"


# ---- unknown


def test_a_step_with_other_inputs_would_run_again_and_what_follows_is_unknown() -> None:
    spec = changed(ORDER, "price", input={"item": var("steps.fetch.output.item"), "currency": "usd", "x": 1})

    found = played(run(ORDER), spec)

    assert verdicts(found) == {
        "fetch": "same",
        "price": "unknown",
        "ship": "unknown",
        "mail": "unknown",
        "": "unknown",
    }
    assert how(found, "price") == (
        'it would run again: input currency would be "usd" instead of "eur"; '
        "input x would be 1 instead of nothing"
    )
    assert how(found, "ship") == "it depends on the result of price"


def test_a_step_with_another_executor_would_run_again() -> None:
    spec = changed(ORDER, "mail", id="mail", fn="letter")

    assert how(played(run(ORDER), spec), "mail") == "it would run again: another executor"


def test_a_step_that_did_not_run_has_no_output() -> None:
    record = run(ORDER, {**ANSWERS, "price": {"total": 500}})

    found = played(record, changed(ORDER, "ship", when=None))

    assert how(found, "ship") == "it would run, and has no recorded output"


def test_an_output_with_a_changed_mapping_is_unknown() -> None:
    spec = changed(ORDER, "price", output={"total": var("result.total")})

    found = played(run(spec), changed(ORDER, "price", output={"total": var("result.sum")}))

    assert "mapping has changed" in how(found, "price")


def test_the_result_of_another_round_of_a_loop_is_unknown() -> None:
    again = [when({"==": [var("total"), 50]}, {"set": "price"}), when(True, "complete")]

    assert "once more" in how(played(run(ORDER), changed(ORDER, "price", branch=again)), "price")


def test_the_result_of_a_new_item_is_unknown() -> None:
    spec = document(step("each", map={"over": [1, 2]}, input={"n": var("item")}))
    record = run(spec, {"each": {}})

    found = played(record, document(step("each", map={"over": [1, 2, 3]}, input={"n": var("item")})))

    assert how(found, "each") == "item 2: it would run, and has no recorded output"


# ---- new and gone


def test_new_and_removed_steps_are_reported() -> None:
    steps = [one for one in ORDER["steps"] if one["op"] != "mail"]
    spec = {**ORDER, "steps": [*steps, step("audit", "price"), step("never", "price", when=False)]}

    found = played(run(ORDER), spec)

    assert verdicts(found) == {
        "fetch": "same",
        "price": "same",
        "ship": "same",
        "audit": "new",
        "never": "new",
        "mail": "gone",
        "": "unknown",
    }
    assert how(found, "audit") == "it would run, and has no recorded output"
    assert how(found, "never") == "it would be filtered"


def test_a_start_that_would_be_rejected_is_reported() -> None:
    found = played(run(ORDER), {**ORDER, "inputs": {"sku": {"type": "string", "required": True}}})

    assert found.steps == ()
    assert how(found, "").startswith("the start would be rejected: inputs.sku")


# ---- executions that are under way


def test_what_is_under_way_stays_so() -> None:
    play = WorkflowTest(ORDER, {"url": "x"})
    play.mock("fetch", {"item": "a1"})
    play.mock("price", {"total": 1}, takes="1h")
    play.run()
    assert play.record.steps["price"].status == "in_progress"

    same = played(play.record, ORDER)
    other = played(play.record, changed(ORDER, "price", input={}))

    assert same.is_same
    assert how(other, "price").startswith("it would run again")


def test_what_an_operator_did_is_not_reproduced() -> None:
    play = WorkflowTest(ORDER, {"url": "x"})
    play.mock("fetch", {"item": "a1"})
    play.mock("price", {"total": 1}, takes="1h")
    play.run().cancel()

    found = played(play.record, ORDER)

    assert found.is_same
    assert found.not_reproduced == ("price", "ship", "mail")
