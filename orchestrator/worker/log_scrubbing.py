"""What is printed and logged while a step runs goes without its secrets, by whomever in this process.

It is done where Python writes: print(), sys.stdout and sys.stderr, every logger, whoever has set it up. What
goes around that is not seen: the output of other programs, os.write(), a stream that was kept from before.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from orchestrator.application.redaction.by_value import ValueRedactor
from orchestrator.logs import redact_log_value, redact_logs

_lock = threading.Lock()
_runs = 0
"""How many runs with secrets there are in this process: what one of them knows, another may print."""


def scrub_logs(secrets: ValueRedactor) -> AbstractContextManager[None]:
    """In the block none of these leaves the process as a line."""
    return _without(secrets) if secrets else nullcontext()


@contextmanager
def _without(secrets: ValueRedactor) -> Iterator[None]:
    with redact_logs(secrets.value):
        _begin()
        try:
            yield
        finally:
            _end()


def _begin() -> None:
    global _runs
    with _lock:
        _runs += 1
        if _runs == 1:
            sys.stdout, sys.stderr = _Stream(sys.stdout), _Stream(sys.stderr)
            logging.setLogRecordFactory(_Records(logging.getLogRecordFactory()))


def _end() -> None:
    """Take away what is ours; if somebody has put his own in its place, that stays."""
    global _runs
    with _lock:
        _runs -= 1
        if _runs == 0:
            if isinstance(sys.stdout, _Stream):
                sys.stdout = sys.stdout.stream
            if isinstance(sys.stderr, _Stream):
                sys.stderr = sys.stderr.stream
            factory = logging.getLogRecordFactory()
            if isinstance(factory, _Records):
                logging.setLogRecordFactory(factory.former)


class _Stream:
    """A stream that hides what is written to it, and is in all else the one below."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(redact_log_value(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class _Records:
    """Makes the records of all loggers: also those of a stock `rq worker`, which has handlers of its own."""

    def __init__(self, former: Any) -> None:
        self.former = former

    def __call__(self, *given: Any, **named: Any) -> logging.LogRecord:
        record: logging.LogRecord = self.former(*given, **named)
        try:
            said = record.getMessage()
        except Exception:
            return record  # its handler will say so, on a stream that hides
        if redact_log_value(said) != said:
            record.msg, record.args = redact_log_value(said), None
        if record.exc_info:
            told = logging.Formatter().formatException(record.exc_info)
            if redact_log_value(told) != told:
                record.exc_info, record.exc_text = None, redact_log_value(told)
        return record
