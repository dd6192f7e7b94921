"""Replies are limited as a whole: what does not fit is cut or left out, and the reply says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.redis_rq.reply_limits import MAX_REPLY_BYTES, encode_reply
from processes import PatientClient
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running

ACCEPTED = {"ok": True, "workflow_execution_id": "w#x", "execution_id": "x", "existing": True}


def all_of(world: RedisWorld, key: str) -> list[str]:
    texts: Any = world.client.lrange(key, 0, -1)
    return list(texts)


def limited(reply: dict[str, Any]) -> dict[str, Any]:
    text = encode_reply(reply)
    assert len(text.encode()) <= MAX_REPLY_BYTES
    parsed: dict[str, Any] = json.loads(text)
    return parsed


@pytest.mark.parametrize("outcome", [None, {"a": "ü" * 100_000}, "x" * 200_000])
def test_a_reply_that_fits_is_written_as_it_is(outcome: Any) -> None:
    reply = {**ACCEPTED, "status": "complete", "outcome": outcome, "error": None}

    assert limited(reply) == reply


@pytest.mark.parametrize("outcome", ["x" * MAX_REPLY_BYTES, "\x01" * 100_000, "ü" * 200_000])
def test_an_outcome_that_does_not_fit_is_left_out(outcome: str) -> None:
    reply = {**ACCEPTED, "status": "complete", "outcome": outcome, "error": {"kind": "x"}}

    assert limited(reply) == {
        **ACCEPTED,
        "status": "complete",
        "error": {"kind": "x"},
        "left_out": ["outcome"],
    }


def test_both_are_left_out_if_neither_fits() -> None:
    large = {"message": "x" * MAX_REPLY_BYTES}

    assert limited({**ACCEPTED, "outcome": large, "error": large}) == {
        **ACCEPTED,
        "left_out": ["error", "outcome"],
    }


def test_of_a_thousand_problems_the_first_are_kept_and_the_others_counted() -> None:
    problems = [
        {"path": f"steps[{n}]", "code": "bad", "message": "x" * 20_000, "line": n} for n in range(1_000)
    ]
    reply = limited({"ok": False, "reason": "y" * 20_000_000, "problems": problems})

    kept = len(reply["problems"])
    assert kept > 100
    assert reply["more_problems"] == 1_000 - kept
    assert [one["path"] for one in reply["problems"]] == [f"steps[{n}]" for n in range(kept)]
    assert reply["problems"][0]["message"] == "x" * 1_000 + "... (20,000 characters)"
    assert reply["reason"] == "y" * 10_000 + "... (20,000,000 characters)"


def test_the_reply_to_an_invalid_start_with_many_long_problems_is_limited(world: RedisWorld) -> None:
    one = world.coordinator()
    steps = [{"id": f"s{n}", "fn": "f", "x" * 5_000 + str(n): 1} for n in range(900)]
    entry = world.send(world.keys.starts, {"spec": json.dumps({"steps": steps}), "inputs": "{}"})
    world.settle(one)

    [text] = all_of(world, world.keys.reply(entry))
    assert len(text.encode()) <= MAX_REPLY_BYTES
    reply = json.loads(text)
    assert (reply["ok"], len(reply["problems"]) + reply["more_problems"]) == (False, 900)


def test_the_client_reads_a_large_outcome_from_the_record(world: RedisWorld) -> None:
    one = world.coordinator(client=world.connect(), block_ms=20)
    spec = document(step("a"), outputs={"text": {"var": "steps.a.output.text"}})
    world.start(spec, execution_id="x")
    world.settle(one, executors={"a": lambda inputs: {"text": "y" * 500_000}})
    assert world.record("x").is_final

    with running(one):
        client = PatientClient(world.connect(), world.keys)
        found = client.start(spec, execution_id="x", conflict_policy="use_existing")

    keys: Any = world.client.keys(world.keys.reply("*"))
    replies = [json.loads(text) for key in keys for text in all_of(world, key)]
    assert [one["left_out"] for one in replies if "existing" in one] == [["outcome"]]
    assert (found.existing, found.outcome) == (True, {"text": "y" * 500_000})
