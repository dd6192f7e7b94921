"""The event streams: no event is lost, a bad event blocks no other, and only acknowledged events are
trimmed."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.application.records.events import ContinueEvent, StartEvent
from orchestrator.backend.ports import Delivery
from orchestrator.coordinator.starts import Starts
from orchestrator.redis_rq import event_log as events
from orchestrator.redis_rq.keys import GROUP
from servers.redis_contents import calls
from worlds.documents import Json, document, step
from worlds.redis_world import RedisWorld, result_fields
from worlds.waiting import in_thread, wait_until

ONE = document(step("a"))
SPEC = json.dumps(ONE)
DEEP = "[" * 100_000 + "]" * 100_000


# ---- malformed events

BAD_STARTS: dict[str, dict[Any, Any]] = {
    "no workflow": {"inputs": "{}"},
    "name and spec": {"workflow": "order", "spec": SPEC},
    "unknown field": {"spec": SPEC, "priority": "9"},
    "inputs not JSON": {"spec": SPEC, "inputs": "{"},
    "inputs a list": {"spec": SPEC, "inputs": "[]"},
    "inputs NaN": {"spec": SPEC, "inputs": '{"n": NaN}'},
    "inputs infinite": {"spec": SPEC, "inputs": '{"n": 1e400}'},
    "inputs with half a character": {"spec": SPEC, "inputs": '{"n": "\\ud800"}'},
    "a key with half a character": {"spec": SPEC, "inputs": '{"\\ud800": 1}'},
    "inputs too deep": {"spec": SPEC, "inputs": f'{{"n": {DEEP}}}'},
    "inputs a long number": {"spec": SPEC, "inputs": f'{{"n": {"9" * 5_000}}}'},
    "inputs too big": {"spec": SPEC, "inputs": json.dumps({"n": "x" * 1_100_000})},
    "bad execution id": {"spec": SPEC, "execution_id": "a b"},
    "execution id with a hash": {"spec": SPEC, "execution_id": "a#b"},
    "empty execution id": {"spec": SPEC, "execution_id": ""},
    "unknown name": {"workflow": "not registered"},
    "spec not YAML": {"spec": "steps: ["},
    "spec empty": {"spec": ""},
    "spec a list": {"spec": "[]"},
    "spec with a tag": {"spec": "!!python/object/apply:os.system ['true']"},
    "spec with half a character": {"spec": '{"steps": [{"op": "\\ud800"}]}'},
    "spec with a NUL": {"spec": "steps:\0"},
    "spec too deep": {"spec": DEEP},
    "bytes that are no text": {b"\xff\xfe": b"\xc3\x28"},
    "a name that is no text": {"workflow": b"\xed\xa0\x80"},
    "ten megabytes": {"spec": SPEC, "inputs": "x" * 10_000_000},
}


@pytest.mark.parametrize("fields", BAD_STARTS.values(), ids=BAD_STARTS)
def test_a_malformed_start_is_answered_and_kept_with_a_reason(
    world: RedisWorld, fields: dict[Any, Any]
) -> None:
    one = world.coordinator()
    bad = world.send(world.keys.starts, fields)
    good = world.start(ONE)

    for _ in range(2):  # a large document is checked between two turns
        one.run_once()

    answer = world.answer(bad)
    assert answer["ok"] is False
    assert answer["reason"]
    [letter] = world.dead()
    assert letter["reason"]
    assert (letter["stream"], letter["entry"]) == (world.keys.starts, bad)
    assert len(letter["event"]) < 100_000
    assert set(json.loads(letter["event"])) <= {
        "workflow",
        "spec",
        "inputs",
        "execution_id",
        "priority",
        "��",
    }
    assert world.counter("dead") == 1
    assert world.answer(good)["ok"] is True
    assert world.pending() == []


def test_a_spec_with_a_key_of_half_a_character_is_refused(world: RedisWorld) -> None:
    one = world.coordinator()
    bad = world.send(world.keys.starts, {"spec": '{"steps": [{"op": "a"}], "\\ud800": 1}'})

    one.run_once()

    assert world.answer(bad)["ok"] is False


BAD_EVENTS: dict[str, dict[Any, Any]] = {
    "nothing known": {"hello": "world"},
    "no type": {"execution": "w#x"},
    "unknown type": {"type": "explode", "execution": "w#x"},
    "no execution": {"type": "continue"},
    "empty execution": {"type": "continue", "execution": ""},
    "unknown execution": {"type": "continue", "execution": "w#x"},
    "deadline without a token": {"type": "deadline", "execution": "w#x", "step": "a"},
    "bytes that are no text": {"type": b"\xff", b"\xfe": b"\xc3\x28"},
    "ten megabytes": {"type": "continue", "execution": "x" * 10_000_000},
}


@pytest.mark.parametrize("fields", BAD_EVENTS.values(), ids=BAD_EVENTS)
def test_a_malformed_event_is_kept_with_a_reason_and_blocks_no_other(
    world: RedisWorld, fields: dict[Any, Any]
) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    stream = world.keys.events_of(weid)
    bad = world.send(stream, fields)

    world.work()
    one.run_once()

    [letter] = world.dead()
    assert letter["reason"]
    assert (letter["stream"], letter["entry"]) == (stream, bad)
    assert world.status(weid) == "complete"
    assert world.pending() == []


BAD_RESULTS: dict[str, dict[Any, Any]] = {
    "no step": {"step": ""},
    "unknown step": {"step": "missing"},
    "no token": {"token": ""},
    "run_id not a number": {"run_id": "one"},
    "run_id negative": {"run_id": "-1"},
    "run_id a fraction": {"run_id": "1.0"},
    "run_id in other digits": {"run_id": "١"},  # isdigit() says yes
    "attempt too long": {"attempt": "9" * 400},
    "output not JSON": {"output": "{'a': 1}"},
    "output empty": {"output": ""},
    "output NaN": {"output": '{"n": NaN}'},
    "output -Infinity": {"output": '{"n": -Infinity}'},
    "output far too deep": {"output": DEEP},
    "output a long number": {"output": "9" * 5_000},
    "error without a kind": {"error": "{}"},
    "error a list": {"error": "[]"},
    "error with a kind that is none": {"error": '{"kind": 7}'},
}


@pytest.mark.parametrize("changed", BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_a_malformed_result_is_kept_with_a_reason_and_the_good_one_counts(
    world: RedisWorld, changed: dict[Any, Any]
) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    payload = world.pop()
    assert payload is not None
    bad = world.send(payload["events"], {**result_fields(payload, {"n": 0}), **changed})
    world.send(payload["events"], result_fields(payload, {"n": 1}))

    one.run_once()

    [letter] = world.dead()
    assert letter["reason"]
    assert letter["entry"] == bad
    assert world.record(weid).state == {"n": 1}
    assert world.pending() == []


POISON: dict[str, dict[Any, Any]] = {
    "an infinite number": {"output": '{"n": 1e400}'},
    "half a character": {"output": '{"n": "\\ud800"}'},
    "a key of half a character": {"output": '{"\\ud800": 1}'},
    "an error of half a character": {"error": '{"kind": "exception", "message": "\\udfff"}'},
    "an infinite error": {"error": '{"kind": "exception", "message": "no", "code": 1e999}'},
}


@pytest.mark.parametrize("changed", POISON.values(), ids=POISON)
def test_a_result_that_cannot_be_stored_harms_its_own_workflow_at_most(
    world: RedisWorld, changed: dict[Any, Any]
) -> None:
    one = world.coordinator()
    weid, other = world.begin(one, ONE), world.begin(one, ONE)
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], {**result_fields(payload), **changed})

    world.work()  # the job of the other execution
    one.run_once()

    assert world.status(other) == "complete"
    assert world.pending() == []
    assert world.status(weid) == "failed" or len(world.dead()) == 1
    assert world.record(weid).workflow_execution_id == weid, "the record must stay readable"


def test_an_error_without_a_message_is_an_error_all_the_same(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], {**result_fields(payload), "error": '{"kind": "exception"}'})

    one.run_once()

    assert world.status(weid) == "failed"


def test_an_output_of_any_depth_is_taken_or_refused_and_nothing_between(world: RedisWorld) -> None:
    one = world.coordinator()
    spec = document(step("a"), step("b", after="a", input={"x": {"var": "steps.a.output"}}))
    for depth in (150, 300, 600, *range(900, 1_000)):
        weid = world.begin(one, spec)
        payload = world.pop()
        assert payload is not None
        nested = f'{{"n": {"[" * depth}{"]" * depth}}}'
        letters = len(world.dead())
        world.send(payload["events"], {**result_fields(payload), "output": nested})

        one.run_once()

        is_taken = world.record(weid).steps["a"].status != "in_progress"
        assert is_taken or len(world.dead()) == letters + 1
        while world.pop():
            pass
    assert world.pending() == []


@pytest.mark.parametrize(
    "entry_id",
    ["1763000000000000-0", "99999999999999999-0", "18446744073709551614-0"],
    ids=["µs", "far", "last"],
)
@pytest.mark.parametrize("stream", ["starts", "events"])
def test_an_entry_id_from_the_far_future_stops_no_other_event(
    world: RedisWorld, entry_id: str, stream: str
) -> None:
    one = world.coordinator()
    weid = world.begin(one, ONE)
    payload = world.pop()
    assert payload is not None
    if stream == "starts":
        world.send(world.keys.starts, {"spec": SPEC}, entry_id)
    else:
        world.send(payload["events"], {"type": "continue", "execution": weid}, entry_id)

    one.run_once()

    assert world.pending() == []
    world.send(payload["events"], result_fields(payload, {"n": 1}))
    one.run_once()
    assert world.status(weid) == "complete"


# ---- reading and taking over


def test_what_was_sent_before_the_first_coordinator_came_is_served(world: RedisWorld) -> None:
    entry = world.start(ONE)
    world.settle(world.coordinator())
    assert world.answer(entry)["ok"] is True


def test_opening_twice_is_harmless(world: RedisWorld) -> None:
    log = world.log()
    log.open()
    world.start(ONE)
    log.open()
    assert len(log.read(10, 0)) == 1


def test_an_event_is_read_by_one_coordinator_only(world: RedisWorld) -> None:
    one, two = world.log("one"), world.log("two")
    one.open()
    world.start(ONE)
    assert (len(one.read(10, 0)), len(two.read(10, 0))) == (1, 0)


def test_a_coordinator_begins_with_what_it_had_read_before_it_fell(world: RedisWorld) -> None:
    log = world.log("one")
    log.open()
    entry = world.start(ONE)
    assert len(log.read(10, 0)) == 1  # and then it was killed

    world.coordinator("one")

    assert world.answer(entry)["ok"] is True


def test_events_of_a_dead_coordinator_are_taken_over(world: RedisWorld) -> None:
    world.log("dead").open()
    entry = world.start(ONE)
    [seen] = world.log("dead").read(10, 0)
    survivor = world.coordinator("survivor")
    survivor.run_once()
    assert world.pending() == [entry], "it may still be at work"

    world.age_pending(5_000)
    survivor.run_once()

    assert seen.delivery_count == 1
    assert world.answer(entry)["ok"] is True
    assert world.pending() == []


def test_of_two_coordinators_that_reclaim_an_event_one_gets_it(world: RedisWorld) -> None:
    world.log("dead").open()
    world.start(ONE)
    world.log("dead").read(10, 0)
    world.age_pending(5_000)
    one, two = world.log("one"), world.log("two")

    taken = [*one.reclaim(5_000, 10), *two.reclaim(5_000, 10)]

    assert len(taken) == 1


def test_every_take_over_counts_as_a_delivery(world: RedisWorld) -> None:
    world.log("dead").open()
    world.start(ONE)
    world.log("dead").read(10, 0)
    seen = []
    for _ in range(3):
        world.age_pending(5_000)
        seen += [delivery.delivery_count for [delivery] in world.log("one").reclaim(5_000, 10)]
    assert seen == [2, 3, 4]


def test_an_event_that_was_never_handled_to_the_end_becomes_a_dead_letter(world: RedisWorld) -> None:
    world.log("dead").open()
    entry = world.start(ONE)
    world.log("dead").read(10, 0)
    for _ in range(4):
        world.age_pending(5_000)
        assert len(list(world.log("dead").reclaim(5_000, 10))) == 1
    world.age_pending(5_000)

    world.coordinator("one").run_once()

    [letter] = world.dead()
    assert "6 times" in letter["reason"]
    assert world.answer(entry)["ok"] is False
    assert world.pending() == []


def test_an_event_that_kills_a_coordinator_of_one_name_again_and_again_is_given_up(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = world.start(ONE)

    def killed(*_: object) -> None:
        raise SystemExit("as if by the out-of-memory killer")

    monkeypatch.setattr(Starts, "build_creation", killed)
    for _ in range(10):
        try:
            world.coordinator("one").run_once()
        except SystemExit:
            world.age_pending(5_000, reader="one")

    assert world.answer(entry)["ok"] is False


@pytest.mark.parametrize("names", [["one"], ["one", "two", "three"]], ids=["one name", "other names"])
def test_an_event_that_kills_its_coordinators_does_not_take_those_behind_it_along(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    build_creation = Starts.build_creation

    def killed(starts: Starts, delivery: Delivery, *rest: Any) -> Any:
        if delivery.fields.get("execution_id") == "poison":
            raise SystemExit("as if by the out-of-memory killer")
        return build_creation(starts, delivery, *rest)

    monkeypatch.setattr(Starts, "build_creation", killed)
    before, poison, *behind = (
        world.start(ONE, execution_id=name) for name in ("before", "poison", "b1", "b2", "b3")
    )
    for n in range(10):
        name = names[n % len(names)]
        try:
            world.coordinator(name).run_once()
        except SystemExit:
            world.age_pending(5_000, reader=name)

    assert world.answer(poison)["ok"] is False
    assert [world.answer(entry)["ok"] for entry in (before, *behind)] == [True] * 4
    assert len(world.dead()) == 1
    assert world.pending() == []


def test_a_deleted_entry_is_passed_over(world: RedisWorld) -> None:
    log = world.log("one")
    log.open()
    gone = world.start(ONE)
    log.read(10, 0)
    world.client.xdel(world.keys.starts, gone)
    good = world.start(ONE)

    one = world.coordinator("one")
    one.run_once()

    assert world.answer(good)["ok"] is True


def test_a_deleted_entry_does_not_stay_pending(world: RedisWorld) -> None:
    log = world.log("dead")
    log.open()
    gone = world.start(ONE)
    log.read(10, 0)
    world.client.xdel(world.keys.starts, gone)
    world.age_pending(5_000)

    world.coordinator("one").run_once()

    assert world.pending() == []


def test_a_flushed_redis_is_served_again(world: RedisWorld) -> None:
    one = world.coordinator()
    world.begin(one, ONE)
    world.client.flushall()

    entry = world.start(ONE)
    one.run_once()
    one.run_once()

    assert world.answer(entry)["ok"] is True


def test_a_coordinator_that_waits_while_redis_is_flushed_goes_on(world: RedisWorld) -> None:
    world.coordinator("one")
    log = world.log("one", world.connect())

    def read() -> None:
        assert log.read(10, 5_000) == []

    with in_thread(read):
        wait_until(lambda: any(row["cmd"] == "xreadgroup" for row in world.client.client_list()))
        world.client.flushall()
        world.start(ONE)
    assert [type(delivery.event) for delivery in log.read(10, 0)] == [StartEvent]


def test_a_redis_that_becomes_a_replica_under_a_waiting_coordinator_is_away(world: RedisWorld) -> None:
    """A failover: a coordinator that was blocked in a read gets an error, and must recover."""
    log = world.log("one", world.connect())
    log.open()
    seen: list[BaseException] = []

    def read() -> None:
        try:
            log.read(10, 5_000)
        except BaseException as error:
            seen.append(error)

    try:
        with in_thread(read):
            wait_until(lambda: any(row["cmd"] == "xreadgroup" for row in world.client.client_list()))
            world.client.replicaof("127.0.0.1", "1")
    finally:
        world.client.replicaof("NO", "ONE")
    assert [type(error).__name__ for error in seen] == ["Unavailable"]


def test_redis_flushed_between_reading_and_committing_is_no_end(world: RedisWorld) -> None:
    one = world.coordinator("one")
    world.start(ONE)
    deliveries = world.log("one").read(10, 0)
    world.client.flushall()

    one.handle(deliveries)

    entry = world.start(ONE)
    one.run_once()
    one.run_once()
    assert world.answer(entry)["ok"] is True
    assert world.waiting() == [payload["job_id"] for payload in world.payloads()]
    assert len(world.waiting()) == 1, "what was flushed is gone, and nothing of it comes back"


def test_redis_flushed_before_a_coordinator_looks_for_what_it_had_read_is_no_end(
    world: RedisWorld,
) -> None:
    log = world.log("one")
    log.open()
    world.client.flushall()

    assert list(log.read_unfinished(10)) == []
    assert log.read(10, 0) == []
    world.start(ONE)
    assert len(log.read(10, 0)) == 1


def test_redis_flushed_while_events_are_taken_over_is_no_end(world: RedisWorld) -> None:
    log = world.log("one")
    log.open()
    world.start(ONE)
    world.start(ONE)
    assert len(log.read(10, 0)) == 2

    taken = log.read_unfinished(10)
    next(taken)
    world.client.flushall()

    assert list(taken) == []


def test_a_flushed_redis_without_any_stream_is_opened_again(world: RedisWorld) -> None:
    """A real one only: to read a stream that is not there is another error in fakeredis."""
    one = world.coordinator("one")
    world.client.flushall()

    one.run_once()

    entry = world.start(ONE)
    one.run_once()
    assert world.answer(entry)["ok"] is True


# ---- which coordinator reads which stream


def partitions_of(world: RedisWorld, *names: str) -> dict[str, set[str]]:
    """Which event streams each coordinator asks for, by what it takes from all of them."""
    logs = {name: world.log(name) for name in names}
    for log in [*logs.values(), *logs.values()]:
        log.sweep()
    found = {}
    for name, log in logs.items():
        for stream in world.streams()[1:]:
            world.send(stream, {"type": "continue", "execution": f"for {name}"})
        found[name] = {delivery.ref.stream for delivery in log.read(1_000, 0)}
        for stream in world.streams():
            world.client.xgroup_setid(stream, GROUP, "$")
    return found


def test_two_coordinators_share_the_streams(world: RedisWorld) -> None:
    world.log().open()
    found = partitions_of(world, "one", "two")
    assert found["one"] | found["two"] == set(world.streams()[1:])
    assert not found["one"] & found["two"]
    assert len(found["one"]) == len(found["two"])


def test_one_coordinator_alone_reads_them_all(world: RedisWorld) -> None:
    world.log().open()
    assert partitions_of(world, "one") == {"one": set(world.streams()[1:])}


def test_what_a_coordinator_dispatches_is_answered_to_itself(world: RedisWorld) -> None:
    """So that no other need load the record."""
    one, two = world.coordinator("one"), world.coordinator("two")
    one.run_once()  # now they know of each other
    for n, begins in enumerate([one, two] * 6):
        world.begin(begins, document(step("a"), step("b", after="a")), execution_id=f"x{n}")
    loaded = calls(world.client)["hgetall"]
    for _ in range(2):
        world.work()
        assert (one.run_once(), two.run_once()) == (6, 6)

    swept = 4
    assert calls(world.client)["hgetall"] - loaded == swept
    assert {world.status(world.store.full_id(f"x{n}")) for n in range(12)} == {"complete"}


def test_more_coordinators_than_streams_leave_some_without_and_none_unread(world: RedisWorld) -> None:
    world.log().open()
    found = partitions_of(world, *(f"c{n}" for n in range(world.keys.partitions + 3)))
    assert sorted(stream for mine in found.values() for stream in mine) == sorted(world.streams()[1:])


def test_a_coordinator_that_joins_takes_its_share_and_nothing_is_lost(world: RedisWorld) -> None:
    one = world.coordinator("one")
    first = [world.begin(one, ONE) for _ in range(20)]
    two = world.coordinator("two")
    second = [world.begin(one, ONE) for _ in range(20)]

    world.settle(one, two)

    assert {world.status(weid) for weid in [*first, *second]} == {"complete"}
    assert world.pending() == []


def test_when_a_coordinator_dies_the_others_take_over_its_share(world: RedisWorld) -> None:
    one, two = world.coordinator("one"), world.coordinator("two")
    one.run_once()
    started = [world.begin(one, ONE) for _ in range(20)]
    world.work()
    world.log("two").read(5, 0)  # read, and then killed
    world.client.zincrby(world.keys.coordinators, -5_001, "two")  # its last beat was long ago
    world.age_pending(5_000)
    del two

    world.settle(one)

    assert {world.status(weid) for weid in started} == {"complete"}
    assert world.client.zrange(world.keys.coordinators, 0, -1) == ["one"]
    assert world.pending() == []


def test_a_coordinator_that_leaves_politely_is_not_waited_for(world: RedisWorld) -> None:
    one, two = world.log("one"), world.log("two")
    one.open()
    two.sweep()
    one.sweep()

    two.close()

    assert partitions_of(world, "one") == {"one": set(world.streams()[1:])}


def test_a_coordinator_that_left_politely_is_no_consumer_any_more(world: RedisWorld) -> None:
    one = world.coordinator("one")
    world.begin(one, ONE)
    world.settle(one)

    world.log("one").close()

    assert consumers(world) == []


def consumers(world: RedisWorld) -> list[str]:
    """The readers that Redis knows of the starts."""
    found: Any = world.client.xinfo_consumers(world.keys.starts, GROUP)
    return sorted(one["name"] for one in found)


def test_a_coordinator_that_left_something_unfinished_stays_a_consumer(world: RedisWorld) -> None:
    log = world.log("one")
    log.open()
    entry = world.start(ONE)
    log.read(10, 0)

    log.close()

    assert (consumers(world), world.pending()) == (["one"], [entry])
    world.age_pending(5_000, reader="one")
    world.coordinator("two").run_once()
    assert world.answer(entry)["ok"] is True


def test_a_consumer_that_is_long_gone_is_removed_when_it_left_nothing(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.log("one")
    log.open()
    entry = world.start(ONE)
    world.log("unfinished").read(10, 0)
    world.log("gone").read(10, 0)
    world.client.xgroup_createconsumer(world.keys.starts, GROUP, "gone")  # 7.2 makes one by itself

    log.trim()
    assert consumers(world) == ["gone", "unfinished"], "an hour has not passed"
    monkeypatch.setattr(events, "CONSUMER_GONE_AFTER_MS", 0)
    log.trim()

    assert (consumers(world), world.pending()) == (["unfinished"], [entry])


@pytest.mark.parametrize("world", ["real"], indirect=True)
def test_both_sides_agree_on_the_stream_of_an_execution(world: RedisWorld) -> None:
    """keys.py and sweep.lua compute it apart from each other; where there is no sha1hex, as in fakeredis,
    the sweep takes the first stream."""
    log = world.log()
    log.open()
    ids = [f"{random.Random(n).getrandbits(128):032x}#ä{n}" for n in range(50)]
    world.client.zadd(world.keys.leases, {f"{weid}|a|0|1|t": 1 for weid in ids})

    log.sweep()

    for stream in world.streams()[1:]:
        entries: Any = world.client.xrange(stream)
        assert {world.keys.events_of(fields["execution"]) for _, fields in entries} <= {stream}
    assert len(world.events()) == 50


# ---- trimming


def test_trimming_drops_what_is_acknowledged(world: RedisWorld) -> None:
    one = world.coordinator()
    for _ in range(10):
        world.start(ONE)
    world.settle(one)
    world.log().trim()
    assert int(world.client.xlen(world.keys.starts)) <= 1


def test_trimming_without_streams_or_groups_does_nothing(world: RedisWorld) -> None:
    assert world.log().trim() == 0
    world.start(ONE)
    assert world.log().trim() == 0
    assert world.client.xlen(world.keys.starts) == 1


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), groups=st.integers(1, 3))
def test_no_unacknowledged_entry_is_ever_trimmed(world: RedisWorld, seed: int, groups: int) -> None:
    world.client.flushall()
    choose = random.Random(seed)
    log, stream = world.log(), world.keys.starts
    log.open()
    names = [GROUP, *(f"others{n}" for n in range(1, groups))]
    for name in names[1:]:
        world.client.xgroup_create(stream, name, id="0")
    owed: dict[str, set[str]] = {name: set() for name in names}
    read: dict[str, set[str]] = {name: set() for name in names}
    for _ in range(60):
        name = choose.choice(names)
        match choose.randrange(5):
            case 0 | 1:
                entry = world.send(stream, {"n": "1"})
                for one in names:
                    owed[one].add(entry)
            case 2:
                found: Any = world.client.xreadgroup(name, "c", {stream: ">"}, count=choose.randint(1, 3))
                read[name] |= {entry for _, entries in found for entry, _ in entries}
            case 3 if read[name]:
                entry = choose.choice(sorted(read[name]))
                world.client.xack(stream, name, entry)
                read[name].discard(entry)
                owed[name].discard(entry)
            case 4:
                log.trim()
                entries: Any = world.client.xrange(stream)
                assert set().union(*owed.values()) <= {entry for entry, _ in entries}


# ---- dead letters


def test_a_letter_keeps_what_was_sent_but_not_all_of_a_huge_field(world: RedisWorld) -> None:
    log = world.log()
    log.open()
    world.send(world.keys.events(0), {"type": "boom", "data": "x" * 1_000_000})
    [delivery] = log.read(10, 0)

    log.reject(delivery, "because")

    [letter] = world.dead()
    kept: Json = json.loads(letter["event"])
    assert (kept["type"], len(kept["data"])) == ("boom", 10_000)
    assert letter["reason"] == "because"
    assert not list(world.client.scan_iter(f"{world.keys.prefix}:answer:*")), "only starts are answered"


def test_an_event_that_two_coordinators_refuse_is_one_letter(world: RedisWorld) -> None:
    log = world.log()
    log.open()
    entry = world.send(world.keys.starts, {"workflow": "missing"})
    [delivery] = log.read(10, 0)

    world.log("another").reject(delivery, "because")
    log.reject(delivery, "because")
    log.reply(delivery, {"ok": True})

    assert len(world.dead()) == 1
    assert world.counter("dead") == 1
    assert world.answer(entry) == {"ok": False, "reason": "because"}


def test_an_event_that_another_coordinator_has_acknowledged_is_not_rejected(world: RedisWorld) -> None:
    log = world.log()
    log.open()
    world.send(world.keys.events(0), {"type": "boom"})
    [delivery] = log.read(10, 0)

    log.drop(delivery)
    log.reject(delivery, "because")

    assert world.dead() == []
    assert world.counter("dead") == 0


@pytest.mark.parametrize("output", ["{", DEEP, "x" * 9_000_000], ids=["no JSON", "too deep", "too large"])
def test_a_result_that_cannot_be_read_is_a_failure_of_its_dispatch(world: RedisWorld, output: str) -> None:
    """A step without a deadline would wait for ever for what stands among the dead letters."""
    one = world.coordinator()
    weid = world.begin(one, document(step("a", timeout="none")))
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], {**result_fields(payload), "output": output})

    one.run_once()
    one.run_once()

    error = world.record(weid).error
    assert error is not None
    assert error["kind"] == "bad_output"
    assert world.dead()[0]["reason"] in error["message"]
    assert (world.pending(), world.leases(), len(world.dead())) == ([], {}, 1)


def test_an_unreadable_result_of_a_missing_execution_leaves_two_letters_and_no_loop(
    world: RedisWorld,
) -> None:
    one = world.coordinator()
    payload = {"execution": "w#x", "step": "a", "run_id": 0, "attempt": 1, "token": "t"}
    world.send(world.keys.events(0), {**result_fields(payload), "output": "{"})

    world.settle(one)

    assert ["not JSON" in letter["reason"] for letter in world.dead()] == [True, False]


def test_an_event_is_understood_as_it_was_sent(world: RedisWorld) -> None:
    log = world.log()
    log.open()
    entry = world.send(world.keys.events(0), {"type": "continue", "execution": "w#x"})
    [delivery] = log.read(10, 0)
    assert delivery.event == ContinueEvent("w#x")
    assert (delivery.ref.entry_id, delivery.at_ms) == (entry, int(entry.partition("-")[0]))
