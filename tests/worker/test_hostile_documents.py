"""Malicious documents and servers against every built-in executor, under every kind of worker.

Each attack is refused, or does no harm, and says so; and the same worker goes on.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from processes import wait_until
from servers.redis_contents import snapshot
from servers.web import Asked, Reply, Site, said, site
from worlds.attacks import MARK, WORKERS, Json, System, attacked, marked, program
from worlds.waiting import at_some_pace

pytestmark = pytest.mark.slow

MEGABYTE = 1_000_000
SECRET = "s3cr3t-of-the-worker"


class Server:
    """The server that the workers may call; it is malicious."""

    def __init__(self) -> None:
        self.over, self.bomb = threading.Event(), bomb(50)

    def __call__(self, asked: Asked) -> Reply:
        what, _, rest = asked.path.lstrip("/").partition("?")
        match what:
            case "leads":
                return Reply(302, headers={"Location": rest})
            case "endless":
                return Reply(302, headers={"Location": f"/endless?{int(rest or 0) + 1}"})
            case "gigabyte":
                return Reply(pieces=(b"x" * MEGABYTE for _ in range(1_000)))
            case "bomb":
                return Reply(headers={"Content-Encoding": "gzip"}, body=self.bomb)
            case "drips":
                return Reply(pieces=self._drops())
            case "repeats":
                return Reply(500, f"not with {asked.headers.get('authorization')}".encode())
        return said("at your service")

    def _drops(self) -> Iterator[bytes]:
        while not self.over.wait(0.05):
            yield b"."


def bomb(megabytes: int) -> bytes:
    """Gzip that decompresses to a thousand times its size."""
    squeezed = zlib.compressobj(wbits=31)
    pieces = [squeezed.compress(bytes(MEGABYTE)) for _ in range(megabytes)]
    return b"".join([*pieces, squeezed.flush()])


@pytest.fixture(scope="module")
def web() -> Iterator[Site]:
    server = Server()
    with site(server) as made:
        yield made
        server.over.set()


@pytest.fixture(scope="module")
def inside() -> Iterator[Site]:
    """A private service, which must not be reached."""
    with site(lambda asked: said("the crown jewels")) as made:
        yield made


@pytest.fixture(scope="module", params=WORKERS)
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, web: Site
) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "files" / "reports").mkdir(parents=True)
    environment = {
        "ORCHESTRATOR_HTTP_HOSTS": f"*, 127.0.0.1:{web.port}",
        "ORCHESTRATOR_PROCESS_COMMANDS": sys.executable,
        "ORCHESTRATOR_FILE_ROOT": str(folder / "files"),
        "ORCHESTRATOR_PYTHON_MODULES": "step_functions, os, builtins",
        "ORCHESTRATOR_ENV_VARIABLES": "SHOP_*",
        "ORCHESTRATOR_SECRET_TOKEN": SECRET,
        "ORCHESTRATOR_LEASE_S": "4",
    }
    with attacked(request.param, folder, **environment) as made:
        yield made


def call(url: str, **settings: Any) -> Json:
    return {"fn": "http", "input": {"url": url, **settings}}


# ---- malicious URLs

OURS = [
    "127.0.0.1",
    "[::1]",
    "0.0.0.0",
    "2130706433",
    "127.1",
    "0x7f000001",
    "[::ffff:127.0.0.1]",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "10.0.0.7",
    "localhost",
    "loopback.example.org",
    "intranet.example.org",
    "metadata.example.org",
    "two-faced.example.org",
]


def test_a_private_address_is_not_called_in_any_spelling_or_by_name(system: System, inside: Site) -> None:
    messages = system.messages(call(f"http://{host}:{inside.port}/") for host in OURS)

    wanted = re.compile(r".* is not a public address: add the host by name to ORCHESTRATOR_HTTP_HOSTS .*")
    assert [message for message in messages if not wanted.fullmatch(message)] == []
    assert inside.asked == []
    system.still_serves()


def test_a_url_that_only_looks_like_an_allowed_one_is_rejected(
    system: System, web: Site, inside: Site
) -> None:
    allowed, hidden = f"127.0.0.1:{web.port}", f"127.0.0.1:{inside.port}"
    urls = [
        f"http://{allowed}@{hidden}/",
        f"http://user:pa55word@{allowed}/",
        f"http://{allowed}%2f@{hidden}/",
        f"file://{allowed}/etc/passwd",
        f"gopher://{allowed}/",
        "http:///etc/passwd",
    ]

    messages = system.messages(call(url) for url in urls)

    assert [message for message in messages if "the URL cannot be used" not in message] == []
    assert inside.asked == []
    assert "pa55word" not in "".join(messages)
    system.still_serves()


def test_a_redirect_to_another_host_is_checked_like_a_url(system: System, web: Site, inside: Site) -> None:
    hidden = f"127.0.0.1:{inside.port}"
    targets = [
        inside.url,
        f"//{hidden}/",
        f"http://localhost:{inside.port}/",
        f"http://loopback.example.org:{inside.port}/",
        "http://169.254.169.254/latest/meta-data/",
        f"http://user:pa55word@{hidden}/",
        "file:///etc/passwd",
    ]

    messages = system.messages(call(f"{web.url}/leads?{target}") for target in targets)

    assert [one for one in messages if "is not a public address" not in one] == [
        "127.0.0.1 redirects to a URL that cannot be used",
        "127.0.0.1 redirects to a URL that cannot be used",
    ]
    assert inside.asked == []
    system.still_serves()


# ---- malicious responses


def test_an_endless_response_is_cut_off(system: System, web: Site) -> None:
    sent = web.sent
    steps = [
        call(f"{web.url}/gigabyte"),
        call(f"{web.url}/bomb"),
        call(f"{web.url}/drips", timeout=1),
        call(f"{web.url}/endless"),
    ]

    assert system.messages(steps) == [
        "127.0.0.1 answers with more than 1,048,576 bytes; raise max_response_bytes to allow this",
        "127.0.0.1 answers with more than 1,048,576 bytes; raise max_response_bytes to allow this",
        "127.0.0.1 did not answer within 1 s",
        "127.0.0.1 redirects again, but max_redirects is 5",
    ]
    assert web.sent - sent < 100 * MEGABYTE, "the rest was not read"
    system.still_serves()


def test_a_secret_that_a_server_repeats_is_redacted_everywhere(system: System, web: Site) -> None:
    header = {"authorization": {"secret": "token"}}

    execution = system.start(call(f"{web.url}/repeats", headers=header))
    message = system.error(execution)["message"]

    assert web.asked[-1].headers["authorization"] == SECRET, "it was sent"
    assert message == "127.0.0.1 answered 500: not with <redacted>"
    kept = str(snapshot(system.redis))
    assert "not with <redacted>" in kept
    assert SECRET not in kept
    assert SECRET not in system.processes.log()
    system.still_serves()


# ---- programs

ARGUMENTS = "import json, sys; print(json.dumps([*sys.argv[1:], sys.stdin.read()]))"


def test_no_shell_reads_the_arguments_of_a_program(system: System) -> None:
    path = system.folder / "made-by-a-shell"
    words = [
        f"; touch {path}",
        f"$(touch {path})",
        f"`touch {path}`",
        f"\ntouch {path}\n",
        f"| touch {path} #",
    ]
    whole = "".join(words)

    given = [
        system.runs(program(ARGUMENTS, args=words, payload=whole)),
        system.runs(program(ARGUMENTS, *words, payload=whole, pass_to="stdin")),
        system.runs(program(ARGUMENTS, {"$literal": "{{ raw }}"}, payload=whole, pass_to="template")),
    ]

    assert [one["json"] for one in given] == [[*words, whole, ""], [*words, whole], [whole, ""]]
    assert not path.exists()
    system.still_serves()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["touch", "x"], "may not run touch: add it to ORCHESTRATOR_PROCESS_COMMANDS"),
        (["/bin/sh", "-c", "true"], "may not run /bin/sh: add it to ORCHESTRATOR_PROCESS_COMMANDS"),
        (["../../bin/sh"], "'../../bin/sh' is neither the name of a program nor an absolute path"),
        (["./python"], "'./python' is neither the name of a program nor an absolute path"),
        ([f"{sys.executable}/../sh"], "may not run "),
        (f"{sys.executable}; touch x", "may not run "),
        (["python\0"], "contains a zero byte"),
    ],
)
def test_a_program_that_is_not_listed_is_not_run(system: System, command: Any, message: str) -> None:
    error = system.fails({"fn": "process", "input": {"command": command}})

    assert error["type"] == "Refused"
    assert message in error["message"]
    system.still_serves()


FAMILY = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        time.sleep(600)
open(sys.argv[2], "w").close()
while True:
    sys.stdin.read()
    time.sleep(0.01)
"""
"""Daemons that only SIGKILL ends, and a parent that reads for ever from an empty pipe."""


