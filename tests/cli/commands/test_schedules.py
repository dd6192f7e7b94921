"""The commands `schedules` and `workflows` on a Redis with something in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.application.engine.schedules import slot_execution_id
from orchestrator.application.spec.validation import check_spec
from orchestrator.cli import main
from orchestrator.redis_rq.keys import schedule_member
from worlds.redis_world import RedisWorld

HOUR_MS = 3_600_000

Command = Callable[..., Result]


@pytest.fixture
def command(redis_url: str) -> Command:
    def run(*words: str, exit_code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*words, "--redis-url", redis_url])
        assert result.exit_code == exit_code, result.output
        return result

    return run


def hourly(world: RedisWorld, name: str, **policy: str) -> list[str]:
    """A schedule that has slept for three hours, ten minutes beyond the last slot; returns its slots."""
    last_ms = (world.now_ms() - 600_000) // 60_000 * 60_000
    schedule = {"cron": f"{last_ms // 60_000 % 60} * * * *", **policy}
    world.store.register(name, check_spec({"name": name, "schedule": schedule, "steps": [{"op": "a"}]}))
    entry = json.loads(str(world.client.hget(world.keys.schedules, name)))
    first_ms = last_ms - 2 * HOUR_MS
    world.client.hset(world.keys.schedules, name, json.dumps({**entry, "next_ms": first_ms}))
    world.client.zadd(world.keys.timers, {schedule_member(name): first_ms})
    return [slot_execution_id(name, first_ms + n * HOUR_MS) for n in range(3)]


def listed(command: Command, what: str) -> dict[str, Any]:
    return {one["name"]: one for one in json.loads(command(what, "--json").output)}


def test_without_anything_the_lists_say_so(world: RedisWorld, command: Command) -> None:
    assert command("schedules").output == "no registered workflow has a schedule\n"
    assert command("workflows").output == "no workflow is registered\n"
    assert (listed(command, "schedules"), listed(command, "workflows")) == ({}, {})


def test_schedules_are_listed_with_the_counts_of_their_slots(world: RedisWorld, command: Command) -> None:
    one = world.coordinator()
    waiting = hourly(world, "waiting", catch_up="all", overlap="queue")
    skipping = hourly(world, "skipping", catch_up="all", overlap="skip")
    allowed = hourly(world, "allowed", catch_up="one")
    while one.run_once():
        pass

    found = listed(command, "schedules")

    assert list(found) == ["allowed", "skipping", "waiting"]
    told = {name: (one["started"], one["missed"], one["skipped"]) for name, one in found.items()}
    assert told == {"allowed": (1, 2, 0), "skipping": (1, 0, 2), "waiting": (1, 0, 0)}
    assert {name: one["last"] for name, one in found.items()} == {
        "allowed": allowed[2],
        "skipping": skipping[0],
        "waiting": waiting[0],
    }
    assert [found[name]["open"] for name in found] == [[], [skipping[0]], [waiting[0]]]
    assert [len(found[name]["queued"]) for name in found] == [0, 0, 2]
    assert [len(found[name]["next"]) for name in found] == [3, 3, 3]
    text = command("schedules").output
    assert "  slots   1 started, 0 missed (catch_up: all), 2 skipped (overlap: skip)\n" in text
    assert f"  open    {waiting[0]}\n  queued  2\n" in text


def test_a_schedule_is_paused_and_unpaused(world: RedisWorld, command: Command) -> None:
    expected = hourly(world, "report", catch_up="all")

    assert command("schedules", "pause", "report").output == "report is paused\n"
    assert listed(command, "schedules")["report"]["paused"] is True
    assert "report: " in command("schedules").output
    assert " in UTC (paused)\n" in command("schedules").output
    assert command("schedules", "unpause", "report").output == "report is unpaused\n"
    world.settle(world.coordinator())

    assert {one: world.status(world.store.full_id(one)) for one in expected} == dict.fromkeys(
        expected, "complete"
    )
    shown = json.loads(command("status", expected[0], "--json").output)
    assert shown["schedule"] == "report"


@pytest.mark.parametrize(
    "words",
    [("schedules", "pause"), ("schedules", "unpause"), ("workflows", "show"), ("workflows", "remove")],
)
def test_an_unknown_name_is_rejected(world: RedisWorld, command: Command, words: tuple[str, ...]) -> None:
    output = command(*words, "missing", exit_code=2).output

    assert "registered as 'missing'; `orchestrator " in output


@pytest.mark.parametrize(
    "words", [("schedules", "--json", "pause", "x"), ("workflows", "--json", "show", "x")]
)
def test_an_option_of_the_list_does_not_belong_to_the_rest(command: Command, words: tuple[str, ...]) -> None:
    assert "--json" in command(*words, exit_code=2).output


def test_workflows_are_listed_shown_and_removed(world: RedisWorld, command: Command, tmp_path: Path) -> None:
    one = world.coordinator()
    before = check_spec({"name": "report", "steps": [{"op": "a"}]})
    world.store.register("report", before)
    world.begin(one, "report")
    hourly(world, "report")
    after = world.store.load_definition("report")

    found = listed(command, "workflows")["report"]
    assert (found["workflow_id"], found["is_scheduled"]) == (after.workflow_id, True)
    assert found["open"] == {after.workflow_id: 0, before.workflow_id: 1}
    first, second = command("workflows").output.splitlines()
    assert first == f"report: {after.workflow_id}, registered {found['registered_at']}, 0 open, scheduled"
    assert second == f"  earlier version {before.workflow_id}, 1 open"
    assert json.loads(command("workflows", "show", "report", "--json").output) == after.document
    written = tmp_path / "again.yaml"
    written.write_text(command("workflows", "show", "report").output)
    assert command("register", str(written)).output == f"report is now {after.workflow_id}\n"

    assert command("workflows", "remove", "report").output == "report is no longer registered\n"

    assert (listed(command, "workflows"), listed(command, "schedules")) == ({}, {})
    world.settle(one)
    assert world.client.zcard(world.keys.index("complete")) == 1


def test_a_workflow_registered_by_an_older_release_has_no_time(world: RedisWorld, command: Command) -> None:
    loaded = check_spec({"steps": []})
    world.store.register("old", loaded)
    world.client.hdel(world.keys.spec(loaded.workflow_id), "registered_ms")

    assert command("workflows").output == f"old: {loaded.workflow_id}, 0 open\n"


def test_changes_have_json_output_too(world: RedisWorld, command: Command, tmp_path: Path) -> None:
    file = tmp_path / "daily.json"
    file.write_text(json.dumps({"name": "daily", "schedule": {"cron": "@daily"}, "steps": [{"op": "a"}]}))

    registered = json.loads(command("register", str(file), "--json").output)
    paused = json.loads(command("schedules", "pause", "daily", "--json").output)
    unpaused = json.loads(command("schedules", "unpause", "daily", "--json").output)
    removed = json.loads(command("workflows", "remove", "daily", "--json").output)

    assert registered["name"] == "daily"
    assert len(registered["workflow_id"]) == 32
    assert (paused, unpaused) == ({"name": "daily", "paused": True}, {"name": "daily", "paused": False})
    assert removed == {"name": "daily", "registered": False}
