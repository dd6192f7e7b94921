"""What an expression can see of an execution, root by root, and what it costs to look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.application.engine.context import Context, StatusView, StepsView
from orchestrator.application.engine.draft import Draft
from orchestrator.application.records.decisions import Complete, Failed, Halt
from orchestrator.application.records.events import Moment, iso, make_failure
from worlds.documents import document, step, when
from worlds.engine_world import EngineWorld, world_of


def draft_of(world: EngineWorld) -> Draft:
    return Draft(world.record, Moment(1_767_225_600_000, "n"))


def seen_by(world: EngineWorld, step_id: str | None = None, fresh: Any = None) -> Context:
    return draft_of(world).context(step_id, fresh)


@pytest.fixture
def world() -> EngineWorld:
    """b ran first and gave null; a gave an object; c failed; d is in progress."""
    spec = document(
        step("b"), step("a"), step("c", on_error="continue"), step("d", after="a b c"), name="demo"
    )
    world = world_of(spec, inputs={"n": 7})
    world.play(b=None, a={"n": 1, "deep": {"list": [1, 2]}}, c=ValueError("boom"))
    return world


def test_the_roots_of_a_context(world: EngineWorld) -> None:
    context = seen_by(world)

    assert list(context) == ["steps", "input", "state", "flows", "ctx"]
    assert len(context) == 5
    assert context["input"] == {"n": 7}
    assert context["state"] == {"n": 1, "deep": {"list": [1, 2]}, "ok": False, "error": "boom"}
    with pytest.raises(KeyError):
        context["sources"]


def test_kv_is_a_root_that_is_named_but_not_iterated(world: EngineWorld) -> None:
    world.record.shared["global"] = {"n": 5, "far": "away"}
    context = seen_by(world, "a")

    assert "kv" not in list(context)
    assert dict(context["kv"]) == {**world.record.state, "far": "away"}
    assert len(context["kv"]) == len(world.record.state) + 1
    assert context["kv"]["n"] == 1
    assert context["kv"]["far"] == "away"
    assert dict(context["kv"]["flow"]) == world.record.state
    assert dict(context["kv"]["global"]) == {"n": 5, "far": "away"}
    assert dict(context["kv"]["flow_group"]) == {}
    assert context["kv"]["local"] == {"n": 1, "deep": {"list": [1, 2]}}
    assert seen_by(world)["kv"]["local"] == {}
    with pytest.raises(KeyError):
        context["kv"]["nowhere"]


def test_steps_has_only_steps_with_a_non_null_output_in_the_order_of_the_spec(world: EngineWorld) -> None:
    steps = seen_by(world)["steps"]

    assert isinstance(steps, StepsView)
    assert list(steps) == ["a", "c"]
    assert len(steps) == 2
    assert dict(steps) == {
        "a": {"output": {"n": 1, "deep": {"list": [1, 2]}}},
        "c": {"output": {"ok": False, "error": "boom"}},
    }
    assert "a" in steps
    assert "b" not in steps
    assert "nobody" not in steps
    for absent in ("b", "nobody"):
        with pytest.raises(KeyError):
            steps[absent]


def test_flows_is_steps_without_the_word_output(world: EngineWorld) -> None:
    assert seen_by(world)["flows"]["a"] == {"n": 1, "deep": {"list": [1, 2]}}


def test_a_path_descends_by_the_longest_id_that_fits() -> None:
    world = world_of(document(step("etl"), step("etl.load"), step("etl.load.x")))
    world.advance()
    world.finish("etl", {"load": {"output": "not this"}})
    world.finish("etl.load", {"n": 1})
    steps = seen_by(world)["steps"]

    assert steps.descend(["etl", "load", "output", "n"]) == ({"output": {"n": 1}}, ["output", "n"])
    assert steps.descend(["etl", "output"]) == ({"output": {"load": {"output": "not this"}}}, ["output"])
    assert steps.descend(["etl", "load", "x", "output"]) is None  # declared, but without an output
    assert steps.descend(["nobody"]) is None


def test_what_an_expression_logs_is_noted_in_the_history() -> None:
    rule = {"log": {"cat": ["so far: ", {"var": "input.n"}]}}
    world = world_of(document(step("a", input={"n": rule})), inputs={"n": 7})

    world.advance()

    assert world.out["a"].inputs == {"n": "so far: 7"}
    assert [entry for entry in world.history if "log" in entry] == [
        {"at": world.history[0]["at"], "cause": "e1", "step": "a", "log": '"so far: 7"'}
    ]


def test_an_expression_that_does_not_stop_logging_is_not_heard_for_ever() -> None:
    many = {"map": [{"var": "input.all"}, {"log": {"var": ""}}]}
    world = world_of(document(outputs={"all": many, "long": {"log": "x" * 5_000}}), inputs={"all": [1] * 19})

    world.advance()

    notes = [entry["log"] for entry in world.history if "log" in entry]
    assert len(notes) == 20
    assert len(notes[-1]) == 1_000
    assert "step" not in world.history[0]
    world = world_of(document(outputs={"all": many}), inputs={"all": [1] * 100})
    world.advance()
    assert len([entry for entry in world.history if "log" in entry]) == 20


def test_ctx_tells_of_the_workflow_the_step_and_the_moment(world: EngineWorld) -> None:
    ctx = seen_by(world, "d")["ctx"]

    assert ctx["workflow"] == {
        "id": world.record.workflow_id,
        "name": "demo",
        "execution_id": "x1",
        "group": None,
        "started_at": "2026-01-01T00:00:00.000Z",
    }
    assert ctx["step"] == {"id": "d", "run_id": 0, "attempt": 1}
    assert ctx["now"] == "2026-01-01T00:00:00.000Z"
    assert "step" not in seen_by(world)["ctx"]


def test_ctx_has_the_status_and_the_error_of_every_step(world: EngineWorld) -> None:
    ctx = seen_by(world)["ctx"]

    assert isinstance(ctx["status"], StatusView)
    assert dict(ctx["status"]) == {"b": "complete", "a": "complete", "c": "failed", "d": "in_progress"}
    assert len(ctx["status"]) == 4
    assert ctx["error"]["c"] == {"kind": "exception", "message": "boom"}
    assert ctx["error"]["a"] is None
    assert ctx["status"].descend(["c"]) == ("failed", [])
    assert ctx["error"].descend(["c", "kind"]) == ({"kind": "exception", "message": "boom"}, ["kind"])
    assert ctx["status"].descend(["nobody"]) is None
    with pytest.raises(KeyError):
        ctx["status"]["nobody"]


def test_a_fresh_output_lies_on_top(world: EngineWorld) -> None:
    context = seen_by(world, "d", {"state": "shadow", "k": 1})

    assert list(context) == ["steps", "input", "flows", "ctx", "output", "state", "k"]
    assert context["state"] == "shadow"
    assert context["output"] == {"state": "shadow", "k": 1}
    assert context["k"] == 1
    assert "k" not in seen_by(world, "d", {})


def test_an_output_key_called_output_wins_over_the_alias(world: EngineWorld) -> None:
    assert seen_by(world, "d", {"output": 3})["output"] == 3


def test_the_state_of_a_draft_is_that_of_the_record_under_what_was_merged(world: EngineWorld) -> None:
    draft = draft_of(world)

    draft.merge_state("a", {"n": 2, "new": 3})

    assert isinstance(draft.state, Mapping)
    assert dict(draft.state) == {"n": 2, "new": 3, "deep": {"list": [1, 2]}, "ok": False, "error": "boom"}
    assert list(draft.state) == ["deep", "error", "n", "new", "ok"]  # in the same order in every process
    assert len(draft.state) == 5
    assert world.record.state["n"] == 1


# ---- through expressions


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ({"var": "steps.a"}, {"output": {"n": 1, "deep": {"list": [1, 2]}}}),
        ({"var": "steps.a.output.deep.list.1"}, 2),
        ({"var": ["steps.b.output.n", "absent"]}, "absent"),
        ({"var": "flows.a.n"}, 1),
        ({"vars": "steps[*].output.n"}, [1]),
        ({"vars": "steps.*.output.error"}, ["boom"]),
        ({"var": "ctx.status.c"}, "failed"),
        ({"var": "ctx.error.c.kind"}, "exception"),
        ({"var": "ctx.step.id"}, "d"),
        ({"var": "ctx.workflow.name"}, "demo"),
        ({"var": "ctx.now"}, "2026-01-01T00:00:04.000Z"),
        ({"time.now": []}, "2026-01-01T00:00:04.000Z"),
        ({"var": "state.n"}, 1),
        ({"var": "input"}, {"n": 7}),
        ({"var": "state.nowhere.at.all"}, None),
    ],
)
def test_expressions_see_the_roots(expression: Any, value: Any) -> None:
    spec = document(
        step("b"),
        step("a"),
        step("c", on_error="continue"),
        step("d", after="a b c", input={"seen": expression}),
        name="demo",
    )
    world = world_of(spec, inputs={"n": 7})
    world.now_ms += 4_000

    world.play(b=None, a={"n": 1, "deep": {"list": [1, 2]}}, c=ValueError("boom"))

    assert world.jobs[-1].inputs == {"seen": value}


@pytest.mark.parametrize("root", ["steps", "flows", "state", "input", "ctx", "ctx.status", ""])
def test_a_whole_root_arrives_as_plain_data(root: str) -> None:
    """What leaves the core is JSON: no view, no ChainMap."""
    spec = document(step("a"), step("b", after="a", input={"seen": {"var": [root, None]}}))
    world = world_of(spec, inputs={"n": 7})

    world.play(a={"n": 1})

    assert is_plain(world.jobs[-1].inputs), world.jobs[-1].inputs


def test_whole_roots_in_an_outcome_and_in_a_halt_are_plain_data() -> None:
    roots = {root: {"var": root} for root in ("steps", "flows", "state", "ctx", "input")}
    complete = world_of(document(step("a"), outputs=roots))
    halt = world_of(document(step("a", branch=[when(True, "halt", result_expr=roots)])))

    decision = complete.play(a={"n": 1})
    assert isinstance(decision, Complete)
    assert is_plain(decision.outcome)
    assert decision.outcome["steps"] == {"a": {"output": {"n": 1}}}
    halted = halt.play(a={"n": 1})
    assert isinstance(halted, Halt)
    assert is_plain(halted.result)


def is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_plain(one) for key, one in value.items())
    if type(value) is list:
        return all(map(is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


def test_an_error_of_a_step_is_seen_by_the_next_through_ctx() -> None:
    condition = {"==": [{"var": "ctx.error.a.kind"}, "exception"]}
    world = world_of(
        document(step("a", on_error="continue"), step("b", after="a", branch=[when(condition, "fail")]))
    )

    assert isinstance(world.play(a=ValueError("boom"), b={}), Failed)


# ---- moments and failures


def test_a_moment_is_written_in_utc_with_milliseconds() -> None:
    assert Moment(1_767_225_600_123, "n").iso == iso(1_767_225_600_123) == "2026-01-01T00:00:00.123Z"


def test_a_failure_has_a_kind_and_a_message_and_whatever_else_is_known() -> None:
    assert make_failure("lost", "gone") == {"kind": "lost", "message": "gone"}
    assert make_failure("exception", "boom", "ValueError", traceback="...") == {
        "kind": "exception",
        "message": "boom",
        "type": "ValueError",
        "traceback": "...",
    }
