"""Whatever is sent to a coordinator, it says what is wrong and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.redis_rq.keys import Keys
from processes import PatientClient, stack, wait_until

KEYS = Keys()
GOOD = '{"steps": [{"op": "nothing"}]}'
BOMB = "\n".join(
    ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    + [
        f"{name}: &{name} [{', '.join(['*' + before] * 10)}]"
        for before, name in zip("abcdef", "bcdefg", strict=True)
    ]
)


def spec_with(step: str) -> str:
    return f"steps:\n  - {{op: a, {step}}}\n"


HOSTILE: dict[str, tuple[dict[str, str], str]] = {
    "a rule with method": (
        {"spec": spec_with('input: {x: {"if": [{"method": ["a", "upper"]}, 1, 2]}}')},
        "'method'",
    ),
    "a condition with method": (
        {"spec": spec_with('branch: [{condition: {"method": ["", "__class__"]}, action: complete}]')},
        "'method'",
    ),
    "an alias bomb": ({"spec": BOMB}, "too_big"),
    "on as a key": ({"spec": "on: push\nsteps: []"}, "'on' is not a key"),
    "a number as a key": ({"spec": "1: 2\nsteps: []"}, "'1' is not a key"),
    "3,000 nested lists": ({"spec": "steps: " + "[" * 3_000 + "]" * 3_000}, "too_deep"),
    "nested JSON": ({"spec": '{"steps": ' + "[" * 3_000 + "]" * 3_000 + "}"}, "too_deep"),
    "ten megabytes": ({"spec": GOOD, "inputs": json.dumps({"text": "x" * 10_000_000})}, "at most"),
    "ten megabytes of spec": ({"spec": f"description: {'x' * 10_000_000}\nsteps: []"}, "at most"),
    "a cycle": (
        {"spec": "steps: [{op: a, depends_on: [b]}, {op: b, depends_on: [a]}]"},
        "a -> b -> a",
    ),
    "inputs that are not JSON": ({"spec": GOOD, "inputs": "{"}, "inputs is not JSON"),
    "inputs that are a list": ({"spec": GOOD, "inputs": "[]"}, "must be a JSON object"),
    "an unknown name": ({"workflow": "missing"}, "no workflow is registered as 'missing'"),
    "a spec and a name": ({"workflow": "missing", "spec": GOOD}, "exactly one of the two"),
    "nothing": ({"inputs": "{}"}, "exactly one of the two"),
    "an unknown field": ({"spec": GOOD, "input": "{}"}, "unknown field 'input'"),
    "a bad execution id": ({"spec": GOOD, "execution_id": "a|b"}, "execution_id: 1 to 256"),
}


def test_hostile_starts_are_refused_with_a_reason_and_the_next_one_is_served(
    redis_url: str, tmp_path: Path
) -> None:
    client = PatientClient(redis_url)
    redis: Any = client.store._client
    with stack(redis_url, "step_functions", tmp_path) as world:
        coordinator = world.coordinator()
        world.worker()
        sent = {name: redis.xadd(KEYS.starts, fields) for name, (fields, _) in HOSTILE.items()}
        last = redis.xadd(KEYS.starts, {"spec": GOOD, "execution_id": "good"})

        for name, entry_id in sent.items():
            answer = client.wait_for_reply(entry_id, 180)
            assert not answer["ok"], name
            assert HOSTILE[name][1] in answer["reason"], (name, answer["reason"][:500])
        assert client.wait_for_reply(last, 180)["ok"]
        wait_until(lambda: redis.zcard(KEYS.index("complete")) == 1, what=world.log())
        letters = {fields["entry"]: fields["reason"] for _, fields in redis.xrange(KEYS.dead_letters)}
        assert set(letters) == set(sent.values())
        assert all(letters.values())
        assert coordinator.poll() is None, "one process served them all"
        assert redis.hget(KEYS.counters, "dead") == str(len(sent))


def test_a_refused_spec_says_line_and_column(redis_url: str, tmp_path: Path) -> None:
    client = PatientClient(redis_url)
    redis: Any = client.store._client
    with stack(redis_url, "step_functions", tmp_path) as world:
        world.coordinator()
        entry_id = redis.xadd(KEYS.starts, {"spec": "steps:\n  - op: a\n    depend_on: [b]\n"})

        answer = client.wait_for_reply(entry_id, 180)

        assert "3:5: steps[0].depend_on: 'depend_on' is not a key of a step" in answer["reason"]
        assert answer["problems"] == [
            {
                "path": "steps[0].depend_on",
                "code": "unknown_key",
                "message": "'depend_on' is not a key of a step",
                "hint": "did you mean 'depends_on'?",
                "line": 3,
                "column": 5,
            }
        ]
