"""What the commands read and print, without processes and servers."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import redis
from click.testing import CliRunner, Result

from orchestrator.application.errors import (
    Busy,
    InvalidSpec,
    Problem,
    RecordNotFound,
    StartRejected,
    StoreError,
    Unavailable,
)
from orchestrator.application.explain.execution_json import as_dict
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import StepStatus, WorkflowStatus
from orchestrator.application.records.step_record import StepRecord
from orchestrator.application.spec.validation import check_spec
from orchestrator.cli import main
from orchestrator.cli.commands.start import is_file
from orchestrator.cli.errors import EXIT_CODES, explain_error
from orchestrator.cli.options import Target, mask_password, read_spec
from orchestrator.cli.output import report
from orchestrator.cli.output.progress import PlainProgress, open_progress
from orchestrator.cli.startup import RepeatedOutageFilter, durability_warnings
from orchestrator.logs import TextFormatter
from orchestrator.runtime import ChildEnded

ROOT = Path(__file__).parents[2]
NOWHERE = "unix:///nowhere/redis.sock"


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("REDIS_URL", "PREFIX", "EXECUTORS", "LEASE_S"):
        monkeypatch.delenv(f"ORCHESTRATOR_{name}", raising=False)
    monkeypatch.chdir(tmp_path)


def orchestrator(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment, prog_name="orchestrator")


def record(status: WorkflowStatus = WorkflowStatus.COMPLETE, **changes: Any) -> WorkflowRecord:
    spec = check_spec({"name": "order", "steps": [{"op": "check"}, {"op": "ship", "depends_on": ["check"]}]})
    made = WorkflowRecord(spec, "order-1", {"sku": "a1"}, "2026-01-01T00:00:00.000Z", status)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


# ---- help


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'importlib.metadata', 'orjson', 'pydantic', 'redis', 'rich', 'rq', 'yaml'}"
    program = f"""
