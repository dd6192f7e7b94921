"""Log lines that say of which execution, step, run and attempt they are: as text, or a JSON object each.

Whoever logs gives the fields by `extra=`. What an executor logs while it runs gets those of its run from
here: it need not know them. Nothing is set up before log_to_stderr() is called, so a stock `rq worker` logs
as it always did.
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
CONTEXT_FIELDS = ("execution", "step", "run_id", "attempt", "event")
"""What can be followed through the log; other fields come behind them."""

Fields = Mapping[str, Any]

_BARE = logging.LogRecord("", 0, "", 0, "", (), None)
_NOT_EXTRA = {*vars(_BARE), "message", "asctime", "taskName"}
_OWN_KEYS = {"time", "level", "logger", "process", "exception", "stack"}


def log_to_stderr(level: str, log_format: str, process: str) -> None:
    """Every logger of this process writes to the standard error, in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    handler.addFilter(RunContextFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.raiseExceptions = False  # whoever closes the standard error loses lines, and no steps
    set_process_name(process)


def set_process_name(name: str) -> None:
    """The coordinator or the worker whose lines these are; its work-horses are called the same."""
    global _process
    _process = name


_process = ""


# ---- whose lines they are


_run: ContextVar[Fields | None] = ContextVar("run", default=None)
"""The run that a thread works for, or a task of an event loop."""
_alone: Fields = {}
"""The run that has the whole process."""


@contextmanager
def run_context(run: Fields, *, alone: bool = False) -> Iterator[None]:
    """What is logged in the block belongs to `run`, also by what it has on an event loop. A run that is
    `alone` in its process, as in a work-horse, has the lines of all threads: an executor may start some."""
    global _alone
    token = _run.set(run)
    if alone:
        _alone = run
    try:
        yield
    finally:
        _run.reset(token)
        if alone:
            _alone = {}


class RunContextFilter(logging.Filter):
    """Writes the fields of the run into what is logged during it, over what an executor calls so."""

    def filter(self, record: logging.LogRecord) -> bool:
        run = _run.get() or _alone
        for name, value in run.items():
            setattr(record, name, value)
        return True


# ---- what they do not say


RedactFunction = Callable[[Any], Any]
_hides: list[RedactFunction] = []


@contextmanager
def redact_logs(hide: RedactFunction) -> Iterator[None]:
    """In the block every line of this process is without what `hide` takes out of a text or a JSON value."""
    _hides.append(hide)
    try:
        yield
    finally:
        _hides.remove(hide)


def redact_log_value(value: Any) -> Any:
    for hide in _hides.copy():
        value = hide(value)
    return value


# ---- how they are written


class JsonFormatter(logging.Formatter):
    """One JSON object, in one line and in ASCII, whatever is in it."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": _message(record),
        }
        if _process:
            line["process"] = _process
        line |= {name: _plain(value) for name, value in extra_fields(record).items()}
        if record.exc_text:
            line["exception"] = record.exc_text
        elif record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(redact_log_value(line))


class TextFormatter(logging.Formatter):
    """For people: a message that has several lines is joined, and the fields stand behind it."""

    def __init__(self, words: str = "%(asctime)s %(levelname)s %(name)s: %(message)s") -> None:
        super().__init__(words)

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = _message(record), None  # words that do not fit together are no error here
        lines = str(redact_log_value(super().format(record))).split("\n")
        return "\n".join(map(_readable, lines))

    def formatMessage(self, record: logging.LogRecord) -> str:
        words = [f"{name}={_word(value)}" for name, value in extra_fields(record).items()]
        return " ".join([" | ".join(super().formatMessage(record).splitlines()), *words])


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What was given by `extra=`. RQ gives the arguments of a job, and these are nobody's business."""
    is_of_rq = record.name.partition(".")[0] == "rq"
    given = {
        name: value
        for name, value in vars(record).items()
        if name not in _NOT_EXTRA and name not in _OWN_KEYS and (name in CONTEXT_FIELDS or not is_of_rq)
    }
    return {name: given.pop(name) for name in CONTEXT_FIELDS if name in given} | given


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # the arguments do not fit, or cannot be written
        return _said(record.msg)


def _plain(value: Any) -> Any:
    """A value as JSON has it, or else in words."""
    if isinstance(value, str):
        return value
    try:
        return json.loads(json.dumps(value, default=_said, allow_nan=False))
    except Exception:  # endless, deep, too long a number, or with keys that are no texts
        return _said(value)


def _readable(line: str) -> str:
    """What others wrote is read on a terminal, and not obeyed by it."""
    if line.isprintable():
        return line
    return "".join(
        char if char.isprintable() or char == "\t" else char.encode("unicode_escape").decode()
        for char in line
    )


def _said(value: Any) -> str:
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _word(value: Any) -> str:
    """A value without a space stands as it is; any other one as JSON."""
    plain = _plain(value)
    if isinstance(plain, str) and plain.isprintable() and plain and not set(plain) & set(' "='):
        return plain
    return json.dumps(plain, ensure_ascii=False)
