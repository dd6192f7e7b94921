"""The README does what it says: every block of code in it is written, run or compared here.

A comment before each block says how it is treated:

    <!-- test: file NAME -->   it is written to a file of that name
    <!-- test: console -->     its commands are run in one shell, in order, and print what stands under them;
                               `...` stands for anything within a line, or alone for any number of lines
    <!-- test: server -->      a redis-server is started with these arguments, on a socket of ours
    <!-- test: services -->    each line is started and runs until the end of the test
    <!-- test: python -->      it is run by Python, and prints what its comments behind print() say
    <!-- test: scripts -->     scripts that have tests of their own: they exist and can be executed
    <!-- test: picture -->     nothing can be run

A block without such a comment fails the test.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_runs import install_plugin, own_environment
from redis_server import own_redis, require_redis_server

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"(?:<!-- test: (?P<treatment>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
READING = re.compile(
    r"redis-cli (GET|HGET|HGETALL|LRANGE|XRANGE) |orchestrator (show|list|history|explain|dead-letters list) "
)
WORKFLOW_ID = "4899a391452d61ec594386d0b8709dcf"
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Block:
    treatment: str
    language: str
    text: str
    line: int


def blocks(page: str = README) -> list[Block]:
    return [
        Block(
            found["treatment"] or "",
            found["language"],
            found["text"],
            page.count("\n", 0, found.start()) + 1,
        )
        for found in BLOCK.finditer(page)
    ]


class Shell:
    """One bash that keeps its variables between commands."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> list[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\nprintf '\\nthat was all\\n'\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line == "that was all\n":
                break
            printed.append(line.rstrip("\n"))
        while printed and not printed[-1]:
            printed.pop()
        return printed

    def close(self) -> None:
        self._process.communicate()


