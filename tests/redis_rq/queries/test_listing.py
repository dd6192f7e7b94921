"""Lists: every execution that matches is listed once, the newest first, whatever moves meanwhile; a page
costs the same however many there are, and reads nothing that it does not show."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from redis import ConnectionPool, Redis
from redis.connection import UnixDomainSocketConnection

from effort import count
from orchestrator.application.engine.transitions import decide
from orchestrator.application.records.events import Control, ControlEvent, iso
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import FINAL_WORKFLOW_STATUSES, WorkflowStatus
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Commit, Committed
from orchestrator.client import Client, ExecutionFilter, Page, Summary
from orchestrator.redis_rq.queries.listing import MAX_SCANS, SCAN_BATCH_SIZE, InvalidCursor, Listing
from servers.redis_contents import calls, snapshot
from servers.redis_server import RedisServer
from worlds.commits import commit, decision, now
from worlds.documents import document, step
from worlds.listed_executions import START_MS, Known, listed_in, ms_of, seed
from worlds.redis_world import RedisWorld
from worlds.waiting import in_thread

STATUSES = [status.value for status in WorkflowStatus]
NAMES, GROUPS, LABELS = [None, "order", "bill"], [None, "march", "april"], ["acme", "zeta"]


def listing(world: RedisWorld) -> Listing:
    return Listing(world.client, world.keys)


def ids(page: Page) -> list[str]:
    return [one.execution_id for one in page.executions]


def summary_fields(one: Summary) -> tuple[Any, ...]:
    assert (one.ended_at is not None) == (one.status in FINAL_WORKFLOW_STATUSES)
    return one.status.value, ms_of(one.created_at), one.name, one.group, one.labels, one.parent


def all_of(world: RedisWorld, wanted: ExecutionFilter, limit: int) -> list[str]:
    return [one for page in pages(world, wanted, limit) for one in page]


def pages(world: RedisWorld, wanted: ExecutionFilter, limit: int) -> list[list[str]]:
    """All pages to the last; a page is never longer than its limit."""
    found, cursor = [], None
    while True:
        page = listing(world).page(wanted, limit, cursor)
        assert len(page.executions) <= limit
        found.append(ids(page))
        cursor = page.cursor
        if cursor is None:
            return found


# ---- against an oracle


class Moving:
    """Executions committed as a coordinator commits them, and an oracle that lists them all."""

    def __init__(self, world: RedisWorld, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.records: dict[str, WorkflowRecord] = {}
        self.known: dict[str, Known] = {}
        self._numbers: dict[int, int] = {}

    def begin(self, at_ms: int) -> None:
        rng, number = self.rng, self._numbers.get(at_ms, -1) + 1
        self._numbers[at_ms] = number
        name, group = rng.choice(NAMES), rng.choice(GROUPS)
        labels = {"customer": rng.choice(LABELS)} if rng.random() < 0.6 else {}
        labels |= {"kind": "big"} if rng.random() < 0.3 else {}
        spec = document(step("a"), **({"name": name} if name else {}))
        record = WorkflowRecord(
            check_spec(spec),
            f"x{len(self.records)}",
            {},
            created_at=iso(at_ms),
            start_event=f"{at_ms}-{number}",
            labels=labels,
            group=group,
        )
        one = Commit(record, decide(record, [], now()).changes, creates=True)
        assert commit(self.world.store, one) == [Committed.YES]
        self.records[record.execution_id] = record
        self.known[record.execution_id] = Known(
            record.execution_id, at_ms, number, record.status, name, group, labels, record.workflow_id
        )

    def move(self) -> None:
        """Change one of them: it gets another status, or is deleted."""
        execution_id = self.rng.choice(list(self.known))
        record, known = self.records[execution_id], self.known[execution_id]
        action: Control = self.rng.choice(_POSSIBLE[known.status])
        changes = decision(record, ControlEvent(record.workflow_execution_id, action))
        assert commit(self.world.store, changes) == [Committed.YES]
        if action == "delete":
            del self.known[execution_id]
        else:
            known.status = record.status.value


_POSSIBLE: dict[str, list[Control]] = {
    "in_progress": ["pause", "cancel"],
    "paused": ["unpause", "cancel"],
    "cancelled": ["retry", "delete"],
}


def any_filter(rng: random.Random) -> ExecutionFilter:
    statuses = rng.choice([[], ["in_progress"], ["in_progress", "paused"], ["paused", "cancelled", "failed"]])
    labels = rng.choice([{}, {}, {"customer": "acme"}, {"customer": "zeta", "kind": "big"}, {"kind": "none"}])
    since, until = rng.choice([None, START_MS + 3]), rng.choice([None, START_MS + 9])
    found = [WorkflowStatus(status) for status in statuses]
    text = rng.choice([None, None, "X1", "order", "AR", "customer=z", "nothing"])
    return ExecutionFilter(found, rng.choice(NAMES), rng.choice(GROUPS), labels, since, until, text)


@pytest.mark.parametrize("seed_of_chance", range(count(8, 25)))
def test_what_matches_all_the_time_is_listed_once_and_the_newest_first(
    world: RedisWorld, seed_of_chance: int
) -> None:
    rng = random.Random(seed_of_chance)
    moving = Moving(world, rng)
    for _ in range(60):
        moving.begin(START_MS + rng.randrange(12))  # several in each millisecond
    for _ in range(40):
        moving.move()

    for _ in range(6):
        wanted, limit, cursor = any_filter(rng), rng.randint(1, 7), None
        always = {known.id for known in moving.known.values() if known.matches(wanted)}
        found: list[str] = []
        while True:
            matching = {known.id: known for known in moving.known.values() if known.matches(wanted)}
            page = listing(world).page(wanted, limit, cursor)
            for one in page.executions:
                assert summary_fields(one) == matching[one.workflow_execution_id].told
                found.append(one.workflow_execution_id)
            places = [matching[one.workflow_execution_id].place for one in page.executions]
            assert places == sorted(places, reverse=True)
            cursor = page.cursor
            if cursor is None:
                break
            for _ in range(rng.randint(0, 4)):
                moving.move()
            if rng.random() < 0.3:
                moving.begin(START_MS + rng.randrange(12))
            always &= {known.id for known in moving.known.values() if known.matches(wanted)}
        assert len(found) == len(set(found))
        assert always <= set(found)


# ---- changes during a listing


PAGES = count(80, 200)


class Dripping(UnixDomainSocketConnection):
    """A slow connection: pipelines are sent in small pieces, and other clients write in between."""

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        whole = b"".join(command)
        for at in range(0, len(whole), 40):
            super().send_packed_command([whole[at : at + 40]], check_health)  # type: ignore[no-untyped-call]
            time.sleep(0.0001)


@pytest.mark.parametrize("leads", ["the status", "the name"])
def test_an_execution_that_changes_its_status_during_a_listing_is_not_missed(
    world: RedisWorld, redis_server: RedisServer, leads: str
) -> None:
    """Its new status is read before its old one."""
    keys = world.keys
    one = Known("x", START_MS, status="paused", name="order")
    seed(world.client, keys, [one])
    if leads == "the name":
        seed(world.client, keys, (Known(f"y{n}", START_MS, status="paused") for n in range(20)))
    mover, stop = world.connect(), threading.Event()
    pool = ConnectionPool(connection_class=Dripping, path=str(redis_server.socket), decode_responses=True)
    slow = Listing(Redis(connection_pool=pool, protocol=2), keys)

    def move() -> None:
        is_paused = True
        while not stop.is_set():
            there, here = ("in_progress", "paused") if is_paused else ("paused", "in_progress")
            with mover.pipeline(transaction=True) as pipe:  # as a commit does it
                pipe.zrem(keys.index(here), one.id)
                pipe.zadd(keys.index(there), {one.id: START_MS})
                pipe.hset(keys.workflow(one.id), "status", there)
                pipe.execute()
            is_paused = not is_paused

    with in_thread(move):
        try:
            both = ExecutionFilter([WorkflowStatus.IN_PROGRESS, WorkflowStatus.PAUSED], "order")
            wanted = both if leads == "the name" else ExecutionFilter()
            found = [ids(slow.page(wanted)) for _ in range(PAGES)]
        finally:
            stop.set()
            pool.disconnect()

    assert found == [["x"]] * PAGES


# ---- the same score


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_any_number_of_executions_may_have_begun_at_the_same_time(world: RedisWorld, limit: int) -> None:
    """A producer that chooses the ids of stream entries can start them all at the same time."""
    same = [Known(f"x{n:03}", START_MS, 0, "failed" if n % 3 else "complete") for n in range(100)]
    around = [Known("first", START_MS - 1), Known("last", START_MS + 1)]
    seed(world.client, world.keys, [*same, *around])
    in_order = ["last", *(f"x{n:03}" for n in reversed(range(100))), "first"]

    assert all_of(world, ExecutionFilter(), limit) == in_order
    failed = ExecutionFilter([WorkflowStatus.FAILED])
    assert all_of(world, failed, limit) == [f"x{n:03}" for n in reversed(range(100)) if n % 3]


# ---- times


def test_since_is_from_then_on_and_until_is_before(world: RedisWorld) -> None:
    began = [(-1, 0), (0, 0), (0, 3), (1, 0), (1, 5), (2, 0)]
    seed(world.client, world.keys, [Known(f"{ms}/{n}", START_MS + ms, n) for ms, n in began])

    assert pages(world, ExecutionFilter(since_ms=START_MS, until_ms=START_MS + 2), 10) == [
        ["1/5", "1/0", "0/3", "0/0"]
    ]
    assert pages(world, ExecutionFilter(since_ms=START_MS, until_ms=START_MS), 10) == [[]]


def test_a_cursor_does_not_lead_out_of_the_times(world: RedisWorld) -> None:
    seed(world.client, world.keys, [Known(f"x{n}", START_MS + n) for n in range(6)])
    cursor = listing(world).page(ExecutionFilter(), 1).cursor

    assert ids(listing(world).page(ExecutionFilter(until_ms=START_MS + 2), 10, cursor)) == ["x1", "x0"]


# ---- cursors and limits


@pytest.mark.parametrize(
    "cursor", ["", "~", "5", "5~", "~x", "a~x", "nan~x", "inf~x", "-inf~x", "1e999~x", "(5~x", "\0"]
)
def test_an_invalid_cursor_is_rejected(world: RedisWorld, cursor: str) -> None:
    seed(world.client, world.keys, [Known("x", START_MS)])

    with pytest.raises(InvalidCursor, match="is not a cursor: use the one that the previous page returned"):
        listing(world).page(ExecutionFilter(), 10, cursor)


def test_a_limit_of_zero_is_rejected(world: RedisWorld) -> None:
    with pytest.raises(ValueError, match="must be at least 1, not 0"):
        Client(world.client, world.keys).list(limit=0)


def test_a_full_page_that_is_the_last_has_no_cursor(world: RedisWorld) -> None:
    seed(world.client, world.keys, [Known(f"x{n}", START_MS + n) for n in range(4)])

    assert [len(page) for page in pages(world, ExecutionFilter(), 2)] == [2, 2]
    assert listing(world).page(ExecutionFilter(), 4).cursor is None


def test_a_cursor_leads_on_when_the_execution_it_names_is_gone(world: RedisWorld) -> None:
    seed(world.client, world.keys, [Known(f"x{n}", START_MS + n) for n in range(4)])
    cursor = listing(world).page(ExecutionFilter(), 2).cursor
    world.client.zrem(world.keys.index("complete"), "w1#x2")
    world.client.delete(world.keys.workflow("w1#x2"))

    assert ids(listing(world).page(ExecutionFilter(), 2, cursor)) == ["x1", "x0"]


# ---- texts


def test_a_text_is_a_part_of_the_id_the_name_the_group_or_a_label_in_any_case(world: RedisWorld) -> None:
    found_by = {
        "id": Known("by-ÄPFEL-1", START_MS + 5),
        "name": Known("b", START_MS + 4, name="Äpfel"),
        "group": Known("c", START_MS + 3, group="xäpfelx"),
        "label": Known("d", START_MS + 2, labels={"fruit": "äpfel"}),
        "name of a label": Known("e", START_MS + 1, labels={"äPFEL": "1"}),
    }
    others = [Known("f", START_MS, name="äpfe", labels={"fruit": "birnen", "äp": "fel"})]
    seed(world.client, world.keys, [*found_by.values(), *others])

    for limit in (1, 2, 10):
        found = all_of(world, ExecutionFilter(text="äpFEl"), limit)
        assert found == [known.execution_id for known in found_by.values()]
    assert all_of(world, ExecutionFilter(text="fruit=b"), 10) == ["f"]
    assert all_of(world, ExecutionFilter(text="a*"), 10) == []


def test_a_page_with_a_text_ends_early_if_too_few_executions_have_it(world: RedisWorld) -> None:
    most = SCAN_BATCH_SIZE * MAX_SCANS
    others = (Known(f"n{n}", START_MS + n) for n in range(1, most + 100))
    seed(world.client, world.keys, [*others, Known("wanted", START_MS)])

    first, second = pages(world, ExecutionFilter(text="want"), 10)

    assert (first, second) == ([], ["wanted"])


# ---- missing and broken records


def test_expired_executions_are_left_out(world: RedisWorld) -> None:
    seed(world.client, world.keys, [Known(f"x{n:03}", START_MS + n) for n in range(200)])
    for n in range(10, 190):
        world.client.delete(world.keys.workflow(f"w1#x{n:03}"))

    assert all_of(world, ExecutionFilter(), 20) == [
        f"x{n:03}" for n in reversed([*range(10), *range(190, 200)])
    ]


def test_a_page_ends_early_if_too_many_executions_do_not_match(world: RedisWorld) -> None:
    most = SCAN_BATCH_SIZE * MAX_SCANS
    others = [Known(f"n{n}", START_MS + n, name="order") for n in range(1, most + 100)]
    wanted = [Known("w", START_MS, group="march", name="order")]
    rivals = [Known(f"g{n}", START_MS + n, group="march") for n in range(1, most + 200)]
    seed(world.client, world.keys, [*others, *wanted, *rivals])

    first, second = pages(world, ExecutionFilter(name="order", group="march"), 10)

    assert (first, second) == ([], ["w"])


BROKEN: dict[str, Callable[[RedisWorld, str], Any]] = {
    "of another type": lambda world, key: (world.client.delete(key), world.client.set(key, "?")),
    "with an unknown status": lambda world, key: world.client.hset(key, "status", "sleeping"),
    "with labels that are no JSON": lambda world, key: world.client.hset(key, "labels", "{"),
    "with labels of another kind": lambda world, key: world.client.hset(key, "labels", "5"),
    "with a parent of another kind": lambda world, key: world.client.hset(key, "parent", "[]"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_record_that_cannot_be_read_does_not_hide_the_others(world: RedisWorld, how: str) -> None:
    seed(world.client, world.keys, [Known(f"x{n}", START_MS + n, labels={"k": "v"}) for n in range(3)])
    BROKEN[how](world, world.keys.workflow("w1#x1"))

    for wanted in (ExecutionFilter(), ExecutionFilter(labels={"k": "v"})):
        assert all_of(world, wanted, 2) == ["x2", "x0"]


def test_a_stale_index_entry_is_ignored(world: RedisWorld) -> None:
    seed(world.client, world.keys, [Known("x", START_MS, name="order", labels={"k": "new"})])
    for index in (world.keys.index_of_label("k", "old"), world.keys.index("failed")):
        world.client.zadd(index, {"w1#x": START_MS})

    assert pages(world, ExecutionFilter(labels={"k": "old"}), 5) == [[]]
    assert pages(world, ExecutionFilter([WorkflowStatus.FAILED]), 5) == [[]]
    assert pages(world, ExecutionFilter(labels={"k": "new"}), 5) == [["x"]]


# ---- cost


FILTERS = {
    "all": ExecutionFilter(),
    "one status": ExecutionFilter([WorkflowStatus.COMPLETE]),
    "several statuses": ExecutionFilter([WorkflowStatus.COMPLETE, WorkflowStatus.FAILED]),
    "a name": ExecutionFilter(name="order"),
    "a label and a status": ExecutionFilter([WorkflowStatus.COMPLETE], labels={"customer": "acme"}),
    "everything": ExecutionFilter(
        [WorkflowStatus.COMPLETE, WorkflowStatus.HALTED], "order", "march", {"customer": "acme"}
    ),
    "a time": ExecutionFilter(since_ms=START_MS + 10),
}


@pytest.mark.slow
def test_a_page_costs_the_same_of_few_and_of_many(world: RedisWorld) -> None:
    costs = dict[str, list[dict[str, int]]]()
    for size in (100, count(10_000, 100_000)):
        world.client.flushall()
        seed(
            world.client,
            world.keys,
            (
                Known(f"x{n}", START_MS + n // 3, n % 3, "complete", "order", "march", {"customer": "acme"})
                for n in range(size)
            ),
            payload="x" * 100,
        )
        for name, wanted in FILTERS.items():
            first = listing(world).page(wanted, 20)
            for cursor in (None, first.cursor):
                world.client.config_resetstat()
                assert len(listing(world).page(wanted, 20, cursor).executions) == 20
                made = calls(world.client)
                for ours in ("config|resetstat", "config", "info"):  # Redis 6.2 counts no subcommands
                    made.pop(ours, None)
                costs.setdefault(f"{name}, {'first' if cursor is None else 'next'}", []).append(made)

    for name, (few, many) in costs.items():
        assert few == many, name
        assert few.keys() <= {"zrevrangebyscore", "zmscore", "zcard", "hmget", "multi", "exec"}, name
        assert few["hmget"] == 21, name
        assert sum(few.values()) <= 21 + 8 + 12, (name, few)


def test_only_the_fields_that_are_shown_are_read(world: RedisWorld) -> None:
    secret = {"id": "x", "inputs": json.dumps({"password": "hidden"})}
    seed(world.client, world.keys, [Known("x", START_MS, name="order")], payload=secret["inputs"])
    commands: list[str] = []
    with world.connect().monitor() as monitor:  # type: ignore[no-untyped-call]
        listing(world).page(ExecutionFilter(name="order"))
        world.client.ping()
        for entry in monitor.listen():
            if entry["command"] == "PING":
                break
            commands.append(entry["command"])

    reading = [one.split() for one in commands if "workflow:" in one]
    shown = ["status", "name", "group", "labels", "created_at", "ended_at", "parent"]
    assert reading == [["HMGET", "orchestrator:workflow:w1#x", *shown]]


# ---- after the retention


LISTED = document(step("a"), name="order")


def ended(world: RedisWorld, execution_id: str) -> str:
    """An execution that has ended and is in an index of every kind."""
    one = world.coordinator(trim_every_s=1e9)
    labels = json.dumps({"customer": "acme|#~ü", "kind": "big"})
    weid = world.begin(one, LISTED, execution_id=execution_id, group="march", labels=labels)
    world.settle(one)
    assert world.status(weid) == "complete"
    return weid


def outlive(world: RedisWorld) -> None:
    """As if the retention had passed for all that have ended."""
    key = world.keys.ended
    for member in world.client.zrange(key, 0, -1):
        world.client.zincrby(key, -(world.retention_s + 2) * 1000, str(member))


def test_all_indexes_have_an_execution_under_one_score(world: RedisWorld) -> None:
    weid = ended(world, "x")

    listed = listed_in(world)

    names = ["group:march", "label:customer=acme|#~ü", "label:kind=big", "name:order", "status:complete"]
    assert sorted(listed) == names
    [score] = {score for members in listed.values() for score in members.values()}
    assert {member for members in listed.values() for member in members} == {weid}
    assert int(score) == ms_of(world.record(weid).created_at)


@pytest.mark.parametrize("record", ["still there", "gone before"])
def test_after_the_retention_no_index_names_an_execution(world: RedisWorld, record: str) -> None:
    gone, kept = ended(world, "gone"), ended(world, "kept")
    outlive(world)
    world.client.zadd(world.keys.ended, {m: world.now_ms() for m in _members(world) if m.startswith(kept)})
    if record == "gone before":
        world.client.delete(world.keys.workflow(gone), world.keys.history(gone), world.keys.execution("gone"))

    world.log().trim()

    found = [
        key
        for key, content in snapshot(world.client, "orchestrator:events", "orchestrator:starts").items()
        if gone in f"{key} {content}" and ":answer:" not in key
    ]
    assert found == []
    assert {member for members in listed_in(world).values() for member in members} == {kept}
    assert len(listed_in(world)) == 5


def _members(world: RedisWorld) -> list[str]:
    return [str(member) for member in world.client.zrange(world.keys.ended, 0, -1)]


def test_an_execution_that_was_retried_is_not_trimmed(world: RedisWorld) -> None:
    one = world.coordinator(trim_every_s=1e9)
    weid = ended(world, "x")
    Client(world.client, world.keys)._controls.send(ControlEvent(weid, "rerun", "a"))
    one.run_once()
    assert (_members(world), world.status(weid)) == ([], "in_progress")

    world.log().trim()

    assert world.status(weid) == "in_progress"
    assert len(listed_in(world)) == 5


def test_a_new_execution_with_the_id_of_an_expired_one_is_not_trimmed(world: RedisWorld) -> None:
    """The record expired while no coordinator was running, and another execution was started with its ids."""
    weid = ended(world, "x")
    outlive(world)
    world.client.delete(world.keys.workflow(weid), world.keys.history(weid), world.keys.execution("x"))
    one = world.coordinator(trim_every_s=1e9)
    again = world.begin(one, LISTED, execution_id="x")
    assert again == weid

    world.log().trim()

    assert (world.status(weid), world.client.get(world.keys.execution("x"))) == ("in_progress", weid)
    assert _members(world) == []


def test_an_id_that_another_workflow_has_taken_meanwhile_stays_taken(world: RedisWorld) -> None:
    weid = ended(world, "x")
    outlive(world)
    world.client.delete(world.keys.workflow(weid), world.keys.history(weid), world.keys.execution("x"))
    one = world.coordinator(trim_every_s=1e9)
    other = world.begin(one, document(step("b")), execution_id="x")

    world.log().trim()

    assert world.client.get(world.keys.execution("x")) == other
    assert listed_in(world) == {"status:in_progress": {other: pytest.approx(world.now_ms(), abs=60_000)}}


def test_an_unreadable_index_member_is_removed(world: RedisWorld) -> None:
    for member in ("nonsense", "w1#x|{", "w1#x|5", "w1#x|[{}]", "|[]"):
        world.client.zadd(world.keys.ended, {member: 1})

    world.log().trim()

    assert _members(world) == []
