"""Every command shows the data of producers and executors without control characters."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from processes import PatientClient
from worlds.documents import document, step
from worlds.redis_world import RedisWorld, running

NASTY = "evil\x1b]0;owned\x07\r\x1b[2J\x9b31m\x7f\u202e"
"""Sets the title, rings the bell, returns to the start of the line, clears the screen, sets the colour red
with a one-character code, deletes, and reverses the rest of the line."""

Terminal = Callable[..., Result]


@pytest.fixture
def terminal(
    world: RedisWorld, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Terminal]:
    """A shell whose terminal passes everything on, and a system in which every name is NASTY."""
    monkeypatch.chdir(tmp_path)
    client = PatientClient(world.connect())
    Path("order.json").write_text(json.dumps(document(step("a"), name=NASTY)))
    with running(world.coordinator("one", world.connect(), block_ms=20, sweep_every_s=0.1)):
        client.register(NASTY, document(step("a"), name=NASTY, schedule={"cron": "@daily"}))
        client.start(NASTY, execution_id="x")
        client.cancel("x", NASTY, NASTY)
        entry = world.client.xadd(world.keys.starts, {"workflow": NASTY, "execution_id": NASTY})
        client.wait_for_reply(str(entry))
        [(letter, _)] = world.client.xrange(world.keys.dead_letters)  # type: ignore[misc]

        def run(*words: str) -> Result:
            typed = [str(letter) if word == "LETTER" else word for word in words]
            known = {"ORCHESTRATOR_REDIS_URL": redis_url}
            return CliRunner().invoke(main, typed, env=known, color=True, prog_name="orchestrator")

        yield run


COMMANDS: dict[str, list[str]] = {
    "explain": ["explain", "x"],
    "explain of an id": ["explain", NASTY],
    "doctor": ["doctor"],
    "health": ["health", "--name", NASTY],
    "check-consistency": ["check-consistency", NASTY],
    "dead-letters list": ["dead-letters", "list"],
    "dead-letters show": ["dead-letters", "show", "LETTER"],
    "workflows": ["workflows"],
    "workflows show": ["workflows", "show", NASTY],
    "workflows remove": ["workflows", "remove", NASTY],
    "schedules": ["schedules"],
    "schedules pause": ["schedules", "pause", NASTY],
    "schedules unpause": ["schedules", "unpause", NASTY],
    "register": ["register", "order.json"],
    "start": ["start", NASTY, "--execution-id", NASTY],
    "validate": ["validate", NASTY],
    "show": ["show", "x"],
    "history": ["history", "x"],
    "watch": ["watch", "x"],
    "graph": ["graph", "x"],
    "list": ["list"],
    "failures": ["failures"],
    "cancel": ["cancel", NASTY],
    "cancel of all": ["cancel", "--name", NASTY, "--yes"],
    "signal": ["signal", "not-yet", NASTY],
    "delete": ["delete", NASTY],
    "delete for sure": ["delete", NASTY, "--yes"],
    "retry of a failure": ["retry", "--failure", NASTY, "--yes"],
    "what-if": ["what-if", "x", "--spec", "order.json"],
}


@pytest.mark.parametrize("what", COMMANDS)
def test_no_control_character_reaches_the_terminal(terminal: Terminal, what: str) -> None:
    found = terminal(*COMMANDS[what])

    assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
    printed = found.stdout + found.stderr
    assert printed
    assert not {char for char in printed if not char.isprintable()} - {"\n"}


@pytest.mark.parametrize("what", COMMANDS)
def test_no_control_character_is_in_json_output(terminal: Terminal, what: str) -> None:
    found = terminal(*COMMANDS[what], "--json")

    assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
    printed = found.stdout + found.stderr
    assert not {char for char in printed if not char.isprintable()} - {"\n"}
    if found.stdout:
        json.loads(found.stdout)


def test_every_command_prints_json_with_print_json() -> None:
    """Text of json.dumps would contain control characters: it escapes neither DEL nor anything above."""
    cli = Path(str(files("orchestrator.cli")))

    unsafe = [
        f"{path.relative_to(cli)}:{call.lineno}"
        for path in sorted(cli.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "click.echo"
        if "json.dumps" in ast.unparse(call)
    ]

    assert not unsafe, f"use print_json of orchestrator/cli/output/escaping.py: {unsafe}"


def test_json_output_keeps_the_original_text(terminal: Terminal) -> None:
    [letter] = json.loads(terminal("dead-letters", "list", "--json").stdout)
    [defined] = json.loads(terminal("workflows", "--json").stdout)

    assert (letter["event"]["execution_id"], defined["name"]) == (NASTY, NASTY)


NOT_UTF_8: list[Any] = [
    ["show", "\udc9b"],
    ["start", "\udc9b"],
    ["start", "order.json", "--label", "a=\udc9b"],
    ["cancel", "x", "--reason", "\udc9b"],
    ["list", "--name", "\udc9b"],
]


@pytest.mark.parametrize("words", NOT_UTF_8)
def test_an_argument_that_is_not_utf8_is_a_usage_error(terminal: Terminal, words: list[str]) -> None:
    found = terminal(*words)

    assert found.exit_code == 2, found.exc_info
    assert "is not UTF-8" in found.stderr
