"""The values of a history on the command line: of each attempt, and of the record after a commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from orchestrator.invocation.executors import Executor
from orchestrator.redis_rq.connection import connect
from worlds.redis_world import RedisWorld

ORDER = {
    "steps": [
        {
            "id": "check",
            "fn": "check",
            "input": {"sku": {"var": "input.sku"}, "token": {"var": "input.api_token"}},
        },
        {"id": "ship", "fn": "ship", "depends_on": ["check"], "max_attempts": 2, "input": {"n": 1}},
        {
            "id": "each",
            "fn": "each",
            "depends_on": ["ship"],
            "map": {"over": ["x" * 300]},
            "input": {"v": {"var": "item"}},
        },
    ]
}


class Van:
    """Fails once."""

    calls = 0

    def __call__(self, inputs: dict[str, Any]) -> dict[str, Any]:
        self.calls += 1
        if self.calls == 1:
            raise ValueError("the van is late")
        return {"van": "north"}


@pytest.fixture(params=["full"])
def world(
    request: pytest.FixtureRequest, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RedisWorld]:
    monkeypatch.setenv("ORCHESTRATOR_HISTORY", request.param)
    found = RedisWorld(lambda: connect(redis_url))
    one = found.coordinator()
    found.begin(one, ORDER, inputs={"sku": "a1", "api_token": "sesame"}, execution_id="order-1")
    executors: dict[str, Executor] = {
        "check": lambda inputs: {"said": f"ok with {inputs['token']}"},
        "ship": Van(),
        "each": lambda inputs: {"v": 1},
    }
    found.settle(one, executors=executors)
    monkeypatch.delenv("ORCHESTRATOR_HISTORY")
    yield found
    found.close()


def orchestrator(world: RedisWorld, *arguments: str) -> Result:
    url = f"unix://{world.client.connection_pool.connection_kwargs['path']}"
    return CliRunner().invoke(main, ["--redis-url", url, *arguments], prog_name="orchestrator")


def lines(result: Result) -> list[str]:
    """The output without times and causes."""
    return [" ".join(line.split()) for line in result.output.splitlines()]


def test_history_shows_inputs_outputs_and_the_number_of_each_commit(world: RedisWorld) -> None:
    told = orchestrator(world, "history", "order-1")

    assert told.output.splitlines()[0].startswith("COMMIT  TIME (UTC)")
    assert 'dispatched: input {"sku": "a1", "token": "<redacted>"}' in told.output
    assert 'complete: output {"van": "north"}' in told.output
    assert "(309 bytes in all; --json shows them)" in told.output
    assert "sesame" not in told.output
    assert "delta" not in told.output


def test_history_as_json_has_the_same_and_so_has_a_followed_one(world: RedisWorld) -> None:
    told = json.loads(orchestrator(world, "history", "order-1", "--json").output)
    followed = orchestrator(world, "history", "order-1", "--json", "--follow").output

    moves = [entry for entry in told if entry.get("step") == "ship" and "to" in entry]
    assert [(entry["to"], entry.get("inputs"), entry.get("output")) for entry in moves] == [
        ("in_progress", {"n": 1}, None),
        ("retry", None, None),
        ("in_progress", {"n": 1}, None),
        ("complete", None, {"van": "north"}),
    ]
    assert [json.loads(line) for line in followed.splitlines()] == told


def test_watch_shows_no_values(world: RedisWorld) -> None:
    told = orchestrator(world, "watch", "order-1").output

    assert "ship: dispatched\n" in told
    assert "input" not in told


def test_the_record_after_a_commit(world: RedisWorld) -> None:
    moves = json.loads(orchestrator(world, "history", "order-1", "--json", "--step", "ship").output)
    failed = next(entry["commit"] for entry in moves if entry.get("to") == "retry")

    told = orchestrator(world, "history", "order-1", "--at", str(failed))
    of_step = orchestrator(world, "history", "order-1", "--at", str(failed), "--step", "ship")
    whole = json.loads(orchestrator(world, "history", "order-1", "--at", str(failed), "--json").output)

    assert 'state:said  "ok with <redacted>"' in told.output.splitlines()
    [line] = of_step.output.splitlines()
    assert line.startswith('step:ship  {"status": "')
    assert "the van is late" in line
    assert whole["commit"] == failed
    assert whole["fields"]["step:ship"]["error"]["message"] == "the van is late"


def test_the_fields_of_items_and_of_one_item(world: RedisWorld) -> None:
    last = json.loads(orchestrator(world, "history", "order-1", "--json").output)[-1]["commit"]

    def names(step: str) -> list[str]:
        told = orchestrator(world, "history", "order-1", "--at", str(last), "--step", step)
        return [line.partition("  ")[0] for line in told.output.splitlines()]

    assert names("each") == ["item:each:0", "step:each"]
    assert names("each#0") == ["item:each:0"]


def test_a_commit_that_is_not_kept_is_a_message(world: RedisWorld) -> None:
    unknown = orchestrator(world, "history", "order-1", "--at", "99")
    both = orchestrator(world, "history", "order-1", "--at", "1", "--follow")

    assert (unknown.exit_code, both.exit_code) == (2, 2)
    assert "commit 99 has no values; commits with values: 1 to" in unknown.output
    assert "--at and --follow exclude each other" in both.output


def test_show_has_every_attempt(world: RedisWorld) -> None:
    told = lines(orchestrator(world, "show", "order-1", "--step", "ship"))
    of_step = json.loads(orchestrator(world, "show", "order-1", "--step", "ship", "--json").output)
    whole = json.loads(orchestrator(world, "show", "order-1", "--json").output)

    assert told[told.index("input:") :][:4] == ["input:", "{", '"n": 1', "}"]
    first = next(position for position, line in enumerate(told) if line.startswith("attempt 1, run 0"))
    assert '"message": "the van is late",' in told[first:]
    assert [one["attempt"] for one in of_step["attempts"]] == [1, 2]
    assert of_step["attempts"][1]["output"] == {"van": "north"}
    assert [one["step"] for one in whole["attempts"]] == ["check", "ship", "ship", "each#0"]
    assert whole["attempts"][0]["inputs"] == {"sku": "a1", "token": "<redacted>"}


@pytest.mark.parametrize("world", ["moves"], indirect=True)
def test_without_values_it_says_how_to_keep_them(world: RedisWorld) -> None:
    shown = orchestrator(world, "show", "order-1", "--step", "ship")
    as_json = json.loads(orchestrator(world, "show", "order-1", "--json").output)
    at = orchestrator(world, "history", "order-1", "--at", "1")
    told = orchestrator(world, "history", "order-1")

    how = "ORCHESTRATOR_HISTORY=full, or history: full in the document, keeps them"
    assert how in shown.output
    assert how in at.output
    assert as_json["attempts"] is None
    assert not told.output.startswith("COMMIT")
