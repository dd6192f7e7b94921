"""Log lines: one JSON object each, or text followed by the same fields, whatever they contain."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from orchestrator import logs
from orchestrator.application.explain.status_view import StatusView
from orchestrator.application.records.changes import Changes
from orchestrator.application.records.events import ResultEvent
from orchestrator.application.records.record import WorkflowRecord
from orchestrator.application.records.status import WorkflowStatus
from orchestrator.application.spec.validation import check_spec
from orchestrator.backend.ports import Commit, Delivery, EventRef
from orchestrator.cli.output.json_progress import LoggedProgress
from orchestrator.coordinator.pending_commit import PendingCommit, log_fields
from orchestrator.logs import JsonFormatter, RunContextFilter, TextFormatter, run_context

RUN = {"execution": "w#e", "step": "a", "run_id": 2, "attempt": 1}


@dataclass
class Log:
    """A logger and its output."""

    logger: logging.Logger
    stream: io.StringIO

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


@pytest.fixture(autouse=True)
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier test of a command may have set the process name."""
    monkeypatch.setattr(logs, "_process_name", "")


@pytest.fixture
def log_as() -> Iterator[Callable[..., Log]]:
    handlers: list[tuple[logging.Logger, logging.Handler]] = []

    def make(formatter: logging.Formatter, name: str = "shop.tests") -> Log:
        logger, stream = logging.getLogger(name), io.StringIO()
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        handler.addFilter(RunContextFilter())
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        handlers.append((logger, handler))
        return Log(logger, stream)

    yield make
    for logger, handler in handlers:
        logger.removeHandler(handler)
        logger.setLevel(logging.INFO if logger.name == "orchestrator.run" else logging.NOTSET)
        logger.propagate = True


@pytest.fixture
def json_log(log_as: Callable[..., Log]) -> Log:
    return log_as(JsonFormatter())


@pytest.fixture
def text_log(log_as: Callable[..., Log]) -> Log:
    return log_as(TextFormatter("%(levelname)s %(message)s"))


# ---- JSON


def test_a_line_has_its_time_in_utc_and_milliseconds_and_the_fields_that_were_given(json_log: Log) -> None:
    record = logging.LogRecord("shop", logging.INFO, "shop.py", 1, "sold %d", (3,), None)
    record.created = 1_800_000_000.0625
    vars(record).update(event="1-0", colour="red", attempt=1, execution="w#e")

    line = JsonFormatter().format(record)

    assert list(json.loads(line).items()) == [
        ("time", "2027-01-15T08:00:00.062Z"),
        ("level", "INFO"),
        ("logger", "shop"),
        ("message", "sold 3"),
        ("execution", "w#e"),
        ("attempt", 1),
        ("event", "1-0"),
        ("colour", "red"),
    ]


def test_a_process_name_is_a_field(json_log: Log) -> None:
    json_log.logger.info("first")

    logs.set_process_name("host-1")
    json_log.logger.info("second")

    assert [line.get("process") for line in json_log.objects] == [None, "host-1"]


def test_an_exception_is_a_field_with_its_traceback(json_log: Log) -> None:
    try:
        raise LookupError("no such\norder")
    except LookupError:
        json_log.logger.exception("cannot\nsell")
    json_log.logger.info("called from", stack_info=True)

    first, second = json_log.objects
    assert first["message"] == "cannot\nsell"
    assert first["exception"].startswith("Traceback (most recent call last):\n")
    assert first["exception"].endswith("LookupError: no such\norder")
    assert "test_an_exception_is_a_field" in second["stack"]


class Unspeakable:
    def __str__(self) -> str:
        raise RuntimeError("do not ask")

    __repr__ = __str__


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def _deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(100_000):  # Python 3.12 and later write far more levels than the recursion limit
        found = [found]
    return found


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
        ((1, 2), [1, 2]),
        ({1, }, "{1}"),
        ({"at": ValueError("x")}, {"at": "x"}),
        (Unspeakable(), "<Unspeakable>"),
        ([Unspeakable()], ["<Unspeakable>"]),
        ({("a", "b"): 1}, "{('a', 'b'): 1}"),
        (float("nan"), "nan"),
        pytest.param(10**5000, "<int>", id="a long number"),
        (b"\xff", "b'\\xff'"),
        ("half a pair: \ud800", "half a pair: \ud800"),
        ("lines\r\n\u2028", "lines\r\n\u2028"),
        (_endless(), "[[...]]"),
        (_deep(), "<list>"),
    ],
)  # fmt: skip
def test_no_value_is_too_strange_for_a_line(json_log: Log, value: Any, written: Any) -> None:
    json_log.logger.info("look", extra={"value": value})

    [line] = json_log.lines
    assert line.isascii()
    assert json.loads(line)["value"] == written