def test_nothing_is_left_of_a_program_that_forks_and_never_ends(system: System, tmp_path: Path) -> None:
    mark = f"{MARK}={tmp_path}"
    began = tmp_path / "began"

    def scene(pace: int) -> None:
        execution = system.start(program(FAMILY, mark, str(began), timeout=5 * pace))
        message = system.error(execution)["message"]

        told = f"did not end within {5 * pace} s, and was killed with all processes that it had started"
        assert told in message
        assert began.exists(), "all of them were there"
        assert marked(mark) == set()
        system.still_serves()

    at_some_pace(scene)


def test_nothing_is_left_of_a_program_when_its_worker_process_is_killed(
    system: System, tmp_path: Path
) -> None:
    mark = f"{MARK}={tmp_path}"
    began = tmp_path / "began"
    execution = system.start(program(FAMILY, mark, str(began)), limits={"max_lost": 0})
    wait_until(began.exists, what=system.log())

    assert system.processes.kill_horse(system.worker)

    error = system.error(execution)
    assert error["kind"] == "lost"
    assert "died" in error["message"]
    wait_until(lambda: not marked(mark), what="all of them to be gone")
    system.still_serves()


PRINTS = """
import os
for _ in range(100):
    os.write(1, b"x" * 1_000_000)
    os.write(2, b"y" * 1_000_000)
"""


