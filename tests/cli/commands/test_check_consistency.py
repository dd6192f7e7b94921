"""The commands check-consistency and what-if, on a Redis with executions in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from orchestrator.redis_rq.verify import verifier
from worlds.documents import document, step
from worlds.redis_world import RedisWorld

ORDER = document(step("a", input={"n": {"var": "input.n"}}), step("b", "a"))


def orchestrator(redis_url: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--redis-url", redis_url, *arguments])


@pytest.fixture
def weid(world: RedisWorld) -> str:
    one = world.coordinator()
    found = world.begin(one, ORDER, execution_id="x1", inputs={"n": 1})
    world.settle(one)
    return found


def test_findings_are_printed_and_change_the_exit_code(world: RedisWorld, redis_url: str, weid: str) -> None:
    world.client.delete(world.keys.ended)

    wrong = orchestrator(redis_url, "check-consistency", "x1")
    data = json.loads(orchestrator(redis_url, "check-consistency", "--json").stdout)
    repaired = orchestrator(redis_url, "check-consistency", "--repair")
    right = orchestrator(redis_url, "check-consistency", weid)

    finding = "x1 orchestrator:ended: index: it is missing from this index"
    assert (wrong.exit_code, wrong.stdout) == (
        1,
        f"{finding}\n1 execution checked (1 complete); 1 finding\n",
    )
    assert data["findings"] == [
        {
            "execution": weid,
            "code": "index",
            "where": "orchestrator:ended",
            "words": "it is missing from this index",
            "repaired": False,
        }
    ]
    assert (repaired.exit_code, repaired.stdout.splitlines()[0]) == (0, f"{finding} (repaired)")
    assert (right.exit_code, right.stdout) == (0, "1 execution checked (1 complete); no findings\n")


def test_an_unknown_execution_is_rejected_by_name(redis_url: str) -> None:
    refused = orchestrator(redis_url, "check-consistency", "missing")

    assert refused.exit_code == 2
    assert "missing" in refused.stderr
    empty = orchestrator(redis_url, "check-consistency")
    assert (empty.exit_code, empty.stdout) == (0, "0 executions checked; no findings\n")


def test_what_could_not_be_checked_is_printed(
    world: RedisWorld, redis_url: str, weid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier, "MAX_TRIES", 0)
    monkeypatch.setattr(verifier, "MAX_COUNTED", -1)
    world.client.hset(world.keys.groups, "g", 7)

    shown = orchestrator(redis_url, "check-consistency").stdout

    assert shown.startswith("0 executions checked; no findings; ")
    assert shown.endswith(
        " changed too fast to be checked; too many open executions to compare their counts\n"
    )


def test_what_if_shows_what_would_differ(redis_url: str, weid: str, tmp_path: Path) -> None:
    same, other = tmp_path / "same.json", tmp_path / "other.json"
    same.write_text(json.dumps(ORDER))
    other.write_text(json.dumps(document(step("a", input={"n": 2}), step("b", "a"))))

    equal = orchestrator(redis_url, "what-if", "x1", "--spec", str(same))
    differs = orchestrator(redis_url, "what-if", "x1", "--spec", str(other))
    data = json.loads(orchestrator(redis_url, "what-if", "x1", "--spec", str(other), "--json").stdout)

    assert (equal.exit_code, equal.stdout) == (
        0,
        "same       a\nsame       b\nsame       the outcome\n",
    )
    assert differs.exit_code == 1
    assert "unknown    a            it would run again: input n would be 2 instead of 1" in differs.stdout
    assert data["same"] is False
    assert [one["verdict"] for one in data["steps"]] == ["unknown", "unknown"]


def test_what_if_needs_an_execution_and_a_valid_spec(redis_url: str, weid: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("steps: [{}]")

    assert orchestrator(redis_url, "what-if", "x1").exit_code == 2
    assert orchestrator(redis_url, "what-if", "x1", "--spec", str(wrong)).exit_code == 2
    right = tmp_path / "right.yaml"
    right.write_text("steps: [{op: a}]")
    assert orchestrator(redis_url, "what-if", "missing", "--spec", str(right)).exit_code == 2


def test_what_if_names_what_it_cannot_reproduce(world: RedisWorld, redis_url: str, tmp_path: Path) -> None:
    one = world.coordinator()
    weid = world.begin(one, ORDER, execution_id="x2", inputs={"n": 1})
    stream = world.keys.events_of(weid)
    world.send(stream, {"type": "control", "execution": weid, "action": "cancel"})
    world.settle(one)
    spec = tmp_path / "same.json"
    spec.write_text(json.dumps(ORDER))

    shown = orchestrator(redis_url, "what-if", "x2", "--spec", str(spec))

    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[-1] == (
        "(the recorded workflow does not reproduce the status of these steps either: a, b)"
    )
