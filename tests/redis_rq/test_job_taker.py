"""How a worker of ours takes jobs and hands in what they brought."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread, Timer
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError, NoPermissionError

from orchestrator.application.errors import Unavailable
from orchestrator.redis_rq import job_taker as taking
from orchestrator.redis_rq import pinned_connection as direct
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.job_taker import FinishedJob, JobTaker, WorkerQueues
from orchestrator.redis_rq.keys import Keys
from orchestrator.redis_rq.pinned_connection import PinnedConnection
from processes import PATIENCE_S, wait_until
from servers.proxy import Proxy
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

KEYS, DUE_MS = Keys(), 9_999_999_999_999
QUEUES = ["orchestrator.default:1", "orchestrator.default", "orchestrator.default:5"]


@pytest.fixture
def bare(world: RedisWorld) -> Iterator[Client]:
    """A client of the same server that does not decode."""
    kwargs = world.client.connection_pool.connection_kwargs
    client = connect(f"unix://{kwargs['path']}", decodes=False)
    yield client
    client.close()


def taker(client: Client, *, is_single: bool = True, name: str = "w") -> JobTaker:
    return JobTaker(client, WorkerQueues(name, QUEUES, KEYS, is_single), lambda: DUE_MS)


def begun(world: RedisWorld, *steps: Any) -> str:
    return world.begin(world.coordinator(), document(*steps))


def result_of(payload: dict[str, Any]) -> FinishedJob:
    return FinishedJob(payload["job_id"], payload["events"], {"type": "result", "token": payload["token"]})


def test_a_job_is_taken_with_its_lease_and_told_to_rq(world: RedisWorld, bare: Client) -> None:
    begun(world, step("a"))
    [(job_id, payload)] = taker(bare).take(1)

    assert payload is not None
    assert (payload["step"], payload["job_id"]) == ("a", job_id)
    assert list(world.leases().values()) == [DUE_MS]
    job = world.client.hmget(f"rq:job:{job_id}", "status", "worker_name")
    assert job == ["started", "w"]
    assert world.client.hget("rq:worker:w", "current_step") == job_id


def test_the_most_urgent_queue_comes_first(world: RedisWorld, bare: Client) -> None:
    begun(world, step("c", priority=5), step("b"), step("a", priority=1))
    mine = taker(bare)

    found = [payload["step"] for _ in range(3) for _, payload in mine.take(1) if payload]

    assert (found, mine.take(1)) == (["a", "b", "c"], [])


def test_several_are_taken_at_once_from_several_queues(world: RedisWorld, bare: Client) -> None:
    begun(world, step("c", priority=5), step("b"), step("b2"), step("a", priority=1), step("d", priority=5))
    mine = taker(bare, is_single=False)

    assert [payload["step"] for _, payload in mine.take(4) if payload] == ["a", "b", "b2", "c"]
    assert [payload["step"] for _, payload in mine.take(4) if payload] == ["d"]
    assert not world.client.exists("rq:worker:w"), "RQ knows one job of a worker, or none"


def test_what_is_done_is_handed_in_when_the_next_is_taken(world: RedisWorld, bare: Client) -> None:
    begun(world, step("a"), step("b"))
    mine = taker(bare)
    [(first, payload)] = mine.take(1)
    assert payload is not None

    [(second, _)] = mine.take(1, finished=[result_of(payload)])

    assert [event["token"] for _, event in world.events()] == [payload["token"]]
    assert not world.client.exists(f"rq:job:{first}")
    assert world.client.hget("rq:worker:w", "current_step") == second
    assert mine.take(0, finished=[FinishedJob(second)]) == []
    assert len(world.events()) == 1, "the second brought nothing"
    assert world.client.hget("rq:worker:w", "current_step") is None


def test_a_job_whose_result_is_no_longer_needed_is_skipped(world: RedisWorld, bare: Client) -> None:
    begun(world, step("revoked"), step("superseded"), step("wanted"))
    revoked, superseded, _ = world.waiting()
    world.client.delete(f"rq:job:{revoked}")
    world.client.zrem(KEYS.leases, *(one for one in world.leases() if "|superseded|" in one))

    [(_, payload)] = taker(bare).take(1)

    assert payload is not None
    assert payload["step"] == "wanted"
    assert not world.client.exists(f"rq:job:{superseded}")


def test_what_is_no_step_is_given_without_a_payload(world: RedisWorld, bare: Client) -> None:
    world.client.hset("rq:job:x", mapping={"data": '["os.system",null,["true"],{}]'})
    world.client.set("rq:job:y", "no hash")
    world.client.rpush("rq:queue:orchestrator.default", "y", "x")

    assert taker(bare).take(2) == [("x", None)]


def test_nothing_is_taken_while_rqs_workers_are_suspended(world: RedisWorld, bare: Client) -> None:
    begun(world, step("a"))
    world.client.set("rq:suspended", 1)
    mine = taker(bare)
    assert mine.take(1, wait_s=0.01) == []

    world.client.delete("rq:suspended")
    assert len(mine.take(1)) == 1


def test_a_worker_that_waits_gets_the_next_job(world: RedisWorld) -> None:
    path = world.client.connection_pool.connection_kwargs["path"]
    with connect(f"unix://{path}", decodes=False) as bare:
        mine = taker(bare)
        assert mine.take(1, wait_s=0.05) == []
        begun(world, step("a"))
        world.client.rpoplpush("rq:queue:orchestrator.default", "elsewhere")
        world.client.expire("elsewhere", 60)
        come = Timer(0.1, world.client.rpoplpush, ["elsewhere", "rq:queue:orchestrator.default"])
        come.start()
        [(_, payload)] = mine.take(1, wait_s=10)
        come.join()
    assert payload is not None
    assert payload["step"] == "a"


def test_what_was_taken_when_the_answer_was_lost_is_given_again(world: RedisWorld, proxy: Proxy) -> None:
    """And what was handed in is there twice; a coordinator takes one of them."""
    begun(world, step("a"), step("b"))
    with connect(f"unix://{proxy.path}", decodes=False) as bare:
        mine = taker(bare)
        [(_, payload)] = mine.take(1)
        assert payload is not None
        proxy.drop_reply_of("EVALSHA")
        with pytest.raises(Unavailable):
            mine.take(1, finished=[result_of(payload)])

        [(second, again)] = mine.take(1, finished=[result_of(payload)])

    assert again is not None
    assert (again["step"], world.client.llen("rq:queue:orchestrator.default")) == ("b", 0)
    assert world.client.hget("rq:worker:w", "current_step") == second
    assert [event["token"] for _, event in world.events()] == [payload["token"]] * 2


def test_a_parent_knows_what_its_worker_has_and_whether_it_is_wanted(world: RedisWorld, bare: Client) -> None:
    weid = begun(world, step("a"))
    mine, other = taker(bare), taker(bare, name="v")
    assert (mine.current_job(), mine.is_superseded()) == (None, False)

    taken = mine.take(1)
    assert [mine.current_job()] == taken
    assert (other.current_job(), mine.is_superseded()) == (None, False)

    world.client.delete(KEYS.leases)
    assert mine.is_superseded() is True
    world.client.hset("rq:worker:v", "current_step", taken[0][0])
    assert other.current_job() is None, "what another one runs is not its own"
    assert world.status(weid) == "in_progress"


def test_a_job_whose_worker_died_with_it_is_not_kept_for_ever(world: RedisWorld, bare: Client) -> None:
    """No registry of RQ knows of it: it gets a term with the word that it is lost."""
    one = world.coordinator()
    weid = world.begin(one, document(step("a")))
    [(job_id, payload)] = taker(bare).take(1)
    assert payload is not None
    names = ("execution", "step", "run_id", "attempt", "token")
    world.client.xadd(payload["events"], {"type": "lost", "reason": "gone", **{n: payload[n] for n in names}})

    one.run_once()

    assert world.record(weid).steps["a"].lost == 1
    assert 0 < world.client.ttl(f"rq:job:{job_id}") <= 86_400
    [again] = world.waiting()
    assert world.client.ttl(f"rq:job:{again}") == -1, "what waits is kept"


# ---- waiting


@pytest.fixture
def kept(world: RedisWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[PinnedConnection]:
    """A client as a work-horse has it. It checks once whether workers are suspended, and a wait of any length
    makes it idle."""
    monkeypatch.setattr(taking, "SUSPENSION_CHECK_S", 600.0)
    monkeypatch.setattr(taking, "BUSY_WAIT_S", 0.0)
    path = world.client.connection_pool.connection_kwargs["path"]
    with connect(f"unix://{path}", decodes=False) as bare:
        yield PinnedConnection(bare)


def kept_back(world: RedisWorld) -> Callable[[], object]:
    """Takes the job that waits from its queue; what is returned puts it back."""
    token: Any = world.client.lpop("rq:queue:orchestrator.default")
    path = world.client.connection_pool.connection_kwargs["path"]

    def put_back() -> None:
        with Redis(unix_socket_path=path, socket_timeout=PATIENCE_S) as client:
            client.rpush("rq:queue:orchestrator.default", token)

    return put_back


def waits_for_a_job(client: Client) -> bool:
    clients: Any = client.client_list()
    return any(one["cmd"] == "blpop" and "b" in one["flags"] for one in clients)


def once_one_waits(world: RedisWorld, act: Callable[[], object]) -> None:
    """Act in another thread, as soon as a client waits for a job."""

    def wait_and_act() -> None:
        wait_until(lambda: waits_for_a_job(world.client), what="a client to wait")
        act()

    Thread(target=wait_and_act).start()


def waited(world: RedisWorld, mine: JobTaker) -> tuple[dict[str, Any], Callable[[], object]]:
    """The payload of a step that was waited for, and what puts another one into the queue."""
    begun(world, step("a"), step("b"))
    second = kept_back(world)
    first = kept_back(world)
    once_one_waits(world, first)
    [(_, payload)] = mine.take(1, wait_s=10)
    assert payload is not None
    return payload, second


def test_a_worker_that_had_to_wait_finishes_and_waits_in_one_round_trip(
    world: RedisWorld, kept: PinnedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = taker(kept)
    payload, come = waited(world, mine)
    once_one_waits(world, come)
    sent: list[list[Any]] = []
    send = kept._send

    def count(commands: list[tuple[Any, ...]]) -> Any:
        sent.append([words[0] for words in commands])
        return send(commands)

    monkeypatch.setattr(kept, "_send", count)

    [(second, _)] = mine.take(1, wait_s=10, finished=[result_of(payload)])

    assert sent == [["EVALSHA", "BLPOP"], ["EVALSHA"]]
    assert [event["token"] for _, event in world.events()] == [payload["token"]]
    assert world.client.hget("rq:worker:w", "current_step") == second


def test_a_server_that_lost_the_script_gets_it_again_from_a_waiting_worker(
    world: RedisWorld, kept: PinnedConnection
) -> None:
    mine = taker(kept)
    payload, come = waited(world, mine)
    once_one_waits(world, come)
    world.client.script_flush()

    [(second, again)] = mine.take(1, wait_s=10, finished=[result_of(payload)])

    assert again is not None
    assert again["job_id"] == second != payload["job_id"]
    assert [event["token"] for _, event in world.events()] == [payload["token"]]


def test_a_job_that_comes_while_nothing_can_be_handed_in_is_kept(
    world: RedisWorld, kept: PinnedConnection
) -> None:
    mine = taker(kept)
    payload, come = waited(world, mine)
    come()
    world.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(Unavailable):
            mine.take(1, wait_s=10, finished=[result_of(payload)])
        with pytest.raises(Unavailable):
            mine.take(1, wait_s=10, finished=[result_of(payload)])
    finally:
        world.client.config_set("maxmemory", 0)
    assert world.client.llen("rq:queue:orchestrator.default") == 0

    [(second, _)] = mine.take(1, finished=[result_of(payload)])

    assert world.client.hget("rq:worker:w", "current_step") == second
    assert [event["token"] for _, event in world.events()] == [payload["token"]]


def test_a_job_that_was_begun_when_the_answer_was_lost_is_given_once(world: RedisWorld, proxy: Proxy) -> None:
    begun(world, step("a"))
    come = kept_back(world)
    with connect(f"unix://{proxy.path}", decodes=False) as bare:
        mine = taker(PinnedConnection(bare))
        assert mine.take(1, wait_s=0.05) == []
        proxy.drop_reply_of("EVALSHA")
        once_one_waits(world, come)
        with pytest.raises(Unavailable):
            mine.take(1, wait_s=10)

        assert len(mine.take(2, wait_s=10)) == 1


def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used(
    world: RedisWorld, kept: PinnedConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kept.ping()
    world.client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(ConnectionError):
        kept.ping()
    assert kept.ping()

    world.client.client_kill_filter(_type="normal", skipme=True)
    monkeypatch.setattr(direct, "IDLE_S", -1.0)
    assert kept.ping()


# ---- a place in line


def test_while_steps_are_declined_a_worker_keeps_its_place_in_line(
    world: RedisWorld, bare: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taking, "WAIT_IN_LINE_S", 60)
    world.client.zadd(KEYS.declined, {"a step": 1})
    begun(world, step("a"))
    come, turns = kept_back(world), list[int]()
    other = connect_bare(world)

    def on_turn() -> bool:
        turns.append(1)
        if len(turns) == 2:
            others.append(in_line(other))
        if len(turns) == 4:
            come()
        return True

    others: list[Any] = []
    [(token, _)] = taker(bare).take(1, wait_s=0.05, may_wait_on=on_turn)

    assert len(turns) >= 4, "it waited for longer than the time that it was given"
    assert world.client.hget("rq:worker:w", "current_step") == token
    assert not others[0].can_read(0), "the other one came later"
    others[0].disconnect()
    other.close()


def connect_bare(world: RedisWorld) -> Client:
    path = world.client.connection_pool.connection_kwargs["path"]
    return connect(f"unix://{path}", decodes=False)


def in_line(client: Client) -> Any:
    """A connection that waits for a job too, from now on."""
    connection: Any = client.connection_pool.get_connection()
    connection.send_command("BLPOP", "rq:queue:orchestrator.default", 60)
    return connection


def test_a_worker_that_is_to_leave_ends_its_wait_and_loses_no_job(world: RedisWorld, bare: Client) -> None:
    world.client.zadd(KEYS.declined, {"a step": 1})
    begun(world, step("a"))
    come, mine = kept_back(world), taker(bare)

    assert mine.take(1, wait_s=0.01, may_wait_on=lambda: False) == []
    come()

    assert len(mine.take(1, wait_s=0.01)) == 1
    assert not world.client.exists("rq:worker:w:interrupt")


def test_a_job_that_comes_with_the_end_of_the_wait_is_taken(world: RedisWorld, bare: Client) -> None:
    world.client.zadd(KEYS.declined, {"a step": 1})
    begun(world, step("a"))
    come = kept_back(world)

    def leave() -> bool:
        come()
        return False

    assert len(taker(bare).take(1, wait_s=0.01, may_wait_on=leave)) == 1
    assert int(str(world.client.ttl("rq:worker:w:interrupt"))) > 0


def test_a_wait_in_line_finishes_the_last_job_first(world: RedisWorld, bare: Client) -> None:
    begun(world, step("a"))
    mine = taker(bare)
    [(_, payload)] = mine.take(1)
    assert payload is not None
    world.client.zadd(KEYS.declined, {"a step": 1})

    assert mine.take(1, 0.01, [result_of(payload)], may_wait_on=lambda: False) == []

    assert [event["token"] for _, event in world.events()] == [payload["token"]]


def test_a_worker_without_the_right_to_look_for_declined_steps_waits_as_before(
    world: RedisWorld, bare: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise NoPermissionError("No permissions to access a key")

    monkeypatch.setattr(bare, "exists", refuse)

    assert taker(bare).take(1, wait_s=0.01) == []


def test_an_outage_in_line_is_an_outage(world: RedisWorld, bare: Client) -> None:
    world.client.zadd(KEYS.declined, {"a step": 1})

    def cut() -> bool:
        world.client.client_kill_filter(_type="normal", skipme=True)
        return True

    with pytest.raises(Unavailable):
        taker(bare).take(1, wait_s=0.01, may_wait_on=cut)

    assert len(bare.connection_pool._available_connections) == 1, "its connection went back"


def test_a_redis_that_is_silent_in_line_is_an_outage(
    world: RedisWorld, bare: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.client.zadd(KEYS.declined, {"a step": 1})
    monkeypatch.setattr(taking, "WAIT_IN_LINE_S", 60)
    monkeypatch.setattr(taking, "SOCKET_TIMEOUT_S", -60.0)

    with pytest.raises(Unavailable):
        taker(bare).take(1, wait_s=0.01)
