"""While a step runs, the text that this process prints or logs does not contain its secrets."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout

import pytest

from orchestrator.application.redaction.by_key import REDACTED
from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.logs import JsonFormatter, TextFormatter
from orchestrator.worker.log_scrubbing import scrub_logs

SECRET = 'hunter2 "x"'
REDACTOR = ValueRedactor([SECRET])

logger = logging.Logger("an.executor", logging.DEBUG)
"""Not in the logger hierarchy, so that the handlers of pytest do not see its records."""


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The output of a handler like that of a stock worker."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


def test_printed_text_is_scrubbed(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr

    with scrub_logs(REDACTOR):
        print("with", SECRET, "!")
        print(f"no {SECRET}", file=sys.stderr)
        sys.stdout.writelines([f"{SECRET}\n", "end\n"])
        assert sys.stdout.encoding == before[0].encoding
        assert sys.stdout.write(SECRET) == len(SECRET)
    print(SECRET)

    out, err = capsys.readouterr()
    assert out == f"with {REDACTED} !\n{REDACTED}\nend\n{REDACTED}{SECRET}\n"
    assert err == f"no {REDACTED}\n"
    assert (sys.stdout, sys.stderr) == before


def test_the_records_of_any_logger_are_scrubbed(lines: io.StringIO) -> None:
    with scrub_logs(REDACTOR):
        logger.info("with %s and %d", SECRET, 3)
        logger.info("nothing of it: %d", 3)
        logger.info({"as": SECRET})
        try:
            raise LookupError(SECRET)
        except LookupError:
            logger.exception("failed")
        try:
            raise LookupError("no secret")
        except LookupError:
            logger.exception("failed")
    logger.info("after: %s", SECRET)

    shown = lines.getvalue()
    assert shown.count(SECRET) == 1
    assert f"with {REDACTED} and 3\nnothing of it: 3\n{{'as': '{REDACTED}'}}\nfailed\nTraceback" in shown
    assert f"LookupError: {REDACTED}\n" in shown
    assert "LookupError: no secret\n" in shown
    assert shown.endswith(f"after: {SECRET}\n")


def test_the_report_of_a_bad_log_format_is_scrubbed(
    lines: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)  # configure_logging may have switched it off

    with scrub_logs(REDACTOR):
        logger.info("%d", SECRET)

    err = capsys.readouterr().err
    assert "Logging error" in err
    assert REDACTED in err
    assert SECRET not in err + lines.getvalue()


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_the_structured_fields_of_log_lines_are_scrubbed(
    formatter: logging.Formatter, lines: io.StringIO
) -> None:
    logger.handlers[-1].setFormatter(formatter)

    with scrub_logs(REDACTOR):
        logger.info("field", extra={"given": {"deep": [SECRET]}, "size": 3})
        try:
            raise LookupError(SECRET)
        except LookupError:
            logger.exception("failed")

    shown = lines.getvalue()
    assert "hunter2" not in shown
    assert shown.count(REDACTED) == 2
    if isinstance(formatter, JsonFormatter):
        first, second = map(json.loads, shown.splitlines())
        assert (first["given"], first["size"]) == ({"deep": [REDACTED]}, 3)
        assert f"LookupError: {REDACTED}" in second["exception"]


def test_concurrent_runs_scrub_each_others_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    began, end = threading.Event(), threading.Event()

    def run() -> None:
        with scrub_logs(ValueRedactor(["swordfish"])):
            began.set()
            end.wait(180)

    thread = threading.Thread(target=run)
    with scrub_logs(REDACTOR):
        thread.start()
        assert began.wait(180)
        print(f"{SECRET} swordfish")
    print(f"{SECRET} swordfish")
    end.set()
    thread.join()
    print("swordfish")

    assert capsys.readouterr().out == f"{REDACTED} {REDACTED}\n{SECRET} {REDACTED}\nswordfish\n"


def test_without_secrets_nothing_is_replaced() -> None:
    before = sys.stdout, logging.getLogRecordFactory()

    with scrub_logs(ValueRedactor()):
        assert (sys.stdout, logging.getLogRecordFactory()) == before


def test_streams_and_factories_that_other_code_has_set_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, factory = io.StringIO(), logging.getLogRecordFactory()
    stdout, stderr = sys.stdout, sys.stderr

    def records(*args: object, **kwargs: object) -> logging.LogRecord:
        return logging.LogRecord(*args, **kwargs)  # type: ignore[arg-type]

    try:
        with scrub_logs(REDACTOR):
            with redirect_stdout(theirs):
                print(SECRET)
            sys.stdout = sys.stderr = theirs
            logging.setLogRecordFactory(records)

        assert sys.stdout is sys.stderr is theirs
        assert logging.getLogRecordFactory() is records
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        logging.setLogRecordFactory(factory)
