"""The rulings on results, and on what is made of them; their numbers are in the names of the tests."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from effort import sample
from language.stage import Stage
from language.written import branches, halts, jobless, resets, skips
from orchestrator.application.errors import StartRejected
from worlds.documents import Json, document, step
from worlds.records import essence

# ---- 13: state


def test_ruling_13_outputs_of_switch_delay_and_map_stay_out_of_the_state(stage: Stage) -> None:
    stage.start(
        document(
            jobless("s", switch={"on": {"var": "input.k"}, "cases": {"x": []}}),
            jobless("d", delay="1s"),
            step("m", map={"over": [1]}),
            step("e", map={"over": []}),
        ),
        {"k": "x"},
    )
    stage.finish("m#0", {"n": 1})
    stage.pass_time("1s")

    assert (stage.status, stage["s"].output) == ("complete", {"branch": "x"})
    assert stage.state == {}


def test_ruling_13_outputs_of_switch_delay_and_map_are_merged_if_output_names_keys(stage: Stage) -> None:
    switch = {"on": {"var": "input.k"}, "cases": {"x": []}}
    stage.start(
        document(
            jobless("s", switch=switch, output={"took": {"var": "result.branch"}}),
            jobless("d", delay="1s", output={"rested": True}),
            step("m", map={"over": [1]}, output={"n": {"var": "result.n"}}),
        ),
        {"k": "x"},
    )
    stage.finish("m#0", {"n": 7, "more": 8})
    stage.pass_time("1s")

    aggregate = {"items": [{"n": 7}], "count": 1, "errors": 0}
    assert (stage.status, stage.state) == ("complete", {"took": "x", "rested": True, **aggregate})


# ---- 14: batches


def test_ruling_14_the_results_of_a_batch_are_applied_in_order(stage: Stage) -> None:
    stage.start(document(step("a"), step("b"), step("c", "a b", input={"k": {"var": "state.k"}})))

    stage.deliver(stage.result("b", {"k": "b"}), stage.result("a", {"k": "a"}))

    assert (stage.state, stage.out["c"].inputs) == ({"k": "a"}, {"k": "a"})
    assert [entry["step"] for entry in stage.history if entry.get("to") == "complete"] == ["b", "a"]


def test_ruling_14_a_batch_advances_once(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", **halts({})), step("c", "a")))

    stage.deliver(stage.result("a", {}), stage.result("b", {}))

    assert stage.statuses == {"a": "complete", "b": "halted", "c": "ready"}
    assert stage.executions_of("c") == 0


# ---- 15: the idempotency key


def test_ruling_15_the_idempotency_key_survives_retries_and_losses_and_changes_with_a_set(
    stage: Stage,
) -> None:
    doc = document(step("a", max_attempts=3), step("judge", **resets("a")))
    stage.start(doc, execution_id="x1")
    keys = [stage.key_of(stage.out["a"])]
    stage.fail("a")
    keys.append(stage.key_of(stage.out["a"]))
    stage.lose("a")
    keys.append(stage.key_of(stage.out["a"]))
    assert (keys, stage.run_ids["a"]) == (["x1#a#0"] * 3, 2)

    stage.finish("judge", {"again": True})

    assert (stage.key_of(stage.out["a"]), stage.run_ids["a"], stage["a"].round) == ("x1#a#1", 3, 1)


def test_ruling_15_the_idempotency_key_names_item_and_iteration(stage: Stage) -> None:
    loop = {"max_iterations": 5}
    stage.start(
        document(
            step("m", map={"over": ["x", "y"]}, loop=loop), step("l", loop=loop), step("n", map={"over": [1]})
        ),
        execution_id="x1",
    )
    found = {unit: stage.key_of(job) for unit, job in stage.out.items()}
    assert found == {"m#0": "x1#m#0#0#0", "m#1": "x1#m#0#1#0", "l": "x1#l#0#0", "n#0": "x1#n#0#0"}

    stage.finish("m#1", {"_loop": "again", "value": {}})
    stage.finish("l", {"_loop": "again", "value": {}})

    assert stage.key_of(stage.out["m#1"]) == "x1#m#0#1#1"
    assert stage.key_of(stage.out["l"]) == "x1#l#0#1"


def test_ruling_15_the_idempotency_key_survives_a_retry_and_changes_with_a_rerun(stage: Stage) -> None:
    loop = {"max_iterations": 5}
    doc = document(
        step("a"), step("l", loop=loop), step("m", map={"over": [1, 2]}), step("done"), step("b", "done")
    )
    stage.start(doc, execution_id="x1")
    stage.finish("done")
    stage.finish("m#0")
    stage.finish("l", {"_loop": "again", "value": {"n": 1}})
    before = {unit: stage.key_of(job) for unit, job in stage.out.items()}
    assert before == {"a": "x1#a#0", "l": "x1#l#0#1", "m#1": "x1#m#0#1", "b": "x1#b#0"}
    stage.fail("b")

    stage.control("retry")
    assert {unit: stage.key_of(job) for unit, job in stage.out.items()} == before
    assert stage["l"].loop_value == {"n": 1}

    stage.control("cancel")
    stage.control("rerun", "done")
    assert {unit: stage.key_of(job) for unit, job in stage.out.items()} == {
        **{unit: key for unit, key in before.items() if unit != "b"},
        "done": "x1#done#1",
    }
    stage.finish("done")
    assert stage.key_of(stage.out["b"]) == "x1#b#1"
    assert stage.executions_of("m#0") == 1


# ---- 17: strings are no conditions


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"when": "len(x) > 0"}, "steps[0].when"),
        (
            {"filters": {"operator": "AND", "filters": [{"expression": "len(x) > 0"}]}},
            "steps[0].filters.filters[0].expression",
        ),
        (branches("len(x) > 0", "complete"), "steps[0].branch[0].condition"),
    ],
)
def test_ruling_17_strings_are_no_conditions(stage: Stage, keys: Json, path: str) -> None:
    with pytest.raises(StartRejected) as refused:
        stage.start(document(step("a", **keys)))

    [problem] = refused.value.problems
    assert (problem["code"], problem["path"]) == ("bad_type", path)


def test_ruling_17_a_template_in_a_flow_document_is_refused_with_a_hint(stage: Stage) -> None:
    with pytest.raises(StartRejected) as refused:
        stage.start({"flow": [{"name": "a", "fn": "a", "input": {"x": "{{ flows.b.x | upper }}"}}]})

    [problem] = refused.value.problems
    assert (problem["code"], problem["path"]) == ("bad_type", "flow[0].input.x")
    assert "orchestrator convert" in problem["hint"]


def test_ruling_17_a_template_of_paths_alone_is_a_reference_in_a_flow_document_too(stage: Stage) -> None:
    inputs = {"x": "{{ flows.a.x }}", "text": "n={{ input.n or 0 }}"}
    steps = [{"name": "a", "fn": "a"}, {"name": "b", "fn": "b", "when": "{{ flows.a.go }}", "input": inputs}]
    stage.start({"flow": steps, "outputs": {"x": "{{ flows.b.y }}"}})

    stage.finish("a", {"go": True, "x": [1]})
    seen = stage.out["b"].inputs
    stage.finish("b", {"y": {"z": 2}})

    assert seen == {"x": [1], "text": "n=0"}
    assert (stage.status, stage.outcome) == ("complete", {"x": {"z": 2}})


# ---- 16: log


def test_ruling_16_what_is_logged_is_a_note_in_the_history(stage: Stage) -> None:
    stage.start(document(step("a", input={"n": {"log": {"var": "input.n"}}})), {"n": 7})

    assert stage.out["a"].inputs == {"n": 7}
    assert [entry["log"] for entry in stage.history if "log" in entry] == ["7"]


# ---- 19: order independence


WITHOUT_RACES = document(
    step("a", on_error="skip", max_attempts=2),
    step("b", **skips()),
    step("m", map={"over": [1, 2]}, on_error="continue"),
    step("ab", "a b", join="any", input={"a": {"var": "steps.a.output.a"}}),
    step("bm", "b m", join="done", input={"m": {"var": "steps.m.output"}}),
    step("never", "b"),
    outputs={"all": {"vars": "steps[*].output"}},
)
ENDS: dict[str, Any] = {
    "a": {"a": 1},
    "b": {"skip": True},
    "m#0": {"m": 0},
    "m#1": None,
    "ab": {"ab": 1},
    "bm": {"bm": 1},
}


def test_ruling_19_without_races_the_order_of_results_does_not_matter(stage: Stage) -> None:
    ends: list[Json] = []
    for order in sample([*permutations(["a", "b", "m#0", "m#1"])], 7):
        stage.start(WITHOUT_RACES)
        stage.fail("a", "the first attempt")
        for unit in order:
            stage.finish(unit, ENDS[unit]) if unit != "m#1" else stage.fail(unit, "a bad item")
        for unit in [unit for unit in ("bm", "ab") if unit in stage.out]:
            stage.finish(unit, ENDS[unit])
        assert stage.status == "complete"
        ends.append(essence(stage.record))

    assert all(end == ends[0] for end in ends)
