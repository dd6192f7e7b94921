"""Executes the code blocks of a page, in order, and compares what they print.

A comment before each block names its treatment:

    <!-- test: file NAME -->   write the block to a file of that name
    <!-- test: console -->     run the commands in one shell, in order, and compare the output of each with
                               the lines below it; `...` matches anything, or alone any number of lines
    <!-- test: server -->      start a redis-server with these arguments, on a socket of the test
    <!-- test: server NAME --> the same, with its data in this folder; commands use this server from now on
    <!-- test: stop -->        end all services
    <!-- test: services -->    start each line; it runs until the end of the test
    <!-- test: system -->      the first line is a server, the others are services
    <!-- test: python -->      run it with Python, and compare the output with the comments after print()
    <!-- test: scripts -->     scripts with tests of their own: check that they are executable
    <!-- test: install -->     run the pip commands in a copy of the repository, without a network
    <!-- test: picture -->     nothing to run

A block without such a comment is an error.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import pytest
from redis import Redis

from effort import IS_FULL
from installation import PIP, WITH_WHAT_IS_THERE
from orchestrator.redis_rq.keys import Keys
from processes import run_module, wait_until
from pytest_runs import install_plugin, own_environment
from servers.redis_server import RedisServer, find_redis_cli, own_redis, require_redis_server
from warm_processes import WARM_SERVER

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"(?:<!-- test: (?P<treatment>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
READING = re.compile(
    r"redis-cli (GET|HGET|HGETALL|LRANGE|XRANGE) |orchestrator (show|list|history|explain|dead-letters list) "
)
PATIENCE_S = 180.0
SERVICE = re.compile(r"orchestrator (coordinator|worker)[\w .,=-]*")
"""A service whose arguments mean the same without a shell."""
ORDINARY_COMMAND = f'exec {sys.executable} -m orchestrator "$@"'
WARM_REQUEST = ROOT / "tests" / "warm_request.py"
WARM_COMMAND = f"""\
case $1 in
coordinator | worker | web | exporter) ;;
*) exec {sys.executable} -I -S {WARM_REQUEST} {{socket}} orchestrator "$@" ;;
esac
"""
"""In the background, a service must have the pid that its shell knows."""
INSTALLED_FROM = ("pyproject.toml", "README.md", "LICENSE", "orchestrator", "executors")


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
    commands_that_read: re.Pattern[str] = READING

    @property
    def is_warm(self) -> bool:
        """The README is read as a newcomer reads it: each process is a new interpreter."""
        return self.page != "README.md" and not IS_FULL

    def do(self, block: Block) -> None:
        kind, _, argument = block.treatment.partition(" ")
        match kind:
            case "file":
                (self.folder / argument).write_text(block.text)
            case "console":
                self.console(block)
            case "server":
                self.server(block, argument)
            case "stop":
                self.stop_services()
            case "services":
                self.start_services(block)
            case "system":
                server, _, services = block.text.partition("\n")
                self.server(replace(block, text=server))
                self.start_services(replace(block, text=services))
            case "python":
                self.python(block)
            case "scripts":
                self.scripts(block)
            case "install":
                self.install(block)
            case "picture":
                assert block.language == "text"
            case _:
                pytest.fail(f"{self.page}:{block.line}: no treatment for this block: {block.treatment!r}")

    def console(self, block: Block) -> None:
        shell = Shell(self.folder, self.environment)
        try:
            for command, expected in commands_of(block.text):
                self.expect(shell, block, command, expected)
        finally:
            shell.close()

    def expect(self, shell: Shell, block: Block, command: str, expected: list[str]) -> None:
        """A command that only reads is repeated until it says so: the system is given time."""
        deadline = time.monotonic() + (PATIENCE_S if self.commands_that_read.match(command) else 0.0)
        printed = shell.run(command)
        while not fits(expected, printed) and time.monotonic() < deadline:
            time.sleep(0.05)
            printed = shell.run(command)
        said = "\n".join(printed)
        assert fits(expected, printed), f"{self.page}:{block.line}: {command}\nprinted:\n{said}"

    def server(self, block: Block, data: str = "") -> None:
        """Start a server with the arguments as written, on a socket: the usual port may be in use."""
        name, *arguments = shlex.split(block.text)
        assert name == "redis-server"
        if data:
            server = RedisServer(self.folder / data, tuple(arguments))
            self.stack.callback(server.stop)
            server.start()
        else:
            server = self.stack.enter_context(own_redis(self.folder, *arguments))
        self.redis_url = server.url
        self.environment |= {"ORCHESTRATOR_REDIS_URL": server.url, "RQ_REDIS_URL": server.url}
        client = find_redis_cli()
        other_port = f'case $1 in -p) exec {client} "$@" ;; esac\n'
        _script(self.folder / "bin" / "redis-cli", f'{other_port}exec {client} -s {server.socket} "$@"')

    def start_services(self, block: Block) -> None:
        for line in block.text.splitlines():
            log = (self.folder / f"service-{len(self.services)}.log").open("wb")
            self.stack.enter_context(log)
            service = self._start_service(line, log)
            self.services.append(service)
            self.stack.callback(end_service, service)
            if "orchestrator coordinator" in line and self.redis_url:
                self.wait_for_coordinator(service)

    def stop_services(self) -> None:
        for service in self.services:
            end_service(service)
        self.services.clear()

    def _start_service(self, line: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        ours = str(self.folder / "bin" / "orchestrator")
        is_ours = shutil.which("orchestrator", path=self.environment["PATH"]) == ours
        if self.is_warm and is_ours and SERVICE.fullmatch(line):
            return WARM_SERVER.start(shlex.split(line), self.environment, log, folder=self.folder)
        return subprocess.Popen(
            ["bash", "-c", re.sub(r"^((?:\w+=\S+ )*)", r"\1exec ", line)],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def wait_for_coordinator(self, service: subprocess.Popen[bytes]) -> None:
        """Commands wait ten seconds for a reply; a reader is slower than the start of a coordinator."""
        with Redis.from_url(self.redis_url) as redis:
            wait_until(
                lambda: service.poll() is not None or redis.zcard(Keys().coordinators), what="a coordinator"
            )

    def python(self, block: Block) -> None:
        text = block.text.replace("redis://localhost:6379/0", self.redis_url)
        name = f"block_{block.line}"
        (self.folder / f"{name}.py").write_text(text)
        run = run_module([name], self.environment, self.folder, timeout_s=300, is_warm=self.is_warm)
        assert run.returncode == 0, run.stderr
        expected = re.findall(r"print\(.*\)  # (.*)", block.text)
        assert run.stdout.splitlines() == expected

    def scripts(self, block: Block) -> None:
        names = [line.split()[0] for line in block.text.splitlines()]
        assert names == ["./scripts/quickstart", "./scripts/test"]
        for name in names:
            assert os.access(ROOT / name, os.X_OK)

    def install(self, block: Block) -> None:
        """Run the commands in a copy of the repository, with a pip that installs into a folder."""
        assert all(line.startswith("pip install ") for line in block.text.splitlines())
        clone, site = self.folder / "clone", self.folder / "site"
        clone.mkdir()
        for name in INSTALLED_FROM:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, clone / name)
        options = shlex.join([*WITH_WHAT_IS_THERE, "--target", str(site), "--upgrade"])
        # PIP ends with "install", so the script drops this word of the command.
        _script(self.folder / "bin" / "pip", f'shift\nexec {shlex.join(PIP)} {options} "$@"')
        commands = ["bash", "-euc", block.text]
        run = subprocess.run(commands, cwd=clone, env=self.environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        packages = {path.name for path in site.iterdir() if (path / "__init__.py").exists()}
        assert packages == {"orchestrator", "orchestrator_executors"}
        assert os.access(site / "bin" / "orchestrator", os.X_OK)


@contextmanager
def reading(tmp_path: Path, page: str = "README.md") -> Iterator[Reader]:
    require_redis_server()
    commands = tmp_path / "bin"
    commands.mkdir()
    _script(commands / "orchestrator", ORDINARY_COMMAND)
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
        reader = Reader(tmp_path, stack, environment, page=page)
        if reader.is_warm:
            _script(
                commands / "orchestrator", WARM_COMMAND.format(socket=WARM_SERVER.path) + ORDINARY_COMMAND
            )
        yield reader


def do_page(tmp_path: Path, page: str, has_files_of_readme: bool = False) -> None:
    """Do everything on a page, in order. It starts two services, which must run until its end."""
    text = (ROOT / page).read_text(encoding="utf-8")
    with reading(tmp_path, page) as reader:
        if has_files_of_readme:
            for block in blocks():
                if block.treatment.startswith("file "):
                    reader.do(block)
        for block in blocks(text):
            reader.do(block)

        assert [service.poll() for service in reader.services] == [None, None], "a service has ended"


def check_treatments(page: str) -> None:
    """Check that every block of a page names its treatment."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = blocks(text)

    assert len(found) == text.count("\n```") / 2
    assert not [f"{page}:{block.line}" for block in found if not block.treatment]


def commands_of(text: str) -> Iterator[tuple[str, list[str]]]:
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


def prose(page: str) -> str:
    """The page without code blocks and comments."""
    return re.sub(r"^```.*?^```$|<!--.*?-->", "", page, flags=re.M | re.S)


def sentences(page: str) -> list[str]:
    """The sentences of the prose. A heading, a list item and a table cell end a sentence too."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", prose(page))
    parts = re.split(
        r"\n\s*\n|\n(?=- |\d+\. |\||#)|(?<=[.!?])\s+|(?<=\s)\|(?=\s)|^\||\|$|(?<=-)\|(?=-)", text, flags=re.M
    )
    return [" ".join(part.split()) for part in parts if part.strip()]


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def end_service(service: subprocess.Popen[bytes]) -> None:
    service.terminate()
    try:
        service.wait(20)
    except subprocess.TimeoutExpired:
        service.kill()
        service.wait()