import sys
from orchestrator.cli import main
main(["--help"], standalone_mode=False)
sys.exit(", ".join({heavy} & set(sys.modules)) or 0)
"""

    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)

    assert run.returncode == 0, f"loaded for --help: {run.stderr}"


def all_commands() -> dict[str, click.Command]:
    """Every command and subcommand, by its words."""
    groups = {name: one for name, one in main.commands.items() if isinstance(one, click.Group)}
    below = {f"{name} {sub}": one for name, group in groups.items() for sub, one in group.commands.items()}
    return {**main.commands, **below}


def test_every_command_is_listed_and_has_help() -> None:
    listed = orchestrator("--help").output

    for name in main.commands:
        assert f"\n  {name} " in listed
        shown = orchestrator(name, "--help")
        assert shown.exit_code == 0
        assert "--lifeline" not in shown.output


def test_help_has_headings_in_order() -> None:
    listed = orchestrator("--help").output

    assert re.findall(r"^(\w.*):$", listed, re.M) == [
        "Options",
        "Run and start",
        "Watch and inspect",
        "Control executions",
        "Workflows and schedules",
        "Operate",
        "Authoring",
    ]


@pytest.mark.parametrize("name", ["", "dead-letters", "workflows", "schedules"])
def test_no_summary_is_cut(name: str) -> None:
    assert "..." not in orchestrator(*name.split(), "--help").output.partition("\n\n")[2]


def test_every_summary_is_one_short_sentence() -> None:
    for name, command in all_commands().items():
        summary = command.get_short_help_str(1_000)
        assert summary, name
        assert len(summary) <= 60, f"{name}: {summary}"
        assert summary[0].isupper(), f"{name}: {summary}"


def test_every_option_has_help() -> None:
    for name, command in all_commands().items():
        options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
        assert not [(name, one.name) for one in options if not one.help]


OLD_NAMES = {
    "dead": "dead-letters",
    "definitions": "workflows",
    "hold": "hold-step",
    "release": "release-step",
    "rerun": "rerun-steps",
    "status": "show",
    "verify": "check-consistency",
    "why": "explain",
}


def test_an_old_name_is_a_hidden_alias() -> None:
    listed = orchestrator("--help").output

    assert main.aliases == OLD_NAMES
    for old, new in OLD_NAMES.items():
        assert f"\n  {old} " not in listed
        assert orchestrator(old, "--help").output == orchestrator(new, "--help").output


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_hint_of_an_old_name_is_for_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    errors, output = Stream(), Stream()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr(sys, "stdout", output)

    main(["dead", "--help"], prog_name="orchestrator", standalone_mode=False)

    assert "Usage: orchestrator dead-letters" in output.getvalue()
    hint = "hint: `orchestrator dead` is now `orchestrator dead-letters`\n"
    assert errors.getvalue() == (hint if is_terminal else "")


WITHOUT_JSON = {
    "schema": "it prints JSON",
    "web": "it serves until a signal",
    "exporter": "it serves until a signal",
    "mcp": "it speaks a protocol",
    "payload": "it prints JSON",
    "dead-letters": "its commands have it",
    "completion": "it prints a script",
    "coordinator": "it serves",
    "worker": "it serves",
}


def test_every_command_has_json_output() -> None:
    commands = all_commands()
    without = {name for name, one in commands.items() if all(p.name != "as_json" for p in one.params)}

    assert without == set(WITHOUT_JSON)
    assert set(commands) >= {"dead-letters list", "workflows remove", "schedules pause"}


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--idempotency-window", "1h"], "--idempotency-window needs an --idempotency-root"),
        (["--idempotency-root", "r", "--idempotency-window", "soon"], "must be whole seconds"),
    ],
)
def test_a_wrong_window_is_wrong_usage(words: list[str], complaint: str) -> None:
    found = orchestrator("start", "order", *words)

    assert found.exit_code == 2
    assert complaint in found.output


def test_the_version_is_printed() -> None:
    assert orchestrator("--version").output.startswith("orchestrator 0.")


# ---- what is read


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ('{"a": ', "not JSON: Expecting value at 1:7"),
        ("[1]", "must be a JSON object"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ("@missing.json", "cannot read 'missing.json': No such file or directory"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_wrong_inputs_are_wrong_usage(inputs: str, complaint: str) -> None:
    result = orchestrator("start", "name", "--inputs", inputs)

    assert result.exit_code == 2
    assert complaint in result.output


def test_inputs_in_a_wrong_file_are_named_by_it(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a"}')

    assert "in.json: not JSON" in orchestrator("start", "name", "--inputs", "@in.json").output


@pytest.mark.parametrize("command", ["run", "start", "register", "validate"])
def test_a_file_that_is_not_there_is_wrong_usage(command: str) -> None:
    result = orchestrator(command, "missing.yaml")

    assert result.exit_code == 2
    assert "cannot read 'missing.yaml': No such file or directory" in result.output


def test_a_file_that_is_no_text_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "picture.yaml").write_bytes(b"\x89PNG\xff")

    result = orchestrator("run", "picture.yaml")

    assert result.exit_code == 2
    assert "it is not UTF-8 text" in result.output


@pytest.mark.parametrize("place", ["before", "after", "environment"])
def test_redis_may_be_named_before_or_after_the_command_or_by_the_environment(place: str) -> None:
    if place == "environment":
        result = orchestrator("show", "x", ORCHESTRATOR_REDIS_URL=NOWHERE)
    else:
        words = (
            ["--redis-url", NOWHERE, "show", "x"]
            if place == "before"
            else ["show", "x", "--redis-url", NOWHERE]
        )
        result = orchestrator(*words, ORCHESTRATOR_REDIS_URL="unix:///elsewhere")

    assert result.exit_code == 1
    assert f"cannot use Redis at {NOWHERE}" in result.output
    assert "--redis-url" in result.output


def test_something_else_than_a_url_is_wrong_usage_and_no_password_is_shown() -> None:
    result = orchestrator("--redis-url", "http://me:secret@host", "show", "x")

    assert result.exit_code == 2
    assert "redis://" in result.output
    assert "secret" not in result.output


def test_a_password_is_never_shown() -> None:
    assert mask_password("redis://me:secret@host:1/0") == "redis://***@host:1/0"
    assert mask_password("unix:///a/b@c/redis.sock") == "unix:///a/b@c/redis.sock"
    sentinels = "redis+sentinel://:secret@a,b/cell/0?sentinel_password=other&ssl=1"
    assert mask_password(sentinels) == "redis+sentinel://***@a,b/cell/0?sentinel_password=***&ssl=1"


def test_a_prefix_must_be_a_name() -> None:
    assert orchestrator("--prefix", "a b", "show", "x").exit_code == 2


def test_a_wrong_variable_is_named() -> None:
    result = orchestrator("show", "x", ORCHESTRATOR_LEASE_S="soon")

    assert result.exit_code == 2
    assert "ORCHESTRATOR_LEASE_S must be a number" in result.output


@pytest.mark.parametrize(
    ("word", "means_file"),
    [("order", False), ("order.yaml", True), ("./order", True), ("a.json", True), ("-", True)],
)
def test_an_argument_that_looks_like_a_file_is_one(word: str, means_file: bool) -> None:
    assert is_file(word) is means_file


def test_a_file_that_exists_is_one_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "order").write_text("")

    assert is_file("order")


def test_a_queue_is_named_without_the_prefix() -> None:
    result = orchestrator("worker", "orchestrator.default")

    assert result.exit_code == 2
    assert "write 'default'" in result.output
    assert orchestrator("worker", "two words").exit_code == 2


def test_executors_that_do_not_exist_end_a_run_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("steps: []")

    result = orchestrator("run", "w.yaml", "--executors", "no_such_module")

    assert result.exit_code == 2
    assert "there is no module 'no_such_module'" in result.output


def test_executors_that_raise_when_imported_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_EXECUTORS", "")  # the command sets it: this puts it back
    (tmp_path / "divides.py").write_text("1 / 0")

    result = orchestrator("worker", "--executors", "divides", "--redis-url", NOWHERE)

    assert result.exit_code == 2
    problem = "the executors module 'divides' fails when it is imported: ZeroDivisionError: division by zero"
    assert result.output.splitlines()[-1] == f"Error: {problem}"


def test_a_document_without_a_name_cannot_be_registered_without_one(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("steps: []")

    result = orchestrator("register", "w.yaml", "--redis-url", NOWHERE)

    assert result.exit_code == 2
    assert "--name" in result.output


def test_inputs_that_the_workflow_rejects_end_a_run_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("inputs: {sku: {type: string, required: true}}\nsteps: []")

    result = orchestrator("run", "w.yaml")

    assert result.exit_code == 2
    assert "the workflow needs the input 'sku'" in result.output


# ---- validate


def test_validate_lists_all_problems_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("steps: [{op: a}]")
    (tmp_path / "bad.yaml").write_text("steps:\n  - {op: a, depends_on: [c]}\n  - {id: b, opp: d}\n")

    result = orchestrator("validate", "good.yaml", "bad.yaml", "missing.yaml")

    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert lines[0] == "good.yaml: valid, 1 step"
    assert [line.partition(": ")[0] for line in lines[1:-1]] == [
        "bad.yaml:2:26",
        "bad.yaml:3:5",
        "bad.yaml:3:13",
    ]
    assert "missing.yaml" in lines[-1]


def test_validate_shows_warnings_and_still_calls_the_file_valid(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("steps:\n  - {op: a, max_attempts: 3, attempts_on: any}\n")

    result = orchestrator("validate", "w.yaml")

    assert result.exit_code == 0
    assert "[repeats_on_success] (warning)" in result.output
    assert "w.yaml: valid, 1 step" in result.output


def test_validate_has_json_output(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("name: w\nsteps: [{op: a}]")
    (tmp_path / "bad.yaml").write_text("steps: 3")

    result = orchestrator("validate", "--json", "good.yaml", "bad.yaml")

    assert result.exit_code == 2
    good, bad = json.loads(result.output)
    assert (good["valid"], good["name"], good["steps"], good["problems"]) == (True, "w", ["a"], [])
    assert (bad["valid"], bad["problems"][0]["code"], bad["problems"][0]["line"]) == (False, "bad_type", 1)


def test_warnings_of_a_spec_that_is_started_go_to_the_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.yaml").write_text("steps: [{op: a, max_attempts: 3, attempts_on: any}]")

    read_spec("w.yaml")

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "w.yaml:1:31: " in captured.err


# ---- failures


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            InvalidSpec([Problem("steps", "bad_type", "must be a list")], "w.yaml"),
            2,
            "w.yaml: steps: must be a list",
        ),
        (StartRejected("no workflow is registered as 'x'"), 2, "rejected: no workflow"),
        (RecordNotFound("x"), 2, "no execution has the id 'x'"),
        (Unavailable("Redis: refused"), 1, "cannot use Redis at redis://localhost:6379/0: refused"),
        (StoreError("the spec is gone"), 1, "the spec is gone"),
        (Busy(5, 4), 7, "busy: 5 starts wait for coordinators, and the limit is 4"),
        (ChildEnded("worker 1", 2, "no module"), 2, "worker 1 exited with code 2: no module"),
        (ChildEnded("coordinator", 1, ""), 1, "it printed nothing"),
        (redis.exceptions.ConnectionError("gone"), 1, "cannot use Redis at"),
        (redis.exceptions.ResponseError("NOPERM"), 1, "rejected a command: NOPERM"),
    ],
)
def test_a_failure_has_a_message_and_an_exit_code(error: Exception, code: int, words: str) -> None:
    failure = explain_error(error, Target())

    assert failure is not None
    assert failure.exit_code == code
    assert words in failure.message


def test_a_defect_keeps_its_traceback() -> None:
    assert explain_error(ZeroDivisionError(), Target()) is None


def test_every_final_status_has_an_exit_code() -> None:
    assert EXIT_CODES == {"complete": 0, "halted": 3, "failed": 4, "cancelled": 5}


# ---- reports


def test_a_report_in_json_has_all_fields() -> None:
    failed = StepRecord(StepStatus.FAILED, 2, 3, output={"ok": False}, error={"kind": "exception"})
    told = json.loads(
        report.as_json(StatusView(record(WorkflowStatus.FAILED, error={"kind": "exception"}, state={"a": 1})))
    )

    assert told["workflow_execution_id"].endswith("#order-1")
    assert (told["execution_id"], told["status"], told["outcome"]) == ("order-1", "failed", None)
    assert (told["error"], told["state"]) == ({"kind": "exception"}, {"a": 1})
    assert set(told["steps"]) == {"check", "ship"}
    made = record()
    made.steps["check"] = failed
    step = as_dict(StatusView(made))["steps"]["check"]
    assert {name: step[name] for name in ("status", "run_id", "attempt", "output", "error")} == {
        "status": "failed",
        "run_id": 2,
        "attempt": 3,
        "output": {"ok": False},
        "error": {"kind": "exception"},
    }


def test_a_summary_has_the_status_the_steps_and_the_error() -> None:
    made = record(
        WorkflowStatus.FAILED, ended_at="2026-01-01T00:01:05.000Z", error={"message": "no\nmore", "type": "E"}
    )
    made.steps["check"] = StepRecord(
        StepStatus.FAILED,
        attempt=2,
        started_at="2026-01-01T00:00:00.000Z",
        ended_at="2026-01-01T00:00:01.500Z",
        error={"message": "no\nmore", "type": "E"},
    )
    made.steps["ship"] = StepRecord(StepStatus.SKIPPED, reason="step check failed")

    assert report.summary(made).splitlines() == [
        "order order-1: failed in 1 m 5 s",
        "  check  failed          1.5 s  attempt 2  E: no",
        "  ship   skipped                  step check failed",
        "error: E: no",
    ]


def test_a_summary_of_a_large_workflow_stays_short() -> None:
    spec = check_spec({"steps": [{"op": f"s{n}"} for n in range(500)]})
    made = WorkflowRecord(spec, "x", {}, "2026-01-01T00:00:00.000Z", outcome={"text": "x" * 10_000})

    told = report.summary(made)

    assert len(told) < 6_000
    assert "and 450 more" in told


# ---- progress


HISTORY: list[dict[str, Any]] = [
    {"at": "2026-01-01T00:00:00.000Z", "step": "check", "to": "in_progress", "attempt": 1},
    {"at": "2026-01-01T00:00:00.100Z", "step": "check", "state_changed": ["a"]},
    {
        "at": "2026-01-01T00:00:00.250Z",
        "step": "check",
        "to": "retry",
        "attempt": 2,
        "error": {"message": "busy"},
    },
]


def test_plain_progress_prints_each_transition_once() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)

    progress.show(StatusView(record()), HISTORY[:1])
    progress.show(StatusView(record()), HISTORY)
    progress.show(StatusView(record()), HISTORY)

    assert stream.getvalue().splitlines() == [
        "   0.000 s  check: dispatched",
        "   0.250 s  check: retry scheduled (attempt 2): busy",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {"COLUMNS": "60", "LINES": "10", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)
    return Terminal()


def test_live_progress_redraws_in_place_and_leaves_only_printed_lines(terminal: Terminal) -> None:
    running = record(WorkflowStatus.IN_PROGRESS)

    with open_progress(terminal) as progress:
        progress.show(StatusView(running), [])
        running.steps["check"] = StepRecord(StepStatus.COMPLETE)
        progress.show(StatusView(running), [])
        progress.print_text("hello", "worker 1")
        progress.show(StatusView(record(WorkflowStatus.COMPLETE)), [])
        progress.print_text("[red]bye\x1b[2J")

    assert "ship" in terminal.getvalue()
    assert "1 of 2 steps" in terminal.getvalue()
    assert screen(terminal.getvalue()) == ["worker 1: hello", "[red]bye\\x1b[2J"]


def test_live_progress_shows_active_steps_when_there_are_more_steps_than_lines(terminal: Terminal) -> None:
    spec = check_spec({"steps": [{"op": f"s{n}"} for n in range(100)]})
    made = WorkflowRecord(spec, "x" * 80, {}, "2026-01-01T00:00:00.000Z", WorkflowStatus.IN_PROGRESS)
    made.steps["s77"] = StepRecord(StepStatus.IN_PROGRESS)

    with open_progress(terminal) as progress:
        progress.show(StatusView(made), [])
        lines = screen(terminal.getvalue())

    assert len(lines) < 10
    assert max(map(len, lines)) <= 60
    assert "s77" in [line.split()[0] for line in lines]


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_without_a_terminal_that_redraws_progress_is_lines(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("TERM", term)

    with open_progress(Terminal() if term == "dumb" else io.StringIO()) as progress:
        assert isinstance(progress, PlainProgress)


def screen(written: str) -> list[str]:
    """The lines on a terminal after all that was written to it, without colours."""
    lines, row = [""], 0
    for code, text in re.findall(r"\x1b\[([?0-9;]*[A-Za-z])|([^\x1b])", written):
        if code.endswith("A"):
            row -= int(code[:-1])
        elif code.endswith("K"):
            lines[row] = ""
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text and text != "\r":
            lines[row] += text
    return [line.rstrip() for line in lines if line.rstrip()]


# ---- services


class Info:
    """A Redis that answers INFO, and nothing else."""

    def __init__(self, aof: int, policy: str) -> None:
        self._answers: dict[str, dict[str, Any]] = {
            "persistence": {"aof_enabled": aof},
            "memory": {"maxmemory_policy": policy},
        }

    def info(self, section: str) -> dict[str, Any]:
        return self._answers[section]


def test_a_durable_redis_gets_no_warning() -> None:
    assert durability_warnings(Info(1, "noeviction")) == []  # type: ignore[arg-type]


def test_a_redis_that_may_lose_workflows_gets_warnings_with_advice() -> None:
    aof, eviction = durability_warnings(Info(0, "allkeys-lru"))  # type: ignore[arg-type]

    assert "--appendonly yes" in aof
    assert "allkeys-lru" in eviction
    assert "--maxmemory-policy noeviction" in eviction


@pytest.fixture
def rq_log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    log, stream = logging.getLogger("test of rq.worker"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter("%(levelname)s %(message)s"))
    outage = RepeatedOutageFilter()
    log.addHandler(handler)
    log.addFilter(outage)
    log.propagate = False
    yield log, stream
    log.removeHandler(handler)
    log.removeFilter(outage)


def test_an_outage_is_logged_once_and_in_one_line(rq_log: tuple[logging.Logger, io.StringIO]) -> None:
    log, stream = rq_log

    for _ in range(5):
        log.error(
            "Worker %s: could not connect to Redis instance: %s retrying in %d seconds...", "w", "refused", 2
        )
    try:
        raise redis.exceptions.ConnectionError("refused")
    except redis.exceptions.ConnectionError:
        log.error("Worker %s: found an unhandled exception, quitting...", "w", exc_info=True)

    (line,) = stream.getvalue().splitlines()
    assert line.startswith("WARNING Redis is unavailable; retrying: ")


def test_other_errors_are_logged_as_they_are(rq_log: tuple[logging.Logger, io.StringIO]) -> None:
    log, stream = rq_log

    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        log.error("found an unhandled exception", exc_info=True)
    log.error("two\nlines")

    assert "ZeroDivisionError" in stream.getvalue()
    assert stream.getvalue().endswith("ERROR two | lines\n")


@pytest.mark.parametrize(
    "arguments", [["--redis-url", "unix:///no.sock", "list"], ["list", "--redis-url", "unix:///no.sock"]]
)
def test_an_unreachable_redis_is_named_as_it_was_given(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 1
    assert "cannot use Redis at unix:///no.sock: " in result.output
