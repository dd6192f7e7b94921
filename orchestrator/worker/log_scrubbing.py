"""Removes the secrets of running steps from everything that this process prints and logs.

The scrubbing happens where Python writes: in print(), sys.stdout, sys.stderr and every logger, whatever its
handlers. It does not cover the output of other programs, os.write(), or a reference to a stream that was
taken before the step started.
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
"""How many runs with secrets this process has. They share one set, since one may print a secret of
another."""


def scrub_logs(secrets: ValueRedactor) -> AbstractContextManager[None]:
    """Within the block, replace these values in all printed and logged text."""
    return _scrub(secrets) if secrets else nullcontext()


@contextmanager
def _scrub(secrets: ValueRedactor) -> Iterator[None]:
    with redact_logs(secrets.redact_value):
        _install()
        try:
            yield
        finally:
            _uninstall()


def _install() -> None:
    global _runs
    with _lock:
        _runs += 1
        if _runs == 1:
            sys.stdout, sys.stderr = _ScrubbedStream(sys.stdout), _ScrubbedStream(sys.stderr)
            logging.setLogRecordFactory(_ScrubbedRecordFactory(logging.getLogRecordFactory()))


def _uninstall() -> None:
    """Restore the streams and the record factory, unless other code has replaced ours meanwhile."""
    global _runs
    with _lock:
        _runs -= 1
        if _runs == 0:
            if isinstance(sys.stdout, _ScrubbedStream):
                sys.stdout = sys.stdout.stream
            if isinstance(sys.stderr, _ScrubbedStream):
                sys.stderr = sys.stderr.stream
            factory = logging.getLogRecordFactory()
            if isinstance(factory, _ScrubbedRecordFactory):
                logging.setLogRecordFactory(factory.wrapped)


class _ScrubbedStream:
    """Scrubs the text that is written; every other attribute is that of the wrapped stream."""

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


class _ScrubbedRecordFactory:
    """Scrubs the records of all loggers, also those of a stock `rq worker`, which has its own handlers."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __call__(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        record: logging.LogRecord = self.wrapped(*args, **kwargs)
        try:
            message = record.getMessage()
        except Exception:
            return record  # the handler reports the bad format, on a scrubbed stream
        if redact_log_value(message) != message:
            record.msg, record.args = redact_log_value(message), None
        if record.exc_info:
            traceback = logging.Formatter().formatException(record.exc_info)
            if redact_log_value(traceback) != traceback:
                record.exc_info, record.exc_text = None, redact_log_value(traceback)
        return record
