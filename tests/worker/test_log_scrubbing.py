"""While a step runs, nothing that this process prints or logs has its secrets in it."""

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
HIDING = ValueRedactor([SECRET])

logger = logging.Logger("an.executor", logging.DEBUG)
"""Of which nobody else knows: the handlers of pytest have ideas of their own."""


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a handler of a stock worker writes."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    yield written
    logger.removeHandler(handler)


def test_what_is_printed_goes_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr

    with scrub_logs(HIDING):
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


def test_what_any_logger_says_goes_without_them(lines: io.StringIO) -> None:
    with scrub_logs(HIDING):
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


def test_words_that_do_not_fit_are_told_without_them(
    lines: io.StringIO, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)  # a service of ours, set up before, says nothing

    with scrub_logs(HIDING):
        logger.info("%d", SECRET)

    told = capsys.readouterr().err
    assert "Logging error" in told
    assert REDACTED in told
    assert SECRET not in told + lines.getvalue()


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_our_own_lines_have_none_in_their_fields_either(
    formatter: logging.Formatter, lines: io.StringIO
) -> None:
    logger.handlers[-1].setFormatter(formatter)

    with scrub_logs(HIDING):
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


def test_runs_at_the_same_time_hide_for_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    began, end = threading.Event(), threading.Event()

    def run() -> None:
        with scrub_logs(ValueRedactor(["swordfish"])):
            began.set()
            end.wait(10)

    thread = threading.Thread(target=run)
    with scrub_logs(HIDING):
        thread.start()
        assert began.wait(10)
        print(f"{SECRET} swordfish")
    print(f"{SECRET} swordfish")
    end.set()
    thread.join()
    print("swordfish")

    assert capsys.readouterr().out == f"{REDACTED} {REDACTED}\n{SECRET} {REDACTED}\nswordfish\n"


def test_without_secrets_nothing_is_touched() -> None:
    before = sys.stdout, logging.getLogRecordFactory()

    with scrub_logs(ValueRedactor()):
        assert (sys.stdout, logging.getLogRecordFactory()) == before


def test_what_somebody_else_has_put_in_place_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, factory = io.StringIO(), logging.getLogRecordFactory()
    stdout, stderr = sys.stdout, sys.stderr

    def records(*given: object, **named: object) -> logging.LogRecord:
        return logging.LogRecord(*given, **named)  # type: ignore[arg-type]

    try:
        with scrub_logs(HIDING):
            with redirect_stdout(theirs):
                print(SECRET)
            sys.stdout = sys.stderr = theirs
            logging.setLogRecordFactory(records)

        assert sys.stdout is sys.stderr is theirs
        assert logging.getLogRecordFactory() is records
    finally:
        sys.stdout, sys.stderr = stdout, stderr
        logging.setLogRecordFactory(factory)