@pytest.mark.parametrize("log", ["json_log", "text_log"])
def test_a_message_whose_arguments_do_not_fit_is_written_as_it_is(
    log: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    found: Log = request.getfixturevalue(log)

    found.logger.info("%d apples", "three")
    found.logger.info("%s apples", Unspeakable())
    found.logger.info(Unspeakable())

    assert ["%d apples" in found.lines[0], "%s apples" in found.lines[1], len(found.lines)] == [True, True, 3]
    assert "<Unspeakable>" in found.lines[2]
    assert capsys.readouterr().err == ""  # where logging reports its own errors


def test_an_extra_field_cannot_replace_a_standard_field(json_log: Log) -> None:
    json_log.logger.info(
        "here", extra={"time": "never", "level": "high", "logger": "me", "exception": "none"}
    )

    [line] = json_log.objects
    assert (line["level"], line["logger"], "exception" in line) == ("INFO", "shop.tests", False)


def test_job_arguments_in_lines_of_rq_are_left_out(log_as: Callable[..., Log]) -> None:
    given = {"func": "run_step", "arguments": [{"inputs": "secret"}], "kwargs": {}, "job_id": "1"}
    found, shown = log_as(JsonFormatter(), "rq.tests"), log_as(TextFormatter(), "rq.tests")

    with run_context(RUN):
        found.logger.error("exception raised", extra=given)

    assert "secret" not in found.stream.getvalue() + shown.stream.getvalue()
    assert found.objects[0].items() > RUN.items()


# ---- text


def test_a_line_of_text_ends_with_its_fields(text_log: Log) -> None:
    text_log.logger.warning("two\nlines", extra={"step": "a", "note": 'say "so"', "nothing": "", "n": 1.5})
    text_log.logger.info("odd", extra={"x": "a=b", "y": "a\nb", "z": None, "w": "ü", "v": {"k": [1]}})

    assert text_log.lines == [
        'WARNING two | lines step=a note="say \\"so\\"" nothing="" n=1.5',
        'INFO odd x="a=b" y="a\\nb" z=null w=ü v={"k": [1]}',
    ]


def test_terminal_control_characters_are_escaped(text_log: Log) -> None:
    try:
        raise LookupError("\x1b]0;owned\x07\u202egone\ttoo")
    except LookupError:
        text_log.logger.exception("\x1b[2Jcleared", extra={"step": "\x1b[1m"})

    first, *_, last = text_log.lines
    assert first == 'ERROR \\x1b[2Jcleared step="\\u001b[1m"'
    assert last == "LookupError: \\x1b]0;owned\\x07\\u202egone\ttoo"


def test_a_traceback_follows_its_line_of_text(text_log: Log) -> None:
    try:
        raise LookupError("gone")
    except LookupError:
        text_log.logger.exception("cannot sell", extra={"step": "a"})

    first, second, *_, last = text_log.lines
    assert (first, last) == ("ERROR cannot sell step=a", "LookupError: gone")
    assert second == "Traceback (most recent call last):"


# ---- runs


def test_lines_logged_during_a_run_get_its_fields_in_place_of_their_own(json_log: Log) -> None:
    json_log.logger.info("before")
    with run_context(RUN):
        json_log.logger.info("inside", extra={"step": "another", "colour": "red"})
    json_log.logger.info("after")

    before, inside, after = json_log.objects
    assert inside.items() > {**RUN, "colour": "red"}.items()
    assert not {*before, *after} & {*RUN}


@pytest.mark.parametrize(("owns_process", "steps"), [(True, {"a"}), (False, {None})])
def test_a_run_that_owns_its_process_gets_the_lines_of_other_threads_too(
    json_log: Log, owns_process: bool, steps: set[Any]
) -> None:
    with run_context(RUN, owns_process=owns_process):
        thread = threading.Thread(target=lambda: json_log.logger.info("from a thread"))
        thread.start()
        thread.join()

    assert {line.get("step") for line in json_log.objects} == steps


def test_two_runs_in_threads_of_one_process_do_not_mix(json_log: Log) -> None:
    barrier = threading.Barrier(2)

    def run(step: str) -> None:
        with run_context({"step": step}):
            barrier.wait(180)
            json_log.logger.info(step)
            barrier.wait(180)

    threads = [threading.Thread(target=run, args=[step]) for step in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted((line["message"], line["step"]) for line in json_log.objects) == [("a", "a"), ("b", "b")]


def test_a_run_that_fails_leaves_nothing_behind(json_log: Log) -> None:
    with pytest.raises(SystemExit), run_context(RUN, owns_process=True):
        raise SystemExit(1)

    json_log.logger.info("later")

    assert "step" not in json_log.objects[0]


# ---- lines of a coordinator


def _delivery(**fields: str) -> Delivery:
    return Delivery(EventRef("orchestrator:events:0", "5-0"), 5, None, fields=fields)


@pytest.mark.parametrize(
    ("fields", "logged"),
    [
        ({}, {}),
        ({"execution_id": "e"}, {"execution": "e"}),
        ({"execution": "w#e", "execution_id": "child"}, {"execution": "w#e"}),
        ({"execution": "w#e", "step": "a", "run_id": "0", "attempt": "1"}, {**RUN, "run_id": 0}),
        ({"execution": "x" * 999, "step": "y" * 999}, {"execution": "x" * 300, "step": "y" * 300}),
        ({"run_id": "many", "attempt": "9" * 99}, {}),
    ],
)
def test_a_rejected_event_is_logged_with_its_own_fields(
    fields: dict[str, str], logged: dict[str, Any]
) -> None:
    assert log_fields(_delivery(**fields)) == {"event": "5-0", **logged}


@pytest.fixture
def case() -> PendingCommit:
    spec = check_spec({"steps": [{"op": "a"}]})
    record = WorkflowRecord(spec, "e", {}, "2027-01-15T08:00:00.000Z", WorkflowStatus.IN_PROGRESS)
    moved = {"step": "a", "from": "in_progress", "to": "complete", "run_id": 2, "attempt": 1}
    changes = Changes(fields={"status": WorkflowStatus.COMPLETE, "outcome": {"sum": "secret"}})
    changes.history = [
        {"at": "now", "cause": "5-0", **moved, "error": {"message": "secret"}},
        {"at": "now", "cause": "5-0", "log": "secret", "step": "a"},
        {"at": "now", "cause": "5-0", "workflow": "complete"},
    ]
    event = ResultEvent(record.workflow_execution_id, "a", {"sum": "secret"})
    return PendingCommit(Commit(record, changes), [Delivery(EventRef("s", "5-0"), 5, event)])


def test_a_commit_is_one_line_and_at_debug_level_one_more_for_each_move(
    case: PendingCommit, log_as: Callable[..., Log]
) -> None:
    log = log_as(JsonFormatter(), "orchestrator.coordinator.pending_commit")

    for level in (logging.WARNING, logging.INFO, logging.DEBUG):
        log.logger.setLevel(level)
        case.log()

    at_info, again, move = log.objects
    assert at_info["message"] == again["message"] == "1 events, 0 steps changed, 0 jobs"
    assert at_info.items() > {"execution": case.execution, "event": "5-0", "status": "complete"}.items()
    assert move["message"] == "in_progress -> complete"
    assert move.items() > {**RUN, "execution": case.execution, "event": "5-0"}.items()
    assert "secret" not in log.stream.getvalue()


# ---- lines of the command run


def test_a_run_that_logs_json_wraps_lines_that_are_not_json(log_as: Callable[..., Log]) -> None:
    log, stream = log_as(JsonFormatter(), "orchestrator.run"), io.StringIO()
    progress = LoggedProgress(stream)

    progress.print_text('{"message": "of a service"}', "worker 1")
    progress.print_text("printed", "worker 1")
    progress.print_text("[1]", "worker 1")
    progress.print_text("a remark")

    assert stream.getvalue() == '{"message": "of a service"}\n'
    assert [(line["message"], line.get("child")) for line in log.objects] == [
        ("printed", "worker 1"),
        ("[1]", "worker 1"),
        ("a remark", None),
    ]


def test_a_run_that_logs_json_shows_each_move_once(case: PendingCommit, log_as: Callable[..., Log]) -> None:
    log, progress = log_as(JsonFormatter(), "orchestrator.run"), LoggedProgress(io.StringIO())
    record, history = case.commit.record, case.commit.changes.history

    progress.show(StatusView(record), history[:1])
    progress.show(StatusView(record), history)

    [line] = log.objects
    assert line["message"] == "a: complete"
    assert line.items() > {**RUN, "execution": case.execution, "event": "5-0"}.items()
