"""WorkflowTest: the forms of its arguments, how time passes, and what a test can read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import orchestrator.testing
from orchestrator import InvalidSpec, load_spec
from orchestrator.testing import CallLimitReached, Wait, WorkflowTest, WorkflowTestError
from orchestrator_executors import invoices
from worlds.documents import document, step

Json = dict[str, Any]

ROOT = Path(__file__).parents[2]
INVOICE = ROOT / "docs" / "examples" / "invoice.yaml"
DOUBLE = document(
    step("double", input={"n": {"var": "input.n"}}), outputs={"n": {"var": "steps.double.output.n"}}
)
TEXT = """
steps:
  - {op: double, input: {n: {var: input.n}}}
outputs: {n: {var: steps.double.output.n}}
"""


def double(inputs: Json) -> Json:
    return {"n": 2 * inputs["n"]}


def nothing(inputs: Json) -> Json:
    return {}


def execute(fn: str, inputs: Json) -> Json:
    return {"fn": fn, **inputs}


class Built:
    def to_dict(self) -> Json:
        return DOUBLE


@pytest.fixture
def wide_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        pytest.fail(f"a test sleeps for {seconds} s")

    monkeypatch.setattr(time, "sleep", sleep)


def make_test(*steps: Json, **keys: Any) -> WorkflowTest:
    """A test of these steps, all of which do nothing."""
    test = WorkflowTest(document(*steps, **keys))
    for fn in {one["op"] for one in steps if "op" in one and not {"wait", "delay", "workflow"} & one.keys()}:
        test.mock(fn, {})
    return test


def wait(name: str, signal: str, after: str = "", **keys: Any) -> Json:
    return {"id": name, "depends_on": after.split(), "wait": {"signal": signal, **keys}}


def delay(name: str, duration: str, after: str = "") -> Json:
    return {"id": name, "depends_on": after.split(), "delay": duration}


# ---- the arguments of a test


@pytest.mark.parametrize(
    "workflow",
    [DOUBLE, TEXT, json.dumps(DOUBLE), load_spec(TEXT), Built()],
    ids=["mapping", "YAML", "JSON", "loaded", "builder"],
)
def test_a_workflow_may_be_given_in_every_form(workflow: Any) -> None:
    test = WorkflowTest(workflow, {"n": 21}, executors={"double": double})

    assert test.run().outcome == {"n": 42}


@pytest.mark.parametrize("as_path", [str, Path])
def test_a_workflow_may_be_a_file(as_path: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "double.yaml"
    path.write_text(TEXT)

    test = WorkflowTest(as_path(path), {"n": 21}, executors={"double": double})

    assert test.run().outcome == {"n": 42}


def test_what_is_wrong_with_a_file_is_said_by_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("steps:\n  - fnn: double\n")

    with pytest.raises(InvalidSpec, match=r"wrong\.yaml:2:5: steps\[0\]"):
        WorkflowTest(path)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(WorkflowTestError, match=r"nowhere\.yaml cannot be read: No such file"):
        WorkflowTest("nowhere.yaml")


def test_a_value_that_is_not_a_workflow_is_rejected() -> None:
    with pytest.raises(WorkflowTestError, match="a list is not a workflow: pass a path, a text"):
        WorkflowTest([step("a")])  # type: ignore[arg-type]


def test_inputs_are_checked() -> None:
    with pytest.raises(InvalidSpec, match="needs the input 'n'"):
        WorkflowTest(document(step("double"), inputs={"n": {"required": True}}))


def module_with_execute() -> ModuleType:
    module = ModuleType("made_up")
    execute.__module__ = "made_up"
    vars(module).update(execute=execute)
    return module


@pytest.mark.parametrize(
    "executors",
    [
        "orchestrator_executors.invoices",
        "orchestrator_executors.examples, orchestrator_executors.invoices",
        ["orchestrator_executors.invoices"],
        invoices,
    ],
    ids=["a name", "names", "a list", "a module"],
)
def test_executors_may_be_modules(executors: Any) -> None:
    test = WorkflowTest(document(step("fetch_document", input={"name": "small.txt"})), executors=executors)

    assert test.run().step("fetch_document").output["file"] == "small.txt"


@pytest.mark.parametrize("executors", [execute, module_with_execute()], ids=["a function", "a module"])
def test_one_function_may_execute_everything(executors: Any) -> None:
    test = WorkflowTest(document(step("anything", input={"n": 1})), executors=executors)

    assert test.run().step("anything").output == {"fn": "anything", "n": 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rehearse", WorkflowTest),
        ("Rehearsal", WorkflowTest),
        ("RehearsalError", WorkflowTestError),
        ("NoEnd", CallLimitReached),
    ],
)
def test_old_names_still_work_and_give_the_new_one(old: str, new: type) -> None:
    with pytest.deprecated_call(match=f"orchestrator.testing.{old} is deprecated; use .*{new.__name__}"):
        assert getattr(orchestrator.testing, old) is new


def test_an_unknown_name_is_an_error() -> None:
    assert {name: getattr(orchestrator.testing, name) for name in dir(orchestrator.testing)}
    with pytest.raises(AttributeError, match="no attribute 'rehearsed'"):
        _ = orchestrator.testing.rehearsed


# ---- a larger one


def test_a_large_invoice_waits_for_its_manager(wide_awake: None) -> None:
    test = WorkflowTest(INVOICE, {"document": "large.txt"}, executors="orchestrator_executors.invoices")
    test.mock("notify", {"told": True})

    test.run(skip_waits=True)

    assert test.waits_for == ["approval: signal manager until 2026-01-02T00:00:00.100Z"]
    assert "no price" in (test.step("lines").item(1).error or {})["message"]
    assert [call["n"] for call in test.calls("price_line")] == [0, 1]

    test.skip("23h").signal("manager", {"by": "ada"}).run(skip_waits=True)

    assert test.status == "complete"
    assert (test.outcome["by"], test.outcome["amount"]) == ("ada", 594.0)
    assert test.state["round"] == 2


def test_a_test_gives_the_same_history_each_time() -> None:
    def history() -> list[Json]:
        test = WorkflowTest(INVOICE, {"document": "small.txt"}, executors=invoices)
        return test.run(skip_waits=True).history

    assert history() == history()


# ---- time


def test_a_wait_of_a_day_is_over_at_once(wide_awake: None) -> None:
    test = make_test(delay("nap", "24h"), step("after", "nap"))

    test.run()

    assert test.waits_for == ["nap: delay until 2026-01-02T00:00:00Z"]
    assert test.executed("after") == 0

    test.skip("24h")

    assert test.status == "complete"
    assert test.now == datetime(2026, 1, 2, tzinfo=UTC)


def test_nothing_is_due_a_moment_too_early() -> None:
    test = make_test(delay("nap", "24h"))

    test.skip("23h").skip(3599).skip("999ms")

    assert test.status == "in_progress"
    assert test.skip("1ms").status == "complete"


def test_what_becomes_due_happens_in_order_and_at_its_own_time() -> None:
    test = make_test(delay("long", "3h"), delay("short", "1h"), step("between", "short"))

    test.skip("1d")

    ends = {one["step"]: one["at"] for one in test.history if one.get("to") == "complete"}
    assert ends == {
        "short": "2026-01-01T01:00:00.000Z",
        "between": "2026-01-01T01:00:00.000Z",
        "long": "2026-01-01T03:00:00.000Z",
    }
    assert list(ends) == ["short", "between", "long"]


def test_the_clock_can_be_skipped_to_what_happens_next() -> None:
    test = make_test(delay("first", "1h"), delay("second", "2h", "first"))

    test.skip_to_next()

    assert (test.status, test.now.hour) == ("in_progress", 1)
    assert (test.skip_to_next().status, test.now.hour) == ("complete", 3)


def test_without_a_timer_there_is_nothing_to_skip_to() -> None:
    test = make_test(wait("approval", "manager"))

    with pytest.raises(WorkflowTestError, match=r"is pending: .* waits for approval: signal manager$"):
        test.skip_to_next()


def test_waits_are_skipped_until_only_signals_are_awaited() -> None:
    flaky = step("flaky", retry={"max_retries": 1, "initial_delay_ms": 60_000})
    deferred = step("deferred", "flaky", defer_ms=1_000)
    test = WorkflowTest(document(flaky, deferred, delay("nap", "2h", "deferred"), wait("last", "go", "nap")))
    test.mock("flaky", [OSError("busy"), {}])
    test.mock("deferred", {}, takes="1m")

    test.run(skip_waits=True)

    assert test.waits_for == ["last: signal go"]
    assert test.now == datetime(2026, 1, 1, 2, 2, 1, tzinfo=UTC)


def test_the_timeout_of_a_signal_is_not_skipped_but_passes_with_the_rest() -> None:
    patient = make_test(wait("approval", "manager", timeout="1h"))
    busy = make_test(wait("approval", "manager", timeout="1h", on_timeout="continue"), delay("nap", "2h"))

    assert patient.run(skip_waits=True).status == "in_progress"
    assert busy.run(skip_waits=True).status == "complete"


def test_a_workflow_times_out_at_its_own_time() -> None:
    test = make_test(wait("approval", "manager"), timeout="2d")

    test.run().skip("30d")

    assert (test.error or {})["kind"] == "timeout"
    assert test.history[-1]["at"] == "2026-01-03T00:00:00.000Z"


@pytest.mark.parametrize("at", ["2026-07-01T12:00:00Z", datetime(2026, 7, 1, 12, tzinfo=UTC)])
def test_the_clock_begins_where_it_is_told_to(at: Any) -> None:
    test = WorkflowTest(document(delay("nap", "1h")), starts_at=at)

    assert test.run().waits_for == ["nap: delay until 2026-07-01T13:00:00Z"]


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert WorkflowTest(document(), starts_at="2026-07-01T12:00:00").now == datetime(
        2026, 7, 1, 12, tzinfo=UTC
    )


def test_a_workflow_that_goes_on_for_ever_is_stopped() -> None:
    again = {"condition": True, "action": {"set": "steps.spin.status", "value": "ready"}}
    other = {"condition": False, "action": "complete"}
    test = WorkflowTest(
        document(step("spin", branch=[again, other])), executors={"spin": nothing}, max_calls=50
    )

    with pytest.raises(CallLimitReached, match="after 50 calls of executors; the next step is spin"):
        test.run()


def test_a_workflow_that_comes_back_again_and_again_is_stopped_while_its_waits_are_skipped() -> None:
    again = {"condition": True, "action": {"set": "steps.poll.status", "value": "ready"}}
    other = {"condition": False, "action": "complete"}
    poll = step("poll", defer_ms=60_000, branch=[again, other])
    test = WorkflowTest(document(poll), executors={"poll": nothing}, max_calls=50)

    with pytest.raises(CallLimitReached):
        test.run(skip_waits=True)

    assert test.now == datetime(2026, 1, 1, 0, 51, tzinfo=UTC)


# ---- what it waits for


def test_every_kind_of_wait_has_a_text() -> None:
    flaky = step("flaky", retry={"max_retries": 1, "initial_delay_ms": 1_500})
    test = WorkflowTest(
        document(
            wait("any", "x"),
            {"id": "both", "wait": {"any": [{"signal": "yes"}, {"signal": "no"}, {"timeout": "1h"}]}},
            delay("nap", "1h"),
            step("later", defer_ms=2_000),
            flaky,
            step("slow", timeout="10m"),
            step("slower", timeout="10m"),
            step("held", "any"),
        )
    )
    test.mock("flaky", OSError("busy"))
    test.mock("slow", {}, takes="5m")
    test.mock("slower", {}, takes="15m")
    test.hold("held")

    test.run()

    assert test.waits_for == [
        "any: signal x",
        "both: signal yes or no until 2026-01-01T01:00:00Z",
        "nap: delay until 2026-01-01T01:00:00Z",
        "later: deferral until 2026-01-01T00:00:02Z",
        "flaky: back-off before attempt 2 until 2026-01-01T00:00:01.500Z",
        "slow: result until 2026-01-01T00:05:00Z",
        "slower: result until 2026-01-01T00:10:00Z",
        "held: release",
    ]
    assert test.waits[2] == Wait("nap", "delay", datetime(2026, 1, 1, 1, tzinfo=UTC))


def test_a_step_that_waits_for_a_slot_says_so() -> None:
    key = {"key": "books", "limit": 1}
    test = WorkflowTest(document(step("a", concurrency=key), step("b", concurrency=key)))
    test.mock("a", {}, takes="1h")
    test.mock("b", {})

    test.run()

    assert test.waits_for == [
        "a: result until 2026-01-01T00:05:00Z",
        "b: a slot of the concurrency key 'books'",
    ]


def test_a_workflow_that_waits_for_a_slot_says_so() -> None:
    inner = document(step("a"), concurrency={"key": "books", "limit": 1})
    outer = {"steps": [{"id": "x", "workflow": inner}, {"id": "y", "workflow": inner}]}
    test = WorkflowTest(outer)
    test.mock("a", {}, takes="1m")

    test.run()

    assert test.waits_for == [
        "x/a: result until 2026-01-01T00:01:00Z",
        "y: a slot of the concurrency key 'books'",
    ]
    assert test.run(skip_waits=True).status == "complete"


def test_what_has_ended_waits_for_nothing() -> None:
    test = make_test(wait("approval", "manager", timeout="1h"))

    assert test.skip("1h").waits == []


# ---- what can be asked


def test_a_step_can_be_asked_for_all_that_is_known_of_it() -> None:
    test = WorkflowTest(document(step("a", retry=1, on_error="continue"), step("b", when=False)))
    test.mock("a", ValueError("no"))

    test.run(skip_waits=True)

    a, b = test.step("a"), test.step("b")
    assert (a.id, a.status, a.attempt, a.run_id, a.lost) == ("a", "failed", 2, 1, 0)
    assert a.error is not None
    assert a.error["type"] == "ValueError"
    assert a.output == {"ok": False, "error": "no"}
    assert (b.status, b.reason) == ("filtered", "its condition is false")
    assert a.record.dispatches == 2
    assert test.statuses == {"a": "failed", "b": "filtered"}


def test_items_of_a_map_can_be_asked_for() -> None:
    mapped = step("m", map={"over": [1, 2]}, input={"n": {"var": "item"}}, on_error="continue")
    test = WorkflowTest(document(mapped))
    test.mock("m", lambda inputs: {"half": 1 / (inputs["n"] - 1)})

    lines = test.run().step("m")

    assert (lines.item(0).error or {})["type"] == "ZeroDivisionError"
    assert [item.output for item in lines.items] == [{"ok": False, "error": "division by zero"}, {"half": 1}]
    assert test.step("m#1").output == {"half": 1}
    with pytest.raises(WorkflowTestError, match="step m has no item 2: it has 2"):
        lines.item(2)


def test_a_compensation_can_be_asked_for() -> None:
    undone = step("a", compensate={"fn": "undo_a"})
    test = WorkflowTest(document(undone, step("b", "a")))
    test.mock("a", {})
    test.mock("undo_a", {"undone": True})
    test.mock("b", ValueError("no"))

    test.run()

    assert test.status == "failed"
    assert test.step("a#undo").status == "complete"
    assert (test.executed("a"), test.executed("undo_a"), test.executed("a#undo")) == (1, 1, 1)


def test_a_step_that_is_not_there_is_named_with_the_likely_one() -> None:
    test = make_test(step("charge"))

    with pytest.raises(WorkflowTestError, match=r"there is no step 'chrage'; .* did you mean 'charge'"):
        test.step("chrage")


def test_the_state_of_a_test_can_be_printed() -> None:
    test = WorkflowTest(document(step("a", on_error="continue"), wait("go_on", "go"), name="demo"))
    test.mock("a", ValueError("no"))

    test.run()

    assert str(test) == (
        "test of demo at 2026-01-01T00:00:00Z: it is in_progress, and waits for go_on: signal go\n"
        "  a      failed  exception: no\n"
        "  go_on  waiting"
    )
    assert repr(test) == "<WorkflowTest of demo: it is in_progress, and waits for go_on: signal go>"
    assert test.id == "rehearsal"


def test_a_group_shares_its_values() -> None:
    keeps = step("keep", output={"flow_group:n": {"var": "result.n"}})
    test = WorkflowTest(
        document(
            keeps,
            step("read", "keep", input={"n": {"kv.get": "flow_group:n"}}),
            kv={"scopes": ["flow", "flow_group"]},
        ),
        group="g1",
    )
    test.mock("keep", {"n": 7})
    test.mock("read", {})

    assert test.run().calls("read") == [{"n": 7}]


# ---- signals and controls


def test_a_signal_is_taken_in_at_once_and_what_follows_waits_for_a_run() -> None:
    test = make_test(wait("approval", "manager"), step("after", "approval"))

    test.run().signal("manager", {"by": "ada"})

    assert test.step("approval").output == {"by": "ada"}
    assert test.executed("after") == 0
    assert test.run().status == "complete"


def test_a_signal_may_come_early() -> None:
    test = make_test(step("first"), wait("approval", "manager", "first"))

    assert test.signal("manager", 1).run().step("approval").output == {"value": 1}


def test_a_signal_that_no_step_waits_for_is_refused() -> None:
    test = make_test(wait("approval", "manager"))

    with pytest.raises(
        WorkflowTestError, match=r"no step waits for a signal 'manger'.* did you mean 'manager'"
    ):
        test.signal("manger")


def test_a_cancelled_workflow_has_ended() -> None:
    test = make_test(wait("approval", "manager")).run()

    test.cancel("changed our mind", by="ada")

    assert test.status == "cancelled"
    assert test.step("approval").reason == "workflow cancelled: changed our mind"


def test_a_cancelled_workflow_is_compensated() -> None:
    test = make_test(step("a", compensate={"fn": "undo_a"}), wait("approval", "manager", "a")).run()
    test.mock("undo_a", {})

    assert test.cancel().run().status == "cancelled"
    assert test.executed("undo_a") == 1


def test_while_it_is_paused_clocks_go_on_and_nothing_is_dispatched() -> None:
    test = make_test(delay("nap", "1h"), step("after", "nap"))

    test.run().pause().skip("2h")

    assert test.step("nap").status == "complete"
    assert test.executed("after") == 0
    assert test.waits_for == ["the workflow: unpause"]
    assert test.unpause().run().status == "complete"


def test_a_step_on_hold_waits_for_its_release() -> None:
    test = make_test(step("a"), step("b", "a"))

    test.hold("b").run()

    assert test.waits_for == ["b: release"]
    assert test.release("b").run().status == "complete"


def test_a_control_that_makes_no_sense_is_refused() -> None:
    test = make_test(step("a"))

    with pytest.raises(Exception, match="cannot be unpaused: it is pending"):
        test.unpause()


# ---- children


CHILD = document(
    wait("packed", "packed", timeout="2d"),
    step("label", "packed"),
    outputs={"parcel": {"var": "steps.label.output.parcel"}},
    name="shipping",
)
PARENT = {
    "steps": [{"id": "ship", "workflow": "shipping", "timeout": "7d"}],
    "outputs": {"parcel": {"var": "steps.ship.output.parcel"}},
}


def test_a_child_runs_with_its_parent() -> None:
    test = WorkflowTest(PARENT, workflows={"shipping": CHILD})
    test.mock("label", {"parcel": "p1"})

    test.run()

    assert test.waits_for == ["ship/packed: signal packed until 2026-01-03T00:00:00Z"]
    child = test.child("ship")
    assert (child.id, child.status) == ("rehearsal:ship:0", "in_progress")
    assert child.waits_for == ["packed: signal packed until 2026-01-03T00:00:00Z"]

    child.signal("packed")

    assert test.run().outcome == {"parcel": "p1"}
    assert child.outcome == {"parcel": "p1"}
    assert test.calls("label")[0].execution_id == "rehearsal:ship:0"


def test_a_child_has_timers_of_its_own() -> None:
    test = WorkflowTest(PARENT, workflows={"shipping": CHILD})

    test.run().skip("2d")

    assert (test.error or {})["kind"] == "child_failed"


def test_a_child_may_be_written_inline_and_paused_by_itself() -> None:
    test = WorkflowTest({"steps": [{"id": "inner", "workflow": document(step("a"), delay("nap", "1h"))}]})
    test.mock("a", {})

    test.run()
    test.child("inner").pause()

    assert test.waits_for == ["inner: unpause", "inner/nap: delay until 2026-01-01T01:00:00Z"]


def test_a_step_without_a_child_says_so() -> None:
    test = make_test(wait("first", "go"), {"id": "later", "workflow": CHILD, "depends_on": ["first"]}).run()

    with pytest.raises(WorkflowTestError, match="step later has no child: it is ready"):
        test.child("later")
    with pytest.raises(WorkflowTestError, match="step first has no child: it is waiting"):
        test.child("first")


def test_a_child_that_is_not_registered_fails_its_step() -> None:
    test = WorkflowTest(PARENT)

    assert "no workflow is registered as 'shipping'" in (test.run().error or {})["message"]


def test_a_child_that_was_asked_for_has_begun_only_after_a_run() -> None:
    test = make_test(wait("first", "go"), {"id": "ship", "workflow": CHILD, "depends_on": ["first"]}).run()

    test.signal("go")

    assert test.waits_for == []
    with pytest.raises(WorkflowTestError, match="step ship has no child: it is in_progress"):
        test.child("ship")
    assert test.run().waits_for == ["ship/packed: signal packed until 2026-01-03T00:00:00Z"]


# ---- wrong use


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: make_test().skip("24 hours"), "'24 hours' is not a duration: it must be whole seconds"),
        (lambda: make_test(step("a")).mock("a", takes=1.5), "1.5 is not a duration"),  # type: ignore[arg-type]
        (lambda: WorkflowTest(document(), starts_at="yesterday"), "starts_at: Invalid isoformat"),
        (
            lambda: WorkflowTest(document(), order="suffled"),  # type: ignore[arg-type]
            "unknown order 'suffled'; .* did you mean 'shuffled'",
        ),
    ],
)
def test_wrong_arguments_are_rejected(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(WorkflowTestError, match=message):
        wrong()
