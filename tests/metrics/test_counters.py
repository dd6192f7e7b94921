"""The counters of the metrics: each commit adds to them once, and hostile names cannot make them many."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from orchestrator.application.records.metric_counts import BUCKETS_MS
from orchestrator.application.values.rejection_kinds import RejectionKind
from orchestrator.backend.ports import Commit, Committed
from orchestrator.metrics.families import MAX_LABELS
from orchestrator.metrics.reader import MetricsReader
from worlds.commits import commit, creation, decision, result, written
from worlds.documents import Json, document, step
from worlds.families import control, decide_all
from worlds.redis_world import RedisWorld
from worlds.samples import parse, scrape

ORDER = document(step("a"), step("b", after="a"), name="order")


def boom(inputs: Json) -> Json:
    raise ValueError("boom")


def test_executions_and_steps_count_by_workflow_and_status(world: RedisWorld) -> None:
    one = world.coordinator()
    for _ in range(3):
        world.start(ORDER)
    world.start(document(step("x", max_attempts=2), step("y", after="x"), name="fails"))

    world.settle(one, executors={"x": boom})

    found = scrape(world)
    assert found("executions_started_total", workflow="order") == 3
    assert found("executions_ended_total", workflow="order", status="complete") == 3
    assert found("executions_ended_total", workflow="order", status="failed") == 0
    assert found("executions_ended_total", workflow="fails", status="failed") == 1
    assert found("steps_ended_total", workflow="order", status="complete") == 6
    assert found("steps_ended_total", workflow="fails", status="failed") == 1
    assert found("steps_ended_total", workflow="fails", status="skipped") == 1
    assert found("step_retries_total", workflow="fails") == 1
    assert found("step_failures_total", workflow="fails", kind="exception") == 2
    assert found("known_names", kind="workflow") == 2


def test_every_attempt_has_a_run_time_and_every_job_a_wait(world: RedisWorld) -> None:
    one = world.coordinator()
    world.start(document(step("a"), step("b", queue="slow"), step("c", priority=1), name="order"))

    world.settle(one)

    found = scrape(world)
    assert found("step_run_seconds_count", workflow="order") == 3
    assert found("step_run_seconds_bucket", workflow="order", le="+Inf") == 3
    assert len(found.of("step_run_seconds_bucket")) == len(BUCKETS_MS) + 1
    assert {
        queue: found("queue_wait_seconds_count", queue=queue) for queue in ("default", "slow", "default:1")
    } == {"default": 1, "slow": 1, "default:1": 1}
    assert {one["queue"] for one in found.of("jobs_dispatched_total")} == {"default", "slow", "default:1"}
    assert found.total("jobs_dispatched_total") == 3


def test_a_decision_on_a_record_that_has_changed_is_not_counted(world: RedisWorld) -> None:
    written(world.store, creation(ORDER))
    mine, theirs = world.record("x1"), world.record("x1")
    written(world.store, decision(theirs, result(theirs, "a")))
    before = world.client.hgetall(world.keys.metrics)

    assert commit(world.store, decision(mine, result(mine, "a"))) == [Committed.CONFLICT]

    assert world.client.hgetall(world.keys.metrics) == before


def test_a_commit_that_is_sent_twice_counts_once(world: RedisWorld) -> None:
    """Its reply was lost, so its coordinator does not know whether it was written."""
    record = written(world.store, creation(ORDER))
    record.version, version = "", record.version
    again = dataclasses.replace(record, version=version)
    sent = decision(again, result(again, "a"))
    world.store.commit([sent])
    before = world.client.hgetall(world.keys.metrics)
    again.version = version

    assert world.store.commit([sent]) == [Committed.CONFLICT]

    assert world.client.hgetall(world.keys.metrics) == before
    assert scrape(world)("steps_ended_total", workflow="order", status="complete") == 1


def test_a_creation_that_is_refused_is_no_start(world: RedisWorld) -> None:
    assert commit(world.store, creation(ORDER), creation(ORDER)) == [Committed.YES, Committed.EXISTS]

    assert scrape(world)("executions_started_total", workflow="order") == 1


def test_a_retried_execution_ends_once_more(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a"), name="order"))
    world.settle(one, executors={"a": boom})
    control(world, weid, "retry")

    world.settle(one)

    found = scrape(world)
    assert found("executions_started_total", workflow="order") == 1
    assert found("executions_ended_total", workflow="order", status="failed") == 1
    assert found("executions_ended_total", workflow="order", status="complete") == 1


# ---- names


def named(name: str | None, execution_id: str, template: Commit) -> Commit:
    """The creation of an execution of a workflow with this name. It takes the spec of the template: to check
    thousands of documents would take long."""
    record = template.record
    spec = dataclasses.replace(record.spec, name=name)
    loaded = dataclasses.replace(record.loaded, spec=spec)
    new = dataclasses.replace(record, loaded=loaded, execution_id=execution_id, steps={}, items={})
    return Commit(new, dataclasses.replace(template.changes, jobs=[]), creates=True)


HOSTILE = (
    'quote"%d',
    "line\nfeed%d",
    "back\\slash%d",
    "pipe|%d|",
    "}%d{",
    "ümlaut-☃-%d",
    "workflow|%d",
    "",
    "%d" + "long" * 1_000,
    "\t %d",
    "# HELP %d",
    "steps|complete|%d",
)


def test_ten_thousand_hostile_names_make_a_bounded_number_of_counters(world: RedisWorld) -> None:
    template = creation(document(step("a")))
    names = [text % number if "%d" in text else text for number, text in _numbered(10_000)]
    commits = [named(name, f"x{number}", template) for number, name in enumerate(names)]

    for at in range(0, len(commits), 500):
        assert set(world.store.commit(commits[at : at + 500])) == {Committed.YES}

    text = MetricsReader(world.client, world.keys).render().decode()
    found = parse(text)
    labels = {one["workflow"] for one in found.of("executions_started_total")}
    assert len(labels) == MAX_LABELS + 1
    assert {name[:100] for name in names[:MAX_LABELS]} - labels == set(), "the first ones have their own"
    assert found.total("executions_started_total") == 10_000
    assert found("known_names", kind="workflow") == MAX_LABELS
    assert found("executions_started_total", workflow="other") == 10_000 - sum(
        found("executions_started_total", workflow=label) or 0 for label in labels - {"other"}
    )
    assert world.client.hlen(world.keys.metrics) <= 2 * MAX_LABELS + 3
    assert len(text) < 1_000_000


def _numbered(count: int) -> list[tuple[int, str]]:
    return [(number, HOSTILE[number % len(HOSTILE)]) for number in range(count)]


def test_hostile_queues_make_a_bounded_number_of_counters(world: RedisWorld) -> None:
    one = world.coordinator()
    count = MAX_LABELS + 50
    world.start(document(*(step(f"s{n}", queue=f"q{n}") for n in range(count)), name="order"))

    world.settle(one)

    found = scrape(world)
    assert len(found.of("queue_wait_seconds_count")) == MAX_LABELS + 1
    assert found.total("queue_wait_seconds_count") == count
    assert len(found.of("queue_waiting_jobs")) == len(found.of("jobs_dispatched_total")) == MAX_LABELS


def test_two_coordinators_share_the_names_that_are_known(world: RedisWorld) -> None:
    template = creation(document(step("a")))
    stores = [world.store_on(world.connect()) for _ in range(2)]

    for number in range(MAX_LABELS):
        for which, store in enumerate(stores):
            store.commit([named(f"w{which}-{number}", f"x{which}-{number}", template)])

    assert scrape(world)("known_names", kind="workflow") == MAX_LABELS


def test_a_workflow_without_a_name_has_an_empty_label(world: RedisWorld) -> None:
    written(world.store, creation(document(step("a"))))

    assert scrape(world)("executions_started_total", workflow="") == 1


# ---- damage


@pytest.mark.parametrize("key", ["metrics", "slots"])
def test_a_key_of_a_wrong_type_costs_the_metrics_and_nothing_else(world: RedisWorld, key: str) -> None:
    name = getattr(world.keys, key)
    world.client.set(name, "not ours")
    one = world.coordinator()

    weid = world.begin(one, document(step("a", concurrency={"key": "k", "limit": 1}), name="order"))
    world.settle(one)

    assert world.status(weid) == "complete"
    assert world.client.scard(world.keys.partial) == 0
    assert world.client.get(name) == "not ours"
    found = scrape(world)
    assert found("up") == 1
    assert found("executions", status="complete") == 1


@pytest.mark.parametrize("value", ["x", "", "-5", "1.5", "9" * 400, "²"])
def test_a_counter_that_is_no_number_is_left_out(world: RedisWorld, value: str) -> None:
    one = world.coordinator()
    world.client.hset(world.keys.metrics, "started|order", value)
    world.client.hset(world.keys.counters, "lost", value)

    world.start(ORDER)
    world.settle(one)

    found = scrape(world)
    assert found("executions_ended_total", workflow="order", status="complete") == 1
    assert found("up") == 1


# ---- what is no commit


def test_rejected_starts_count_by_reason(world: RedisWorld) -> None:
    one = world.coordinator()
    world.start("unknown")
    world.start({"steps": [{"op": "a", "depends_on": ["nowhere"]}]})
    world.start(document(step("a", inputs=7)))
    world.start(document(step("a", tags=["gpu"])))
    world.start(ORDER, execution_id="x1")
    world.start(ORDER, execution_id="x1")
    world.send(world.keys.starts, {"nothing": "useful"})
    world.send(world.keys.events(0), {"type": "no event"})

    decide_all(world, one)

    found = scrape(world)
    counted = {
        one["reason"]: found("starts_rejected_total", **one) for one in found.of("starts_rejected_total")
    }
    assert counted == {
        **{str(kind): 0 for kind in RejectionKind},
        "unknown_workflow": 1,
        "invalid": 2,
        "no_route": 1,
        "id_taken": 1,
        "unreadable": 1,
    }
    assert found("dead_letters_written_total") == 7, "the event too"
    assert found("dead_letters") == 7


def test_lost_stale_and_late_events_count(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a", max_attempts=3), name="order"))
    payload = world.payloads()[0]
    fields = {name: str(payload[name]) for name in ("execution", "step", "run_id", "attempt", "token")}
    world.send(world.keys.events_of(weid), {"type": "lost", "reason": "its host is gone", **fields})
    decide_all(world, one)
    world.send(world.keys.events_of(weid), {"type": "result", "output": "{}", **fields})

    world.settle(one)

    found = scrape(world)
    assert found("steps_lost_total") == world.counter("lost") == 1
    assert found("results_stale_total") == world.counter("stale") == 1
    assert found("step_retries_total", workflow="order") is None, "a loss is no failed attempt"


def test_the_slots_of_schedules_count_by_their_result(world: RedisWorld) -> None:
    stored: dict[str, Any] = {"started": 5, "missed": 2, "skipped": 1}
    world.client.hset(world.keys.schedules, "nightly", json.dumps(stored))
    world.client.hset(world.keys.schedules, "broken", "[")
    world.client.hset(world.keys.schedules, "odd", json.dumps({"missed": "many"}))

    found = scrape(world)

    assert {
        result: found("schedule_slots_total", workflow="nightly", result=result) for result in stored
    } == stored
    assert found.total("schedule_slots_total") == 8
