"""The page about the HTTP API: its calls are made, and its table has every route with its Redis commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.pages import blocks, reading
from orchestrator import web
from orchestrator.client import Client
from orchestrator.web.api.openapi import summarize
from orchestrator.web.api.routes import API_ROUTES
from orchestrator.web.problems import STATUSES
from servers.page_server import serve
from worlds.documents import document, step
from worlds.page_executions import ORDER, run_execution
from worlds.redis_world import RedisWorld

PAGE = "docs/http-api.md"
TEXT = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
PATHS = {
    "/bulk/{action}": "/bulk/cancel?status=failed",
    "/workflow": "/workflow?workflow=nightly",
    "/health": "/health?process=redis",
    "/executions/{execution}/step": "/executions/{execution}/step?step=ship",
    "/executions/{execution}/fields": "/executions/{execution}/fields?commit=1",
}
"""The calls of routes that need more than their path."""
NIGHTLY = document(step("a"), name="nightly", schedule={"cron": "0 3 * * *"})


@pytest.mark.slow
def test_the_calls_of_the_page_return_what_it_shows(tmp_path: Path) -> None:
    with reading(tmp_path, PAGE) as reader:
        for block in blocks(TEXT):
            if block.treatment.startswith("file"):
                reader.do(block)
        for block in blocks(TEXT):
            if block.treatment == "system":
                reader.do(block)
        with serve(web.app(reader.redis_url)) as site:
            reader.environment["API"] = f"{site.url}/api/v1"
            for block in blocks(TEXT):
                if block.treatment == "console":
                    reader.do(block)


def test_the_table_has_every_route() -> None:
    expected = [f"| {one.method} | `{one.path}` | {summarize(one)} |" for one in API_ROUTES]

    assert [row.rpartition(" | ")[0] + " |" for row in table()] == expected, "\n".join(expected)


def test_a_route_that_reads_needs_no_more_redis_commands_than_the_table_says(
    world: RedisWorld, redis_url: str
) -> None:
    Client(world.client).register("nightly", NIGHTLY)
    run_execution(world, {**ORDER, "history": "full"}, execution_id="order-1")
    entry = world.start("nobody")
    world.coordinator("one").run_once()
    [letter] = [str(one[0]) for one in world.client.xrange(world.keys.dead_letters)]  # type: ignore[union-attr]
    allowed = {row.split("`")[1]: row.split("|")[-2].strip() for row in table() if row.startswith("| GET")}
    counted = {}
    with serve(web.app(redis_url)) as site:
        for path in allowed:
            entry_id = letter if "letters" in path else entry
            real = PATHS.get(path, path).format(execution="order-1", entry=entry_id, payload="0" * 64)
            site.get(f"/api/v1{real}")  # from here on, scripts are loaded and connections are open
            before = commands(world)
            found = site.get(f"/api/v1{real}")
            counted[path] = commands(world) - before - 1
            assert found.status_code < 500, found.text

    assert not {path: count for path, count in counted.items() if count > int(allowed[path])}, counted
    assert all(counted.values()), counted


def table() -> list[str]:
    """The rows of the table of routes."""
    return TEXT.partition("Redis commands |\n|---|---|---|---|\n")[2].splitlines()


def commands(world: RedisWorld) -> int:
    """How many commands Redis has handled, with this one."""
    return int(world.client.info("stats")["total_commands_processed"])


def test_every_code_of_a_problem_is_on_the_page() -> None:
    package = Path(web.__file__).parent
    source = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    codes = set(re.findall(r'Problem\(\s*\d{3},\s*"(\w+)"', source)) | set(STATUSES)

    assert len(codes) > 20
    assert codes - {"error"} <= set(re.findall(r"`(\w+)`", TEXT))
