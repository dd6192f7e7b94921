"""What the deltas of a history tell: the record after a commit, and every attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.application.errors import HistoryNotKept
from orchestrator.application.records.record_parts import visible_fields
from orchestrator.application.records.replay import add_values, fields_at, list_attempts
from worlds.documents import Json, document, step
from worlds.engine_checks import compact_json
from worlds.engine_world import EngineWorld, world_of


@pytest.fixture(autouse=True)
def with_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the deltas of every commit."""
    monkeypatch.setattr(EngineWorld, "keeps_deltas", True)


@pytest.fixture
def world() -> EngineWorld:
    """A step that fails once, then a map of one item."""
    return world_of(
        document(
            step("a", retry=1, input={"k": {"var": "input.k"}}),
            step("b", "a", map={"over": [5]}, input={"n": {"var": "item"}}),
        ),
        inputs={"k": 3},
    )


def play(world: EngineWorld) -> list[Json]:
    """Play to the end; returns the entries of its history as a store keeps them."""
    entries: list[Json] = []
    moves = deltas = 0

    def keep() -> None:
        nonlocal moves, deltas
        entries.extend([*world.history[moves:], *world.deltas[deltas:]])
        moves, deltas = len(world.history), len(world.deltas)

    world.advance()
    keep()
    world.fail("a", "first")
    keep()
    world.pass_time(60_000)
    keep()
    world.finish("a", {"n": 1})
    keep()
    world.finish("b#0", {"m": 2})
    keep()
    assert world.record.is_final
    return entries


def test_the_record_after_each_commit(world: EngineWorld) -> None:
    entries = play(world)

    shown = visible_fields(world.record, compact_json)
    assert fields_at(entries, 5) == {name: json.loads(text) for name, text in shown.items()}
    assert [fields_at(entries, n).get("status") for n in range(1, 6)] == [*["in_progress"] * 4, "complete"]
    assert fields_at(entries, 2)["step:a"]["error"]["message"] == "first"
    assert "item:b:0" not in fields_at(entries, 3)
    assert fields_at(entries, 4)["item:b:0"]["value"] == 5


def delta(number: int, **keys: Any) -> Json:
    return {"what": "delta", "version": f"{number}-n", "at": "2026-01-01T00:00:00.000Z", **keys}


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([{"step": "a", "to": "complete"}], "the history has no values; ORCHESTRATOR_HISTORY=full, or"),
        ([delta(2, snapshot=True)], "commit 7 has no values; commits with values: 2"),
        (
            [delta(2, snapshot=True), delta(3), delta(5, snapshot=True), delta(8, snapshot=True), delta(9)],
            "commit 7 has no values; commits with values: 2 to 3, 5, 8 to 9",
        ),
        ([delta(2, snapshot=True), delta(6, omitted=9)], "reached its size limit with commit 6"),
        ([delta(8, omitted=9)], "commit 7 has no values; commits with values: none"),
    ],
)
def test_a_commit_without_values_is_an_error_that_says_why(entries: list[Json], problem: str) -> None:
    with pytest.raises(HistoryNotKept, match=problem):
        fields_at(entries, 7)


def test_every_attempt_has_its_inputs_its_output_and_its_error(world: EngineWorld) -> None:
    found = list_attempts(play(world)) or []

    assert [(one.step, one.run_id, one.attempt, one.inputs, one.output) for one in found] == [
        ("a", 0, 1, {"k": 3}, {"ok": False, "error": "first"}),
        ("a", 1, 2, {"k": 3}, {"n": 1}),
        ("b#0", 0, 1, {"n": 5}, {"m": 2}),
    ]
    assert found[0].error["message"] == "first"
    assert found[1].error is None
    assert all(one.ended_at is not None and one.ended_at >= one.dispatched_at for one in found)
    assert found[0].as_dict()["inputs"] == {"k": 3}


def test_the_attempts_of_one_unit(world: EngineWorld) -> None:
    entries = play(world)

    assert [one.step for one in list_attempts(entries, "b#0") or []] == ["b#0"]
    assert list_attempts(entries, "b") == []


def test_an_attempt_that_was_lost_has_no_end(world: EngineWorld) -> None:
    world.advance()
    world.lose("a")

    lost, current = list_attempts(world.deltas) or []

    assert (lost.run_id, lost.ended_at) == (0, None)
    assert (current.run_id, current.ended_at) == (1, None)


def test_a_history_without_deltas_has_no_attempts(world: EngineWorld) -> None:
    play(world)

    assert list_attempts(world.history) is None
    assert list(add_values(world.history)) == world.history


def test_moves_get_the_values_of_their_commit(world: EngineWorld) -> None:
    found = list(add_values(play(world)))

    assert [
        {name: one[name] for name in one if name not in ("commit", "inputs", "output")} for one in found
    ] == (world.history)
    assert [one["commit"] for one in found] == sorted(one["commit"] for one in found)
    told = [(one["step"], one["to"], one.get("inputs"), one.get("output")) for one in found if "to" in one]
    assert told == [
        ("a", "in_progress", {"k": 3}, None),
        ("a", "retry", None, None),
        ("a", "in_progress", {"k": 3}, None),
        ("a", "complete", None, {"n": 1}),
        ("b", "in_progress", None, None),
        ("b#0", "in_progress", {"n": 5}, None),
        ("b#0", "complete", None, {"m": 2}),
        ("b", "complete", None, told[-1][3]),
    ]


def test_moves_of_commits_without_a_delta_get_no_values() -> None:
    earlier = {"at": "2025-01-01T00:00:00.000Z", "step": "a", "to": "complete", "run_id": 0}

    assert list(add_values([earlier, delta(2, snapshot=True)])) == [earlier]
