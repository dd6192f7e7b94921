"""The page on schedules does what it says: every block of it is run, and compared with what follows it."""

from __future__ import annotations

import json
import re
import shlex
from datetime import datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from redis import Redis

from orchestrator import InvalidSpec, load_spec
from orchestrator.application.spec.cron import MACROS, iter_slots
from orchestrator.application.spec.part_models import ScheduleModel
from orchestrator.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str


BLOCKS = [Block(found[1], found[2]) for found in BLOCK.finditer(PAGE)]
NIGHTLY, WRONG = (block.text for block in BLOCKS if block.language == "yaml")
REGISTERING, PAUSING, LOOKING, ASKING = (block.text for block in BLOCKS if block.language == "sh")
AFTER = {before.text: block.text for before, block in pairwise(BLOCKS) if block.language == "text"}
TIMES = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d\.\d{3}Z| [+-]\d{4})")


def run(commands: str, redis_url: str) -> str:
    """What the commands of a block print, with every time in place of another."""
    printed = []
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        assert program == "orchestrator"
        result = CliRunner().invoke(main, ["--redis-url", redis_url, *words])
        assert result.exit_code == 0, result.output
        printed.append(result.output)
    return without_times("".join(printed))


def without_times(text: str) -> str:
    return TIMES.sub("<time>", text)


def test_the_commands_of_the_page_print_what_it_shows(
    redis_url: str, redis_client: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nightly.yaml").write_text(NIGHTLY)

    assert run(REGISTERING, redis_url) == without_times(AFTER[REGISTERING])
    entry, due = _asked(redis_client)
    assert run(PAUSING, redis_url) == without_times(AFTER[PAUSING])
    assert run(LOOKING, redis_url) == without_times(AFTER[LOOKING])

    table = PAGE.partition("| field | meaning |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()]
    assert [name for row in rows for name in re.findall(r"`(\w+)`", row)] == list(json.loads(entry))
    assert json.loads(entry)["next_ms"] == float(due)


def _asked(redis: Redis) -> tuple[Any, Any]:
    found = []
    for line in ASKING.splitlines():
        program, *words = shlex.split(line)
        assert program == "redis-cli"
        found.append(redis.execute_command(*words))  # type: ignore[no-untyped-call]
    return found[0], found[1]


def test_a_document_that_is_wrong_is_refused_with_the_problems_of_the_page() -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(WRONG)

    assert str(refused.value) + "\n" == AFTER[WRONG]


def test_the_slots_of_the_page_are_those_of_the_crons() -> None:
    table = PAGE.partition("| cron | time zone | after | slots |\n|---|---|---|---|\n")[2].partition("\n\n")[
        0
    ]
    rows = [[cell.strip() for cell in row.split("|")[1:5]] for row in table.splitlines()]

    assert len(rows) == 6
    for cron, zone, after, shown in rows:
        since = datetime.fromisoformat(after).replace(tzinfo=ZoneInfo(zone)).timestamp()
        expected = shown.split(", ")
        found = [
            datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone))
            for at_ms in islice(iter_slots(cron.strip("`"), zone, int(since * 1000)), len(expected))
        ]
        assert [
            f"{at:%m-%d %H:%M (%z)}" if "(" in text else f"{at:%m-%d %H:%M}"
            for at, text in zip(found, expected, strict=True)
        ] == expected, cron


def test_the_page_names_every_key_and_every_macro() -> None:
    named = set(re.findall(r"`([^`\n]+)`", PAGE))

    assert set(ScheduleModel.key_names()) | set(MACROS) <= named
