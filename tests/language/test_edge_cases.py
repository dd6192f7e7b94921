"""The edge cases of the language, each with all that its row of the table says.

`ROWS` are the cases in the words of that table; the tests of a row begin with its words.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from coreworld import Json, document, step
from language.stage import RedisStage, Stage
from language.written import FAILED, NO, branches, halts, jobless, resets, skips
from orchestrator.application.errors import StartRefused

ROWS = [
    "set on a step that is running",
    "set on a step in retry back-off, deferred or waiting",
    "set on a skipped, filtered or failed (continue) step",
    "set that names only a sibling",
    "set fired by a failed result",
    "the same result delivered twice",
    "result of an older run while a newer one is in progress",
    "result after halt, failure",
    "two halts race",
    "halt with steps in flight",
    "P default, dependents all continue",
    "P default, dependents continue and default",
    "P says fail, dependent says continue",
    "P says continue, dependent says fail",
    "P says skip, dependent says continue",
    "skip reaches a continue below",
    "join of one skipped and one complete parent",
    "join of filtered and complete",
    "join of filtered and skipped",
    "all parents filtered",
    "filter false on the fan-in step itself",
    "all steps filtered",
    "empty map",
    "map item fails for good, on_error fail",
    "retry and branch",
    "complete branch on a failed attempt",
    "success with max_attempts 3, no branch",
    "max_attempts and retry together",
    "late started event",
    "lease lost but the old worker finishes",
    "output key state, steps, input",
    "output null",
    "dependency cycle through implicit references",
    "workflow with no steps",
    "outputs refers to a step that was skipped",
    "spec changed while executions run",
]


def words(text: str) -> str:
    return "test_" + "_".join(re.findall(r"[a-z0-9]+", text.lower()))


def test_every_row_has_its_test_and_every_test_its_row() -> None:
    rows = [words(row) for row in ROWS]
    tests = [name for name in globals() if name.startswith("test_") and "every_row" not in name]

    assert [row for row in rows if not any(name.startswith(row) for name in tests)] == []
    assert [name for name in tests if not any(name.startswith(row) for row in rows)] == []


# ---- set


def test_set_on_a_step_that_is_running(stage: Stage) -> None:
    stage.start(document(step("slow"), step("judge", **resets("slow")), step("below", after="slow")))
    old = stage.out["slow"]

    stage.finish("judge", {"again": True})

    assert stage.moves("slow") == ["in_progress", "ready", "in_progress"]
    assert stage.run_ids == {"slow": 1, "judge": 1, "below": 1}
    assert (stage["slow"].attempt, stage.out["slow"].run_id) == (1, 1)
    assert stage.out["slow"].token != old.token

    stage.finish("slow", {"from": "the old run"}, job=old)

    assert stage.counter("stale") == 1
    assert (stage.statuses["slow"], stage.state) == ("in_progress", {"again": True})

    stage.finish("slow", {"from": "the new run"})

    assert stage["slow"].output == {"from": "the new run"}
    assert stage.statuses == {"slow": "complete", "judge": "in_progress", "below": "in_progress"}


def test_set_on_a_step_that_is_running_below_the_target_dispatches_it_when_its_dependencies_are_met(
    stage: Stage,
) -> None:
    stage.start(document(step("top"), step("slow", after="top"), step("judge", after="top", **resets("top"))))
    stage.finish("top", {})
    old = stage.out["slow"]

    stage.finish("judge", {"again": True})

    assert stage.statuses == {"top": "in_progress", "slow": "ready", "judge": "ready"}
    assert stage.run_ids == {"top": 1, "slow": 1, "judge": 1}

    stage.finish("slow", {}, job=old)
    assert (stage.counter("stale"), stage.statuses["slow"]) == (1, "ready")

    stage.finish("top", {})
    assert (stage.statuses["slow"], stage.out["slow"].run_id) == ("in_progress", 1)


def test_set_on_a_step_that_is_running_takes_its_job_off_the_queue(redis_stage: RedisStage) -> None:
    redis_stage.start(document(step("slow"), step("judge", **resets("slow"))))
    old = redis_stage.out["slow"]
    assert redis_stage.is_queued(old)

    redis_stage.finish("judge", {"again": True})

    assert not redis_stage.is_queued(old)
    assert redis_stage.is_queued(redis_stage.out["slow"])


def test_set_on_a_step_that_is_running_leaves_a_job_alone_that_a_worker_has(redis_stage: RedisStage) -> None:
    redis_stage.start(document(step("slow"), step("judge", **resets("slow"))))
    old = redis_stage.take("slow")

    redis_stage.finish("judge", {"again": True})

    assert redis_stage.is_known(old)
    assert not redis_stage.may_go_on(old)


RESTING: dict[str, Json] = {
    "retry": step("t", retry={"max_retries": 1, "initial_delay_ms": 60_000}),
    "deferred": step("t", defer_ms=60_000),
    "waiting": jobless("t", wait={"signal": "go", "timeout": "60s"}),
}


@pytest.mark.parametrize("status", RESTING)
def test_set_on_a_step_in_retry_back_off_deferred_or_waiting(stage: Stage, status: str) -> None:
    stage.start(document(RESTING[status], step("judge", **resets("t"))))
    if status == "retry":
        stage.fail("t")
    before = stage["t"]
    assert before.status == status
    stage.pass_time("30s")

    stage.finish("judge", {"again": True})

    after = stage["t"]
    assert (after.run_id, after.attempt, after.error, after.output) == (before.run_id + 1, 1, None, None)
    assert after.status == ("in_progress" if status == "retry" else status)

    stage.pass_time("31s")  # when the old timer would have rung

    assert stage["t"] == after

    stage.pass_time("30s")  # when the new one rings, if there is one

    assert stage.statuses["t"] == {"waiting": "failed"}.get(status, "in_progress")
    assert stage.counter("stale") == 0


def test_set_on_a_step_in_retry_back_off_deferred_or_waiting_gives_no_consumed_signal_back(
    stage: Stage,
) -> None:
    stage.start(document(jobless("w", wait={"signal": "go"}), step("judge", **resets("w"))))
    stage.signal("go", {"n": 1})
    assert stage["w"].output == {"n": 1}

    stage.finish("judge", {"again": True})

    assert (stage.statuses["w"], stage["w"].output, stage.record.signals) == ("waiting", None, [])
    stage.signal("go", {"n": 2})
    assert (stage.statuses["w"], stage["w"].output) == ("complete", {"n": 2})


OPEN: Any = {"!": {"var": "state.closed"}}
ENDED: dict[str, tuple[Json, Any]] = {
    "skipped": (skips(), {"skip": True}),
    "failed": ({"on_error": "continue"}, None),
}


@pytest.mark.parametrize("status", ENDED)
def test_set_on_a_skipped_filtered_or_failed_continue_step(stage: Stage, status: str) -> None:
    keys, output = ENDED[status]
    stage.start(document(step("t", when=OPEN, **keys), step("judge", **resets("t"))))
    if output is None:
        stage.fail("t")
    else:
        stage.finish("t", output)
    assert stage.statuses["t"] == status

    stage.finish("judge", {"again": True})

    again = stage["t"]
    assert (again.status, again.run_id, again.attempt) == ("in_progress", 1, 1)
    assert (again.output, again.error, again.reason) == (None, None, None)

    stage.finish("judge", {"again": True, "closed": True})

    assert (stage.statuses["t"], stage.run_ids["t"]) == ("filtered", 2)


def test_set_on_a_skipped_filtered_or_failed_continue_step_that_was_filtered(stage: Stage) -> None:
    stage.start(
        document(step("t", when={"var": "state.open"}), step("below", "t"), step("judge", **resets("t")))
    )
    assert stage.statuses == {"t": "filtered", "below": "filtered", "judge": "in_progress"}

    stage.finish("judge", {"again": True, "open": False})

    assert stage.statuses == {"t": "filtered", "below": "filtered", "judge": "in_progress"}
    assert stage.run_ids == {"t": 1, "below": 1, "judge": 1}

    stage.finish("judge", {"again": True, "open": True})

    assert stage.statuses == {"t": "in_progress", "below": "ready", "judge": "in_progress"}
    assert stage.run_ids == {"t": 2, "below": 2, "judge": 2}
    assert stage["t"].reason is None


def test_set_that_names_only_a_sibling(stage: Stage) -> None:
    stage.start(
        document(
            step("root"),
            step("sibling", "root"),
            step("firing", "root", **resets("sibling")),
            step("below_sibling", "sibling"),
            step("below_firing", "firing"),
            step("other", "root"),
        )
    )
    for name in ("root", "other", "sibling", "below_sibling"):
        stage.finish(name, {"by": name})

    stage.finish("firing", {"again": True})

    assert stage.statuses == {
        "root": "complete",
        "sibling": "in_progress",
        "firing": "in_progress",
        "below_sibling": "ready",
        "below_firing": "ready",
        "other": "complete",
    }
    assert stage.run_ids == {
        "root": 0,
        "sibling": 1,
        "firing": 1,
        "below_sibling": 1,
        "below_firing": 1,
        "other": 0,
    }
    assert (stage["sibling"].output, stage["below_sibling"].output) == (None, None)


def test_set_fired_by_a_failed_result(stage: Stage) -> None:
    on_reset = resets("a", if_={"==": [{"var": "error"}, "reset me"]}, done={"var": "done"})
    stage.start(document(step("a", max_attempts=2, **on_reset)))
    stage.fail("a", "no branch is for this")
    assert (stage["a"].attempt, stage["a"].run_id) == (2, 1)

    stage.fail("a", "reset me")

    forgiven = stage["a"]
    assert (forgiven.status, forgiven.attempt, forgiven.run_id) == ("in_progress", 1, 2)
    assert (forgiven.error, forgiven.output) == (None, None)
    assert (stage.status, stage.record.error) == ("in_progress", None)

    stage.fail("a", "no branch is for this")
    stage.finish("a", {"done": True})

    assert (stage["a"].status, stage["a"].attempt, stage["a"].error) == ("complete", 2, None)
    assert (stage.status, stage.record.error) == ("complete", None)


# ---- results that come twice, late or from long ago


def test_the_same_result_delivered_twice(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", "a"), step("c")))
    said = stage.finish("a", {"n": 1})
    stage.finish("c", {"n": 2})
    before, entries = stage.record, len(stage.history)

    stage.deliver(said)

    assert stage.counter("stale") == 1
    assert (stage.record.version, stage.state, len(stage.history)) == (before.version, {"n": 2}, entries)
    assert [job.step_id for job in stage.jobs] == ["a", "c", "b"]


def test_the_same_result_delivered_twice_is_one_attempt(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=3)))
    said = stage.fail("a")

    stage.deliver(said)

    assert stage.counter("stale") == 1
    assert (stage["a"].status, stage["a"].attempt, stage["a"].run_id) == ("in_progress", 2, 1)
    assert stage.executions_of("a") == 2


def test_result_of_an_older_run_while_a_newer_one_is_in_progress(stage: Stage) -> None:
    stage.start(document(step("a"), step("judge", **resets("a"))))
    runs = [stage.out["a"]]
    for _ in range(2):
        stage.finish("judge", {"again": True})
        runs.append(stage.out["a"])
    assert [job.run_id for job in runs] == [0, 1, 2]
    before = stage.record.version

    stage.finish("a", {"run": 0}, job=runs[0])
    stage.fail("a", job=runs[1])

    assert stage.counter("stale") == 2
    assert (stage.record.version, stage.statuses["a"]) == (before, "in_progress")
    assert "run" not in stage.state

    stage.finish("a", {"run": 2}, job=runs[2])

    assert (stage.statuses["a"], stage.state["run"]) == ("complete", 2)


@pytest.mark.parametrize("end", ["halted", "failed"])
def test_result_after_halt_failure(stage: Stage, end: str) -> None:
    stage.start(document(step("a", **halts("why")) if end == "halted" else step("a"), step("b")))
    late = stage.out["b"]
    if end == "halted":
        stage.finish("a", {})
    else:
        stage.fail("a")
    before, entries = stage.record, len(stage.history)
    assert before.status == end

    stage.finish("b", {"n": 1}, job=late)
    stage.fail("b", job=late)
    stage.report_started("b", job=late)

    assert (stage.counter("late"), stage.counter("stale")) == (3, 0)
    after = stage.record
    assert (after.version, after.steps, after.state) == (before.version, before.steps, before.state)
    assert (after.status, after.outcome, after.error) == (before.status, before.outcome, before.error)
    assert len(stage.history) == entries


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_two_halts_race(stage: Stage, first: str, second: str) -> None:
    stage.start(document(step("a", **halts({"by": "a"})), step("b", **halts({"by": "b"}))))
    other = stage.out[second]

    stage.finish(first, {})
    stage.finish(second, {}, job=other)

    assert (stage.status, stage.outcome) == ("halted", {"by": first})
    assert (stage.statuses[first], stage.statuses[second]) == ("halted", "cancelled")
    assert stage.counter("late") == 1


def test_two_halts_race_in_one_batch(stage: Stage) -> None:
    stage.start(document(step("a", **halts({"by": "a"})), step("b", **halts({"by": "b"}))))

    stage.deliver(stage.result("b", {}), stage.result("a", {}))

    assert (stage.status, stage.outcome) == ("halted", {"by": "b"})
    assert (stage.statuses, stage.counter("late")) == ({"a": "cancelled", "b": "halted"}, 1)


IN_FLIGHT = document(
    step("stop", **halts({"why": "enough"})),
    step("running"),
    step("retrying", retry=1),
    step("deferred", defer_ms=60_000),
    jobless("delayed", delay="60s"),
    jobless("waiting", wait={"signal": "go", "timeout": "60s"}),
    step("mapped", map={"over": [1, 2, 3], "max_parallel": 2}),
    step("below", "running"),
    timeout="60s",
)


def test_halt_with_steps_in_flight(stage: Stage) -> None:
    stage.start(IN_FLIGHT)
    stage.fail("retrying")
    stage.finish("mapped#0", {})
    assert stage.statuses == {
        "stop": "in_progress",
        "running": "in_progress",
        "retrying": "retry",
        "deferred": "deferred",
        "delayed": "deferred",
        "waiting": "waiting",
        "mapped": "in_progress",
        "below": "ready",
    }

    stage.finish("stop", {"n": 1})

    assert (stage.status, stage.outcome, stage.record.error) == ("halted", {"why": "enough"}, None)
    flying = ("running", "retrying", "deferred", "delayed", "waiting", "mapped")
    assert stage.statuses == {"stop": "halted", **dict.fromkeys(flying, "cancelled"), "below": "ready"}
    assert {stage[name].reason for name in flying} == {"workflow halted by step stop"}
    items = [stage[f"mapped#{n}"].status for n in range(3)]
    assert items == ["complete", "cancelled", "cancelled"]
    assert stage.out == {}

    ended = stage.record.version
    stage.pass_time("2m")
    stage.signal("go")

    assert (stage.record.version, stage.statuses["below"]) == (ended, "ready")


def test_halt_with_steps_in_flight_removes_queued_jobs_and_asks_running_ones_to_stop(
    redis_stage: RedisStage,
) -> None:
    redis_stage.start(document(step("stop", **halts({})), step("queued"), step("running")))
    queued, running = redis_stage.out["queued"], redis_stage.take("running")
    assert redis_stage.is_queued(queued)
    assert redis_stage.may_go_on(running)

    redis_stage.finish("stop", {})

    assert not redis_stage.is_queued(queued)
    assert not redis_stage.is_known(queued)
    assert redis_stage.is_known(running)  # it is RQ's to clean up
    assert not redis_stage.may_go_on(running)


# ---- on_error


OUTPUTS: Json = {"outputs": {"said": {"var": "steps.d.output.said"}}}


@pytest.mark.parametrize(
    ("policy", "end", "status"),
    [(None, "failed", "failed"), ("continue", "failed", "complete"), ("skip", "skipped", "complete")],
)
def test_p_default_dependents_all_continue(stage: Stage, policy: str | None, end: str, status: str) -> None:
    written = {} if policy is None else {"on_error": policy}
    dependents = [step(name, "p", on_error="continue") for name in "de"]
    stage.start(document(step("p", **written), *dependents, **OUTPUTS))

    stage.fail("p")

    assert stage.statuses == {"p": end, "d": "in_progress", "e": "in_progress"}
    assert stage.error_kind("p") == "exception"
    stage.finish("d", {"said": 1})
    stage.finish("e", {})
    assert (stage.status, stage.outcome) == (status, {"said": 1})
    if status == "failed":
        assert stage.error == {"kind": "exception", "message": "boom", "step": "p"}


def test_p_default_dependents_continue_and_default(stage: Stage) -> None:
    stage.start(document(step("p"), step("d", "p", on_error="continue"), step("e", "p"), step("other")))

    stage.fail("p")

    assert stage.status == "failed"
    assert stage.statuses == {"p": "failed", "d": "skipped", "e": "skipped", "other": "cancelled"}
    assert stage.error == {"kind": "exception", "message": "boom", "step": "p"}
    assert {job.step_id for job in stage.jobs} == {"p", "other"}


def test_p_says_fail_dependent_says_continue(stage: Stage) -> None:
    stage.start(document(step("p", on_error="fail"), step("d", "p", on_error="continue")))

    stage.fail("p")

    assert (stage.status, stage.statuses) == ("failed", {"p": "failed", "d": "skipped"})
    assert stage.error["step"] == "p"


@pytest.mark.parametrize("fails", [False, True])
def test_p_says_continue_dependent_says_fail(stage: Stage, fails: bool) -> None:
    stage.start(document(step("p", on_error="continue"), step("d", "p", on_error="fail"), step("e", "d")))

    stage.fail("p")
    assert stage.statuses == {"p": "failed", "d": "in_progress", "e": "ready"}

    if fails:  # its `fail` is about itself
        stage.fail("d", "my own")
        assert stage.statuses == {"p": "failed", "d": "failed", "e": "skipped"}
        assert (stage.status, stage.error["step"], stage.error["message"]) == ("failed", "d", "my own")
    else:
        stage.finish("d", {})
        stage.finish("e", {})
        assert (stage.status, stage.record.error) == ("complete", None)


def test_p_says_skip_dependent_says_continue(stage: Stage) -> None:
    stage.start(document(step("p", on_error="skip"), step("d", "p", on_error="continue"), step("e", "p")))

    stage.fail("p")

    assert stage.statuses == {"p": "skipped", "d": "in_progress", "e": "skipped"}
    assert stage["p"].error == {"kind": "exception", "message": "boom"}
    assert stage["e"].reason == "parent p failed"
    stage.finish("d", {})
    assert (stage.status, stage.record.error) == ("complete", None)


def test_skip_reaches_a_continue_below(stage: Stage) -> None:
    stage.start(
        document(
            step("p", on_error="skip"),
            step("d", "p"),
            step("e", "d", on_error="continue"),
            step("f", "e", on_error="continue"),
        )
    )

    stage.fail("p")

    assert stage.statuses == {"p": "skipped", "d": "skipped", "e": "skipped", "f": "skipped"}
    assert [stage[name].reason for name in "def"] == [
        "parent p failed",
        "parent d skipped",
        "parent e skipped",
    ]
    assert stage.status == "complete"


# ---- joins


def three_parents(**join: Any) -> Json:
    parents = [step("skipped", **skips()), step("complete"), step("running")]
    return document(*parents, step("j", "skipped complete running", **join), step("below", "j"))


def test_join_of_one_skipped_and_one_complete_parent(stage: Stage) -> None:
    stage.start(three_parents())
    stage.finish("complete", {})

    stage.finish("skipped", {"skip": True})

    assert stage.statuses == {
        "skipped": "skipped",
        "complete": "complete",
        "running": "in_progress",
        "j": "skipped",
        "below": "skipped",
    }
    assert stage["j"].reason == "parent skipped skipped"


def test_join_of_one_skipped_and_one_complete_parent_with_join_any_waits_and_runs(stage: Stage) -> None:
    stage.start(three_parents(join="any"))
    stage.finish("complete", {})

    stage.finish("skipped", {"skip": True})
    assert (stage.statuses["j"], stage.statuses["below"]) == ("ready", "ready")

    stage.finish("running", {})
    assert stage.statuses["j"] == "in_progress"


def test_join_of_filtered_and_complete(stage: Stage) -> None:
    reads = {"f": {"var": "steps.f.output.n"}, "c": {"var": "steps.c.output.n"}}
    stage.start(document(step("f", when=NO), step("c"), step("j", "f c", input=reads)))

    stage.finish("c", {"n": 1})

    assert stage.statuses == {"f": "filtered", "c": "complete", "j": "in_progress"}
    assert stage.out["j"].inputs == {"f": None, "c": 1}


def test_join_of_filtered_and_skipped(stage: Stage) -> None:
    stage.start(document(step("f", when=NO), step("s", **skips()), step("j", "f s")))

    stage.finish("s", {"skip": True})

    assert stage.statuses == {"f": "filtered", "s": "skipped", "j": "skipped"}
    assert (stage["j"].reason, stage.status) == ("parent s skipped", "complete")


def test_all_parents_filtered(stage: Stage) -> None:
    stage.start(document(step("f", when=NO), step("g", when=NO), step("j", "f g"), step("below", "j")))

    assert stage.statuses == dict.fromkeys(("f", "g", "j", "below"), "filtered")
    assert stage["f"].reason == "its condition is false"
    assert stage["j"].reason == "every parent was filtered"
    assert (stage.status, stage.jobs) == ("complete", [])


def test_filter_false_on_the_fan_in_step_itself(stage: Stage) -> None:
    stage.start(
        document(
            step("a"),
            step("b"),
            step("j", "a b", filters={"operator": "AND", "filters": [{"expression": NO}]}),
            step("only", "j"),
            step("also", "j a"),
            step("skipped", **skips()),
            step("kept_from_running", "j skipped"),
        )
    )
    stage.finish("a", {})
    stage.finish("skipped", {"skip": True})
    assert stage.statuses["j"] == "ready"

    stage.finish("b", {})

    assert (stage.statuses["j"], stage["j"].reason) == ("filtered", "its condition is false")
    assert stage.statuses["only"] == "filtered"
    assert stage.statuses["also"] == "in_progress"
    assert stage.statuses["kept_from_running"] == "skipped"


def test_all_steps_filtered(stage: Stage) -> None:
    outputs = {"a": {"var": "steps.a.output.n"}, "b": {"var": "steps.b.output"}, "fixed": "text"}
    stage.start(document(step("a", when=NO), step("b", when=NO), outputs=outputs))

    assert (stage.status, stage.record.error) == ("complete", None)
    assert stage.outcome == {"a": None, "b": None, "fixed": "text"}
    assert stage.jobs == []


# ---- maps


@pytest.mark.parametrize("items", [[], None])
def test_empty_map(stage: Stage, items: Any) -> None:
    mapped = step("m", map={"over": {"var": "input.items"}})
    below = step("below", "m", input={"of": {"var": "steps.m.output"}})
    stage.start(document(mapped, below), {"items": items})

    assert stage["m"].output == {"items": [], "count": 0, "errors": 0}
    assert stage.statuses == {"m": "complete", "below": "in_progress"}
    assert [job.step_id for job in stage.jobs] == ["below"]
    assert stage.out["below"].inputs == {"of": {"items": [], "count": 0, "errors": 0}}


def test_map_item_fails_for_good_on_error_fail(stage: Stage) -> None:
    stage.start(document(step("m", map={"over": [1, 2, 3]}, on_error="fail"), step("below", "m")))

    stage.fail("m#1", "bad item")

    assert (stage.status, stage.statuses) == ("in_progress", {"m": "in_progress", "below": "ready"})
    assert stage["m#1"].status == "failed"
    stage.finish("m#2", {})
    assert (stage.status, stage.statuses["m"]) == ("in_progress", "in_progress")

    stage.finish("m#0", {})

    assert (stage.status, stage.statuses) == ("failed", {"m": "failed", "below": "skipped"})
    assert [stage[f"m#{n}"].status for n in range(3)] == ["complete", "failed", "complete"]
    assert stage.error == {"kind": "exception", "message": "item 1: bad item", "step": "m"}


# ---- attempts


def test_retry_and_branch(stage: Stage) -> None:
    ends = branches({"==": [{"var": "error"}, "no use"]}, "complete")
    stage.start(document(step("a", retry={"max_retries": 5, "initial_delay_ms": 1000}, **ends)))
    stage.fail("a", "try again")
    assert (stage["a"].status, stage["a"].attempt) == ("retry", 2)
    stage.pass_time("1s")

    stage.fail("a", "no use")

    assert (stage["a"].status, stage["a"].attempt, stage["a"].run_id) == ("complete", 2, 1)
    assert (stage.status, stage.executions_of("a")) == ("complete", 2)


def test_retry_and_branch_that_fires_on_the_first_failure(stage: Stage) -> None:
    seen = branches(FAILED, "halt", result_expr={"saw": {"var": "error"}})
    stage.start(document(step("a", max_attempts=3, **seen)))

    stage.fail("a", "the first")

    assert (stage.status, stage.outcome, stage.executions_of("a")) == ("halted", {"saw": "the first"}, 1)


def test_complete_branch_on_a_failed_attempt(stage: Stage) -> None:
    stage.start(document(step("a", **branches(FAILED, "complete")), step("b", "a")))

    stage.fail("a")

    assert stage.statuses == {"a": "complete", "b": "in_progress"}
    assert (stage["a"].output, stage["a"].error) == ({"ok": False, "error": "boom"}, None)
    assert stage.state == {"ok": False, "error": "boom"}
    stage.finish("b", {})
    assert (stage.status, stage.record.error) == ("complete", None)


def test_success_with_max_attempts_3_no_branch(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=3)))

    stage.finish("a", {"n": 1})

    assert (stage.status, stage.executions_of("a")) == ("complete", 1)
    assert stage.record.loaded.warnings == ()


def test_success_with_max_attempts_3_no_branch_is_repeated_with_attempts_on_any(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=3, attempts_on="any"), step("b", "a")))

    for n in (1, 2):
        stage.finish("a", {"n": n})
        assert (stage["a"].status, stage["a"].attempt, stage["a"].run_id) == ("in_progress", n + 1, n)
        assert stage["a"].output == {"n": n}
        assert stage.statuses["b"] == "ready"
    stage.finish("a", {"n": 3})

    assert stage.statuses == {"a": "complete", "b": "in_progress"}
    assert (stage.executions_of("a"), stage.moves("a").count("retry")) == (3, 2)
    assert [problem.code for problem in stage.record.loaded.warnings] == ["repeats_on_success"]


def test_max_attempts_and_retry_together(stage: Stage) -> None:
    """More attempts than retries: those that no retry grants have no delay."""
    stage.start(document(step("a", max_attempts=4, retry={"max_retries": 2, "initial_delay_ms": 1000})))

    for delay in ("1s", "2s"):
        stage.fail("a")
        assert stage["a"].status == "retry"
        stage.pass_time(delay)
        assert stage["a"].status == "in_progress"
    stage.fail("a")
    assert (stage["a"].status, stage["a"].attempt) == ("in_progress", 4)

    stage.fail("a", "the last")
    assert (stage.status, stage.error["message"], stage.executions_of("a")) == ("failed", "the last", 4)


def test_max_attempts_and_retry_together_the_larger_budget_counts(stage: Stage) -> None:
    """More retries than attempts: all of them have their delay."""
    stage.start(document(step("a", max_attempts=2, retry={"max_retries": 3, "initial_delay_ms": 1000})))

    for delay in ("1s", "2s", "4s"):
        stage.fail("a")
        assert stage["a"].status == "retry"
        stage.pass_time(delay)
    stage.fail("a")

    assert (stage.status, stage.executions_of("a")) == ("failed", 4)


def test_max_attempts_and_retry_together_successes_use_max_attempts_only(stage: Stage) -> None:
    stage.start(document(step("a", max_attempts=2, attempts_on="any", retry=5)))

    stage.finish("a", {"n": 1})
    assert stage["a"].status == "in_progress"  # at once: the delay is for failures
    stage.finish("a", {"n": 2})

    assert (stage.status, stage.executions_of("a")) == ("complete", 2)


# ---- workers


def test_late_started_event(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s", max_attempts=2), step("b")))
    old = stage.out["a"]
    stage.report_started("a")
    assert stage.deadline_in("a") == 60
    stage.fail("a")
    before = stage.record.version

    stage.report_started("a", job=old)

    assert (stage.counter("stale"), stage.record.version) == (1, before)
    assert (stage.deadline_in("a"), stage["a"].started_at) == (None, None)

    stage.report_started("a")
    stage.pass_time("30s")
    assert stage.deadline_in("a") == 30
    stage.report_started("a")
    assert stage.deadline_in("a") == 60

    stage.pass_time("59s")
    assert stage.status == "in_progress"
    stage.pass_time("1s")
    assert (stage.status, stage.error["kind"]) == ("failed", "timeout")


def test_late_started_event_after_the_result(stage: Stage) -> None:
    stage.start(document(step("a", timeout="60s"), step("b")))
    job = stage.out["a"]
    stage.finish("a", {})

    stage.report_started("a", job=job)

    assert stage.counter("stale") == 1
    assert (stage.statuses["a"], stage.deadline_in("a")) == ("complete", None)


def test_lease_lost_but_the_old_worker_finishes(stage: Stage) -> None:
    stage.start(document(step("a"), step("b", "a")))
    old = stage.out["a"]

    stage.lose("a")

    assert (stage["a"].status, stage["a"].run_id, stage["a"].attempt) == ("in_progress", 1, 1)
    assert stage.counter("lost") == 1

    stage.finish("a", {"by": "the old worker"}, job=old)

    assert (stage.counter("stale"), stage.statuses["a"], stage.state) == (1, "in_progress", {})

    stage.finish("a", {"by": "the new worker"})

    assert (stage.state, stage.statuses["b"]) == ({"by": "the new worker"}, "in_progress")


# ---- outputs


def test_output_key_state_steps_input(stage: Stage) -> None:
    shadowed = [
        {"==": [{"var": "state.k"}, "fresh state"]},
        {"==": [{"var": "steps.first"}, "fresh steps"]},
        {"==": [{"var": "input.k"}, "fresh input"]},
    ]
    reads = {
        "state": {"var": "state"},
        "first": {"var": "steps.first.output.k"},
        "input": {"var": "input.k"},
    }
    stage.start(
        document(
            step("first"),
            step(
                "a", "first", branch=[{"condition": {"and": shadowed}, "action": "complete"}], on_error="fail"
            ),
            step("b", "a first", input=reads, **branches({"==": [{"var": "input.k"}, "given"]}, "halt")),
        ),
        {"k": "given"},
    )
    stage.finish("first", {"k": "kept"})
    fresh = {"state": {"k": "fresh state"}, "steps": {"first": "fresh steps"}, "input": {"k": "fresh input"}}

    stage.finish("a", fresh)

    assert stage.statuses["a"] == "complete"
    assert stage.state == {"k": "kept", **fresh}
    assert stage.out["b"].inputs == {"state": {"k": "kept", **fresh}, "first": "kept", "input": "given"}

    stage.finish("b", {})
    assert stage.status == "halted"  # another step's branches see the real roots again


def test_output_null(stage: Stage) -> None:
    bare = {
        "and": [
            {"==": [{"var": "output"}, None]},
            {"==": [{"var": "state.k"}, "kept"]},
            {"==": [{"var": "steps.first.output.k"}, "kept"]},
            {"==": [{"var": "input.k"}, "given"]},
        ]
    }
    reads = {"a": {"var": "steps.a.output"}, "all": {"vars": "steps[*].output"}}
    stage.start(
        document(
            step("first"),
            step(
                "a",
                "first",
                branch=[{"condition": bare, "action": "complete"}, {"condition": True, "action": "fail"}],
            ),
            step("b", "a", input=reads),
        ),
        {"k": "given"},
    )
    stage.finish("first", {"k": "kept"})

    stage.finish("a", None)

    assert (stage.statuses["a"], stage["a"].output) == ("complete", None)
    assert stage.state == {"k": "kept"}
    assert stage.out["b"].inputs == {"a": None, "all": [{"k": "kept"}]}


# ---- documents


def test_dependency_cycle_through_implicit_references(stage: Stage) -> None:
    reads_below = step("a", input={"x": {"var": "steps.b.output.n"}})

    with pytest.raises(StartRefused) as refused:
        stage.start(document(reads_below, step("b", "a")))

    [problem] = refused.value.problems
    assert (problem["code"], problem["path"]) == ("cycle", "steps[0].input.x")


def test_dependency_cycle_through_implicit_references_that_are_nested_is_none(stage: Stage) -> None:
    reads_below = step("a", input={"x": [{"var": "steps.b.output.n"}]})

    stage.start(document(reads_below, step("b", "a")))

    assert stage.statuses == {"a": "in_progress", "b": "ready"}
    assert stage.out["a"].inputs == {"x": [None]}


def test_workflow_with_no_steps(stage: Stage) -> None:
    stage.start(document(outputs={"n": {"var": "input.n"}}), {"n": 7})

    assert (stage.status, stage.outcome, stage.jobs) == ("complete", {"n": 7}, [])


def test_outputs_refers_to_a_step_that_was_skipped(stage: Stage) -> None:
    outputs = {"s": {"var": "steps.below.output.n"}, "d": {"var": ["steps.below.output.n", "default"]}}
    stage.start(document(step("a", **skips()), step("below", "a"), outputs=outputs))

    stage.finish("a", {"skip": True})

    assert (stage.status, stage.statuses["below"]) == ("complete", "skipped")
    assert stage.outcome == {"s": None, "d": "default"}


def test_spec_changed_while_executions_run(stage: Stage) -> None:
    first = document(step("a"), step("b", "a"), outputs={"version": 1})
    second = document(step("a"), step("c", "a"), outputs={"version": 2})
    stage.register("it", first)
    before = stage.start("it")

    stage.register("it", second)
    after = stage.start("it")

    stage.finish("a", {})
    assert stage.statuses == {"a": "complete", "c": "in_progress"}
    stage.execution = before
    stage.finish("a", {})
    assert stage.statuses == {"a": "complete", "b": "in_progress"}
    stage.finish("b", {})
    assert (stage.status, stage.outcome) == ("complete", {"version": 1})
    assert before.partition("#")[0] != after.partition("#")[0]
