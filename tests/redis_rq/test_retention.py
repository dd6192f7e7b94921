"""How long an execution is kept after its end: as its document says, else as the coordinators are told."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.coordinator.loop import Coordinator
from orchestrator.redis_rq.verify.verifier import Verifier
from orchestrator.settings import RETENTION_MARGIN_S
from servers.redis_contents import snapshot
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

HOUR_MS = 3_600_000
SHORT = document(step("a"), name="short", retention="1h")
LONG = document(step("a"), name="long", retention="30d")
USUAL = document(step("a"), name="usual")


def ended(world: RedisWorld, one: Coordinator, spec: dict[str, Any], **start: Any) -> str:
    weid = world.begin(one, spec, **start)
    world.settle(one)
    return weid


def age(world: RedisWorld, ms: int) -> None:
    """As if this much time had passed since every end."""
    for key in (world.keys.ended, world.keys.leaving):
        world._age(key, ms)


def mentions(world: RedisWorld, weid: str) -> list[str]:
    """Where an execution is still found, by any of its ids. Of every stream the last event stays."""
    held = snapshot(world.client, world.keys.reply(""), *world.streams())
    return [key for key, content in held.items() if weid.partition("#")[2] in f"{key} {content}"]


def verified(world: RedisWorld, **options: Any) -> list[str]:
    report = Verifier(world.client, world.keys, world.retention_s, **options).verify_all()
    return [one.finding.code for one in report.found]


def test_an_execution_goes_when_its_own_retention_has_passed(world: RedisWorld) -> None:
    one = world.coordinator()
    short, usual, long = (ended(world, one, spec, labels='{"of": "me"}') for spec in (SHORT, USUAL, LONG))

    age(world, HOUR_MS - 60_000)
    one.run_once()
    assert all(mentions(world, weid) for weid in (short, usual, long))
    age(world, 61_000)
    one.run_once()
    assert (mentions(world, short), not mentions(world, usual)) == ([], False)
    age(world, world.retention_s * 1000)
    one.run_once()
    assert (mentions(world, usual), not mentions(world, long)) == ([], False)
    age(world, 24 * 24 * HOUR_MS)
    one.run_once()
    assert mentions(world, long) == []


def test_its_spec_goes_a_day_after_it(world: RedisWorld) -> None:
    one = world.coordinator()

    weid = ended(world, one, SHORT)

    spec = world.keys.spec(weid.partition("#")[0])
    assert 3_600 + RETENTION_MARGIN_S - 600 < int(str(world.client.ttl(spec))) <= 3_600 + RETENTION_MARGIN_S


def test_an_execution_that_is_opened_again_is_kept_until_it_ends_again(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = ended(world, one, SHORT)
    rerun = {"type": "control", "execution": weid, "action": "rerun", "step": "a"}
    world.send(world.keys.events_of(weid), rerun)
    one.run_once()
    age(world, 2 * HOUR_MS)
    one.run_once()

    assert world.client.zcard(world.keys.leaving) == 0
    assert world.client.exists(world.keys.workflow(weid))
    assert verified(world) == []

    world.settle(one)
    assert world.client.zcard(world.keys.leaving) == 1


def test_an_execution_that_is_deleted_leaves_nothing(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = ended(world, one, SHORT)
    world.send(world.keys.events_of(weid), {"type": "control", "execution": weid, "action": "delete"})

    world.settle(one)
    world.log().trim()

    assert mentions(world, weid) == []


def test_a_child_is_kept_for_as_long_as_its_own_document_says(world: RedisWorld) -> None:
    one = world.coordinator()
    parent = document({"id": "kid", "workflow": SHORT}, retention="2h")
    weid = ended(world, one, parent)
    child = world.store.full_id(f"{weid.partition('#')[2]}:kid:0")

    age(world, HOUR_MS + 1_000)
    one.run_once()

    assert not world.client.exists(world.keys.workflow(child))
    assert world.record(weid).status == "complete"


def test_verify_knows_where_it_waits_and_puts_it_back(world: RedisWorld) -> None:
    one = world.coordinator()
    weid = ended(world, one, SHORT)
    assert verified(world) == []
    world.client.delete(world.keys.leaving)

    assert verified(world, repairs=True) == ["index"]

    assert verified(world) == []
    age(world, HOUR_MS + 1_000)
    one.run_once()
    assert not world.client.exists(world.keys.workflow(weid))


@pytest.mark.parametrize("spec", [SHORT, USUAL])
def test_many_are_dropped_in_one_go(world: RedisWorld, spec: dict[str, Any]) -> None:
    one = world.coordinator(trim_every_s=3600)
    for _ in range(40):
        world.start(spec)
    world.settle(one)
    age(world, world.retention_s * 1000 + HOUR_MS)

    world.log().trim()

    assert list(world.client.scan_iter(f"{world.keys.workflow('')}*")) == []
    assert list(world.client.scan_iter(f"{world.keys.indexes}*")) == []