@dataclass
class Reader:
    """Somebody who reads a page from top to bottom and does what it says, in an empty folder."""

    folder: Path
    stack: ExitStack
    environment: dict[str, str]
    services: list[subprocess.Popen[bytes]] = field(default_factory=list)
    redis_url: str = ""
    page: str = "README.md"

    def do(self, block: Block) -> None:
        kind, _, argument = block.treatment.partition(" ")
        match kind:
            case "file":
                (self.folder / argument).write_text(block.text)
            case "console":
                self.console(block)
            case "server":
                self.server(block)
            case "services":
                self.start_services(block)
            case "python":
                self.python(block)
            case "scripts":
                self.scripts(block)
            case "picture":
                assert block.language == "text"
            case _:
                pytest.fail(f"{self.page}:{block.line}: no treatment for this block: {block.treatment!r}")

    def console(self, block: Block) -> None:
        shell = Shell(self.folder, self.environment)
        try:
            for command, expected in _commands(block.text):
                self.expect(shell, block, command, expected)
        finally:
            shell.close()

    def expect(self, shell: Shell, block: Block, command: str, expected: list[str]) -> None:
        """A command that only reads is repeated until it says so: the system is given time."""
        deadline = time.monotonic() + (PATIENCE_S if READING.match(command) else 0.0)
        printed = shell.run(command)
        while not fits(expected, printed) and time.monotonic() < deadline:
            time.sleep(0.05)
            printed = shell.run(command)
        said = "\n".join(printed)
        assert fits(expected, printed), f"{self.page}:{block.line}: {command}\nprinted:\n{said}"

    def server(self, block: Block) -> None:
        """The arguments as they stand, on a socket in a folder: nobody's Redis is on the usual port."""
        name, *arguments = shlex.split(block.text)
        assert name == "redis-server"
        server = self.stack.enter_context(own_redis(self.folder, *arguments))
        self.redis_url = server.url
        self.environment |= {"ORCHESTRATOR_REDIS_URL": server.url, "RQ_REDIS_URL": server.url}
        _script(self.folder / "bin" / "redis-cli", f'exec {_which("redis-cli")} -s {server.socket} "$@"')

    def start_services(self, block: Block) -> None:
        for line in block.text.splitlines():
            log = (self.folder / f"service-{len(self.services)}.log").open("wb")
            self.stack.enter_context(log)
            service = subprocess.Popen(
                ["bash", "-c", re.sub(r"^((?:\w+=\S+ )*)", r"\1exec ", line)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            self.services.append(service)
            self.stack.callback(_end, service)

    def python(self, block: Block) -> None:
        text = block.text.replace("redis://localhost:6379/0", self.redis_url)
        run = subprocess.run(
            [sys.executable, "-c", text],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert run.returncode == 0, run.stderr
        expected = re.findall(r"print\(.*\)  # (.*)", block.text)
        assert run.stdout.splitlines() == expected

    def scripts(self, block: Block) -> None:
        names = [line.split()[0] for line in block.text.splitlines()]
        assert names == ["./scripts/quickstart", "./scripts/test"]
        for name in names:
            assert os.access(ROOT / name, os.X_OK)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with reading(tmp_path) as made:
        yield made


@contextmanager
def reading(tmp_path: Path, page: str = "README.md") -> Iterator[Reader]:
    require_redis_server()
    commands = tmp_path / "bin"
    commands.mkdir()
    _script(commands / "orchestrator", f'exec {sys.executable} -m orchestrator "$@"')
    _script(commands / "rq", f'exec {sys.executable} -m rq.cli "$@"')
    _script(commands / "pytest", f'exec {sys.executable} -m pytest "$@"')
    install_plugin(tmp_path)
    ours = {name: value for name, value in own_environment().items() if not name.startswith("ORCHESTRATOR_")}
    environment = {
        **ours,
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
    }
    with ExitStack() as stack:
        yield Reader(tmp_path, stack, environment, page=page)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_everything_in_the_readme_works(reader: Reader) -> None:
    for block in blocks():
        reader.do(block)

    _, worker, _ = reader.services
    assert [service.poll() for service in reader.services] == [None, None, None], "a service has ended"
    _end(worker)
    shell = Shell(reader.folder, reader.environment)
    assert shell.run("""orchestrator start greeting --inputs '{"name": "Ada"}' --execution-id stock""") == [
        "stock"
    ]
    reader.expect(
        shell,
        Block("the stock worker alone", "", "", 0),
        f"redis-cli HGET 'orchestrator:workflow:{WORKFLOW_ID}#stock' status",
        ["complete"],
    )
    shell.close()


def test_every_block_says_how_it_is_tested() -> None:
    found = blocks()

    assert len(found) == README.count("\n```") / 2
    assert not [f"README.md:{block.line}" for block in found if not block.treatment]


def test_the_first_workflow_is_short() -> None:
    (first,) = [block for block in blocks() if block.treatment == "file greeting.yaml"]

    assert len(first.text.splitlines()) <= 15


def test_files_that_the_readme_links_to_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)

    assert links
    assert not [link for link in links if "://" not in link and not (ROOT / link).exists()]


def test_code_that_the_readme_names_exists() -> None:
    named = re.findall(r"`((?:orchestrator|executors|docs|scripts)/[\w/.]*)`", README)

    assert named
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize(
    ("expected", "printed", "is_so"),
    [
        (["status: ..."], ["status: complete"], True),
        (["status: ..."], ["status:"], False),
        (["a", "...", "z"], ["a", "b", "c", "z"], True),
        (["a", "...", "z"], ["a", "z"], True),
        (["a", "...", "z"], ["a", "b"], False),
        (["..."], ["anything"], True),
        ([], [], True),
        ([], ["something"], False),
    ],
)
def test_dots_stand_for_anything(expected: list[str], printed: list[str], is_so: bool) -> None:
    assert fits(expected, printed) is is_so


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each `$ command` of a console block, with the lines that it prints."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *expected = part.splitlines()
        yield command, expected


def fits(expected: list[str], printed: list[str]) -> bool:
    pattern = "".join(
        r"(?:.*\n)*" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
        for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in printed)) is not None


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _which(name: str) -> str:
    found = subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True, check=True)
    return found.stdout.strip()


def _end(service: subprocess.Popen[bytes]) -> None:
    service.terminate()
    try:
        service.wait(20)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()
