"""docs/mcp.md is correct: its table lists the tools of the server, and its session is played."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from e2e.pages import blocks, check_treatments, fits, reading
from orchestrator.cli.main import main
from orchestrator.mcp.calls import TOOLS
from orchestrator.mcp.folding import MAX_CHARS
from processes import wait_until
from servers.mcp_client import McpClient, mcp_client

PAGE = "docs/mcp.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
CALL = re.compile(r"^> (\w+) (\{.*\})\n< (.*)$", re.M)
READS = {one.name for one in TOOLS if not one.changes}


def test_every_block_of_it_names_its_treatment() -> None:
    check_treatments(PAGE)


def test_the_table_has_every_tool() -> None:
    first = {one.name: one.description.partition(". ")[0].rstrip(".") for one in TOOLS}
    expected = [f"| `{one.name}` | {'yes' if one.changes else 'no'} | {first[one.name]} |" for one in TOOLS]

    rows = TEXT.partition("| tool | changes something | what it does |\n|---|---|---|\n")[2]
    assert rows.partition("\n\n")[0].splitlines() == expected, "\n".join(expected)


def test_the_entries_for_clients_start_the_command_with_options_that_it_has() -> None:
    entries = [json.loads(one.text) for one in BLOCKS if one.treatment.startswith("client")]

    assert len(entries) == 2
    for entry in entries:
        server = entry["mcpServers"]["orchestrator"]
        assert (server["command"], server["args"][0]) == ("orchestrator", "mcp")
        main.commands["mcp"].make_parser(main.make_context("orchestrator", ["mcp"])).parse_args(
            server["args"][1:]
        )


def test_the_limit_of_a_result_is_that_of_the_server() -> None:
    assert f"*At most {MAX_CHARS:,} characters.*" in TEXT


@pytest.mark.slow
def test_the_session_of_the_page(tmp_path: Path) -> None:
    [session] = [one.text for one in BLOCKS if one.treatment == "session"]
    calls = CALL.findall(session)
    assert len(calls) == session.count("\n> ") + 1 == 8

    with reading(tmp_path, PAGE) as reader:
        for block in BLOCKS:
            if block.treatment.split()[0] in ("file", "system", "console"):
                reader.do(block)
        with mcp_client(reader.redis_url, tmp_path, "--user", "support-agent") as client:
            play(client, calls)


def play(client: McpClient, calls: list[tuple[str, str, str]]) -> None:
    """Make the calls, and compare the results. One that only reads is repeated: the system is given time."""
    execution_id = ""
    for name, arguments, expected in calls:
        given = json.loads(arguments.replace("$ID", execution_id))
        seen: list[dict[str, Any]] = []

        def is_as_written(
            name: str = name, given: Any = given, expected: str = expected, seen: Any = seen
        ) -> bool:
            seen.append(dict(client.call_raw(name, given).structured_content))
            return fits([expected], [json.dumps(seen[-1], ensure_ascii=False)])

        if name in READS:
            wait_until(is_as_written, what=f"{name} {given}")
        else:
            assert is_as_written(), (name, given, seen)
        execution_id = seen[-1].get("execution_id", execution_id)