def test_the_output_of_a_program_is_kept_up_to_its_limit(system: System) -> None:
    output = system.runs(program(PRINTS))

    assert output["cut"] == {"stdout": 100 * MEGABYTE, "stderr": 100 * MEGABYTE}
    assert (len(output["stdout"]), len(output["stderr"])) == (262_144, 262_144)
    system.still_serves()


# ---- files, functions and variables


def test_no_path_leads_out_of_the_folder_of_files(system: System) -> None:
    files, outside = system.folder / "files", system.folder / "outside.txt"
    outside.write_text("the crown jewels")
    for name, target in {"link": outside, "zero": Path("/dev/zero"), "way": system.folder}.items():
        if not (files / name).is_symlink():
            (files / name).symlink_to(target)
    if not (files / "pipe").exists():
        os.mkfifo(files / "pipe")
    paths = ["../outside.txt", "reports/../../outside.txt", str(outside), "link", "zero", "pipe"]
    paths.append("way/outside.txt")

    read = system.messages({"fn": "file", "input": {"action": "read", "path": path}} for path in paths)
    written = system.messages(
        {"fn": "file", "input": {"action": "write", "path": path, "text": "mine"}} for path in paths
    )

    leads = "is not allowed: a path is relative to ORCHESTRATOR_FILE_ROOT and stays below it"
    assert (
        read
        == written
        == [
            *(f"{path!r} {leads}" for path in paths[:3]),
            "'link' is not a file but a symbolic link",
            "'zero' is not a file but a symbolic link",
            "'pipe' is not a file but a device, pipe or socket",
            "'way' is not a folder, or is a symbolic link, which is not followed",
        ]
    )
    assert outside.read_text() == "the crown jewels"
    system.still_serves()


def test_no_function_is_called_but_those_that_an_allowed_module_defines(system: System) -> None:
    refused = {
        "os.system": "os is part of the standard library, which is never called",
        "builtins.eval": "builtins is part of the standard library, which is never called",
        "subprocess.run": "subprocess is part of the standard library, which is never called",
        "step_functions.__builtins__": "is private",
        "step_functions.add.__globals__": "is private",
        "step_functions.os.system": "step_functions.os may not be called",
        "step_functions.Path": "step_functions defines no function 'Path'",
        "hostile_functions.honest": "may not be called: add it to ORCHESTRATOR_PYTHON_MODULES",
        "redis.Redis.from_url": "redis.Redis may not be called",
    }

    messages = system.messages(
        {"fn": "python", "input": {"function": name, "arguments": {"command": "true"}}} for name in refused
    )

    wrong = [(one, said) for one, said in zip(refused.values(), messages, strict=True) if one not in said]
    assert wrong == []
    system.still_serves()


def test_no_variable_is_read_but_those_that_are_allowed(system: System) -> None:
    names = ["PATH", "ORCHESTRATOR_SECRET_TOKEN", "ORCHESTRATOR_REDIS_URL", "SHOP*"]

    messages = system.messages({"fn": "env", "input": {"vars": [name]}} for name in names)

    assert messages == [
        f"the variable {name!r} is not allowed: ORCHESTRATOR_ENV_VARIABLES of this worker does not list it"
        for name in names
    ]
    system.still_serves()


@pytest.mark.parametrize("worker", WORKERS)
def test_dangerous_executors_are_off_until_they_are_allowed(
    worker: str, tmp_path: Path, inside: Site
) -> None:
    steps = {
        "ORCHESTRATOR_HTTP_HOSTS": call("http://example.org/"),
        "ORCHESTRATOR_WEBHOOK_HOSTS": {"fn": "webhook", "input": {"url": inside.url, "body": {}}},
        "ORCHESTRATOR_PROCESS_COMMANDS": program("print(1)"),
        "ORCHESTRATOR_FILE_ROOT": {"fn": "file", "input": {"action": "list", "path": "."}},
        "ORCHESTRATOR_PYTHON_MODULES": {"fn": "python", "input": {"function": "step_functions.add"}},
        "ORCHESTRATOR_ENV_VARIABLES": {"fn": "env", "input": {"vars": ["PATH"]}},
        "ORCHESTRATOR_SECRET_TOKEN": {"fn": "echo", "input": {"it": {"secret": "token"}}},
    }

    with attacked(worker, tmp_path) as system:
        messages = system.messages(steps.values())

        wrong = [(name, one) for name, one in zip(steps, messages, strict=True) if name not in one]
        assert wrong == []
        assert inside.asked == []
        system.still_serves()
