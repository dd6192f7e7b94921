"""Realistic flowtoy documents, converted by the command and run as it printed them.

The tests search for secrets of the worker in everything that is printed, in the history, and in everything
that was ever written to Redis: its append-only file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from e2e.pages import blocks, reading
from processes import PATIENCE_S, ROOT, Stack, run_module, stack
from servers.redis_server import RedisServer, own_redis
from servers.web import Asked, Reply, Site, said, site

pytestmark = pytest.mark.slow

Json = dict[str, Any]
DOCUMENTS = ROOT / "tests" / "flowtoy_documents"
TOKEN, REGION = "tok-7f3a9c", "eu-west-7"
WARNING = " (warning)"


# ---- the service that they call


READERS = [
    {"id": 7, "name": "Ada", "age": 36},
    {"id": 8, "name": "Bob", "age": 9},
    {"id": 9, "name": "Cid", "age": 50},
]
LOANS = [{"title": "Emma", "days": 3}, {"title": "Dune", "days": 40}]
ACCOUNTS = [
    {"id": "a-1", "balance": 10, "owner": {"name": "Grace"}},
    {"id": "a-2", "balance": 2000, "owner": {"name": "Edsger"}},
]
LANGUAGES = [
    {"name": "Go", "level": "none"},
    {"name": "C", "level": "good"},
    {"name": "Lua", "level": "fair"},
]
OPEN = {
    "/readers": READERS,
    "/loans?reader=7": LOANS,
    "/profile": {"name": " ada ", "languages": LANGUAGES},
}
MEMBERS = [{"name": "Ada", "age": 36}, {"name": "Grace", "age": 85}]
PRIVATE = {
    f"/{REGION}/accounts": {"accounts": ACCOUNTS},
    "/us/accounts": {"accounts": [{"id": "u-1", "owner": {"name": "BARBARA"}}]},
}


def answer(asked: Asked) -> Reply:
    if asked.path == "/wishes?reader=7":  # JSON, although its content type is text
        return Reply(200, b'["Kim"]', {"Content-Type": "text/plain"})
    if asked.path in OPEN:
        return said(OPEN[asked.path])
    if asked.path not in (*PRIVATE, "/transfers"):
        return said({"error": "there is no such thing"}, status=404)
    if asked.headers.get("authorization") != f"Bearer {TOKEN}":
        return Reply(401)
    if asked.method == "POST":
        return said(
            {"number": "t-1", "transfer": asked.json, "seen": asked.headers["authorization"]}, status=201
        )
    return said(PRIVATE[asked.path])


# ---- the processes that run them


@dataclass
class Office:
    """A shell, a Redis, a coordinator and a worker."""

    folder: Path
    server: RedisServer
    processes: Stack
    web: Site
    printed: list[str] = field(default_factory=list)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ORCHESTRATOR_REDIS_URL": self.server.url}
        run = run_module(["orchestrator", *arguments], environment, self.folder, PATIENCE_S)
        self.printed += [run.stdout, run.stderr]
        return run

    def convert(self, name: str) -> tuple[int, list[str]]:
        """Convert a document. Return the exit code and the notes."""
        text = (DOCUMENTS / name).read_text(encoding="utf-8")
        (self.folder / name).write_text(text.replace("127.0.0.1:8080", f"127.0.0.1:{self.web.port}"))
        run = self.command("convert", name)
        (self.folder / f"converted-{name}").write_text(run.stdout)
        return run.returncode, [line.partition(": ")[2] for line in run.stderr.splitlines()]

    def run(self, name: str) -> Json:
        """Run the converted document. Return the output of `orchestrator run --json`."""
        run = self.command("run", f"converted-{name}", "--redis-url", self.server.url, "--json")
        assert run.returncode == 0, (run.stdout, run.stderr, self.processes.log())
        printed: Json = json.loads(run.stdout)
        return printed

    def everything_printed_about(self, execution: str) -> str:
        """Return the output of every reading command and of the services."""
        for command in (["show"], ["show", "--json"], ["history"], ["history", "--json"], ["why"]):
            self.command(*command, execution)
        return "\n".join([*self.printed, self.processes.log()])

    def everything_written(self) -> bytes:
        """Return every value in Redis and every write in its append-only file."""
        with self.server.client() as client:
            kept = b"\n".join(value for key in client.scan_iter() for value in values_of(client, key))
        written = [path.read_bytes() for path in (self.server.folder / "appendonlydir").iterdir()]
        assert any(b"XADD" in one for one in written), "the writes are there"
        return b"\n".join([kept, *written])


def values_of(client: Any, key: bytes) -> Iterator[bytes]:
    """Return all values under a key, decompressed."""
    read: dict[Any, Callable[[], Any]] = {
        b"string": lambda: client.get(key),
        b"hash": lambda: client.hgetall(key),
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"zset": lambda: client.zrange(key, 0, -1),
        b"stream": lambda: client.xrange(key),
    }
    kind: Any = client.type(key)
    yield from leaves([key, read[kind]()])


def leaves(value: Any) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield zlib.decompress(value) if value[:2] == b"x\x9c" else value
    elif isinstance(value, dict):
        yield from leaves([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple | set):
        for one in value:
            yield from leaves(one)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with site(answer) as web, own_redis(tmp_path, "--appendonly", "yes") as server:
        environment = {
            "ORCHESTRATOR_HTTP_HOSTS": f"127.0.0.1:{web.port}",
            "ORCHESTRATOR_PROCESS_COMMANDS": "echo, python3, ls",
            "ORCHESTRATOR_ENV_VARIABLES": "BANK_*",
            "BANK_TOKEN": TOKEN,
            "BANK_REGION": REGION,
        }
        with stack(server.url, "", tmp_path / "logs", **environment) as processes:
            processes.coordinator()
            processes.worker()
            yield Office(tmp_path, server, processes, web)


def is_complete(printed: Json) -> bool:
    return {step["status"] for step in printed["steps"].values()} == {"complete"}


# ---- the documents


def test_a_document_of_lists_parameters_and_programs(office: Office) -> None:
    code, notes = office.convert("library.yaml")

    printed = office.run("library.yaml")

    assert code == 0, notes
    assert [note.partition(":")[0] for note in notes] == ["flow[1].input.value", "flow[4].output[1].value"]
    assert is_complete(printed)
    assert printed["outcome"] == {
        "list_readers": {"readers": READERS, "how_many": 3, "first": 7, "adults": ["Ada", "Cid"]},
        "list_loans": {"titles": ["Emma", "Dune"], "late": "Dune"},
        "list_wishes": {"wishes": ["Kim"]},
        "summary": {"line": "3 readers, 2 loans ADA AND CID\n"},
        "letter": {
            "books": ["Emma", "Dune", "Kim"],
            "parsed": {"books": ["Emma", "Dune", "Kim"]},
        },
    }


def test_a_document_of_keys_that_stay_with_the_worker(office: Office) -> None:
    code, notes = office.convert("bank.yaml")

    printed = office.run("bank.yaml")

    assert code == 0, notes
    assert [note.partition(":")[0] for note in notes] == ["flow[2].source.override", "flow[4].input"]
    assert is_complete(printed)
    text = "Thanks, Grace and Edsger"
    whole = {"number": "t-1", "transfer": {"from": "a-2", "to": "barbara", "text": text}}
    assert printed["outcome"] == {
        "have_keys": {
            "token": "<redacted>",  # a value under such a key is never shown
            "other": False,
            "all": {"BANK_TOKEN": "<redacted>", "BANK_NOT_SET": None},
        },
        "list_accounts": {"richest": "a-2", "owners": ["Grace", "Edsger"]},
        "list_elsewhere": {"owners": ["BARBARA"]},
        "transfer": {"number": "t-1", "whole": {**whole, "seen": "Bearer <redacted>"}},
        "seal": {"said": "sealed t-1 with <redacted>\n"},
        "stamp": {"said": "t-1: Grace\n"},
    }
    output = office.everything_printed_about(printed["execution_id"])
    written = office.everything_written()
    assert "running python3 -c" in output
    assert b"sealed t-1 with <redacted>" in written
    for value in (TOKEN, REGION):
        assert value not in output
        assert value.encode() not in written
    assert [asked.headers["authorization"] for asked in office.web.asked] == 3 * [f"Bearer {TOKEN}"]


def test_a_document_of_failures_and_of_what_cannot_be_converted(office: Office) -> None:
    code, notes = office.convert("profile.yaml")

    printed = office.run("profile.yaml")

    assert code == 6
    assert [re.sub(r"[:;].*", "", note) for note in notes if not note.endswith(WARNING)] == [
        "flow[5].input.shell",
        "flow[5].input.command[2]",
    ]
    assert {name: step["status"] for name, step in printed["steps"].items()} == {
        "profile": "complete",
        "picture": "failed",
        "history": "skipped",
        "statistics": "skipped",
        "card": "complete",
        "greetings": "complete",
    }
    outcome = printed["outcome"]
    assert outcome["profile"]["languages"] == LANGUAGES[1:]
    assert outcome["picture"]["error"].startswith("127.0.0.1 answered 404")
    assert outcome["card"] == {"line": "many ADA, no picture\n"}
    names = "".join(f"{language['name']} " for language in LANGUAGES[1:])
    assert outcome["greetings"]["line"] == f"{names} {{{{ flows.profile.languages | groupby('level') }}}}\n"


# ---- the page


def test_the_page_converts_and_runs_a_document(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "convert.md").read_text(encoding="utf-8")
    treated = [block for block in blocks(page) if block.treatment]

    def club(asked: Asked) -> Reply:
        assert asked.headers["authorization"] == "Bearer open-sesame"
        return said(MEMBERS) if asked.path == "/members" else Reply(404)

    with site(club) as web, reading(tmp_path, "docs/convert.md") as reader:
        for block in treated:
            reader.do(replace(block, text=block.text.replace("127.0.0.1:8080", f"127.0.0.1:{web.port}")))

    assert [block.treatment for block in treated] == ["file members.yaml", "console"]
    assert treated[0].text == (DOCUMENTS / "members.yaml").read_text(encoding="utf-8")
    assert sorted(asked.path for asked in web.asked) == ["/members", "/picture"]
