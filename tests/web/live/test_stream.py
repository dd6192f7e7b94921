"""Live updates over a real Redis: what a page is told, and what happens when parts fail."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator import web
from orchestrator.web.live import stream
from servers.event_stream import Event, EventStream
from servers.page_server import PageServer, serve
from worlds.documents import document, step
from worlds.page_executions import raise_error, run_execution
from worlds.redis_world import RedisWorld, durable_world
from worlds.waiting import wait_until

TWO = document(step("a"), step("b", after="a", retry=0))


def open_stream(site: PageServer, execution: str = "x1", **options: Any) -> EventStream:
    after = options.pop("after", None)
    query = "" if after is None else f"?after={after}"
    return EventStream(f"{site.url}/executions/{execution}/live{query}", **options)


def statuses(event: Event) -> dict[str, str]:
    return {one["step"]: one["status"] for one in event.data["steps"]}


def test_an_execution_is_followed_step_by_step_to_its_end(world: RedisWorld, site: PageServer) -> None:
    one = world.coordinator()
    weid = world.begin(one, TWO, execution_id="x1")
    with open_stream(site, after=0) as page:
        first = page.next("change")
        assert statuses(first) == {"a": "queued"}
        assert first.data["counts"] == {"queued": 1, "ready": 1}

        world.work()
        one.run_once()
        second = page.next("change")
        assert statuses(second) == {"a": "complete", "b": "queued"}

        world.work()
        one.run_once()
        third = page.next("change")
        assert (third.data["status"], statuses(third)) == ("complete", {"b": "complete"})
        assert third.data["ended_at"] is not None
        assert page.next("end", "change").kind == "end"
        assert page.retry == stream.RETRY_MS
        assert int(third.id or 0) == len(world.history(weid))


def test_the_end_ends_the_stream_of_a_program_and_not_that_of_a_page(
    world: RedisWorld, site: PageServer
) -> None:
    weid = run_execution(world, TWO, {"b": raise_error}, execution_id="x1")
    with EventStream(f"{site.url}/api/v1/executions/x1/events?after=0") as program:
        assert [event.kind for event in program.rest()] == ["change", "end"]
    with open_stream(site) as page:
        page.next("end")

        world.send(world.keys.events_of(weid), {"type": "control", "execution": weid, "action": "retry"})
        one = world.coordinator()
        world.settle(one)

        seen = [page.next("change")]
        while seen[-1].data["status"] != "complete":
            seen.append(page.next("change"))
        assert statuses(seen[-1])["b"] == "complete"
        assert page.next("end", "change").kind == "end"


def test_a_page_that_connects_again_is_told_what_it_missed(world: RedisWorld, site: PageServer) -> None:
    one = world.coordinator()
    world.begin(one, TWO, execution_id="x1")
    with open_stream(site, after=0) as page:
        position = page.next("change").id
    world.work()
    one.run_once()

    with open_stream(site, after=0, headers={"Last-Event-ID": str(position)}) as page:
        missed = page.next("change")

    assert statuses(missed) == {"a": "complete", "b": "queued"}
    assert missed.data["new_entries"] == int(missed.id or 0) - int(position or 0)


def test_a_page_that_knows_more_than_there_is_loads_again(world: RedisWorld, site: PageServer) -> None:
    run_execution(world, TWO, execution_id="x1")

    with open_stream(site, after=10_000) as page:
        assert [event.kind for event in page.rest()] == ["reload"]


def test_a_worker_that_takes_a_job_is_seen_without_a_commit(world: RedisWorld, site: PageServer) -> None:
    one = world.coordinator()
    weid = world.begin(one, TWO, execution_id="x1")
    with open_stream(site) as page:
        assert statuses(page.next("change")) == {"a": "queued"}

        [lease] = world.leases()
        world.client.zadd(world.keys.leases, {lease: world.now_ms() + 30_000})

        assert statuses(page.next("change")) == {"a": "in_progress"}
    assert weid


def test_a_deleted_execution_ends_the_stream(world: RedisWorld, site: PageServer) -> None:
    one = world.coordinator()
    weid = run_execution(world, TWO, execution_id="x1")
    with open_stream(site) as page:
        page.next("end")
        world.send(world.keys.events_of(weid), {"type": "control", "execution": weid, "action": "delete"})
        world.settle(one)

        assert [event.kind for event in page.rest()] == ["gone"]


def test_an_execution_that_was_replaced_is_loaded_again(world: RedisWorld, site: PageServer) -> None:
    one = world.coordinator()
    run_execution(world, TWO, execution_id="x1")
    with open_stream(site) as page:
        page.next("end")
        world.start(TWO, execution_id="x1", conflict_policy="terminate_existing")
        one.run_once()

        assert page.next("reload", "gone").kind == "reload"


def test_a_commit_whose_message_is_lost_is_seen_by_polling(
    world: RedisWorld, site: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "orchestrator.redis_rq.keys.Keys.changed", lambda keys, execution: f"other:{execution}"
    )
    one = world.coordinator()
    world.begin(one, TWO, execution_id="x1")
    monkeypatch.undo()
    with open_stream(site) as page:
        page.next("change")
        monkeypatch.setattr("orchestrator.redis_rq.keys.Keys.changed", lambda keys, execution: "other")
        world.work()
        one.run_once()
        monkeypatch.undo()

        assert statuses(page.next("change"))["a"] == "complete"


def test_redis_may_be_away_for_a_while(tmp_path: Path) -> None:
    with durable_world(tmp_path) as (world, server), serve(web.app(server.url)) as site:
        one = world.coordinator()
        world.begin(one, TWO, execution_id="x1")
        with open_stream(site, after=0) as page:
            page.next("change")
            server.kill()
            page.next("offline")
            server.start()
            world.work()
            one.run_once()

            found = page.next("change")
            while "b" not in statuses(found):
                found = page.next("change")
            assert statuses(found)["a"] == "complete"


def test_a_user_that_may_not_subscribe_polls(world: RedisWorld, serve_page: Any, redis_url: str) -> None:
    world.client.acl_setuser(
        "old", enabled=True, nopass=True, keys=["*"], reset_channels=True, categories=["+@all"]
    )
    site = serve_page(redis_url=redis_url.replace("unix://", "unix://old@") + "?password=x")
    one = world.coordinator()
    world.begin(one, TWO, execution_id="x1")
    with open_stream(site) as page:
        page.next("change")
        world.work()
        one.run_once()

        assert statuses(page.next("change"))["a"] == "complete"
    world.client.acl_deluser("old")


def test_the_thread_ends_with_the_last_page(world: RedisWorld, site: PageServer) -> None:
    run_execution(world, TWO, execution_id="x1")
    with open_stream(site) as page:
        page.next("end")
        assert live_threads()
        assert world.client.pubsub_channels(world.keys.changed("*"))

    wait_until(lambda: not live_threads())
    wait_until(lambda: not world.client.pubsub_channels(world.keys.changed("*")))


def live_threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "orchestrator-live"]


def test_all_pages_of_an_execution_share_one_read(world: RedisWorld, site: PageServer) -> None:
    one = world.coordinator()
    weid = world.begin(one, TWO, execution_id="x1")
    pages = [open_stream(site).__enter__() for _ in range(20)]
    for page in pages:
        page.next("change")
    before = world.client.info("commandstats")["cmdstat_lrange"]["calls"]

    world.work()
    one.run_once()
    for page in pages:
        assert statuses(page.next("change"))["a"] == "complete"

    after = world.client.info("commandstats")["cmdstat_lrange"]["calls"]
    assert world.client.pubsub_numsub(world.keys.changed(weid)) == [(world.keys.changed(weid), 1)]
    assert after - before <= 20, "each page would have read it"
    for page in pages:
        page.__exit__()


def test_too_many_streams_of_one_user_are_rejected(
    world: RedisWorld, site: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MAX_STREAMS_PER_USER", 1)
    run_execution(world, TWO, execution_id="x1")
    with open_stream(site) as page:
        page.next("end")
        rejected = site.get("/executions/x1/live")

        assert (rejected.status_code, rejected.json()["code"]) == (429, "too_many_streams")
    wait_until(lambda: is_open(site))


def is_open(site: PageServer) -> bool:
    with (
        httpx.Client(trust_env=False) as client,
        client.stream("GET", f"{site.url}/executions/x1/live") as found,
    ):
        return found.status_code == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/executions/nothing/live", 404),
        ("/executions/x1/live?after=x", 400),
        ("/executions/x1/live?after=-1", 400),
        ("/executions/x1/live?after=9999999999999999", 400),
        ("/api/v1/executions/nothing/events", 404),
    ],
)
def test_a_wrong_request_has_a_problem(world: RedisWorld, site: PageServer, path: str, status: int) -> None:
    run_execution(world, TWO, execution_id="x1")

    assert site.get(path).status_code == status


def test_a_heartbeat_shows_that_the_connection_is_alive(
    world: RedisWorld, site: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT_S", 0.05)
    one = world.coordinator()
    world.begin(one, TWO, execution_id="x1")
    with open_stream(site) as page:
        page.next("change")
        done = threading.Timer(1, lambda: (world.work(), one.run_once()))
        done.start()
        page.next("change")
        done.join()
        assert page.comments > 0


def test_many_steps_are_told_in_events_of_bounded_size(world: RedisWorld, site: PageServer) -> None:
    spec = document(step("root"), *(step(f"s{n}", after="root") for n in range(1_200)))
    one = world.coordinator()
    world.begin(one, spec, execution_id="x1")
    with open_stream(site) as page:
        page.next("change")
        world.settle(one)

        seen: set[str] = set()
        while len(seen) < 1_201:
            change = page.next("change")
            assert len(change.data["steps"]) <= 1_001
            seen |= {name for name, status in statuses(change).items() if status == "complete"}
        assert change.data["counts"] == {"complete": 1_201}


def test_a_page_that_does_not_read_is_told_to_load_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from orchestrator.web.live.frames import RELOAD, LivePage, make_frame

    async def fill() -> list[bytes]:
        page = LivePage("x")
        for number in range(65):
            page.send(make_frame("change", {}, number))
        await asyncio.sleep(0)
        return [await page.next_frame()]

    assert asyncio.run(fill()) == [RELOAD]


def test_a_server_that_stops_ends_its_streams(world: RedisWorld, redis_url: str) -> None:
    run_execution(world, TWO, execution_id="x1")
    application = web.app(redis_url)
    with serve(application) as site, open_stream(site) as page:
        page.next("end")
        application.state.streams.close()

        assert page.rest() == []
        assert application.state.streams.open_count == 0
