"""What producers and executors wrote is shown by every command, and obeyed by nobody's terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coreworld import document, step
from integration.world import World, running
from orchestrator.cli import main
from orchestrator.client import Client

NASTY = "evil\x1b]0;owned\x07\r\x1b[2J\x9b31m\u202e"
"""It would set the title, ring, go back to the beginning of the line, clear the screen, paint it red by one
character, and turn around the rest of the line."""

Terminal = Callable[..., Result]


@pytest.fixture
def terminal(
    real_world: World, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Terminal]:
    """A shell on a terminal that passes on everything, beside a system in which everything is nasty."""
    monkeypatch.chdir(tmp_path)
    client = Client(real_world.connect())
    Path("order.json").write_text(json.dumps(document(step("a"), name=NASTY)))
    with running(real_world.coordinator("one", real_world.connect(), block_ms=20, tend_every_s=0.1)):
        client.register(NASTY, document(step("a"), name=NASTY, schedule={"cron": "@daily"}))
        client.start(NASTY, execution_id="x")
        client.cancel("x", NASTY, NASTY)
        entry = real_world.client.xadd(real_world.keys.starts, {"workflow": NASTY, "execution_id": NASTY})
        client.answer(str(entry))
        [(letter, _)] = real_world.client.xrange(real_world.keys.dead)  # type: ignore[misc]

        def run(*words: str) -> Result:
            typed = [str(letter) if word == "LETTER" else word for word in words]
            known = {"ORCHESTRATOR_REDIS_URL": redis_url}
            return CliRunner().invoke(main, typed, env=known, color=True, prog_name="orchestrator")

        yield run


COMMANDS: dict[str, list[str]] = {
    "why": ["why", "x"],
    "why of an id": ["why", NASTY],
    "doctor": ["doctor"],
    "health": ["health", "--name", NASTY],
    "verify": ["verify", NASTY],
    "dead list": ["dead", "list"],
    "dead show": ["dead", "show", "LETTER"],
    "definitions": ["definitions"],
    "definitions show": ["definitions", "show", NASTY],
    "definitions remove": ["definitions", "remove", NASTY],
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
    "cancel": ["cancel", NASTY],
    "cancel of all": ["cancel", "--name", NASTY, "--yes"],
    "signal": ["signal", "not-yet", NASTY],
    "delete": ["delete", NASTY],
    "what-if": ["what-if", "x", "--spec", "order.json"],
}


@pytest.mark.parametrize("what", COMMANDS)
def test_what_others_wrote_is_shown_and_not_obeyed(terminal: Terminal, what: str) -> None:
    found = terminal(*COMMANDS[what])

    assert found.exception is None or isinstance(found.exception, SystemExit), found.exc_info
    said = found.stdout + found.stderr
    assert said
    assert not {char for char in said if not char.isprintable()} - {"\n"}


def test_programs_are_told_what_it_was(terminal: Terminal) -> None:
    [letter] = json.loads(terminal("dead", "list", "--json").stdout)
    [defined] = json.loads(terminal("definitions", "--json").stdout)

    assert (letter["event"]["execution_id"], defined["name"]) == (NASTY, NASTY)


NOT_UTF_8: list[Any] = [
    ["show", "\udc9b"],
    ["start", "\udc9b"],
    ["start", "order.json", "--label", "a=\udc9b"],
    ["cancel", "x", "--reason", "\udc9b"],
    ["list", "--name", "\udc9b"],
]


@pytest.mark.parametrize("words", NOT_UTF_8)
def test_an_argument_that_is_no_text_is_wrong_usage(terminal: Terminal, words: list[str]) -> None:
    found = terminal(*words)

    assert found.exit_code == 2, found.exc_info
    assert "is not UTF-8" in found.stderr
