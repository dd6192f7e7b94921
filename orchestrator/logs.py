"""Formats log lines, as text or as one JSON object each, with the execution, step, run and attempt they
belong to.

Our own code passes these fields by `extra=`. Lines that an executor logs while it runs get the fields of its
run from `run_context()`. Nothing is configured until log_to_stderr() is called, so a stock `rq worker` logs
as always.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

LOG_FORMATS = ("text", "json")
TRACE_FIELDS = ("trace_id", "span_id")
"""The fields that lead from a line to its trace. Only JSON has them: they would fill half a line of text."""
CONTEXT_FIELDS = ("execution", "step", "run_id", "attempt", "event", *TRACE_FIELDS)
"""The fields that identify what a line is about; other fields follow them."""

failure_logger = logging.getLogger("orchestrator.failures")
"""Logs each attempt and each step that has failed, as a warning."""

Fields = Mapping[str, Any]

_EMPTY_RECORD = logging.LogRecord("", 0, "", 0, "", (), None)
_STANDARD_ATTRIBUTES = {*vars(_EMPTY_RECORD), "message", "asctime", "taskName"}
_RESERVED_KEYS = {"time", "level", "logger", "process", "exception", "stack"}


def log_to_stderr(level: str, log_format: str, process: str) -> None:
    """Make every logger of this process write to standard error, in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(RunContextFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.raiseExceptions = False  # a closed standard error loses log lines, but fails no steps
    set_process_name(process)


def set_process_name(name: str) -> None:
    """Set the name of this coordinator or worker in its log lines; its work-horses have the same name."""
    global _process_name
    _process_name = name


_process_name = ""


# ---- the run that a line belongs to


_run: ContextVar[Fields | None] = ContextVar("run", default=None)
"""The run of the current thread, or of the current task of an event loop."""
_process_run: Fields = {}
"""The run that owns the whole process."""


@contextmanager
def run_context(run: Fields, *, owns_process: bool = False) -> Iterator[None]:
    """Add the fields of `run` to the lines logged inside the block, and to those of tasks started in it.

    A run that owns its process, as in a work-horse, gets the lines of all threads: an executor may start
    some.
    """
    global _process_run
    token = _run.set(run)
    if owns_process:
        _process_run = run
    try:
        yield
    finally:
        _run.reset(token)
        if owns_process:
            _process_run = {}


class RunContextFilter(logging.Filter):
    """Adds the fields of the current run to each line; they replace fields of the same names."""

    def filter(self, record: logging.LogRecord) -> bool:
        run = _run.get() or _process_run
        for name, value in run.items():
            setattr(record, name, value)
        return True


# ---- redaction


RedactFunction = Callable[[Any], Any]
_redact_functions: list[RedactFunction] = []


@contextmanager
def redact_logs(redact: RedactFunction) -> Iterator[None]:
    """Apply `redact`, which takes a text or a JSON value, to every line of this process inside the block."""
    _redact_functions.append(redact)
    try:
        yield
    finally:
        _redact_functions.remove(redact)


def redact_log_value(value: Any) -> Any:
    """Apply every active redact function to a text or a JSON value."""
    for redact in _redact_functions.copy():
        value = redact(value)
    return value


# ---- formats


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object, in one line of ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _format_time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _format_message(record),
        }
        if _process_name:
            line["process"] = _process_name
        line |= {name: _to_json(value) for name, value in extra_fields(record).items()}
        if record.exc_text:
            line["exception"] = record.exc_text
        elif record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(redact_log_value(line))


class TextFormatter(logging.Formatter):
    """Formats a record for people to read: the message in one line, followed by its fields."""

    def __init__(self, fmt: str = "%(asctime)s %(levelname)s %(name)s: %(message)s") -> None:
        super().__init__(fmt)

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = _format_message(record), None  # arguments that do not fit are no error
        lines = str(redact_log_value(super().format(record))).split("\n")
        return "\n".join(map(_escape_control_characters, lines))

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [
            f"{name}={_format_field(value)}"
            for name, value in extra_fields(record).items()
            if name not in TRACE_FIELDS
        ]
        return " ".join([" | ".join(super().formatMessage(record).splitlines()), *fields])


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields passed by `extra=`. Those of RQ are left out: they hold the arguments of a job."""
    is_of_rq = record.name.partition(".")[0] == "rq"
    fields = {
        name: value
        for name, value in vars(record).items()
        if name not in _STANDARD_ATTRIBUTES
        and name not in _RESERVED_KEYS
        and (name in CONTEXT_FIELDS or not is_of_rq)
    }
    return {name: fields.pop(name) for name in CONTEXT_FIELDS if name in fields} | fields


def _format_time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _format_message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # the arguments do not fit the message, or cannot be formatted
        return _to_text(record.msg)


def _to_json(value: Any) -> Any:
    """Return a value as JSON can hold it, or else as text."""
    if isinstance(value, str):
        return value
    try:
        return json.loads(json.dumps(value, default=_to_text, allow_nan=False))
    except Exception:  # recursive, too deep, too long a number, or with keys that are not strings
        return _to_text(value)


def _to_text(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _escape_control_characters(line: str) -> str:
    """Escape characters that would control the terminal instead of being shown."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in line
    )


def _format_field(value: Any) -> str:
    """Format a value as plain text if it has no space, quote or equals sign, else as JSON."""
    plain = _to_json(value)
    if isinstance(plain, str) and plain.isprintable() and plain and not set(plain) & set(' "='):
        return plain
    return json.dumps(plain, ensure_ascii=False)
