"""`orchestrator run --local` as a process: without Redis, killed, continued, interrupted, beside another."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.backend.sqlite.store import SqliteStore
from processes import PATIENCE_S, run_module, start_module, wait_until
from servers.receiver import receiver

ROOT = Path(__file__).parents[2]
EXECUTORS = """
import time
from pathlib import Path

def note(inputs):
    print("noting", inputs["text"])
    with Path("effects").open("a") as file:
        file.write(inputs["text"] + "\\n")
    return {"noted": inputs["text"]}

def wait_for(inputs):
    note({"text": "began " + inputs["go"]})
    while not Path(inputs["go"]).exists():
        time.sleep(0.01)
    return note({"text": "ended " + inputs["go"]})

def fail(inputs):
    raise ValueError("as asked")
"""
THREE = """
name: three
inputs: {go: {type: string, default: go}}
steps:
  - {id: first, fn: note, input: {text: first}}
  - {id: middle, fn: wait_for, input: {go: {var: input.go}}, depends_on: [first]}
  - {id: last, fn: note, input: {text: last}, depends_on: [middle]}
outputs: {last: {var: steps.last.output.noted}}
"""
PARENT = "name: parent\nsteps: [{id: call, workflow: three, input: {go: go}}]"
NOTE = "name: noter\nsteps: [{op: note, input: {text: once}}]\noutputs: {n: {var: steps.note.output.noted}}"
FAIL = "name: failing\nsteps: [{op: fail}]"
WITHOUT_REDIS = """
import sys
sys.modules["redis"] = sys.modules["rq"] = sys.modules["fakeredis"] = None
from orchestrator.cli.main import main
main()
"""


@dataclass
class Folder:
    """A folder with workflows and executors, in which commands run."""

    path: Path
    environment: dict[str, str]
    stack: ExitStack

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["orchestrator", "run", "--local", *arguments]
        return run_module(command, self.environment | environment, self.path, PATIENCE_S)

    def start(self, log: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in the background; its output is in the file `log`."""
        output = self.stack.enter_context((self.path / log).open("w"))
        command = ["orchestrator", "run", "--local", *arguments]
        process = start_module(command, self.environment, self.path, output)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def effects(self) -> list[str]:
        file = self.path / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for(self, effect: str, times: int = 1) -> None:
        wait_until(lambda: self.effects().count(effect) == times, what=effect)

    def let_go(self, name: str = "go") -> None:
        (self.path / name).touch()

    def execution_ids(self, db: str = "kept.db") -> list[str]:
        store = SqliteStore(self.path / db)
        ids = [weid.partition("#")[2] for weid in store.list_open()]
        store.close()
        return sorted(ids)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    texts = {"mine.py": EXECUTORS, "three.yaml": THREE, "note.yaml": NOTE, "fail.yaml": FAIL}
    for name, text in {**texts, "parent.yaml": PARENT}.items():
        (tmp_path / name).write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORCHESTRATOR_")}
    with ExitStack() as stack:
        yield Folder(tmp_path, {**kept, "PYTHONPATH": str(ROOT)}, stack)


MINE = ("--executors", "mine")
KEPT = ("--db", "kept.db")


def test_it_prints_its_result_alone_on_the_standard_output_and_keeps_nothing(folder: Folder) -> None:
    done = folder.run("note.yaml", *MINE, ORCHESTRATOR_REDIS_URL="redis://no-such-host:1/0")

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("noter ")
    assert done.stdout.splitlines()[-1] == 'outcome: {"n": "once"}'
    assert "runs in this process; nothing is kept" in done.stderr
    assert "noting once" in done.stderr, "what an executor prints is not the result"
    assert "note: complete" in done.stderr
    assert not list(folder.path.glob("*.db*"))


def test_it_imports_no_redis(folder: Folder) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_REDIS, "run", "--local", "note.yaml", *MINE, *KEPT, "--json"],
        cwd=folder.path,
        env=folder.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == {"n": "once"}


