"""`/metrics` of the web page: behind its users, and for each instance."""

from __future__ import annotations

from pathlib import Path

from orchestrator.metrics.reader import CONTENT_TYPE, MetricsReader
from orchestrator.web.instance import Instance
from servers.page_server import Serve
from worlds.documents import document, step
from worlds.page_users import WALL, bearer, write_users
from worlds.redis_world import RedisWorld
from worlds.samples import parse


def ended(world: RedisWorld) -> None:
    one = world.coordinator()
    world.start(document(step("a"), name="order"))
    world.settle(one)


def test_the_page_serves_the_same_metrics_to_every_user_who_may_read(
    world: RedisWorld, serve_page: Serve, tmp_path: Path
) -> None:
    ended(world)
    site = serve_page(tokens=str(write_users(tmp_path)))

    closed, allowed = site.get("/metrics"), site.get("/metrics", headers=bearer(WALL))

    assert closed.status_code == 401
    assert allowed.headers["Content-Type"] == CONTENT_TYPE
    found = parse(allowed.text)
    assert found("executions_ended_total", workflow="order", status="complete") == 1
    own = parse(MetricsReader(world.client, world.keys).render().decode())
    assert found.keys() == own.keys()


def test_each_instance_of_a_page_has_its_own_metrics(
    world: RedisWorld, redis_url: str, serve_page: Serve
) -> None:
    ended(world)
    site = serve_page(instances=[Instance.of("one", redis_url), Instance.of("two", redis_url, "another")])

    texts = [site.get(f"/{name}/metrics").text for name in ("one", "two")]

    assert [parse(text)("executions", status="complete") for text in texts] == [1, 0]
    assert site.get("/metrics").status_code == 404
