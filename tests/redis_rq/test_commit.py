"""commit.lua: one decision is written whole, or nothing of it is."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

from orchestrator.application.errors import OrchestratorError, RecordNotFound, Unavailable
from orchestrator.application.records.changes import Changes
from orchestrator.application.spec.model import LoadedSpec
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Commit, Committed, EventRef
from orchestrator.redis_rq.connection import Client
from orchestrator.redis_rq.keys import FIRST_SEQUENCE, GROUP, SEQUENCES_PER_QUEUE
from orchestrator.redis_rq.store import RedisStore
from orchestrator.settings import RETENTION_MARGIN_S
from servers.proxy import Proxy
from servers.redis_contents import snapshot
from servers.redis_server import RedisServer
from worlds.commits import commit, creation, decision, result, written
from worlds.documents import Json, document, step, when
from worlds.redis_world import RedisWorld, result_fields
from worlds.spec_executions import IT, coordinators
from worlds.specs import task
from worlds.waiting import at_some_pace, wait_until

ONE = document(step("a"))
TWO = document(step("a"), step("b", after="a"))
DIAMOND = document(step("a"), step("b", "a"), step("c", "a"), step("d", "b c"))


def fan(width: int) -> Json:
    return document(step("root"), *(step(f"s{n}", after="root") for n in range(width)))


# ---- the guards


def test_of_two_decisions_upon_the_same_version_the_second_is_refused(world: RedisWorld) -> None:
    written(world.store, creation(TWO))
    mine, theirs = world.record("x1"), world.record("x1")
    written(world.store, decision(theirs, result(theirs, "a", {"n": 1})))
    before = snapshot(world.client)

    assert commit(world.store, decision(mine, result(mine, "a", {"n": 2}))) == [Committed.CONFLICT]

    assert snapshot(world.client) == before
    assert world.record("x1").state == {"n": 1}


@pytest.mark.parametrize(
    "other", ["1", "1-", "01-{nonce}", "1.0-{nonce}", "1-ffffffff", "2-{nonce}", " 1-{nonce}"]
)
def test_a_version_is_compared_as_a_string_and_its_nonce_counts(world: RedisWorld, other: str) -> None:
    written(world.store, creation(ONE))
    record = world.record("x1")
    key = world.keys.workflow(record.workflow_execution_id)
    nonce = record.version.partition("-")[2]
    world.client.hset(key, "version", other.format(nonce=nonce))
    before = snapshot(world.client)

    assert commit(world.store, decision(record, result(record, "a"))) == [Committed.CONFLICT]

    assert snapshot(world.client) == before


def test_every_commit_makes_a_version_that_was_never_there_before(world: RedisWorld) -> None:
    record = written(world.store, creation(TWO))
    first = record.version
    written(world.store, decision(record, result(record, "a")))
    second = record.version
    assert [version.partition("-")[0] for version in (first, second)] == ["1", "2"]
    assert first.partition("-")[2] != second.partition("-")[2]
    assert world.record("x1").version == second


@pytest.mark.parametrize("spec", [ONE, TWO], ids=["same spec", "other spec"])
def test_an_execution_id_that_is_taken_refuses_a_creation(world: RedisWorld, spec: Json) -> None:
    written(world.store, creation(ONE))
    before = snapshot(world.client)

    assert commit(world.store, creation(spec)) == [Committed.EXISTS]

    assert snapshot(world.client) == before


def test_two_creations_of_one_execution_in_one_batch_make_one(world: RedisWorld) -> None:
    assert commit(world.store, creation(ONE), creation(ONE)) == [Committed.YES, Committed.EXISTS]
    assert len(world.waiting()) == 1


def test_another_document_under_the_same_workflow_id_is_refused(world: RedisWorld) -> None:
    forged = creation(ONE)
    world.client.hset(world.keys.spec(forged.record.workflow_id), "document", '{"steps":[{"op":"evil"}]}')
    before = snapshot(world.client)

    assert commit(world.store, forged) == [Committed.SPEC_COLLISION]

    assert snapshot(world.client) == before


def test_registering_does_not_replace_another_document_of_the_same_workflow_id(world: RedisWorld) -> None:
    loaded = check_spec(ONE)
    world.client.hset(world.keys.spec(loaded.workflow_id), "document", '{"steps":[{"op":"other"}]}')

    with pytest.raises(OrchestratorError):
        world.store.register("order", loaded)


def read_starts(world: RedisWorld, reader: str = "one") -> list[EventRef]:
    """Starts that a coordinator has read and not yet answered."""
    log = world.log(reader)
    log.open()
    return [delivery.ref for delivery in log.read(10, 0)]


def test_an_event_that_is_no_longer_pending_leaves_nothing_written(world: RedisWorld) -> None:
    world.start(ONE)
    refs = read_starts(world)
    world.client.xack(world.keys.starts, GROUP, refs[0].entry_id)
    before = snapshot(world.client)

    assert commit(world.store, creation(ONE, refs=refs)) == [Committed.GONE]

    assert snapshot(world.client) == before


def test_one_of_several_events_gone_refuses_the_whole(world: RedisWorld) -> None:
    world.start(ONE)
    world.start(ONE)
    refs = read_starts(world)
    world.client.xack(world.keys.starts, GROUP, refs[1].entry_id)
    before = snapshot(world.client)

    assert commit(world.store, creation(ONE, refs=refs)) == [Committed.GONE]

    assert snapshot(world.client) == before


def test_a_start_that_another_coordinator_has_answered_is_gone_and_not_a_duplicate(world: RedisWorld) -> None:
    world.start(ONE)
    refs = read_starts(world)
    written(world.store, creation(ONE, refs=refs))

    assert commit(world.store, creation(ONE, refs=refs)) == [Committed.GONE]


def test_the_events_of_a_commit_are_acknowledged_in_the_same_write(world: RedisWorld) -> None:
    world.start(ONE)
    refs = read_starts(world)
    assert world.pending() == [refs[0].entry_id]

    written(world.store, creation(ONE, refs=refs))

    assert world.pending() == []


def test_a_refused_commit_acknowledges_nothing(world: RedisWorld) -> None:
    written(world.store, creation(ONE))
    world.start(ONE)
    refs = read_starts(world)

    assert commit(world.store, creation(ONE, refs=refs)) == [Committed.EXISTS]

    assert world.pending() == [refs[0].entry_id]


def test_in_a_batch_the_refused_commit_does_not_hinder_the_others(world: RedisWorld) -> None:
    written(world.store, creation(ONE, "x1"))

    results = commit(world.store, creation(ONE, "x0"), creation(ONE, "x1"), creation(ONE, "x2"))

    assert results == [Committed.YES, Committed.EXISTS, Committed.YES]
    assert [world.record(one).execution_id for one in ("x0", "x1", "x2")] == ["x0", "x1", "x2"]


# ---- what is written


def test_a_dispatch_is_a_job_hash_a_place_in_the_queue_and_a_lease(world: RedisWorld) -> None:
    record = written(world.store, creation(document(step("a", queue="slow", timeout="5s"))))

    token = record.steps["a"].token
    assert token is not None
    assert world.client.lrange("rq:queue:orchestrator.slow", 0, -1) == [token]
    assert world.client.smembers("rq:queues") == {"rq:queue:orchestrator.slow"}
    member = f"{record.workflow_execution_id}|a|0|1|{token}"
    assert world.leases() == {member: math.inf}, "no worker has taken it, so it is never due"
    assert world.dispatched("slow") == {member: 1}
    job: Any = world.client.hgetall(f"rq:job:{token}")
    assert (job["origin"], job["status"], job["timeout"]) == ("orchestrator.slow", "queued", "35")
    function, instance, given, options = json.loads(job["data"])
    assert (function, instance) == ("orchestrator.worker.harness.run_step", None)
    assert given == [world.keys.events_of(record.workflow_execution_id), "a", {}]
    assert job["description"] == member
    assert options == {"timeout_s": 5.0}
    assert job.keys() == {"data", "description", "origin", "status", "timeout"}, "each field costs 50 bytes"


def test_every_queue_counts_its_own_dispatches(world: RedisWorld) -> None:
    written(world.store, creation(document(step("a"), step("b", queue="q"), step("c"), step("d", queue="q"))))
    written(world.store, creation(document(step("e", queue="q")), "x2"))

    found: Any = world.client.hgetall(world.keys.sequences)
    assert found == {
        "orchestrator.default": str(FIRST_SEQUENCE + 2),
        "orchestrator.q": str(FIRST_SEQUENCE + SEQUENCES_PER_QUEUE + 3),
    }
    assert in_order(world.dispatched("default")) == ["a", "c"]
    assert in_order(world.dispatched("q")) == ["b", "d", "e"]


def in_order(dispatched: dict[str, float]) -> list[str]:
    """The steps by their sequence, which must be without a gap."""
    assert sorted(dispatched.values()) == list(range(1, len(dispatched) + 1))
    return [member.split("|")[1] for member in sorted(dispatched, key=dispatched.__getitem__)]


def test_a_settled_dispatch_gives_back_its_lease(world: RedisWorld) -> None:
    record = written(world.store, creation(TWO))
    written(world.store, decision(record, result(record, "a")))
    [member] = world.leases()
    assert "|b|" in member


def test_a_commit_writes_only_what_changed_and_keeps_what_it_does_not_know(world: RedisWorld) -> None:
    record = written(world.store, creation(DIAMOND))
    key = world.keys.workflow(record.workflow_execution_id)
    world.client.hset(key, mapping={"from_a_newer_release": "1", "step:z": "{}"})
    before: Any = world.client.hgetall(key)

    written(world.store, decision(record, result(record, "a", {"n": 1})))

    after: Any = world.client.hgetall(key)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"version", "step:a", "step:b", "step:c", "state:n"}
    assert (after["from_a_newer_release"], after["step:z"]) == ("1", "{}")


def test_what_a_decision_counts_is_counted_once(world: RedisWorld) -> None:
    record = written(world.store, creation(TWO))
    stale = result(record, "a", {"n": 1})
    written(world.store, decision(record, stale))
    version = record.version

    written(world.store, decision(record, stale, stale))

    assert world.counter("stale") == 2
    assert world.record("x1").version == version, "a stale result changes nothing about the record"


def test_history_has_one_entry_for_every_move(world: RedisWorld) -> None:
    record = written(world.store, creation(ONE))
    written(world.store, decision(record, result(record, "a")))
    assert [one.get("to", one.get("workflow")) for one in world.history("x1")] == [
        "in_progress",
        "in_progress",
        "complete",
        "complete",
    ]


# ---- sizes


def test_ten_thousand_steps_are_created_and_read_back(world: RedisWorld) -> None:
    spec = document(*(step(f"s{n}") for n in range(10_000)))

    written(world.store, creation(spec, limit=500))

    assert len(world.record("x1").steps) == 10_000
    assert len(world.waiting()) == len(world.leases()) == 500
    assert len(world.events()) == 1, "the rest goes on by a continue event"


def test_five_thousand_fields_in_one_commit_pass_through_lua(world: RedisWorld) -> None:
    record = written(world.store, creation(ONE))
    output = {f"k{n}": n for n in range(5_000)}

    written(world.store, decision(record, result(record, "a", output)))

    assert world.record("x1").state == output


def test_thousands_of_revoked_dispatches_end_in_one_commit(world: RedisWorld) -> None:
    record = written(world.store, creation(document(step("bad"), *(step(f"s{n}") for n in range(2_500)))))
    token = record.steps["bad"].token
    assert len(world.leases()) == 2_501
    assert in_order(world.dispatched()) == ["bad", *(f"s{n}" for n in range(2_500))]

    written(world.store, decision(record, result(record, "bad", error={"kind": "declared", "message": "no"})))

    assert world.record("x1").status == "failed"
    assert world.leases() == {}
    assert list(world.client.scan_iter("rq:job:*", 5_000)) == [f"rq:job:{token}"], "only the one that ran"


# ---- revoked dispatches


def failing_pair(world: RedisWorld) -> Commit:
    """A workflow of two steps, of which `bad` fails and takes `good`, which is out, with it."""
    record = written(world.store, creation(document(step("bad"), step("good"))))
    return decision(record, result(record, "bad", error={"kind": "declared", "message": "no"}))


def test_a_revoked_dispatch_that_still_waits_loses_its_hash(world: RedisWorld) -> None:
    ending = failing_pair(world)
    token = ending.record.steps["good"].token

    written(world.store, ending)

    assert not world.client.exists(f"rq:job:{token}")
    assert world.leases() == {}


def test_a_revoked_dispatch_that_runs_keeps_its_hash_for_rq(world: RedisWorld) -> None:
    ending = failing_pair(world)
    token = ending.record.steps["good"].token
    world.client.hset(f"rq:job:{token}", "status", "started")

    written(world.store, ending)

    assert world.client.hget(f"rq:job:{token}", "status") == "started"
    assert world.leases() == {}


def test_a_stock_rq_worker_passes_over_revoked_jobs(
    world: RedisWorld, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_EXECUTORS", "step_functions")
    written(world.store, failing_pair(world))
    written(world.store, creation(document(step("next", fn="missing")), "x2"))
    assert len(world.waiting()) == 3

    with redis_server.client() as raw:
        queue = Queue("orchestrator.default", connection=raw, serializer=JSONSerializer)
        SimpleWorker([queue], connection=raw, serializer=JSONSerializer).work(burst=True)

    assert world.waiting() == []
    assert [fields["step"] for _, fields in world.events()] == ["next"]


# ---- indexes, terms, messages


def in_indexes(world: RedisWorld) -> dict[str, list[str]]:
    keys = sorted(world.client.scan_iter(world.keys.index("*")))
    return {key.rpartition(":")[2]: world.client.zrange(key, 0, -1) for key in keys}  # type: ignore[misc]


def test_the_indexes_follow_the_status(world: RedisWorld) -> None:
    record = written(world.store, creation(ONE))
    weid = record.workflow_execution_id
    assert in_indexes(world) == {"in_progress": [weid]}

    written(world.store, decision(record, result(record, "a")))

    assert in_indexes(world) == {"complete": [weid]}


def test_an_execution_that_ends_is_listed_to_be_dropped_and_its_spec_gets_a_term(world: RedisWorld) -> None:
    record = written(world.store, creation(ONE))
    weid = record.workflow_execution_id
    own = [world.keys.workflow(weid), world.keys.history(weid), world.keys.execution("x1")]
    assert not world.is_leaving(weid)

    written(world.store, decision(record, result(record, "a")))

    assert world.is_leaving(weid)
    assert [world.client.ttl(key) for key in own] == [-1, -1, -1], "only coordinators delete it"
    spare = int(world.client.ttl(world.keys.spec(record.workflow_id))) - world.retention_s
    assert RETENTION_MARGIN_S - 5 <= spare <= RETENTION_MARGIN_S


def test_an_execution_that_ends_as_it_starts_is_listed_to_be_dropped_too(world: RedisWorld) -> None:
    record = written(world.store, creation(document(step("a", input={"x": {"/": [1, 0]}}))))

    assert world.record("x1").status == "failed"
    assert world.is_leaving(record.workflow_execution_id)
    assert int(world.client.ttl(world.keys.spec(record.workflow_id))) > 0


def test_an_execution_that_ends_as_it_starts_is_not_counted_in_its_group_any_more(world: RedisWorld) -> None:
    one = world.coordinator()
    shares = document(
        step("a", when=False),
        step("e", map={"over": []}, kv_add={"flow_group:n": 1}),
        kv={"scopes": ["flow_group"]},
    )

    world.send(world.keys.starts, {"spec": json.dumps(shares), "execution_id": "x1", "group": "march"})
    one.run_once()

    assert world.record("x1").status == "complete"
    assert world.client.hgetall(world.keys.groups) == {}
    assert int(world.client.ttl(world.keys.shared("flow_group", "march"))) > 0


def test_after_the_retention_nothing_is_left_of_an_execution(world: RedisWorld) -> None:
    def scene(pace: int) -> None:
        world.client.flushall()
        world.retention_s = pace
        one = world.coordinator()
        weid = world.begin(one, ONE)
        world.settle(one)
        assert world.status(weid) == "complete"

        def left() -> list[str]:
            one.run_once()
            found = [key for key, content in snapshot(world.client).items() if weid in f"{key} {content}"]
            return [key for key in found if ":events:" not in key and ":answer:" not in key]

        assert world.keys.index("complete") in left()
        # The indexes go by whole seconds, so they may name an execution a second longer than it is there.
        wait_until(lambda: not left())

    at_some_pace(scene)


def test_the_end_is_published(world: RedisWorld) -> None:
    record = written(world.store, creation(ONE))
    with world.connect().pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
        channel.subscribe(name := world.keys.done(record.workflow_execution_id))
        wait_until(lambda: world.client.pubsub_numsub(name)[0][1] == 1)

        written(world.store, decision(record, result(record, "a")))

        message = wait_until(lambda: channel.get_message(timeout=0.1))
    assert message["data"] == "complete"


def test_an_answer_waits_for_its_producer_and_expires(world: RedisWorld) -> None:
    world.start(ONE)
    [ref] = read_starts(world)
    one = creation(ONE, refs=[ref])
    one.replies = {ref.entry_id: {"ok": True}}

    written(world.store, one)

    assert world.answer(ref.entry_id) == {"ok": True}
    assert 0 < int(world.client.ttl(world.keys.reply(ref.entry_id))) <= 3_600


# ---- specs


def spec_ttl(world: RedisWorld, spec: Json) -> int:
    return int(world.client.ttl(world.keys.spec(check_spec(spec).workflow_id)))


def test_a_spec_stays_while_one_of_its_executions_is_open(world: RedisWorld) -> None:
    first, second = (written(world.store, creation(ONE, name)) for name in ("x1", "x2"))

    written(world.store, decision(first, result(first, "a")))
    assert spec_ttl(world, ONE) == -1

    written(world.store, decision(second, result(second, "a")))
    assert spec_ttl(world, ONE) > 0


def test_a_spec_that_is_about_to_expire_is_kept_by_a_new_execution(world: RedisWorld) -> None:
    first = written(world.store, creation(ONE, "x1"))
    written(world.store, decision(first, result(first, "a")))
    assert spec_ttl(world, ONE) > 0

    written(world.store, creation(ONE, "x2"))

    assert spec_ttl(world, ONE) == -1


def test_a_registered_spec_never_expires(world: RedisWorld) -> None:
    world.store.register("order", check_spec(ONE))
    record = written(world.store, creation(ONE))
    written(world.store, decision(record, result(record, "a")))
    assert spec_ttl(world, ONE) == -1


def test_registering_a_spec_that_is_about_to_expire_keeps_it(world: RedisWorld) -> None:
    record = written(world.store, creation(ONE))
    written(world.store, decision(record, result(record, "a")))

    world.store.register("order", check_spec(ONE))

    assert spec_ttl(world, ONE) == -1


def test_a_spec_whose_name_went_to_another_one_expires_after_its_last_execution(world: RedisWorld) -> None:
    world.store.register("order", check_spec(ONE))
    record = written(world.store, creation(ONE))
    world.store.register("order", check_spec(TWO))

    written(world.store, decision(record, result(record, "a")))

    assert spec_ttl(world, ONE) > 0


def test_a_spec_that_lost_its_last_name_expires_when_it_has_no_execution(world: RedisWorld) -> None:
    world.store.register("order", check_spec(ONE))
    world.store.register("order", check_spec(TWO))
    assert 0 < spec_ttl(world, ONE) <= world.retention_s + RETENTION_MARGIN_S
    assert spec_ttl(world, TWO) == -1

    world.store.register("order", check_spec(ONE))
    assert spec_ttl(world, ONE) == -1
    assert 0 < spec_ttl(world, TWO) <= world.retention_s + RETENTION_MARGIN_S


def test_a_spec_of_two_names_stays_until_both_are_another_s(world: RedisWorld) -> None:
    for name in ("order", "order", "order", "purchase"):  # to say it again changes nothing
        world.store.register(name, check_spec(ONE))

    world.store.register("order", check_spec(TWO))
    assert spec_ttl(world, ONE) == -1

    world.store.register("purchase", check_spec(TWO))
    assert spec_ttl(world, ONE) > 0


def test_registering_again_repairs_a_spec_that_is_gone(world: RedisWorld) -> None:
    loaded = check_spec(ONE)
    world.store.register("order", loaded)
    world.client.delete(world.keys.spec(loaded.workflow_id))

    world.store.register("order", loaded)

    assert world.store_on(world.client).load_definition("order").workflow_id == loaded.workflow_id


def test_an_imported_execution_keeps_the_spec_of_the_others(world: RedisWorld) -> None:
    written(world.store, creation(ONE, "open"))
    imported = creation(ONE, "imported").record
    world.store.write(imported)
    written(world.store, decision(imported))
    written(world.store, decision(imported, result(imported, "a")))

    assert spec_ttl(world, ONE) == -1, "the execution 'open' still needs it"


# ---- lost scripts and lost replies


def test_a_server_that_forgot_its_scripts_is_told_them_again(world: RedisWorld) -> None:
    written(world.store, creation(ONE, "x1"))
    world.client.script_flush()

    assert commit(world.store, creation(ONE, "x2"), creation(ONE, "x3")) == [Committed.YES, Committed.YES]

    assert len(world.waiting()) == 3


@pytest.mark.parametrize(("times", "is_written"), [(2, True), (1_000, False)])
def test_a_server_that_forgets_a_script_while_it_is_told_is_told_again_and_then_waited_for(
    world: RedisWorld, times: int, is_written: bool
) -> None:
    world.client.script_flush()
    store, told = world.store_on(world.client), list[str]()
    script_load = world.client.script_load

    def load_and_forget(text: str) -> str:
        told.append(text)
        sha = str(script_load(text))
        if len(told) <= times:
            world.client.script_flush()
        return sha

    world.client.script_load = load_and_forget  # type: ignore[assignment,method-assign]

    if is_written:
        assert commit(store, creation(ONE, "x1")) == [Committed.YES]
    else:
        with pytest.raises(Unavailable, match="No matching script"):
            commit(store, creation(ONE, "x1"))

    assert len(world.waiting()) == int(is_written)
    assert len(told) <= 4


def test_a_commit_whose_reply_was_lost_happened_once(
    world: RedisWorld, proxy: Proxy, proxied: Client
) -> None:
    store = world.store_on(proxied)
    written(store, creation(ONE, "warm"))  # the script is known from here on
    proxy.drop_reply_of("EVALSHA")

    with pytest.raises(Unavailable):
        store.commit([creation(TWO, "x1")])

    assert proxy.dropped == 1
    assert world.record("x1").status == "in_progress"
    assert commit(world.store, creation(TWO, "x1")) == [Committed.EXISTS]
    assert len(world.waiting()) == 2


@pytest.mark.parametrize("command", ["EVALSHA", "XREADGROUP"])
def test_a_coordinator_that_loses_replies_takes_every_step_once(
    world: RedisWorld, proxy: Proxy, proxied: Client, command: str
) -> None:
    one = world.coordinator("one", proxied)
    weid = world.begin(one, DIAMOND, execution_id="x1")
    payload = world.pop()
    assert payload is not None
    world.send(payload["events"], result_fields(payload, {"n": 1}))
    proxy.drop_reply_of(command)

    while proxy.dropped == 0:
        try:
            one.run_once()
        except Unavailable:
            assert proxy.dropped == 1
    one.resume_unfinished()
    world.settle(one)

    assert world.status(weid) == "complete"
    assert sorted(world.moves(weid, "complete")) == ["a", "b", "c", "d"]
    assert world.counter("stale") == 0
    assert world.pending() == []


def test_an_event_delivered_again_after_a_lost_reply_changes_nothing_twice(
    world: RedisWorld, proxy: Proxy, proxied: Client
) -> None:
    record = written(world.store, creation(TWO))
    brought = result(record, "a", {"n": 1})
    store = world.store_on(proxied)
    written(store, creation(ONE, "warm"))
    proxy.drop_reply_of("EVALSHA")
    with pytest.raises(Unavailable):
        store.commit([decision(record, brought)])
    before = snapshot(world.client, world.keys.counters)

    again = world.record("x1")
    written(world.store, decision(again, brought))

    assert snapshot(world.client, world.keys.counters) == before
    assert world.counter("stale") == 1


# ---- a Redis that does not write for now


@pytest.mark.parametrize("trouble", ["full", "replica"])
def test_a_redis_that_cannot_write_is_unavailable_and_nothing_is_half_written(
    world: RedisWorld, trouble: str
) -> None:
    record = written(world.store, creation(TWO))
    before = snapshot(world.client)
    make_unwritable(world.client, trouble)

    try:
        with pytest.raises(Unavailable):
            world.store.commit([decision(record, result(record, "a"))])
        assert snapshot(world.client) == before
    finally:
        make_writable(world.client)

    assert commit(world.store, decision(record, result(record, "a"))) == [Committed.YES]


def make_unwritable(client: Client, trouble: str) -> None:
    if trouble == "full":
        client.config_set("maxmemory", "1")
    else:
        client.replicaof("127.0.0.1", "1")


def make_writable(client: Client) -> None:
    client.config_set("maxmemory", "0")
    client.replicaof("NO", "ONE")


def test_an_empty_commit_is_nothing_but_an_acknowledgement(world: RedisWorld) -> None:
    record = written(world.store, creation(ONE))
    log = world.log()
    log.open()
    stream = world.keys.events_of(record.workflow_execution_id)
    world.send(stream, {"type": "continue", "execution": record.workflow_execution_id})
    [delivery] = log.read(10, 0)
    before = snapshot(world.client)

    written(world.store, Commit(record, Changes(), events=[delivery.ref]))

    assert snapshot(world.client) == before
    assert world.pending() == []


def test_a_halting_branch_ends_everything_in_one_commit(world: RedisWorld) -> None:
    spec = document(step("a", branch=[when(True, "halt", result={"why": "enough"})]), step("b"))
    record = written(world.store, creation(spec))

    written(world.store, decision(record, result(record, "a", {"n": 1})))

    found = world.record("x1")
    assert (found.status, found.outcome) == ("halted", {"why": "enough"})
    assert (world.leases(), world.timers()) == ({}, {})


def test_an_execution_that_redis_forgets_while_it_is_loaded_is_not_there(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record was read, and its spec is gone with it: that is no record which cannot be read."""
    [one] = coordinators(world, task("a"))
    weid = world.begin(one, IT)
    store = RedisStore(world.client, world.keys)
    spec = store.spec

    def forgotten(workflow_id: str) -> LoadedSpec:
        world.client.delete(world.keys.workflow(weid), world.keys.spec(workflow_id))
        return spec(workflow_id)

    monkeypatch.setattr(store, "spec", forgotten)

    assert isinstance(store.load_many([weid])[0], RecordNotFound)
