"""The trace of an execution that has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.application.explain import trace_spans
from orchestrator.application.explain.trace_spans import TraceSpan, make_spans
from orchestrator.application.records.events import Parent
from orchestrator.application.spec.model import RetrySpec
from orchestrator.application.values.trace_context import context_of_attempt, context_of_execution
from worlds.documents import document, step
from worlds.engine_world import EngineWorld, world_of
from worlds.records import NOW_MS
from worlds.specs import child, map_step, task, wait_step

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def begun(*source: Any, **keys: Any) -> EngineWorld:
    world = world_of(*source, **keys)
    world.advance()
    return world


def spans_of(world: EngineWorld) -> list[TraceSpan]:
    return make_spans(world.record, world.history)


def spans_by_name(world: EngineWorld) -> dict[str, TraceSpan]:
    return {span.name: span for span in spans_of(world)}


def test_an_execution_has_a_span_and_each_attempt_one_below_it() -> None:
    world = begun(task("a"), task("b", "a"))
    world.record.labels["customer"] = "acme"
    world.pass_time(300)
    world.finish("a")
    world.pass_time(200)
    world.finish("b")
    weid = world.record.workflow_execution_id

    whole, a, b = spans_of(world)

    assert (whole.start_ms, whole.end_ms, whole.parent_id) == (NOW_MS, NOW_MS + 500, None)
    assert whole.context == context_of_execution(weid)
    assert whole.attributes["orchestrator.status"] == "complete"
    assert whole.attributes["orchestrator.label.customer"] == "acme"
    assert [(span.name, span.start_ms, span.end_ms) for span in (a, b)] == [
        ("a", NOW_MS, NOW_MS + 300),
        ("b", NOW_MS + 300, NOW_MS + 500),
    ]
    assert a.context == context_of_attempt(weid, "a", 0, 1)
    assert a.parent_id == b.parent_id == whole.context.span_id
    assert a.is_message
    assert a.attributes["messaging.destination.name"] == "default"
    assert a.attributes["messaging.system"] == "rq"
    assert spans_of(world) == [whole, a, b]


def test_the_time_in_the_queue_is_a_span_if_the_start_is_known() -> None:
    world = begun(task("a"))
    world.pass_time(700)
    world.apply(replace(world.started("a"), worker="w1", started_at=None))
    world.pass_time(300)
    world.finish("a")

    _, queued, ran = spans_of(world)

    assert (queued.name, queued.start_ms, queued.end_ms) == ("queue a", NOW_MS, NOW_MS + 700)
    assert not queued.is_message
    assert (ran.start_ms, ran.attributes["messaging.client.id"]) == (NOW_MS + 700, "w1")


def test_a_retry_links_to_the_attempt_that_failed() -> None:
    world = begun(task("a", retry=RetrySpec(initial_delay_ms=1_000)))
    world.pass_time(100)
    world.fail("a", "no luck")
    world.pass_time(1_000)
    world.finish("a")

    _, first, back_off, second = spans_of(world)

    assert (first.error, first.end_ms) == ("no luck", NOW_MS + 100)
    [event] = first.events
    assert (event.name, event.attributes["exception.message"]) == ("exception", "no luck")
    assert first.attributes["error.type"] == "exception"
    assert (back_off.name, back_off.links) == ("back off a", ())
    assert second.error is None
    [link] = second.links
    assert (link.context, link.reason) == (first.context, "retry")


def test_a_failure_is_that_of_the_record_with_its_traceback_and_without_secrets() -> None:
    world = world_of(task("a"))
    world.record.inputs["password"] = "hunter2-and-more"
    world.advance()
    error = {
        "kind": "exception",
        "type": "KeyError",
        "message": "not hunter2-and-more",
        "traceback": "line 1: hunter2-and-more",
    }
    world.apply(replace(world.result("a"), error=error))

    whole, failed = spans_of(world)

    assert str(failed.error).startswith("not ")
    assert "hunter2" not in str(whole) + str(failed)
    assert "line 1" in failed.events[0].attributes["exception.stacktrace"]
    assert failed.attributes["error.type"] == whole.attributes["error.type"] == "KeyError"
    assert whole.error is not None


def test_a_lost_dispatch_is_a_failure_and_its_repetition_links_to_it() -> None:
    world = begun(task("a"))
    world.pass_time(100)
    world.lose("a")
    world.pass_time(100)
    world.apply(replace(world.started("a"), worker="w2", started_at=None))
    world.pass_time(100)
    world.finish("a")

    _, lost, queued, ran = spans_of(world)

    assert (lost.error, lost.attributes["error.type"], lost.end_ms) == ("worker died", "lost", NOW_MS + 100)
    assert (queued.name, queued.start_ms, queued.end_ms) == ("queue a", NOW_MS + 100, NOW_MS + 200)
    assert (ran.attributes["messaging.client.id"], ran.error) == ("w2", None)
    assert [link.context for link in ran.links] == [lost.context]


def test_a_wait_links_to_the_signal_that_ended_it() -> None:
    world = begun(wait_step("w", "go", "stop"))
    world.pass_time(100)
    world.signal("go")

    _, wait, signal = spans_of(world)

    assert (wait.name, wait.end_ms) == ("wait w", NOW_MS + 100)
    assert (signal.name, signal.start_ms, signal.end_ms) == (
        "signal go or stop",
        NOW_MS + 100,
        NOW_MS + 100,
    )
    assert [(link.context, link.reason) for link in wait.links] == [(signal.context, "signal")]


def test_a_wait_that_failed_links_to_no_signal() -> None:
    world = begun(wait_step("w", "go", timeout_ms=50))
    world.pass_time(100)

    _, wait = spans_of(world)

    assert (wait.name, wait.links) == ("wait w", ())


def test_a_signal_that_came_early_is_a_span() -> None:
    world = begun(task("a"), wait_step("w", "go", after="a"))
    world.pass_time(10)
    world.signal("go")
    world.pass_time(10)
    world.finish("a")

    assert spans_by_name(world)["signal go"].start_ms == NOW_MS + 10


def test_too_many_signals_have_no_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_spans, "MAX_SIGNALS", 0)
    world = begun(wait_step("w", "go"))
    world.pass_time(10)
    world.signal("go")

    assert [span.name for span in spans_of(world)][1:] == ["wait w"]
    assert spans_by_name(world)["wait w"].links == ()


def test_items_have_spans_and_their_map_is_no_message() -> None:
    world = begun(map_step("m", [1, 2]))
    world.pass_time(10)
    world.finish("m#0")
    world.finish("m#1")

    found = [
        (span.name, span.attributes.get("orchestrator.item"), span.is_message) for span in spans_of(world)
    ]

    assert sorted(found[1:], key=str) == [("m", 0, True), ("m", 1, True), ("m", None, False)]


def test_the_trace_of_the_caller_goes_on() -> None:
    world = world_of(task("a"))
    world.record.traceparent = CALLER
    world.advance()
    world.finish("a")

    whole, a = spans_of(world)

    assert f"00-{whole.context.trace_id}-{whole.parent_id}-01" == CALLER
    assert a.context.trace_id == whole.context.trace_id


def test_a_trace_that_its_caller_does_not_keep_has_no_spans() -> None:
    world = world_of(task("a"))
    world.record.traceparent = CALLER[:-1] + "0"
    world.advance()
    world.finish("a")

    assert spans_of(world) == []


def test_a_child_links_to_the_step_of_its_parent_or_is_below_it() -> None:
    parent = begun(child("c"))
    weid = parent.record.workflow_execution_id
    own = begun(task("a"))
    own.record.parent = Parent(weid, "c", 0, 1, "t", root="r")
    own.finish("a")

    [link] = spans_of(own)[0].links
    own.record.traceparent = CALLER

    assert (link.reason, link.context) == ("parent", context_of_attempt(weid, "c", 0, 1))
    assert spans_of(own)[0].links == ()


def test_a_child_gets_the_span_of_its_step_as_traceparent() -> None:
    world = world_of(child("c"))
    world.record.traceparent = CALLER
    world.advance()
    world.end_child("c")
    weid = world.record.workflow_execution_id

    whole, step_span = spans_of(world)

    assert [start.traceparent for start in world.children] == [
        str(context_of_attempt(weid, "c", 0, 1, CALLER))
    ]
    assert not step_span.is_message
    assert step_span.attributes["orchestrator.child_execution_id"] == world.children[0].execution_id
    assert step_span.parent_id == whole.context.span_id


def test_the_webhook_which_has_not_ended_has_no_span() -> None:
    world = begun(document(step("a"), webhook={"url": "https://example.org/x"}))
    world.finish("a")

    assert [span.name for span in spans_of(world)][1:] == ["a"]


def test_an_error_of_another_shape_is_text() -> None:
    world = begun(task("a"))
    world.apply(replace(world.result("a"), error={"kind": "odd"}))
    world.record.steps["a"] = world.record.steps["a"].with_changes(error={"kind": "odd", "message": 7})

    assert spans_of(world)[1].error == "7"


def test_an_error_that_the_record_does_not_have_is_that_of_the_history() -> None:
    world = begun(task("a"))
    world.fail("a", "boom")
    world.record.steps["a"] = world.record.steps["a"].with_changes(error=None)

    assert spans_of(world)[1].error == "boom"
