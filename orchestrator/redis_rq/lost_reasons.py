"""Why a run was lost: the cause, and what to do about it.

A supervisor knows how its child died. A stock `rq worker` leaves a text in the result of the failed job:
compressed, in base64. The sweep passes it on as the field `rq_error` of the `lost` event, and the coordinator
reads it here. Anyone who can write to Redis can write that text, so it is unpacked within a limit, cut, and
redacted. A text that cannot be read gives no reason; the event then has the reason that the sweep wrote.

The work-horse of every step imports this module, so it must not import anything heavy.
"""

from __future__ import annotations

import os
import re
import signal
import zlib
from base64 import b64decode

from orchestrator.application.redaction.by_key import redact_text

MAX_STORED_CHARS = 16 * 1024
"""The maximum length of a stored error. The sweep passes on no longer one."""
MAX_ERROR_BYTES = 256 * 1024
"""How much of an error is unpacked. RQ cuts nothing; the traceback of a deep recursion has some 100 kB."""
MAX_LINE_CHARS = 300
MAX_REDACTED_CHARS = 2_000
"""How much of a line is redacted before it is cut: more than is shown, or half a secret could remain."""

WRONG_SERIALIZER = (
    "its worker cannot read jobs in JSON: start it with rq worker --serializer json (with rq older than 2.9:"
    " --serializer rq.serializers.JSONSerializer)"
)
NOT_INSTALLED = "its worker cannot import orchestrator.worker.harness: install rq-orchestrator where it runs"
OUT_OF_MEMORY = (
    "its work-horse ran out of memory: raise ORCHESTRATOR_MAX_MEMORY of its worker, or let the step use less"
)
TIMED_OUT = "RQ stopped its job after the timeout of RQ; give the step a longer timeout, or let it do less"

_KILLED = (
    "it was killed, by the system because memory ran out (the log of the kernel or of the container says so),"
    " or by an operator; with ORCHESTRATOR_MAX_MEMORY of its worker below the memory there is, a step that"
    " needs too much fails by itself"
)
_CRASHED = "native code in it crashed; run its worker with PYTHONFAULTHANDLER=1 to log where"
_TOLD_TO_END = "it was told to end; to end it, stop the worker instead, which lets the step finish"
_OTHER_SIGNAL = "see the log of its worker"
_EXITED = "the step ended it; an executor must return or raise, and not exit"

_SIGNALS: dict[int, str] = {
    signal.SIGKILL: _KILLED,
    **dict.fromkeys((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL), _CRASHED),
    **dict.fromkeys((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT), _TOLD_TO_END),
}
_WAIT_STATUS = re.compile(r"Work-horse terminated unexpectedly; waitpid returned (\d{1,5})\b")


def describe_death(process: str, exit_code: int, others: int = 0, because: str | None = None) -> str:
    """The reason for the runs of a dead process, from its exit code; a signal is negative. `others` is the
    number of other steps that it ran. `because` is the cause, where it is known."""
    cause = because or (_EXITED if exit_code >= 0 else _SIGNALS.get(-exit_code, _OTHER_SIGNAL))
    beside = f" with {others} other steps" if others > 0 else ""
    return f"its {process} died ({describe_exit(exit_code)}){beside}: {cause}"


def describe_exit(exit_code: int) -> str:
    return f"signal {-exit_code}" if exit_code < 0 else f"exit {exit_code}"


def describe_rq_failure(stored: str) -> str | None:
    """The reason for a job that RQ lists as failed, from the error in its result; None if it has none."""
    text = _unpack(stored)
    lines = text.split("\n") if text else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if not last:
        return None
    error, _, message = last.partition(":")
    match error.rpartition(".")[2]:
        case "DeserializationError":
            return WRONG_SERIALIZER
        case "MemoryError":
            return OUT_OF_MEMORY
        case "JobTimeoutException" | "HorseMonitorTimeoutException":
            return TIMED_OUT
        case "ValueError" if "Invalid attribute name: orchestrator.worker." in message:
            return NOT_INSTALLED
    status = _WAIT_STATUS.match(last)
    if status is not None:
        return describe_death("work-horse", os.waitstatus_to_exitcode(int(status[1])))
    return f"its job failed in RQ: {_cut(redact_text(last[:MAX_REDACTED_CHARS]))}"


def _unpack(stored: str) -> str | None:
    """The text of a stored error, without what is beyond the limit; None if it is none."""
    if len(stored) > MAX_STORED_CHARS:
        return None
    try:
        packed = b64decode(stored, validate=True)
        unpacker = zlib.decompressobj()
        unpacked = unpacker.decompress(packed, MAX_ERROR_BYTES)
    except (ValueError, zlib.error):
        return None
    return unpacked.decode(errors="replace")


def _cut(line: str) -> str:
    """A line that can be shown: without control characters, and of limited length."""
    shown = "".join(one if one.isprintable() else " " for one in line[: MAX_LINE_CHARS + 1])
    return shown if len(shown) <= MAX_LINE_CHARS else f"{shown[:MAX_LINE_CHARS]}..."