def test_its_json_has_the_fields_of_a_run_on_redis_and_its_log_may_be_json(folder: Folder) -> None:
    done = folder.run("note.yaml", *MINE, "--json", "--log-format", "json", "--label", "a=b")

    result = json.loads(done.stdout)
    assert (result["status"], result["outcome"]) == ("complete", {"n": "once"})
    assert result["steps"]["note"]["output"] == {"noted": "once"}
    messages = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert "noting once" in messages
    assert "note: complete" in messages


def test_a_failed_run_has_the_exit_code_of_a_failure(folder: Folder) -> None:
    done = folder.run("fail.yaml", *MINE)

    assert done.returncode == 4
    assert "ValueError: as asked" in done.stdout


def test_a_missing_executor_is_an_error_that_names_the_option(folder: Folder) -> None:
    done = folder.run("note.yaml")

    assert done.returncode == 4
    assert "no executor is called 'note'; this worker has: none, and the built-in echo" in done.stdout
    assert "Name the module that defines it with --executors MODULE." in done.stderr


def test_executors_may_be_named_by_the_environment(folder: Folder) -> None:
    assert folder.run("note.yaml", ORCHESTRATOR_EXECUTORS="mine").returncode == 0


def test_a_progress_is_drawn_on_a_terminal(folder: Folder) -> None:
    ours, theirs = pty.openpty()
    process = start_module(
        ["orchestrator", "run", "--local", "three.yaml", *MINE],
        folder.environment | {"TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
        folder.path,
        subprocess.PIPE,
        theirs,
    )
    os.close(theirs)
    drawn = b""
    while b"1 of 3 steps" not in drawn:
        drawn += os.read(ours, 65_536)
    folder.let_go()
    while chunk := _read_terminal(ours):
        drawn += chunk
    output, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    assert "in progress" in drawn.decode()
    assert "noting first" in drawn.decode()
    assert output.splitlines()[-1] == 'outcome: {"last": "last"}'


def _read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end was closed
        return b""


# ---- built-in executors


SORT = 'name: sorter\nsteps: [{id: sorted, fn: process, input: {command: [sort], stdin: "b\\na\\n"}}]'


def test_a_built_in_executor_needs_the_permission_that_a_worker_needs(folder: Folder) -> None:
    (folder.path / "sort.yaml").write_text(SORT)

    refused = folder.run("sort.yaml")
    allowed = folder.run("sort.yaml", "--json", ORCHESTRATOR_PROCESS_COMMANDS="sort")

    assert refused.returncode == 4
    assert "ORCHESTRATOR_PROCESS_COMMANDS is not set" in refused.stdout
    assert allowed.returncode == 0, allowed.stderr
    assert json.loads(allowed.stdout)["steps"]["sorted"]["output"]["stdout"] == "a\nb\n"


def test_a_webhook_is_posted_once(folder: Folder) -> None:
    with receiver() as hooks:
        done = folder.run("note.yaml", *MINE, "--webhook", hooks.url, ORCHESTRATOR_WEBHOOK_HOSTS="127.0.0.1")

        assert done.returncode == 0, done.stderr
        assert [post.json["outcome"] for post in hooks.posts] == [{"n": "once"}]


def test_a_webhook_that_was_not_delivered_is_posted_by_the_continuation(folder: Folder) -> None:
    with receiver(500) as hooks:
        allowed = {"ORCHESTRATOR_WEBHOOK_HOSTS": "127.0.0.1"}
        first = folder.run("note.yaml", *MINE, *KEPT, "--webhook", hooks.url, "--json", **allowed)
        execution_id = json.loads(first.stdout)["execution_id"]

        assert first.returncode == 0, first.stderr
        assert "the webhook was not delivered: " in first.stderr
        assert f"--resume {execution_id} --executors mine" in first.stderr
        wait_until(lambda: folder.run(*KEPT, "--resume", execution_id, **allowed) and len(hooks.posts) == 2)
        assert hooks.posts[1].json["outcome"] == {"n": "once"}


# ---- killed and continued


def test_a_killed_run_continues_where_it_was(folder: Folder) -> None:
    run = folder.start("run.log", "three.yaml", *MINE, *KEPT)
    folder.wait_for("began go")
    run.kill()
    run.wait()
    (folder.path / "three.yaml").unlink()
    folder.let_go()

    done = folder.run(*KEPT, "--resume", *MINE)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == 'outcome: {"last": "last"}'
    assert folder.effects() == ["first", "began go", "began go", "ended go", "last"]


def test_a_finished_execution_prints_its_result_again_and_runs_nothing(folder: Folder) -> None:
    first = folder.run("note.yaml", *MINE, *KEPT, "--json")
    execution_id = json.loads(first.stdout)["execution_id"]

    again = folder.run(*KEPT, "--resume", execution_id, "--json")
    unnamed = folder.run(*KEPT, "--resume")

    assert (again.returncode, json.loads(again.stdout)) == (0, json.loads(first.stdout))
    assert folder.effects() == ["once"]
    assert unnamed.returncode == 2
    assert "kept.db has no unfinished execution" in unnamed.stderr


def test_a_run_without_its_executors_is_not_continued_and_not_failed(folder: Folder) -> None:
    run = folder.start("run.log", "three.yaml", *MINE, *KEPT)
    folder.wait_for("began go")
    run.kill()
    run.wait()
    folder.let_go()

    refused = folder.run(*KEPT, "--resume")

    assert refused.returncode == 2
    assert "step 'middle': no executor is called 'wait_for'" in refused.stderr
    assert "name its module with --executors" in refused.stderr
    assert folder.run(*KEPT, "--resume", *MINE).returncode == 0


def test_of_several_unfinished_executions_one_must_be_named(folder: Folder) -> None:
    for go in ("one", "two"):
        run = folder.start(f"{go}.log", "three.yaml", *MINE, *KEPT, "--inputs", json.dumps({"go": go}))
        folder.wait_for(f"began {go}")
        run.kill()
        run.wait()
        folder.let_go(go)
    first, second = folder.execution_ids()

    which = folder.run(*KEPT, "--resume", *MINE)
    unknown = folder.run(*KEPT, "--resume", "another", *MINE)
    done = folder.run(*KEPT, "--resume", second, *MINE, "--json")

    assert which.returncode == unknown.returncode == 2
    assert "kept.db has 2 unfinished executions; name one with --resume:" in which.stderr
    assert f"  {first}  three, started at " in which.stderr
    assert "has no execution 'another'; unfinished ones: " in unknown.stderr
    assert {first, second} == set(unknown.stderr.strip().partition("unfinished ones: ")[2].split(", "))
    assert json.loads(done.stdout)["execution_id"] == second
    assert folder.run(*KEPT, "--resume", *MINE, "--json").stdout.count(first) > 0


def test_a_child_continues_with_its_parent(folder: Folder) -> None:
    run = folder.start("run.log", "parent.yaml", "--register", "three.yaml", *MINE, *KEPT)
    folder.wait_for("began go")
    run.kill()
    run.wait()
    folder.let_go()
    child = next(one for one in folder.execution_ids() if "call" in one)

    refused = folder.run(*KEPT, "--resume", child, *MINE)
    done = folder.run(*KEPT, "--resume", *MINE)

    assert refused.returncode == 2
    assert f"{child!r} is a child of" in refused.stderr
    assert done.returncode == 0, done.stderr
    assert folder.effects() == ["first", "began go", "began go", "ended go", "last"]


def test_an_execution_is_not_run_by_two_commands_at_once(folder: Folder) -> None:
    run = folder.start("run.log", "three.yaml", *MINE, *KEPT)
    folder.wait_for("began go")

    second = folder.run(*KEPT, "--resume", *MINE)
    folder.let_go()

    assert second.returncode == 2
    assert "another process runs the execution" in second.stderr
    assert run.wait(PATIENCE_S) == 0
    assert folder.effects() == ["first", "began go", "ended go", "last"]


def test_two_runs_share_a_file_and_each_has_its_own_executors(folder: Folder) -> None:
    other = folder.path / "other.py"
    other.write_text(EXECUTORS.replace('"ended "', '"other ended "'))
    inputs = [json.dumps({"go": go}) for go in ("one", "two")]
    first = folder.start("one.log", "three.yaml", *MINE, *KEPT, "--inputs", inputs[0])
    second = folder.start("two.log", "three.yaml", "--executors", "other", *KEPT, "--inputs", inputs[1])
    folder.wait_for("began one")
    folder.wait_for("began two")
    folder.let_go("two")
    folder.let_go("one")

    assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
    assert folder.effects().count("ended one") == folder.effects().count("other ended two") == 1
    assert folder.execution_ids() == []


def test_a_second_start_with_the_same_root_gives_the_first_execution(folder: Folder) -> None:
    root = ("--idempotency-root", "order-1")

    first, second = (folder.run("note.yaml", *MINE, *KEPT, *root, "--json") for _ in range(2))

    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert folder.effects() == ["once"]


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Programs start with SIGHUP as usual, although nohup may have started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_and_prints_how_to_continue_it(folder: Folder, number: signal.Signals) -> None:
    run = folder.start("run.log", "three.yaml", *MINE, *KEPT)
    folder.wait_for("began go")

    run.send_signal(number)

    assert run.wait(PATIENCE_S) == 128 + number
    [execution_id] = folder.execution_ids()
    log = (folder.path / "run.log").read_text()
    command = f"orchestrator run --local --db kept.db --resume {execution_id} --executors mine"
    assert f"interrupted by {number.name}; continue it with: {command}" in log
    folder.let_go()
    assert folder.run(*KEPT, "--resume", *MINE).returncode == 0


def test_a_signal_without_a_file_says_that_nothing_was_kept(folder: Folder) -> None:
    run = folder.start("run.log", "three.yaml", *MINE)
    folder.wait_for("began go")

    run.send_signal(signal.SIGINT)

    assert run.wait(PATIENCE_S) == 130
    assert "nothing was kept; with --db FILE it could be continued" in (folder.path / "run.log").read_text()


# ---- files that cannot be used


def _make_foreign_database(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("CREATE TABLE customers (name TEXT)")
    db.close()


def test_the_database_of_another_program_is_rejected_and_not_changed(folder: Folder) -> None:
    file = folder.path / "theirs.db"
    _make_foreign_database(file)
    before = file.read_bytes()

    for arguments in (("note.yaml", *MINE), ("--resume",)):
        done = folder.run("--db", "theirs.db", *arguments)

        assert done.returncode == 2
        assert "theirs.db is a database of another program: use another file" in done.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("db", "reason"),
    [
        (".", "is a directory"),
        ("nowhere/kept.db", "kept.db"),
        ("mine.py", "mine.py"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_nothing_is_run(folder: Folder, db: str, reason: str) -> None:
    done = folder.run("note.yaml", *MINE, "--db", db)

    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert folder.effects() == []


def test_a_file_that_does_not_exist_is_not_made_to_continue_from(folder: Folder) -> None:
    done = folder.run("--db", "mistyped.db", "--resume", *MINE)

    assert done.returncode == 2
    assert "there is no file 'mistyped.db'" in done.stderr
    assert not (folder.path / "mistyped.db").exists()


def test_a_file_that_may_only_be_read_is_rejected(folder: Folder) -> None:
    file = folder.path / "kept.db"
    SqliteStore(file).close()
    file.chmod(0o444)

    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "run", "--local", *KEPT, "--resume"],
        cwd=folder.path,
        env=folder.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        preexec_fn=_obey_permissions,
    )

    assert done.returncode == 2
    assert "'kept.db' is not writable" in done.stderr


def _obey_permissions() -> None:
    """Let the permissions of files count for root too: the program gets no CAP_DAC_OVERRIDE."""
    pr_capbset_drop, cap_dac_override = 24, 1
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override, 0, 0, 0)
