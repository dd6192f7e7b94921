"""Secrets on real processes: whatever an executor does with one, nobody finds it anywhere but in its worker.

Everything is searched: each command that Redis was ever sent, all its keys, all logs at the lowest level, all
that commands print, and what a webhook posts. A marker that is no secret is found in every one of these
places, so the search can fail.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.cli import main
from orchestrator.invocation.secret_store import FOLDER_VARIABLE, variable_of
from orchestrator.redis_rq.connection import Client, connect
from orchestrator.redis_rq.keys import Keys
from orchestrator_executors.webhook import HOSTS_VARIABLE
from processes import Stack, stack, wait_until
from servers.receiver import receiver
from servers.redis_contents import snapshot
from servers.redis_server import RedisServer
from worker.test_harness import dispatched, harness, published
from worlds.documents import Json, document
from worlds.redis_world import RedisWorld

KEYS = Keys()
PASSWORD = 'p"/s3kr1t-c0re\\&+ü'
TOKEN = "t0k3n-of-the-file"
MARKER = "m4rker"
TRACES = [
    "s3kr1t",
    "t0k3n-of",
    *(base64.b64encode(f"{pad}/s3kr1t-c0re".encode()).decode()[4:16] for pad in ("a", "ab", "abc")),
]
"""Parts of the secrets that are in them however they are written, in base64 too."""

MARKERS = {"verify": "execution", "doctor": "coordinator"}
"""What is found where no execution is named."""

EXECUTION = f"{MARKER}-run"
INPUT = {"password": {"secret": "db.password"}, "marker": MARKER}
HEADER = {"cat": ["Bearer ", {"secret": "token"}]}
QUICK = {"max_retries": 1, "initial_delay_ms": 1}


def spec(url: str) -> Json:
    return {
        "name": f"{MARKER}-workflow",
        "webhook": {"url": url},
        "sources": {"api": {"type": "returns", "configuration": {"header": HEADER}}},
        "steps": [
            {
                "id": "returned",
                "source": "api",
                "input": INPUT,
                "compensate": {"fn": "undo", "input": INPUT, "retry": QUICK},
            },
            {"id": "read", "fn": "prints", "input": {**INPUT, "echo": {"var": "steps.returned.output.echo"}}},
            {
                "id": "told",
                "fn": "tells",
                "input": INPUT,
                "heartbeat": "30s",
                "loop": {"max_iterations": 2, "on_max": "exit_with_last"},
            },
            {
                "id": "each",
                "fn": "raises",
                "map": {"over": [1, 2]},
                "input": INPUT,
                "on_error": "skip",
                "retry": QUICK,
            },
            {
                "id": "failed",
                "fn": "raises",
                "input": INPUT,
                "retry": QUICK,
                "depends_on": ["read", "told", "each"],
            },
        ],
        "outputs": {"all": {"var": "state"}},
    }


@contextmanager
def monitored(url: str, folder: Path) -> Iterator[Path]:
    """A file with every command that Redis gets, those of scripts too."""
    path = folder / "monitor.txt"
    client = connect(url)
    with path.open("w", encoding="utf-8") as file, client.monitor() as monitor:  # type: ignore[no-untyped-call]

        def listen() -> None:
            for command in monitor.listen():
                file.write(f"{command['command']}\n")
                file.flush()
                if f"{MARKER} is over" in command["command"]:
                    return

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            connect(url).echo(f"{MARKER} is over")
            thread.join(180)


def start_worker(world: Stack, worker: str) -> None:
    match worker:
        case "rq worker":
            world.rq_worker("--verbose", "orchestrator.default")
        case "orchestrator worker":
            world.worker("--log-level", "debug", "--log-format", "json", "default")
        case _:
            world.worker("--log-level", "debug", "--concurrency", "3", "default")


def said(redis_url: str, *arguments: str) -> str:
    """All that a command prints."""
    done = CliRunner().invoke(main, arguments, env={"ORCHESTRATOR_REDIS_URL": redis_url})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output


@pytest.mark.slow
@pytest.mark.parametrize("worker", ["rq worker", "orchestrator worker", "orchestrator worker --concurrency"])
def test_no_secret_is_found_anywhere(
    worker: str, redis_url: str, redis_server: RedisServer, tmp_path: Path
) -> None:
    redis = connect(redis_url)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "token").write_text(f"{TOKEN}\n")
    with (
        receiver(500) as hooks,
        stack(redis_url, "secret_functions", tmp_path / "logs") as world,
        monitored(redis_url, tmp_path) as sent,
    ):
        world.coordinator("--log-level", "debug")
        world.environment |= {
            variable_of("db.password"): PASSWORD,
            FOLDER_VARIABLE: str(tmp_path / "secrets"),
            HOSTS_VARIABLE: "127.0.0.1",
        }
        start_worker(world, worker)
        redis.xadd(KEYS.starts, {"spec": json.dumps(spec(hooks.url)), "execution_id": EXECUTION})
        bad = {"steps": [{"op": MARKER, "when": {"secret": "db"}}]}
        redis.xadd(KEYS.starts, {"spec": json.dumps(bad), "execution_id": f"{MARKER}-dead"})
        wait_until(lambda: len(hooks.posts) == 2 and redis.xlen(KEYS.dead_letters) == 1, what=world.log())
        wait_until(lambda: '"status":"complete"' in record(redis)["item::webhook"], what=world.log())

        found = record(redis)
        assert_it_was_used(found)
        places = {"redis": str(snapshot(redis)), "posts": str([post.body for post in hooks.posts])}
        places |= views(redis_url, redis, tmp_path)
    places |= {"monitor": sent.read_text(), "logs": world.log()}

    for place, text in places.items():
        assert MARKERS.get(place.split()[0], MARKER) in text, f"nothing was found in {place}: {text}"
        assert [trace for trace in TRACES if trace in text] == [], f"{place} has a secret: {text}"
    quiet = worker == "rq worker"  # it shows only warnings of loggers that are not its own
    for what in ("warned", "excepted", "printed", "cried", *(() if quiet else ("logged", "noted"))):
        assert f"{MARKER} {what}: {REDACTED}" in places["logs"], what
    assert f"{MARKER} raised" in places["monitor"]
    assert f"{MARKER} returned" in places["monitor"]


def record(redis: Client) -> dict[str, str]:
    return redis.hgetall(KEYS.workflow(str(redis.get(KEYS.execution(EXECUTION)))))  # type: ignore[return-value]


def assert_it_was_used(found: dict[str, str]) -> None:
    """What came back is what was made of the secret, and not of a reference to it."""
    output = json.loads(found["step:returned"])["output"]
    assert output["echo"] == REDACTED
    assert output["header"] == f"Bearer {REDACTED}"
    assert output["url"] == f"https://example.org/?key={REDACTED}"
    assert output[REDACTED][0] == f"is {REDACTED}"
    assert REDACTED in output["basic"]
    assert json.loads(found["step:told"])["output"] == {"kept": REDACTED}
    failed = json.loads(found["step:failed"])
    assert failed["attempt"] == 2
    assert f"{MARKER} raised: 401 for {REDACTED}" in failed["error"]["message"]
    assert found["status"] == "failed"


def views(redis_url: str, redis: Client, folder: Path) -> dict[str, str]:
    """What every command says that reads."""
    changed = folder / f"{MARKER}.yaml"
    changed.write_text(json.dumps({"steps": [{"op": f"{MARKER}-step", "input": INPUT}]}))
    letters: Any = redis.xrange(KEYS.dead_letters)
    [[letter, _]] = letters
    of_it = [
        ["show"],
        ["show", "--json"],
        ["show", "--outputs"],
        *(
            ["show", "--step", step]
            for step in ("returned", "returned#undo", "told", "each", "each#1", "failed")
        ),
        ["history"],
        ["history", "--json"],
        ["watch"],
        ["why"],
        ["why", "--json"],
        ["graph"],
        ["what-if", "--spec", str(changed)],
        ["what-if", "--json", "--spec", str(changed)],
    ]
    commands = [[name, EXECUTION, *options] for name, *options in of_it]
    commands += [
        ["list"],
        ["list", "--json"],
        ["verify"],
        ["verify", "--json"],
        ["doctor"],
        ["doctor", "--json"],
    ]
    commands += [["dead", "list"], ["dead", "list", "--json"], ["dead", "show", letter]]
    return {" ".join(command): said(redis_url, *command) for command in commands}


# ---- one harness


def test_a_secret_that_the_worker_does_not_have_fails_the_step_for_good(world: RedisWorld) -> None:
    payload = dispatched(world, document({"id": "s", "fn": "a", "input": {"p": {"secret": "not-there"}}}))

    harness(world, lambda inputs: {}).run(payload)

    error = json.loads(published(world)[0]["error"])
    assert (error["kind"], error["type"]) == ("refused", "SecretNotFound")
    assert (
        error["message"] == "this worker has no secret 'not-there': searched in ORCHESTRATOR_SECRET_NOT_THERE"
    )


def test_a_job_carries_names_and_places_and_no_values(
    world: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable_of("db"), PASSWORD)

    payload = dispatched(world, document({"id": "s", "fn": "a", "input": {"p": [{"secret": "db"}], "n": 1}}))

    assert payload["inputs"] == {"p": [{"secret": "db"}], "n": 1}
    assert payload["secrets"] == [["p", 0]]
    assert "redact" not in payload


def test_what_a_document_redacts_is_hidden_in_errors_and_logs_and_stays_in_outputs(
    world: RedisWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    step = {"id": "s", "fn": "a", "input": {"iban": "DE00-1234", "deep": {"api_key": "k3y-k3y"}}}
    payload = dispatched(world, document(step, redact=["iban"]))
    assert payload["redact"] == ["iban"]

    def keeps(inputs: Json, log: Any) -> Json:
        log(f"with {inputs}")
        return inputs

    def fails(inputs: Json) -> Json:
        raise ValueError(str(inputs))

    harness(world, keeps).run(payload)
    [kept] = published(world)
    harness(world, fails).run(payload)

    assert json.loads(kept["output"]) == step["input"]
    assert "DE00" not in caplog.text + str(published(world)[-1]["error"])
    assert "k3y-k3y" not in caplog.text + str(published(world)[-1]["error"])
    assert f"'iban': '{REDACTED}'" in caplog.text
