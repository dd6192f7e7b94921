"""Starts whose execution id is taken, in memory and on Redis: what each policy does."""

from __future__ import annotations

import pytest

from language.stage import Stage
from language.written import child
from orchestrator.application.errors import RecordNotFound, StartRejected
from worlds.documents import Json, document, step

N = {"n": {"var": "input.n"}}
ONE = document(step("a", input=N), outputs={"n": {"var": "steps.a.output.n"}})
TWO = document(step("b", input=N), outputs={"n": {"var": "steps.b.output.n"}})
UNDOABLE = document(step("a", compensate={"fn": "undo"}), step("b", "a"))
ANY = pytest.mark.parametrize("spec", [ONE, TWO], ids=["same spec", "another spec"])


def parent(inner: Json) -> Json:
    return document(child("kid", inner, input=N), outputs={"kid": {"var": "steps.kid.output.n"}})


# ---- fail and use_existing


def test_without_a_policy_a_taken_id_is_refused(stage: Stage) -> None:
    first = stage.start(ONE, {"n": 1}, execution_id="x")

    with pytest.raises(StartRejected, match=r"^an execution with the id 'x' already exists$"):
        stage.start(ONE, {"n": 2}, execution_id="x")

    assert (stage.executions, stage.record_of("x").inputs) == ([first], {"n": 1})


@pytest.mark.parametrize("is_over", [False, True])
def test_use_existing_returns_the_existing_execution(stage: Stage, is_over: bool) -> None:
    first = stage.start(ONE, {"n": 1}, execution_id="x")
    if is_over:
        stage.finish("a", {"n": 1})

    again = stage.start(ONE, {"n": 2}, execution_id="x", conflict_policy="use_existing")

    ended = {"status": "complete", "outcome": {"n": 1}, "error": None} if is_over else {}
    assert (again, stage.answered()) == (first, {"workflow_execution_id": first, **ended})
    assert stage.record.inputs == {"n": 1}


def test_use_existing_is_refused_when_it_is_of_another_workflow(stage: Stage) -> None:
    first = stage.start(ONE, execution_id="x")

    with pytest.raises(StartRejected) as refused:
        stage.start(TWO, execution_id="x", conflict_policy="use_existing")

    other = first.partition("#")[0]
    message = f"an execution with the id 'x' already exists, as an execution of another workflow: {other}"
    assert refused.value.reason == message


@pytest.mark.parametrize("policy", ["use_existing", "terminate_existing"])
def test_an_id_that_is_free_is_taken_whatever_the_policy(stage: Stage, policy: str) -> None:
    stage.start(ONE, {"n": 1}, execution_id="x", conflict_policy=policy)  # type: ignore[arg-type]

    stage.finish("a", {"n": 1})

    assert (stage.status, stage.outcome) == ("complete", {"n": 1})


# ---- terminate_existing


@ANY
@pytest.mark.parametrize("state", ["pending", "in_progress", "paused", "complete", "failed"])
def test_terminate_existing_cancels_the_existing_execution_and_replaces_it(
    stage: Stage, spec: Json, state: str
) -> None:
    limit: Json = {"concurrency": {"key": "k", "limit": 1}} if state == "pending" else {}
    if limit:
        stage.start({**TWO, **limit}, execution_id="before")
    old = stage.start({**ONE, **limit}, {"n": 1}, execution_id="x")
    late = dict(stage.out)
    if state == "paused":
        stage.control("pause")
    elif state in ("complete", "failed"):
        (stage.finish if state == "complete" else stage.fail)("a")
    assert stage.status == state

    new = stage.start(spec, {"n": 2}, execution_id="x", conflict_policy="terminate_existing")

    assert (new == old) == (spec is ONE and not limit)
    assert (stage.record_of("x").workflow_execution_id, stage.record.inputs) == (new, {"n": 2})
    assert not [entry for entry in stage.history if "control" in entry]
    if new != old:
        with pytest.raises(RecordNotFound):
            stage.record_of(old)
    elif state in ("in_progress", "paused"):
        stage.finish("a", {"n": "late"}, job=late["a"])
        assert (stage.counter("stale"), stage.status) == (1, "in_progress")
    [unit] = stage.out
    stage.finish(unit, {"n": 2})
    assert (stage.status, stage.outcome) == ("complete", {"n": 2})


