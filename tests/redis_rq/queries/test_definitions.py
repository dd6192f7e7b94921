"""Registered workflows are listed without reading their documents."""

from __future__ import annotations

from orchestrator.client import Client
from orchestrator.redis_rq.queries.definitions import definitions, registrations
from servers.redis_contents import calls
from worlds.documents import document, step
from worlds.redis_world import RedisWorld


def test_registrations_have_the_version_its_open_executions_and_its_schedule(world: RedisWorld) -> None:
    client = Client(world.client, world.keys)
    waiting = document({"id": "w", "wait": {"signal": "go"}})
    client.register("b", waiting)
    client.register("a", document(step("x"), schedule={"cron": "@daily"}))
    world.begin(world.coordinator(), "b", execution_id="open")

    found = registrations(world.client, world.keys)

    assert [(one.name, one.open, one.is_scheduled) for one in found] == [("a", 0, True), ("b", 1, False)]
    for one, other in zip(found, definitions(world.client, world.keys), strict=True):
        assert (one.workflow_id, one.registered_at) == (other.workflow_id, other.registered_at)


def test_without_workflows_there_are_no_registrations(world: RedisWorld) -> None:
    assert registrations(world.client, world.keys) == []


def test_a_registration_whose_document_is_gone_is_listed(world: RedisWorld) -> None:
    world.client.hset(world.keys.definitions, "lost", "w1")

    [found] = registrations(world.client, world.keys)

    assert (found.name, found.registered_at, found.open) == ("lost", None, 0)


def test_only_the_registered_versions_are_read(world: RedisWorld) -> None:
    client = Client(world.client, world.keys)
    for n in range(30):
        client.register("one", document(step("a"), name=f"version-{n}"))
    world.client.config_resetstat()

    assert len(registrations(world.client, world.keys)) == 1

    made = calls(world.client)
    assert made["hmget"] == 1
    assert "scan" not in made
