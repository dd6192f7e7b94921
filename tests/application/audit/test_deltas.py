"""An audit notices deltas that do not lead to the record."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.application.audit.history import audit
from worlds.documents import document, step
from worlds.engine_world import EngineWorld, world_of


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> EngineWorld:
    monkeypatch.setattr(EngineWorld, "keeps_deltas", True)
    world = world_of(document(step("a"), step("b", "a")))
    world.play(a={"n": 1}, b={"m": 2})
    world.record.version = world.deltas[-1]["version"]
    world.record.delta = f"{world.record.version} 100 0"
    return world


def codes(world: EngineWorld) -> list[tuple[str, str]]:
    return [(one.code, one.where) for one in audit(world.record, [*world.history, *world.deltas])]


def test_deltas_that_lead_to_the_record_are_no_finding(world: EngineWorld) -> None:
    assert codes(world) == []


def test_a_field_with_another_value_is_a_finding(world: EngineWorld) -> None:
    world.deltas[-1]["set"]["state:m"] = 3
    del world.deltas[-1]["set"]["ended_at"]

    assert codes(world) == [("delta", "ended_at"), ("delta", "state:m")]


def test_a_missing_delta_is_a_finding(world: EngineWorld) -> None:
    world.deltas.pop()
    one = codes(world)
    world.deltas.clear()

    assert one == codes(world) == [("delta", "")]


@pytest.mark.parametrize("part", [{"set": 5}, {"set": "text"}, {"drop": 5}])
def test_a_delta_that_is_damaged_is_a_finding(world: EngineWorld, part: dict[str, Any]) -> None:
    world.deltas[0] |= part

    assert codes(world) == [("unreadable_entry", "")]


@pytest.mark.parametrize("mark", [None, "1-old 100 0", "%s 100 2"])
def test_a_record_whose_last_commit_left_no_delta_is_not_compared(
    world: EngineWorld, mark: str | None
) -> None:
    world.record.delta = mark and mark.replace("%s", world.record.version)
    world.deltas.clear()

    assert codes(world) == []