def test_an_execution_with_a_compensation_is_cancelled_compensated_and_then_replaced(stage: Stage) -> None:
    stage.start(UNDOABLE, {"n": "old"}, execution_id="x")
    stage.finish("a", {})

    with pytest.raises(StartRejected, match=r"and it is compensating: start again when it has ended$"):
        stage.start(UNDOABLE, {"n": "new"}, execution_id="x", conflict_policy="terminate_existing")

    stage.settle()
    assert (stage.status, stage.record.inputs, list(stage.out)) == ("compensating", {"n": "old"}, ["a#undo"])
    [noted] = [entry for entry in stage.history if "control" in entry]
    assert (noted["by"], noted["reason"]) == ("terminate_existing", "a new start replaces it")
    stage.finish("a#undo", {})
    assert (stage.status, stage.record.compensated) == ("cancelled", True)
    stage.start(UNDOABLE, {"n": "new"}, execution_id="x", conflict_policy="terminate_existing")
    assert (stage.status, stage.record.inputs) == ("in_progress", {"n": "new"})


def test_the_global_values_of_the_replaced_execution_are_not_those_of_the_new_one(stage: Stage) -> None:
    seen = {"seen": {"var": "kv.global.seen"}}
    spec = document(step("a", input=seen), kv={"scopes": ["flow", "global"]})
    stage.start(spec, execution_id="x")
    stage.finish("a", {"global:seen": 1})
    assert stage.shared("global", "x") == {"seen": 1}

    stage.start(spec, execution_id="x", conflict_policy="terminate_existing")

    assert stage.out["a"].inputs == {"seen": None}
    assert stage.shared("global", "x") == {}


# ---- children of the replaced execution


@pytest.mark.parametrize("state", ["running", "ended"])
def test_the_child_of_the_new_execution_replaces_the_one_of_the_old(stage: Stage, state: str) -> None:
    stage.start(parent(ONE), {"n": 1}, execution_id="x")
    former = stage.child("kid").record.parent
    late = stage.child("kid").out["a"]
    if state == "ended":
        stage.child("kid").finish("a", {"n": 1})
        assert stage.status == "complete"

    stage.start(parent(ONE), {"n": 2}, execution_id="x", conflict_policy="terminate_existing")

    kid = stage.child("kid")
    assert former is not None
    assert kid.record.parent is not None
    assert (kid.record.inputs, kid.record.parent.token != former.token) == ({"n": 2}, True)
    kid.finish("a", {"n": "late"}, job=late)
    assert kid.status == "in_progress"
    kid.finish("a", {"n": 2})
    assert (stage.status, stage.outcome) == ("complete", {"kid": 2})


def test_a_child_of_the_replaced_execution_that_is_being_compensated_is_not_cut_short(stage: Stage) -> None:
    spec = document(child("kid", UNDOABLE, retry={"max_retries": 1, "initial_delay_ms": 1000}))
    stage.start(spec, execution_id="x")
    kid = stage.child("kid")
    kid.finish("a", {})
    stage.control("cancel")
    assert kid.status == "compensating"

    stage.start(spec, execution_id="x", conflict_policy="terminate_existing")

    assert (stage["kid"].status, stage.error_kind("kid")) == ("retry", "child_failed")
    message = "and it is compensating: start again when it has ended"
    assert message in (stage["kid"].error or {})["message"]
    kid.finish("a#undo", {})
    assert (kid.status, kid.record.compensated) == ("cancelled", True)
    stage.pass_time("1s")
    assert stage.child("kid").record.execution_id == "x:kid:1", "its next attempt has an id of its own"
