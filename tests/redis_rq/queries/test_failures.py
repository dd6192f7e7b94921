"""Failures: executions are grouped by their cause, whatever the size of their records, and no message shows a
secret."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from effort import count
from orchestrator.client import ExecutionFilter, FailureGroup
from orchestrator.redis_rq.queries import failures as module
from orchestrator.redis_rq.queries.failures import Failures
from orchestrator.redis_rq.queries.listing import MAX_SCANS, SCAN_BATCH_SIZE
from servers.redis_contents import calls
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld
from worlds.waiting import wait_until

ORDER = document(step("pay", input={"price": {"var": "input.price"}}), name="order")
LATER = {"max_retries": 1, "initial_delay_ms": 3_600_000}
MANY = count(5_000, 100_000)


def pay(inputs: Json) -> Json:
    raise ValueError(f"the price {inputs['price']} is wrong")


def ship(inputs: Json) -> Json:
    raise RuntimeError("the van has left")


def failures(world: RedisWorld) -> Failures:
    return Failures(world.client, world.keys, world.store)


def groups(world: RedisWorld, **wanted: Any) -> list[FailureGroup]:
    return failures(world).report(ExecutionFilter(**wanted)).groups


def counts(found: Iterable[FailureGroup]) -> list[tuple[str, int, int]]:
    return [(one.cause.text, one.failed, one.retrying) for one in found]


def selected(
    world: RedisWorld, group: FailureGroup, *, is_retrying: bool = False, **wanted: Any
) -> list[str]:
    found = failures(world).select(group.cause.id, ExecutionFilter(**wanted), is_retrying=is_retrying)
    return [one.partition("#")[2] for one in found]


def start(world: RedisWorld, spec: Json, *names: str, **keys: Any) -> None:
    """Start executions, and run them until nothing is left to do."""
    one = world.coordinator()
    for n, name in enumerate(names):
        world.begin(one, spec, execution_id=name, **{"inputs": {"price": n + 7}, **keys})
    world.settle(one, executors={"pay": pay, "ship": ship})


# ---- groups


def test_executions_are_grouped_by_workflow_step_and_cause(world: RedisWorld) -> None:
    start(world, ORDER, "x1", "x2", "x3", "x4")
    start(world, document(step("pay", input={"price": 1}), name="bill"), "y1")
    start(world, document(step("other", fn="pay", input={"price": 1}), name="order"), "y2")
    start(world, document(step("ok")), "z1")

    found = groups(world)

    rows = [(one.cause.workflow, one.cause.step, one.failed, one.examples) for one in found]
    assert rows[0] == ("order", "pay", 4, ["x4", "x3", "x2"])
    assert sorted(rows[1:]) == [("bill", "pay", 1, ["y1"]), ("order", "other", 1, ["y2"])]
    assert {one.cause.text for one in found} == {"ValueError: the price <n> is wrong"}
    first, *_, last = (world.record(world.store.full_id(name)).ended_at for name in ("x1", "x2", "x3", "x4"))
    assert (found[0].first_at, found[0].last_at) == (first, last)


def test_a_filter_selects_the_executions_that_are_grouped(world: RedisWorld) -> None:
    start(world, ORDER, "x1", "x2", labels=json.dumps({"customer": "acme"}))
    start(world, ORDER, "x3")

    assert counts(groups(world, labels={"customer": "acme"})) == [
        ("ValueError: the price <n> is wrong", 2, 0)
    ]
    assert groups(world, name="bill") == []
    assert groups(world, until_ms=1) == []


def test_a_retry_takes_an_execution_out_of_its_group(world: RedisWorld) -> None:
    start(world, ORDER, "x1", "x2")
    [group] = groups(world)
    one = world.coordinator()
    weid = world.store.full_id("x1")
    world.send(world.keys.events_of(weid), {"type": "control", "execution": weid, "action": "retry"})
    one.run_once()

    assert selected(world, group) == ["x2"]
    assert counts(groups(world)) == [("ValueError: the price <n> is wrong", 1, 0)]


def test_a_failure_of_the_whole_execution_has_no_step(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, document(step("a"), timeout="10ms"), execution_id="x1")

    def has_failed() -> bool:
        one.run_once()
        return world.status(weid) == "failed"

    wait_until(has_failed)

    [group] = groups(world)

    assert (group.cause.step, group.cause.kind) == ("", "timeout")


# ---- executions that will try again


def test_executions_of_which_a_step_waits_for_its_next_attempt_are_counted_too(world: RedisWorld) -> None:
    retried = document(step("pay", input={"price": 1}, retry=LATER), name="order")
    start(world, retried, "x1", "x2")
    start(world, ORDER, "y1")

    [group] = groups(world)

    assert counts([group]) == [("ValueError: the price <n> is wrong", 1, 2)]
    assert selected(world, group) == ["y1"]
    assert sorted(selected(world, group, is_retrying=True)) == ["x1", "x2"]
    assert selected(world, group, is_retrying=True, name="bill") == []
    assert selected(world, group, is_retrying=True, until_ms=0) == []
    assert selected(world, group, is_retrying=True, since_ms=world.now_ms() + 60_000) == []


def test_many_items_with_the_same_failure_are_one_execution(world: RedisWorld) -> None:
    items = step("pay", map={"over": [1, 2, 3]}, input={"price": {"var": "item"}}, retry=LATER)
    start(world, document(items, name="order"), "x1")

    [group] = groups(world)

    assert (group.retrying, group.failed, group.cause.step, group.examples) == (1, 0, "pay", ["x1"])
    assert (group.first_at, group.last_at) == (None, None)


def test_what_is_repeated_without_a_failure_is_none(world: RedisWorld) -> None:
    one = world.coordinator()
    failed = world.begin(one, document(step("pay", input={"price": 1}, retry=LATER)), execution_id="x1")
    hook = {"url": "https://hooks.example.org"}
    world.begin(one, document(step("a"), webhook=hook), execution_id="x2")
    world.settle(one, executors={"pay": pay, "webhook": ship})
    assert len(groups(world)) == 1, "the webhook of an execution that has ended is not its failure"

    world.client.hset(
        world.keys.workflow(failed), "step:pay", '{"status":"in_progress","run_id":1,"attempt":2}'
    )
    world.client.zadd(
        world.keys.timers, {"retry|no|such|unit|0": 1, "retry|w#x|a|0": 1, "deadline|w#x|a|0": 1}
    )

    assert groups(world) == []


# ---- secrets


def test_a_secret_in_a_message_is_neither_shown_nor_tells_groups_apart(world: RedisWorld) -> None:
    def reject(inputs: Json) -> Json:
        raise ValueError(f"the token {inputs['api_token']} is not valid")

    one = world.coordinator()
    spec = document(step("a", input={"api_token": {"var": "input.api_token"}}))
    for name, secret in (("x1", "tok-blue"), ("x2", "tok-red")):
        world.begin(one, spec, execution_id=name, inputs={"api_token": secret})
    world.settle(one, executors={"a": reject})

    [group] = groups(world)

    assert counts([group]) == [("ValueError: the token <redacted> is not valid", 2, 0)]
    assert sorted(selected(world, group)) == ["x1", "x2"]


def test_without_its_record_the_message_of_an_execution_is_not_shown(world: RedisWorld) -> None:
    start(world, ORDER, "x1")
    weid = world.store.full_id("x1")
    world.client.delete(world.keys.spec(weid.partition("#")[0]))
    world.store._specs = type(world.store._specs)(1)

    [group] = groups(world)

    assert group.cause.text == "ValueError: its record cannot be read"


@pytest.mark.parametrize("stored", ["no JSON", "[1]", "null", '{"kind": "lost", "step": "pay"}'])
def test_an_error_that_cannot_be_read_is_a_failure_too(world: RedisWorld, stored: str) -> None:
    start(world, ORDER, "x1")
    world.client.hset(world.keys.workflow(world.store.full_id("x1")), "error", stored)

    [group] = groups(world)

    assert (group.failed, group.cause.text.partition(":")[0]) == (
        1,
        "lost" if "lost" in stored else "unknown",
    )


# ---- large numbers


def copies(world: RedisWorld, name: str, number: int) -> None:
    """Write copies of an execution, as commits would have left them."""
    weid = world.store.full_id(name)
    workflow_id, _, _ = weid.partition("#")
    stored: Any = world.client.hgetall(world.keys.workflow(weid))
    score: Any = world.client.zscore(world.keys.index("failed"), weid)
    pipe = world.client.pipeline(transaction=False)
    for n in range(number):
        copy = f"{workflow_id}#copy-{n}"
        error = stored["error"].replace("the price 7", f"the price {n}")
        pipe.hset(world.keys.workflow(copy), mapping={**stored, "execution_id": f"copy-{n}", "error": error})
        pipe.set(world.keys.execution(f"copy-{n}"), copy)
        for index in (world.keys.index("failed"), world.keys.index_of_name("order")):
            pipe.zadd(index, {copy: score + n / 10})
        if n % 5_000 == 4_999:
            pipe.execute()
    pipe.execute()


def test_many_failures_cost_a_field_each_and_one_record_for_each_cause(world: RedisWorld) -> None:
    start(world, ORDER, "x1")
    copies(world, "x1", MANY - 1)
    world.client.config_resetstat()

    [group] = groups(world)

    used = calls(world.client)
    assert counts([group]) == [("ValueError: the price <n> is wrong", MANY, 0)]
    assert used["hgetall"] == 1
    pages = MANY // module.PAGE_SIZE + 2
    assert used["hmget"] <= MANY + 2 * pages
    assert used["hget"] <= MANY + 2 * pages
    assert used["zrevrangebyscore"] <= 2 * pages
    assert (
        sum(1 for _ in failures(world).select(group.cause.id, ExecutionFilter(), is_retrying=False)) == MANY
    )


def test_a_report_ends_at_its_limits_and_says_so(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EXECUTIONS", 3)
    monkeypatch.setattr(module, "MAX_CAUSES", 1)
    names = {"pay": pay, "ship": ship}
    one = world.coordinator()
    for n, fn in enumerate(("pay", "pay", "ship")):
        world.begin(one, document(step(fn, input={"price": 1})), execution_id=f"x{n}")
    world.settle(one, executors=names)

    whole = failures(world).report(ExecutionFilter())
    world.begin(one, document(step("ship")), execution_id="x3")
    world.settle(one, executors=names)
    more = failures(world).report(ExecutionFilter())

    assert (whole.checked, whole.is_complete, whole.ungrouped) == (3, True, 2)
    assert counts(whole.groups) == [("RuntimeError: the van has left", 1, 0)]
    assert (more.checked, more.is_complete, more.ungrouped) == (3, False, 1)
    monkeypatch.setattr(module, "MAX_CAUSES", 1_000)
    [paid] = [one for one in groups(world) if one.cause.step == "pay"]
    monkeypatch.setattr(module, "MAX_CAUSES", 1)
    assert selected(world, paid) == ["x1"], "beyond the limit, a cause without secrets is still recognized"


# ---- pages


def test_the_executions_of_a_cause_have_pages(world: RedisWorld) -> None:
    start(world, ORDER, *(f"x{n}" for n in range(7)))
    start(world, document(step("ship"), name="order"), *(f"y{n}" for n in range(7)))
    paid = next(one.cause.id for one in groups(world) if one.cause.step == "pay")

    found: list[list[str]] = []
    cursor = None
    while True:
        page = failures(world).page(paid, ExecutionFilter(), 3, cursor)
        found.append([one.execution_id for one in page.executions])
        cursor = page.cursor
        if cursor is None:
            break

    assert found == [["x6", "x5", "x4"], ["x3", "x2", "x1"], ["x0"]]
    assert failures(world).page("unknown", ExecutionFilter()).executions == []
    until = ExecutionFilter(until_ms=0)
    assert failures(world).page(paid, until).executions == []


def test_a_page_of_a_rare_cause_ends_early_with_a_cursor(world: RedisWorld) -> None:
    start(world, document(step("ship"), name="order"), "rare")
    rare = groups(world)[0].cause.id
    start(world, ORDER, "x1")
    copies(world, "x1", SCAN_BATCH_SIZE * MAX_SCANS)

    first = failures(world).page(rare, ExecutionFilter(), 10)
    second = failures(world).page(rare, ExecutionFilter(), 10, first.cursor)

    assert (first.executions, second.cursor) == ([], None)
    assert [one.execution_id for one in second.executions] == ["rare"]


def test_a_report_of_the_newest_says_that_it_is_not_complete(world: RedisWorld) -> None:
    start(world, ORDER, "x0", "x1", "x2")

    some = failures(world).report(ExecutionFilter(), max_executions=2)
    whole = failures(world).report(ExecutionFilter(), max_executions=3)

    assert (some.checked, some.is_complete, some.groups[0].examples) == (2, False, ["x2", "x1"])
    assert (whole.checked, whole.is_complete) == (3, True)
